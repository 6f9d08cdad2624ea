//! The backoffs that servers have requested, by destination.
//!
//! # Invariant
//!
//! A destination is kept only while it backs off or spreads its requests. There are never more than [`MAX_DESTINATIONS`];
//! beyond that the one that ends first is removed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{Moment, Span};

use super::hint::RateLimitHint;

pub(super) const MAX_DESTINATIONS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Backoffs {
    by_destination: Mutex<HashMap<String, Backoff>>,
    /// The number of entries: no lock is taken while there are none. Relaxed: missing an entry that is being added sends a
    /// request that was on its way anyhow.
    count: AtomicUsize,
}

/// The backoff of one destination.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    /// No request before this.
    until: Moment,
    /// Spread requests: the earliest next one, the interval, and when spreading ends.
    next_at: Moment,
    interval: Span,
    spread_until: Moment,
}

impl Backoff {
    fn opens(&self) -> Moment {
        self.until.max(self.next_at)
    }

    fn ends(&self) -> Moment {
        self.opens().max(self.spread_until)
    }
}

impl Backoffs {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Backoff>> {
        let guard = self.by_destination.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    /// How long until a request may be sent. Changes nothing.
    pub(super) fn wait(&self, destination: &str, now: Moment) -> Span {
        if self.count.load(Relaxed) == 0 {
            return Span::ZERO;
        }
        let backoffs = self.lock();
        let backoff = backoffs.get(destination);
        backoff.map_or(Span::ZERO, |backoff| backoff.opens().since(now))
    }

    /// Records that a request is sent.
    ///
    /// # Errors
    /// How long it has to wait; nothing is recorded then.
    pub(super) fn send(&self, destination: &str, now: Moment) -> Result<(), Span> {
        if self.count.load(Relaxed) == 0 {
            return Ok(());
        }
        let mut backoffs = self.lock();
        let Some(backoff) = backoffs.get_mut(destination) else {
            return Ok(());
        };
        let wait = backoff.opens().since(now);
        if !wait.is_zero() {
            return Err(wait);
        }
        if now < backoff.spread_until {
            backoff.next_at = now.plus(backoff.interval);
        } else {
            backoffs.remove(destination);
            self.count.store(backoffs.len(), Relaxed);
        }
        Ok(())
    }

    /// Records the hint of a response. It never shortens an earlier backoff; it replaces an earlier spread.
    pub(super) fn record(
        &self,
        destination: &str,
        now: Moment,
        hint: RateLimitHint,
        max_backoff: Span,
    ) {
        if hint == RateLimitHint::default() && self.count.load(Relaxed) == 0 {
            return;
        }
        let mut backoffs = self.lock();
        let known = backoffs.get(destination).copied();
        let until = now.plus(hint.backoff.min(max_backoff));
        let mut backoff = Backoff {
            until: known.map_or(until, |known| until.max(known.until)),
            ..Backoff::default()
        };
        if let Some(spread) = hint.spread {
            backoff.interval = spread.interval.min(max_backoff);
            backoff.next_at = now.plus(backoff.interval);
            backoff.spread_until = now.plus(spread.period.min(max_backoff));
        }
        if backoff.ends() <= now {
            backoffs.remove(destination);
        } else {
            if known.is_none() && backoffs.len() >= MAX_DESTINATIONS {
                make_room(&mut backoffs, now);
            }
            backoffs.insert(destination.to_owned(), backoff);
        }
        self.count.store(backoffs.len(), Relaxed);
    }
}

#[cold]
fn make_room(backoffs: &mut HashMap<String, Backoff>, now: Moment) {
    backoffs.retain(|_, backoff| backoff.ends() > now);
    if backoffs.len() >= MAX_DESTINATIONS {
        let first = backoffs.iter().min_by_key(|(_, backoff)| backoff.ends());
        if let Some(first) = first.map(|(name, _)| name.clone()) {
            backoffs.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hint::Spread;
    use super::*;

    const MAX_BACKOFF: Span = Span::from_secs(60);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn backoff(seconds: u64) -> RateLimitHint {
        RateLimitHint {
            backoff: Span::from_secs(seconds),
            spread: None,
        }
    }

    #[test]
    fn a_backoff_ends_by_itself_and_is_removed() {
        let backoffs = Backoffs::default();
        assert_eq!(backoffs.send("a", at(0)), Ok(()));
        backoffs.record("a", at(0), backoff(5), MAX_BACKOFF);
        assert_eq!(backoffs.send("a", at(1000)), Err(Span::from_secs(4)));
        assert_eq!(backoffs.send("b", at(1000)), Ok(()));
        // Neither a response without a hint nor one with a shorter backoff ends it.
        backoffs.record("a", at(1000), RateLimitHint::default(), MAX_BACKOFF);
        backoffs.record("a", at(1000), backoff(1), MAX_BACKOFF);
        assert_eq!(backoffs.wait("a", at(2000)), Span::from_secs(3));
        assert_eq!(backoffs.send("a", at(5000)), Ok(()));
        assert_eq!(backoffs.lock().len(), 0);
    }

    #[test]
    fn no_backoff_exceeds_the_maximum() {
        let backoffs = Backoffs::default();
        backoffs.record("a", at(0), backoff(1_000_000_000), MAX_BACKOFF);
        assert_eq!(backoffs.wait("a", at(0)), MAX_BACKOFF);
    }

    #[test]
    fn spread_requests_go_one_at_a_time_until_the_next_hint() {
        let backoffs = Backoffs::default();
        let few = RateLimitHint {
            backoff: Span::ZERO,
            spread: Some(Spread {
                interval: Span::from_millis(500),
                period: Span::from_secs(2),
            }),
        };
        backoffs.record("a", at(0), few, MAX_BACKOFF);
        let half = Span::from_millis(500);
        assert_eq!(backoffs.send("a", at(0)), Err(half));
        assert_eq!(backoffs.send("a", at(500)), Ok(()));
        assert_eq!(backoffs.send("a", at(500)), Err(half));
        assert_eq!(backoffs.send("a", at(1000)), Ok(()));
        backoffs.record("a", at(1100), RateLimitHint::default(), MAX_BACKOFF);
        assert_eq!(backoffs.send("a", at(1100)), Ok(()));
        assert_eq!(backoffs.send("a", at(1100)), Ok(()));
    }

    #[test]
    fn the_number_of_destinations_is_bounded_and_the_longest_backoffs_stay() {
        let backoffs = Backoffs::default();
        for number in 0..3 * MAX_DESTINATIONS {
            let seconds = 1 + number as u64 % 50;
            backoffs.record(&number.to_string(), at(0), backoff(seconds), MAX_BACKOFF);
            assert!(backoffs.lock().len() <= MAX_DESTINATIONS);
        }
        let is_long = |backoff: &&Backoff| backoff.ends() >= at(40_000);
        let kept = backoffs.lock().values().filter(is_long).count();
        assert!(kept > MAX_DESTINATIONS / 2, "{kept}");
    }
}
