//! The audit: whether a limiter admitted more than it may.
//!
//! # Theory
//!
//! Every algorithm has a most that it can admit in a window of a given length, whatever comes and in whatever order
//! (`most()`). A limiter decides somewhere between the moment a request is sent and the moment its answer is there. So
//! all requests of a key that were sent after some moment and whose admissions were there before another were decided between
//! the two, and may not be more than the most of that window. Nothing has to be known about the limiter's clock
//! but that it runs as fast as ours, to within the slack that was given.
//!
//! Two kinds of windows are looked at for each key: the whole run, and every stretch of a few lengths ([`windows`]). The first
//! finds a limiter that admits a little too much all the time, the second one that admits too much at once and less later.
//!
//! # Invariant
//!
//! A limiter that is right, by a clock that is exact to within the slack, is never accused: the window is never shorter than the one in which it decided, and answers
//! that were lost count for nothing.
//!
//! # What it does not know
//!
//! Which of the windows of a clock a decision fell into: a fixed window's count may be up to one window's worth above what was
//! allowed before that shows. Run it for several periods of the limit.

mod bounds;
mod windows;

use tollgate::{Algorithm, Span};

pub(crate) use bounds::max_admitted;
use windows::WindowScan;

/// What a limiter may admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The limit that it enforces for each key.
    pub algorithm: Algorithm,
    /// How much longer a window may be by its clock.
    pub slack: Span,
}

/// The admissions of all keys.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionLog {
    keys: Vec<KeyCounts>,
    /// Single admissions, as far as there is room.
    each: Vec<AdmittedRequest>,
    room: usize,
}

/// One admission: decided between the two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AdmittedRequest {
    key: u32,
    sent: u64,
    arrived: u64,
}

#[derive(Clone, Copy, Debug)]
struct KeyCounts {
    times: u64,
    /// When the first of the admitted requests was sent.
    first: u64,
    /// When the last of the admissions arrived.
    last: u64,
}

const NO_ADMISSIONS: KeyCounts = KeyCounts {
    times: 0,
    first: u64::MAX,
    last: 0,
};

/// How many of the worst keys are reported.
const WORST_MAX: usize = 5;

/// Admissions that are looked at one by one, in all threads together: 24 bytes each.
pub(crate) const MAX_ADMISSIONS: usize = 8_000_000;

impl AdmissionLog {
    /// For this many keys, with room for this many single admissions.
    pub(crate) fn new(keys: usize, room: usize) -> AdmissionLog {
        AdmissionLog {
            keys: vec![NO_ADMISSIONS; keys],
            each: Vec::new(),
            room,
        }
    }

    pub(crate) fn admit(&mut self, key: u64, sent: u64, arrived: u64) {
        let entry = usize::try_from(key)
            .ok()
            .and_then(|key| self.keys.get_mut(key));
        if let Some(entry) = entry {
            entry.times += 1;
            entry.first = entry.first.min(sent);
            entry.last = entry.last.max(arrived);
            if self.each.len() < self.room
                && let Ok(key) = u32::try_from(key)
            {
                self.each.push(AdmittedRequest { key, sent, arrived });
            }
        }
    }

    pub(crate) fn add(&mut self, other: AdmissionLog) {
        for (mine, theirs) in self.keys.iter_mut().zip(&other.keys) {
            mine.times += theirs.times;
            mine.first = mine.first.min(theirs.first);
            mine.last = mine.last.max(theirs.last);
        }
        self.each.extend(other.each);
    }

    #[cfg(test)]
    pub(crate) fn admitted(&self, key: usize) -> u64 {
        self.keys[key].times
    }

    /// Compares the admissions with the allowance; each took `cost`.
    pub(crate) fn audit(mut self, allowance: &Allowance, cost: u64) -> Audit {
        self.each.sort_unstable();
        let mut audit = Audit {
            looked_at: self.each.len() as u64,
            ..Audit::default()
        };
        let run = self.keys.iter().map(|entry| entry.last).max().unwrap_or(0);
        let mut windows = WindowScan::new(allowance, cost, run);
        let mut each = self.each.as_slice();
        for (number, entry) in self.keys.iter().enumerate().filter(|(_, e)| e.times > 0) {
            let key = number as u64;
            let own = each.partition_point(|admission| u64::from(admission.key) <= key);
            let (own, others) = each.split_at_checked(own).unwrap_or_default();
            each = others;
            let whole =
                AuditFinding::new(allowance, key, (entry.first, entry.last), entry.times, cost);
            let in_stretch = windows.worst(key, own);
            audit.add(whole, in_stretch);
        }
        audit
    }
}

/// The result of an audit, in units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Keys with at least one admission.
    pub keys: u64,
    /// Units admitted.
    pub admitted: u64,
    /// The most that was allowed.
    pub allowed: u64,
    /// What was admitted beyond the bound, of each key in the window that it was worst in. Zero, if the limiter is right.
    pub over: u64,
    /// Keys with over-admission.
    pub keys_over: u64,
    /// Those of them that were admitted the most too much.
    pub worst: Vec<AuditFinding>,
    /// The key that was admitted the most.
    pub busiest: Option<AuditFinding>,
    /// Admissions that were looked at one by one, in windows of the run: all, unless there were too many to keep.
    pub looked_at: u64,
}

impl Audit {
    /// Adds a key: its whole run, and its worst window if one exceeds its bound.
    fn add(&mut self, whole: AuditFinding, in_stretch: Option<AuditFinding>) {
        self.keys += 1;
        self.admitted = self.admitted.saturating_add(whole.admitted);
        self.allowed = self.allowed.saturating_add(whole.allowed);
        let is_busier = |busiest: &AuditFinding| busiest.admitted < whole.admitted;
        if self.busiest.as_ref().is_none_or(is_busier) {
            self.busiest = Some(whole.clone());
        }
        let worst = match in_stretch {
            Some(stretch) if stretch.over() > whole.over() => stretch,
            _ => whole,
        };
        if worst.over() == 0 {
            return;
        }
        self.over = self.over.saturating_add(worst.over());
        self.keys_over += 1;
        self.worst.push(worst);
        self.worst
            .sort_by_key(|finding| std::cmp::Reverse(finding.over()));
        self.worst.truncate(WORST_MAX);
    }
}

/// The admissions of one key in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFinding {
    /// The number of the key.
    pub key: u64,
    /// Units admitted.
    pub admitted: u64,
    /// The most that it could rightly have been.
    pub allowed: u64,
    /// From the first admitted request to the last response that admitted one.
    pub window: Span,
    /// When that window began, since the tool did.
    pub from: Span,
}

impl AuditFinding {
    /// Admissions that were decided between two moments.
    fn new(
        allowance: &Allowance,
        key: u64,
        (first, last): (u64, u64),
        times: u64,
        cost: u64,
    ) -> AuditFinding {
        let window = last.saturating_sub(first);
        let slack = allowance.slack.as_nanos();
        let within = Span::from_nanos(window.saturating_add(slack));
        AuditFinding {
            key,
            admitted: times.saturating_mul(cost),
            allowed: max_admitted(&allowance.algorithm, within),
            window: Span::from_nanos(window),
            from: Span::from_nanos(first),
        }
    }

    /// What was admitted beyond what was allowed.
    pub fn over(&self) -> u64 {
        self.admitted.saturating_sub(self.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ten_a_second() -> Allowance {
        Allowance {
            algorithm: Algorithm::TokenBucket {
                rate: "10/s".parse().unwrap(),
                burst: 5,
            },
            slack: Span::ZERO,
        }
    }

    fn log(admissions: &[(u64, u64, u64)]) -> AdmissionLog {
        let mut log = AdmissionLog::new(3, 1000);
        for (key, sent, arrived) in admissions {
            log.admit(*key, *sent, *arrived);
        }
        log
    }

    #[test]
    fn exactly_what_is_allowed_is_no_finding_and_one_more_is() {
        // Five at once, and then one for each tenth of a second.
        let mut right: Vec<(u64, u64, u64)> = (0..5).map(|n| (1, n, n + 9)).collect();
        right.extend((1..=10).map(|n| (1, n * SECOND / 10 - 9, n * SECOND / 10)));
        let audit = log(&right).audit(&ten_a_second(), 1);
        assert_eq!((audit.keys, audit.admitted, audit.allowed), (1, 15, 15));
        assert_eq!((audit.over, audit.keys_over), (0, 0));
        right.push((1, 5, 6));
        let audit = log(&right).audit(&ten_a_second(), 1);
        assert_eq!((audit.over, audit.keys_over), (1, 1));
        assert_eq!(audit.worst.len(), 1);
        assert_eq!(audit.worst[0].over(), 1);
        assert_eq!(audit.worst[0].window, Span::from_nanos(SECOND));
    }

    #[test]
    fn one_key_does_not_make_up_for_another() {
        let mut all: Vec<(u64, u64, u64)> = (0..6).map(|n| (0, n, n)).collect();
        all.push((2, 0, SECOND));
        let audit = log(&all).audit(&ten_a_second(), 1);
        assert_eq!((audit.keys, audit.over), (2, 1));
        assert_eq!(audit.busiest.map(|busiest| busiest.key), Some(0));
    }

    #[test]
    fn a_cost_counts_in_units_and_slack_widens_the_window() {
        let six = log(&[(0, 0, 0), (0, 0, 0)]);
        assert_eq!(six.clone().audit(&ten_a_second(), 3).over, 1);
        let lenient = Allowance {
            slack: Span::from_millis(100),
            ..ten_a_second()
        };
        assert_eq!(six.audit(&lenient, 3).over, 0);
    }

    #[test]
    fn what_two_threads_saw_of_a_key_is_put_together() {
        let mut one = log(&[(0, 50, 60), (1, 5, 6)]);
        one.add(log(&[(0, 40, 55), (0, 70, 90)]));
        let audit = one.audit(&ten_a_second(), 1);
        let busiest = audit.busiest.unwrap();
        assert_eq!(
            (busiest.admitted, busiest.window),
            (3, Span::from_nanos(50))
        );
    }

    #[test]
    fn only_the_worst_keys_are_reported() {
        let mut many = AdmissionLog::new(100, 10_000);
        for key in 0..100 {
            (0..6 + key).for_each(|_| many.admit(key, 0, 0));
        }
        let audit = many.audit(&ten_a_second(), 1);
        assert_eq!(audit.keys_over, 100);
        let keys: Vec<u64> = audit.worst.iter().map(|finding| finding.key).collect();
        assert_eq!(keys, [99, 98, 97, 96, 95]);
    }
}
