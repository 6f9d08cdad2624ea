//! What servers have said, by destination.
//!
//! # Invariant
//!
//! A destination is remembered only while it is held or spread, and there are never more than
//! [`MOST`]; if there are, the one that is over soonest is forgotten.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{Moment, Span};

use super::hint::Hint;

/// Destinations that are remembered at once.
pub(super) const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Holds {
    holds: Mutex<HashMap<String, Hold>>,
    /// How many there are, so that nobody takes the lock while there are none. Relaxed: who misses one
    /// that is added right now sends a request that was on its way anyhow.
    count: AtomicUsize,
}

/// What is remembered of one destination.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    /// Nothing goes before.
    held_until: Moment,
    /// Because they are spread, the next one goes then at the earliest,
    next_at: Moment,
    /// and the ones after it so far apart,
    apart: Span,
    /// until then.
    spread_until: Moment,
}

impl Hold {
    fn opens(&self) -> Moment {
        self.held_until.max(self.next_at)
    }

    fn ends(&self) -> Moment {
        self.opens().max(self.spread_until)
    }
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it is until something may be sent there; nothing is noted.
    pub(super) fn wait(&self, destination: &str, now: Moment) -> Span {
        if self.count.load(Relaxed) == 0 {
            return Span::ZERO;
        }
        let holds = self.lock();
        let hold = holds.get(destination);
        hold.map_or(Span::ZERO, |hold| hold.opens().since(now))
    }

    /// Notes that something is sent there; or how long it has to wait, and then nothing is noted.
    pub(super) fn send(&self, destination: &str, now: Moment) -> Result<(), Span> {
        if self.count.load(Relaxed) == 0 {
            return Ok(());
        }
        let mut holds = self.lock();
        let Some(hold) = holds.get_mut(destination) else {
            return Ok(());
        };
        let wait = hold.opens().since(now);
        if !wait.is_zero() {
            return Err(wait);
        }
        if now < hold.spread_until {
            hold.next_at = now.plus(hold.apart);
        } else {
            holds.remove(destination);
            self.count.store(holds.len(), Relaxed);
        }
        Ok(())
    }

    /// Notes what a response from there said. A hold that was told before is not shortened; how far
    /// apart requests go is what was said last.
    pub(super) fn note(&self, destination: &str, now: Moment, hint: Hint, longest: Span) {
        if hint == Hint::default() && self.count.load(Relaxed) == 0 {
            return;
        }
        let mut holds = self.lock();
        let known = holds.get(destination).copied();
        let told = now.plus(hint.hold.min(longest));
        let mut hold = Hold {
            held_until: known.map_or(told, |known| told.max(known.held_until)),
            ..Hold::default()
        };
        if let Some((apart, lasts)) = hint.spread {
            hold.apart = apart.min(longest);
            hold.next_at = now.plus(hold.apart);
            hold.spread_until = now.plus(lasts.min(longest));
        }
        if hold.ends() <= now {
            holds.remove(destination);
        } else {
            if known.is_none() && holds.len() >= MOST {
                make_room(&mut holds, now);
            }
            holds.insert(destination.to_owned(), hold);
        }
        self.count.store(holds.len(), Relaxed);
    }
}

#[cold]
fn make_room(holds: &mut HashMap<String, Hold>, now: Moment) {
    holds.retain(|_, hold| hold.ends() > now);
    if holds.len() >= MOST {
        let soonest = holds.iter().min_by_key(|(_, hold)| hold.ends());
        if let Some(soonest) = soonest.map(|(name, _)| name.clone()) {
            holds.remove(&soonest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Span = Span::from_secs(60);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn hold(seconds: u64) -> Hint {
        Hint {
            hold: Span::from_secs(seconds),
            spread: None,
        }
    }

    #[test]
    fn a_hold_ends_by_itself_and_is_forgotten() {
        let holds = Holds::default();
        assert_eq!(holds.send("a", at(0)), Ok(()));
        holds.note("a", at(0), hold(5), LONGEST);
        assert_eq!(holds.send("a", at(1000)), Err(Span::from_secs(4)));
        assert_eq!(holds.send("b", at(1000)), Ok(()));
        // A response that says nothing does not end it, nor does one that says less.
        holds.note("a", at(1000), Hint::default(), LONGEST);
        holds.note("a", at(1000), hold(1), LONGEST);
        assert_eq!(holds.wait("a", at(2000)), Span::from_secs(3));
        assert_eq!(holds.send("a", at(5000)), Ok(()));
        assert_eq!(holds.lock().len(), 0);
    }

    #[test]
    fn nobody_holds_us_for_longer_than_we_let_them() {
        let holds = Holds::default();
        holds.note("a", at(0), hold(1_000_000_000), LONGEST);
        assert_eq!(holds.wait("a", at(0)), LONGEST);
    }

    #[test]
    fn what_is_spread_goes_one_at_a_time_until_something_else_is_said() {
        let holds = Holds::default();
        let spread = Some((Span::from_millis(500), Span::from_secs(2)));
        let few = Hint {
            hold: Span::ZERO,
            spread,
        };
        holds.note("a", at(0), few, LONGEST);
        let half = Span::from_millis(500);
        assert_eq!(holds.send("a", at(0)), Err(half));
        assert_eq!(holds.send("a", at(500)), Ok(()));
        assert_eq!(holds.send("a", at(500)), Err(half));
        assert_eq!(holds.send("a", at(1000)), Ok(()));
        holds.note("a", at(1100), Hint::default(), LONGEST);
        assert_eq!(holds.send("a", at(1100)), Ok(()));
        assert_eq!(holds.send("a", at(1100)), Ok(()));
    }

    #[test]
    fn there_are_never_more_than_the_most_and_the_longest_stay() {
        let holds = Holds::default();
        for number in 0..3 * MOST {
            let seconds = 1 + number as u64 % 50;
            holds.note(&number.to_string(), at(0), hold(seconds), LONGEST);
            assert!(holds.lock().len() <= MOST);
        }
        let long = |hold: &&Hold| hold.ends() >= at(40_000);
        let kept = holds.lock().values().filter(long).count();
        assert!(kept > MOST / 2, "{kept}");
    }
}
