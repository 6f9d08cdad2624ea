//! The audit: was anybody admitted who should not have been?
//!
//! # Theory
//!
//! Every algorithm has a most that it can admit in a window of a given length, whatever comes and in whatever order
//! ([`most()`]). A limiter decides somewhere between the moment a request is sent and the moment its answer is there. So
//! all that a key was admitted was decided between the sending of the first of these requests and the arrival of the last
//! of these answers, and may not be more than the most of that window. Nothing has to be known about the limiter's clock
//! but that it runs as fast as ours, to within the slack that was given.
//!
//! # Invariant
//!
//! A limiter that is right, by a clock that is exact to within the slack, is never accused: the window is never shorter than the one in which it decided, and answers
//! that were lost count for nothing.
//!
//! # What it does not know
//!
//! What happened within the window. A fixed window's count may be up to one window's worth above what was allowed before
//! that shows in the sum, and a burst that is made up for later does not show. Run it for several periods of the limit.

mod most;

use tollgate::{Algorithm, Span};

pub(crate) use most::most;

/// What a limiter is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// What it is said to enforce for each key.
    pub algorithm: Algorithm,
    /// How much longer its clock may say that a window was.
    pub slack: Span,
}

/// What each key was admitted.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    keys: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    times: u64,
    /// When the first of the admitted requests was sent.
    first: u64,
    /// When the last of the admissions arrived.
    last: u64,
}

const NOTHING: Entry = Entry {
    times: 0,
    first: u64::MAX,
    last: 0,
};

/// How many of the worst keys are told.
const WORST_MAX: usize = 5;

impl Ledger {
    /// For this many keys.
    pub(crate) fn new(keys: usize) -> Ledger {
        Ledger {
            keys: vec![NOTHING; keys],
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
        }
    }

    pub(crate) fn add(&mut self, other: &Ledger) {
        for (mine, theirs) in self.keys.iter_mut().zip(&other.keys) {
            mine.times += theirs.times;
            mine.first = mine.first.min(theirs.first);
            mine.last = mine.last.max(theirs.last);
        }
    }

    #[cfg(test)]
    pub(crate) fn admitted(&self, key: usize) -> u64 {
        self.keys[key].times
    }

    /// Holds it against what was allowed; each admission took `cost`.
    pub(crate) fn audit(&self, allowance: &Allowance, cost: u64) -> Audit {
        let mut audit = Audit::default();
        for (number, entry) in self.keys.iter().enumerate().filter(|(_, e)| e.times > 0) {
            let window = entry.last.saturating_sub(entry.first);
            let slack = allowance.slack.as_nanos();
            let allowed = most(
                &allowance.algorithm,
                Span::from_nanos(window.saturating_add(slack)),
            );
            let admitted = entry.times.saturating_mul(cost);
            let over = admitted.saturating_sub(allowed);
            let finding = Finding {
                key: number as u64,
                admitted,
                allowed,
                window: Span::from_nanos(window),
            };
            audit.keys += 1;
            audit.admitted = audit.admitted.saturating_add(admitted);
            audit.allowed = audit.allowed.saturating_add(allowed);
            audit.over = audit.over.saturating_add(over);
            if audit
                .busiest
                .as_ref()
                .is_none_or(|busiest| busiest.admitted < admitted)
            {
                audit.busiest = Some(finding.clone());
            }
            if over > 0 {
                audit.keys_over += 1;
                audit.worst.push(finding);
                audit
                    .worst
                    .sort_by_key(|finding| std::cmp::Reverse(finding.over()));
                audit.worst.truncate(WORST_MAX);
            }
        }
        audit
    }
}

/// What the audit found, in units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Keys that were admitted anything.
    pub keys: u64,
    /// What they were admitted.
    pub admitted: u64,
    /// The most that they could rightly have been.
    pub allowed: u64,
    /// What was admitted beyond that, key by key. Zero, if the limiter is right.
    pub over: u64,
    /// Keys that were admitted too much.
    pub keys_over: u64,
    /// Those of them that were admitted the most too much.
    pub worst: Vec<Finding>,
    /// The key that was admitted the most.
    pub busiest: Option<Finding>,
}

/// How one key stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its number.
    pub key: u64,
    /// What it was admitted.
    pub admitted: u64,
    /// The most that it could rightly have been.
    pub allowed: u64,
    /// Between the first request that was admitted and the last answer that said so.
    pub window: Span,
}

impl Finding {
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

    fn ledger(admissions: &[(u64, u64, u64)]) -> Ledger {
        let mut ledger = Ledger::new(3);
        for (key, sent, arrived) in admissions {
            ledger.admit(*key, *sent, *arrived);
        }
        ledger
    }

    #[test]
    fn exactly_what_is_allowed_is_no_finding_and_one_more_is() {
        let mut right: Vec<(u64, u64, u64)> = (0..14).map(|n| (1, n, n + 9)).collect();
        right.push((1, SECOND - 9, SECOND));
        let audit = ledger(&right).audit(&ten_a_second(), 1);
        assert_eq!((audit.keys, audit.admitted, audit.allowed), (1, 15, 15));
        assert_eq!((audit.over, audit.keys_over), (0, 0));
        right.push((1, 5, 6));
        let audit = ledger(&right).audit(&ten_a_second(), 1);
        assert_eq!((audit.over, audit.keys_over), (1, 1));
        assert_eq!(audit.worst.len(), 1);
        assert_eq!(audit.worst[0].over(), 1);
        assert_eq!(audit.worst[0].window, Span::from_nanos(SECOND));
    }

    #[test]
    fn one_key_does_not_make_up_for_another() {
        let mut all: Vec<(u64, u64, u64)> = (0..6).map(|n| (0, n, n)).collect();
        all.push((2, 0, SECOND));
        let audit = ledger(&all).audit(&ten_a_second(), 1);
        assert_eq!((audit.keys, audit.over), (2, 1));
        assert_eq!(audit.busiest.map(|busiest| busiest.key), Some(0));
    }

    #[test]
    fn a_cost_counts_in_units_and_slack_widens_the_window() {
        let six = ledger(&[(0, 0, 0), (0, 0, 0)]);
        assert_eq!(six.audit(&ten_a_second(), 3).over, 1);
        let patient = Allowance {
            slack: Span::from_millis(100),
            ..ten_a_second()
        };
        assert_eq!(six.audit(&patient, 3).over, 0);
    }

    #[test]
    fn what_two_threads_saw_of_a_key_is_put_together() {
        let mut one = ledger(&[(0, 50, 60), (1, 5, 6)]);
        one.add(&ledger(&[(0, 40, 55), (0, 70, 90)]));
        let audit = one.audit(&ten_a_second(), 1);
        let busiest = audit.busiest.unwrap();
        assert_eq!(
            (busiest.admitted, busiest.window),
            (3, Span::from_nanos(50))
        );
    }

    #[test]
    fn only_the_worst_are_told_by_name() {
        let mut many = Ledger::new(100);
        for key in 0..100 {
            (0..6 + key).for_each(|_| many.admit(key, 0, 0));
        }
        let audit = many.audit(&ten_a_second(), 1);
        assert_eq!(audit.keys_over, 100);
        let keys: Vec<u64> = audit.worst.iter().map(|finding| finding.key).collect();
        assert_eq!(keys, [99, 98, 97, 96, 95]);
    }
}
