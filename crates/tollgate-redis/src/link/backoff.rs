//! Pauses before a link connects again.
//!
//! Full jitter: a random pause below a bound that doubles, so that a fleet that lost a server does not return to it all
//! at once.

use std::time::Duration;

const FIRST_BOUND: Duration = Duration::from_millis(25);
const MAX_BOUND: Duration = Duration::from_millis(500);
/// A link that was up for less than this relapsed.
const RELAPSE_WITHIN: Duration = Duration::from_secs(1);
const RELAPSE_FIRST: Duration = Duration::from_millis(50);
const RELAPSE_MOST: Duration = Duration::from_secs(2);

/// A random duration up to `most`.
pub(crate) fn jitter(most: Duration) -> Duration {
    let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    // Without randomness there is no jitter, and nothing worse.
    let random = getrandom::u64().unwrap_or(micros);
    Duration::from_micros(random % micros.saturating_add(1).max(1))
}

/// Pauses between the connection attempts of one link.
#[derive(Debug)]
pub(crate) struct Backoff {
    bound: Duration,
    relapse: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff {
            bound: FIRST_BOUND,
            relapse: Duration::ZERO,
        }
    }

    /// The pause after a failed attempt.
    pub(crate) fn after_failure(&mut self) -> Duration {
        let wait = jitter(self.bound).max(Duration::from_millis(1));
        self.bound = (self.bound * 2).min(MAX_BOUND);
        wait
    }

    /// The pause after a link that was up for this long. It grows for a server that fails again at once, so that requests do
    /// not run into it again and again.
    pub(crate) fn after_disconnect(&mut self, up_for: Duration) -> Duration {
        self.bound = FIRST_BOUND;
        self.relapse = if up_for < RELAPSE_WITHIN {
            (self.relapse * 2).clamp(RELAPSE_FIRST, RELAPSE_MOST)
        } else {
            Duration::ZERO
        };
        self.relapse / 2 + jitter((self.relapse / 2).max(FIRST_BOUND))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_stay_bounded() {
        let mut backoff = Backoff::new();
        for _ in 0..50 {
            assert!(backoff.after_failure() <= MAX_BOUND);
        }
        assert_eq!(backoff.bound, MAX_BOUND);
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            last = backoff.after_disconnect(Duration::ZERO);
            assert!(last <= RELAPSE_MOST);
        }
        assert!(last >= RELAPSE_MOST / 2, "{last:?}");
        assert!(backoff.after_disconnect(RELAPSE_WITHIN) <= FIRST_BOUND);
        assert_eq!(backoff.bound, FIRST_BOUND);
    }

    #[test]
    fn a_fleet_does_not_come_back_at_once() {
        let waits: std::collections::HashSet<_> = (0..50).map(|_| jitter(MAX_BOUND)).collect();
        assert!(waits.len() > 40);
    }
}
