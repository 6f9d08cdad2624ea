//! Counts decisions, and samples refusals.
//!
//! # Theory
//!
//! A request that passes costs two or three additions to counters of this thread. Only a refusal reads the key, and only if
//! no other thread is recording one: a flood of refusals is sampled, not queued.
//!
//! An admitted request counts for every enforced limit that it charged, a refused one for the limit that refused it. So
//! the refusals of a limit are its own, and the sum of its counters is the number of requests it decided.

use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollgate::{Limit, Origin, Rate, UnkeyedLimiter, Verdict};
use tollgate_policy::{Observed, PolicyDecision, Privacy, Reason, Role};

use super::top::{MAX_KEY_BYTES, Top, TopKey, printable};
use super::{ActivePolicy, Engine, Protocol, locked};
use crate::metrics::{LimitOutcome, Rls, WithoutLimit};
use crate::names;

/// Log lines about refusals per second.
const LINES_PER_SECOND: NonZeroU64 = NonZeroU64::new(10).unwrap();

/// The most refused keys, and the rate limit of log lines about refusals.
#[derive(Debug)]
pub(super) struct Refusals {
    top: Mutex<Top>,
    /// Refusals that were not recorded because another thread was recording one.
    unsampled: AtomicU64,
    lines: Option<UnkeyedLimiter>,
    /// Lines suppressed since the last one.
    suppressed: AtomicU64,
}

impl Refusals {
    pub(super) fn new() -> Refusals {
        let limit =
            Limit::token_bucket(Rate::per_second(LINES_PER_SECOND), LINES_PER_SECOND.get()).ok();
        Refusals {
            top: Mutex::default(),
            unsampled: AtomicU64::new(0),
            lines: limit.and_then(|limit| UnkeyedLimiter::new(limit).ok()),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Removes all keys: a new policy may hide them.
    pub(super) fn clear(&self) {
        locked(&self.top).clear();
    }

    /// If a line may be logged: how many were suppressed before it.
    fn log_line(&self) -> Option<u64> {
        if self.lines.as_ref()?.check().is_admitted() {
            return Some(self.suppressed.swap(0, Relaxed));
        }
        self.suppressed.fetch_add(1, Relaxed);
        None
    }
}

impl Engine {
    /// Counts a decision and, if it is a refusal, samples its key.
    pub(super) fn observe(
        &self,
        policy: &ActivePolicy,
        protocol: Protocol,
        observed: &Observed<'_>,
    ) {
        let answer = observed.answer;
        self.metrics.duration.record(observed.took.into());
        self.count(policy, protocol, answer);
        if !answer.is_admitted() {
            self.sample(policy, protocol, observed);
        }
    }

    /// Counts events of Envoy's rate limit service.
    pub(crate) fn count_rls(&self, event: Rls, times: u64) {
        if times > 0 {
            self.metrics.rls.add(event as usize, times);
        }
    }

    /// The most refused keys, and how many refusals were not sampled.
    pub fn top_refused(&self) -> (Vec<TopKey>, u64) {
        let list = locked(&self.refusals.top).list();
        (list, self.refusals.unsampled.load(Relaxed))
    }

    fn count(&self, policy: &ActivePolicy, protocol: Protocol, answer: &PolicyDecision) {
        let add = |rule: usize, outcome| {
            if let Some(counters) = policy.handles.rules.get(rule) {
                counters.add(protocol, outcome);
            }
        };
        let outcome = match answer.verdict {
            Verdict::Pass => LimitOutcome::Pass,
            Verdict::Wait { .. } => LimitOutcome::Wait,
            Verdict::Refuse { .. } => LimitOutcome::Refuse,
            Verdict::Never => LimitOutcome::Never,
        };
        let admitted = answer.is_admitted();
        match answer.origin {
            Origin::Leased => self.metrics.leased.add(answer.verdict),
            Origin::Degraded => {
                self.metrics.degraded.add(answer.verdict);
                let at = super::seconds(answer.issued);
                // Once a second is enough.
                if self.metrics.degraded_at.load(Relaxed) != at {
                    self.metrics.degraded_at.store(at, Relaxed);
                }
            }
            _ => {}
        }
        if !admitted && let Some(charge) = answer.binding().filter(|c| c.role == Role::Enforced) {
            add(charge.rule, outcome);
        }
        // A peak is part of the limit before it.
        for charge in answer.charges.iter().filter(|charge| !charge.is_peak) {
            let would_refuse = !charge.verdict.is_admitted();
            match charge.role {
                Role::Enforced if admitted => add(charge.rule, outcome),
                Role::Unlimited if admitted => add(charge.rule, LimitOutcome::Unlimited),
                Role::Shadow if would_refuse => add(charge.rule, LimitOutcome::Shadow),
                Role::Candidate if would_refuse => add(charge.rule, LimitOutcome::Candidate),
                _ => {}
            }
        }
        let without = |reason: WithoutLimit| self.metrics.without_limit.add(reason as usize, 1);
        match answer.reason {
            Reason::MissingKey(rule) => add(rule, LimitOutcome::MissingKey),
            Reason::Blocked(rule) => add(rule, LimitOutcome::Blocked),
            Reason::StoreError(rule) if !admitted => add(rule, LimitOutcome::StoreError),
            Reason::DenyList(at) => {
                if let Some((_, counter)) = policy.handles.denied.get(at) {
                    counter.add(0, 1);
                }
            }
            Reason::Unmatched => without(WithoutLimit::Unmatched),
            Reason::OnlyCounted => without(WithoutLimit::OnlyCounted),
            Reason::AllowList(_) => without(WithoutLimit::AllowList),
            Reason::SwitchedOff => without(WithoutLimit::SwitchedOff),
            Reason::Path(_) => without(WithoutLimit::Path),
            Reason::TooManyLimits => without(WithoutLimit::TooManyLimits),
            // `Charge` was counted above; an unknown reason has no counter.
            _ => {}
        }
    }

    fn sample(&self, policy: &ActivePolicy, protocol: Protocol, observed: &Observed<'_>) {
        let answer = observed.answer;
        let rule = match answer.reason {
            Reason::Charge(at) => answer.charges.get(at).map(|charge| charge.rule),
            Reason::Blocked(rule) => Some(rule),
            _ => None,
        };
        let Some((rule, counters)) = rule.and_then(|at| Some((at, policy.handles.rules.get(at)?)))
        else {
            return;
        };
        let line = match tracing::enabled!(target: "tollgate::refused", tracing::Level::INFO) {
            true => self.refusals.log_line(),
            false => None,
        };
        let top = self.refusals.top.try_lock();
        if top.is_err() {
            self.refusals.unsampled.fetch_add(1, Relaxed);
            if line.is_none() {
                return;
            }
        }
        // Read from the policy that is active now, under the lock: a policy that hides keys clears the list, and no plain key
        // may be added afterwards.
        let privacy = self.active().gate.policy().privacy;
        let Some(key) = observed
            .key(rule)
            .map(|key| self.printable_key(key, privacy))
        else {
            return;
        };
        if let Ok(mut top) = top {
            top.record(&counters.name, &key, answer.issued);
        }
        if let Some(suppressed) = line {
            let is_plain = privacy == Privacy::Plain;
            let request = observed.request().filter(|_| is_plain);
            let client = request.as_ref().and_then(|request| request.client);
            tracing::info!(
                target: "tollgate::refused",
                limit = &*counters.name,
                verdict = names::verdict(answer.verdict),
                reason = names::reason(answer.reason),
                protocol = protocol.name(),
                key = ?key,
                method = request.as_ref().map(|request| &*request.method),
                path = request.as_ref().map(|request| &*request.path),
                client = client.map(tracing::field::display),
                suppressed,
                "request refused"
            );
        }
    }

    /// A key for logs and listings: cut to a bounded length and without control characters, or hashed.
    pub(crate) fn printable_key(&self, key: Vec<String>, privacy: Privacy) -> Vec<String> {
        match privacy {
            Privacy::Plain => {
                let mut room = MAX_KEY_BYTES;
                let part = |part: String| {
                    let part = printable(&part, room);
                    room -= part.len();
                    part
                };
                key.into_iter().map(part).collect()
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
    fn decision_times_are_summed_and_counted_in_buckets() {
        let engine = for_tests("default: pass\nlimits: []\n");
        let durations = [3, 3, 3, 3, 3, 2_000];
        for micros in durations {
            let took = Duration::from_micros(micros);
            engine.metrics.duration.record(took);
        }
        let text = engine.metrics();
        for line in [
            "tollgate_decision_duration_seconds_count 6",
            "tollgate_decision_duration_seconds_sum 0.002015",
            "tollgate_decision_duration_seconds_bucket{le=\"0.000005\"} 5",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
