//! What is counted of a decision, and who is told about a refusal.
//!
//! # Theory
//!
//! A pass costs two or three additions to memory that is this thread's own. Only a refusal looks at the
//! key, and only if nobody else is just noting one: a flood of refusals is sampled, not queued.
//!
//! What a limit is counted for: of an admitted request, every enforced limit that was charged; of a
//! refused one, the limit that refused it. So the refusals of a limit are its own, and all its numbers
//! together are the requests it decided.

use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate::{Limit, Origin, Rate, Single, Verdict};
use tollgate_policy::{Answer, Basis, Observed, Privacy, Role};

use super::top::{KEY_BYTES, Top, TopKey, shown};
use super::{Door, Engine, Epoch, locked};
use crate::metrics::{Counted, Rls, Unasked, Undecided};

/// Lines about refusals, a second.
const LINES: NonZeroU64 = NonZeroU64::new(10).unwrap();

/// Who is refused, and what is said about it.
#[derive(Debug)]
pub(super) struct Refusals {
    top: Mutex<Top>,
    /// Refusals that were not noted because another was just being noted.
    missed: AtomicU64,
    lines: Option<Single>,
    /// Lines that were not written since the last that was.
    suppressed: AtomicU64,
}

impl Refusals {
    pub(super) fn new() -> Refusals {
        let limit = Limit::token_bucket(Rate::per_second(LINES), LINES.get()).ok();
        Refusals {
            top: Mutex::default(),
            missed: AtomicU64::new(0),
            lines: limit.and_then(|limit| Single::new(limit).ok()),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Forgets everybody: what was kept may not be shown any more.
    pub(super) fn forget(&self) {
        locked(&self.top).clear();
    }

    /// May a line be written, and how many were not before it?
    fn line(&self) -> Option<u64> {
        if self.lines.as_ref()?.check().is_admitted() {
            return Some(self.suppressed.swap(0, Relaxed));
        }
        self.suppressed.fetch_add(1, Relaxed);
        None
    }
}

impl Engine {
    /// Counts a decision and, if it is a refusal, samples its key.
    pub(super) fn observe(&self, epoch: &Epoch, door: Door, observed: &Observed<'_>) {
        let answer = observed.answer;
        self.count(epoch, door, answer, observed.took.into());
        if !answer.is_admitted() {
            self.note(epoch, door, answer, |rule| observed.key(rule));
        }
    }

    /// Counts what only Envoy's door can meet.
    pub(crate) fn count_rls(&self, what: Rls, times: u64) {
        if times > 0 {
            self.metrics.rls.add(what as usize, times);
        }
    }

    /// Who is refused most, and how many refusals were not looked at.
    pub fn top_refused(&self) -> (Vec<TopKey>, u64) {
        let list = locked(&self.refusals.top).list();
        (list, self.refusals.missed.load(Relaxed))
    }

    fn count(&self, epoch: &Epoch, door: Door, answer: &Answer, took: Duration) {
        self.metrics.duration.record(took);
        let add = |rule: usize, what| {
            if let Some(counters) = epoch.handles.rules.get(rule) {
                counters.add(door, what);
            }
        };
        let verdict = match answer.verdict {
            Verdict::Pass => Counted::Admitted,
            Verdict::Wait { .. } => Counted::Delayed,
            Verdict::Refuse { .. } => Counted::Refused,
            Verdict::Never => Counted::Never,
        };
        let admitted = answer.is_admitted();
        let unasked = if admitted {
            Unasked::Admitted
        } else {
            Unasked::Refused
        };
        if answer.origin == Origin::Leased {
            self.metrics.leased.add(unasked as usize, 1);
        }
        if answer.origin == Origin::Degraded {
            self.metrics.degraded.add(unasked as usize, 1);
            let at = super::seconds(answer.issued);
            // Not written for every one of them: once a second is enough.
            if self.metrics.degraded_at.load(Relaxed) != at {
                self.metrics.degraded_at.store(at, Relaxed);
            }
        }
        if !admitted && let Some(charge) = answer.binding().filter(|c| c.role == Role::Enforced) {
            add(charge.rule, verdict);
        }
        // A peak is part of the limit before it.
        for charge in answer.charges.iter().filter(|charge| !charge.is_peak) {
            let would_refuse = !charge.verdict.is_admitted();
            match charge.role {
                Role::Enforced if admitted => add(charge.rule, verdict),
                Role::Unlimited if admitted => add(charge.rule, Counted::Unlimited),
                Role::Shadow if would_refuse => add(charge.rule, Counted::Shadow),
                Role::Candidate if would_refuse => add(charge.rule, Counted::Candidate),
                _ => {}
            }
        }
        let without = |basis: Undecided| self.metrics.undecided.add(basis as usize, 1);
        match answer.basis {
            Basis::MissingKey(rule) => add(rule, Counted::MissingKey),
            Basis::Blocked(rule) => add(rule, Counted::Blocked),
            Basis::StoreError(rule) if !admitted => add(rule, Counted::Refused),
            Basis::DenyList(at) => {
                if let Some((_, counter)) = epoch.handles.denied.get(at) {
                    counter.add(0, 1);
                }
            }
            Basis::Unmatched => without(Undecided::Unmatched),
            Basis::AllowList(_) => without(Undecided::AllowList),
            Basis::SwitchedOff => without(Undecided::SwitchedOff),
            Basis::Path(_) => without(Undecided::BadPath),
            Basis::TooManyLimits => without(Undecided::TooManyLimits),
            // `Charge` was counted above; a basis that is not known yet has no name to be counted by.
            _ => {}
        }
    }

    fn note(
        &self,
        epoch: &Epoch,
        door: Door,
        answer: &Answer,
        key: impl Fn(usize) -> Option<Vec<String>>,
    ) {
        let rule = match answer.basis {
            Basis::Charge(at) => answer.charges.get(at).map(|charge| charge.rule),
            Basis::Blocked(rule) => Some(rule),
            _ => None,
        };
        let Some((rule, counters)) = rule.and_then(|at| Some((at, epoch.handles.rules.get(at)?)))
        else {
            return;
        };
        let line = match tracing::enabled!(target: "tollgate::refused", tracing::Level::INFO) {
            true => self.refusals.line(),
            false => None,
        };
        let top = self.refusals.top.try_lock();
        if top.is_err() {
            self.refusals.missed.fetch_add(1, Relaxed);
            if line.is_none() {
                return;
            }
        }
        // Asked of the policy in force now, under the lock: whoever forbids keys to be shown forgets those
        // that were kept, and none may come after.
        let privacy = self.epoch().gate.policy().privacy;
        let Some(key) = key(rule).map(|key| self.showable(key, privacy)) else {
            return;
        };
        if let Ok(mut top) = top {
            top.note(&counters.name, &key, answer.issued);
        }
        if let Some(suppressed) = line {
            tracing::info!(
                target: "tollgate::refused",
                limit = &*counters.name,
                door = door.name(),
                key = ?key,
                suppressed,
                "refused"
            );
        }
    }

    /// A key as it may be shown: cut to a bounded length and free of control characters, or hashed.
    pub(crate) fn showable(&self, key: Vec<String>, privacy: Privacy) -> Vec<String> {
        match privacy {
            Privacy::Plain => {
                let mut room = KEY_BYTES;
                let shorten = |part: String| {
                    let part = shown(&part, room);
                    room -= part.len();
                    part
                };
                key.into_iter().map(shorten).collect()
            }
            Privacy::Hashed => {
                let mut hasher = blake3::Hasher::new_keyed(&self.secret);
                for part in &key {
                    // With its length in front, so that no two keys are the same bytes.
                    hasher.update(&(part.len() as u64).to_le_bytes());
                    hasher.update(part.as_bytes());
                }
                let mut hash = hasher.finalize().to_hex().to_string();
                hash.truncate(32);
                vec![hash]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::engine::for_tests;

    #[test]
    fn what_decisions_took_is_summed_and_counted_by_buckets() {
        let engine = for_tests("default: pass\nlimits: []\n");
        let durations = [3, 3, 3, 3, 3, 2_000];
        for micros in durations {
            let took = Duration::from_micros(micros);
            engine.metrics.duration.record(took);
        }
        let text = engine.metrics();
        for line in [
            "tollgate_decision_duration_seconds_count 6",
            "tollgate_decision_duration_seconds_sum 0.002015000",
            "tollgate_decision_duration_seconds_bucket{le=\"0.000005\"} 5",
        ] {
            assert!(text.lines().any(|told| told == line), "{line}\n{text}");
        }
    }
}
