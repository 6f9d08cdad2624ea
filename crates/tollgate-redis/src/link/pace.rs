//! How long to wait before a server is tried again.
//!
//! Full jitter: anything between nothing and a bound that doubles, so that a fleet that lost one server does not come
//! back to it all at once.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(25);
const MOST: Duration = Duration::from_millis(500);
/// A link that was up for less than this has relapsed.
const RELAPSED: Duration = Duration::from_secs(1);
const RELAPSE_FIRST: Duration = Duration::from_millis(50);
const RELAPSE_MOST: Duration = Duration::from_secs(2);

/// Anything up to `most`.
pub(crate) fn jitter(most: Duration) -> Duration {
    let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    // Without randomness there is no jitter, and nothing worse.
    let random = getrandom::u64().unwrap_or(micros);
    Duration::from_micros(random % micros.saturating_add(1).max(1))
}

/// The bounds of one link's waits.
#[derive(Debug)]
pub(crate) struct Pace {
    bound: Duration,
    relapse: Duration,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace {
            bound: FIRST,
            relapse: Duration::ZERO,
        }
    }

    /// Before the next try, after one that failed.
    pub(crate) fn after_failure(&mut self) -> Duration {
        let wait = jitter(self.bound).max(Duration::from_millis(1));
        self.bound = (self.bound * 2).min(MOST);
        wait
    }

    /// Before the first try, after a link that was up for so long. A server that fails again as soon as it is asked
    /// is left alone for longer each time, so that requests do not run into it by turns.
    pub(crate) fn after_up(&mut self, up_for: Duration) -> Duration {
        self.bound = FIRST;
        self.relapse = if up_for < RELAPSED {
            (self.relapse * 2).clamp(RELAPSE_FIRST, RELAPSE_MOST)
        } else {
            Duration::ZERO
        };
        self.relapse / 2 + jitter((self.relapse / 2).max(FIRST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_stay_bounded() {
        let mut pace = Pace::new();
        for _ in 0..50 {
            assert!(pace.after_failure() <= MOST);
        }
        assert_eq!(pace.bound, MOST);
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            last = pace.after_up(Duration::ZERO);
            assert!(last <= RELAPSE_MOST);
        }
        assert!(last >= RELAPSE_MOST / 2, "{last:?}");
        assert!(pace.after_up(RELAPSED) <= FIRST);
        assert_eq!(pace.bound, FIRST);
    }

    #[test]
    fn a_fleet_does_not_come_back_at_once() {
        let waits: std::collections::HashSet<_> = (0..50).map(|_| jitter(MOST)).collect();
        assert!(waits.len() > 40);
    }
}
