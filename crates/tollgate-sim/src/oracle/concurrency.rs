//! Concurrency: at most so many leases at once, each with an expiry.
//!
//! # Theory
//!
//! Time is cut into epochs of a fifth of the lifetime, rounded up. A lease lives through the epoch in which
//! it was granted or last renewed and five more: at least its lifetime, at most an epoch longer. It is live while its
//! expiry lies ahead; at `t >= expiry` it is dead and its place is free. Acquiring a live lease renews it. A
//! renewal never shortens a lease, so a clock that stepped back cannot take away time already promised.
//!
//! Dead leases are dropped by every call that names a lease, also by one that is refused: a lease
//! once reported dead stays dead, whatever the clock does then.
//!
//! # What it does not know
//!
//! Whether a holder stops when its lease is lost, and (on purpose) any heal: the expiry itself bounds
//! how long a wrong clock can hold a place. Limits above 255, whose epochs are longer.

use super::{Answer, PASS, Verdict, to_u64};
use std::collections::BTreeMap;

/// At most `limit` live leases, each for at least a lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    epoch: i128,
    /// Expiry of each lease, by its id.
    leases: BTreeMap<String, i128>,
}

impl Concurrency {
    /// No leases yet.
    pub fn new(limit: u64, ttl_ns: u64) -> Self {
        Self {
            limit,
            epoch: i128::from(ttl_ns.div_ceil(5)),
            leases: BTreeMap::new(),
        }
    }

    /// Takes a place for `id` from `t` on, or renews the one it has.
    pub fn acquire(&mut self, t: u64, id: &str) -> Answer {
        self.drop_dead(t);
        if self.leases.contains_key(id) || self.live() < i128::from(self.limit) {
            self.extend(t, id);
            return self.answer(t, PASS);
        }
        let verdict = match self.next_free(t) {
            Some(retry_after) => Verdict::Refuse { retry_after },
            None => Verdict::Never,
        };
        self.answer(t, verdict)
    }

    /// Extends the lease `id`. Refused without a wait if it is lost: the holder has to stop.
    pub fn renew(&mut self, t: u64, id: &str) -> Answer {
        self.drop_dead(t);
        if self.leases.contains_key(id) {
            self.extend(t, id);
            self.answer(t, PASS)
        } else {
            self.answer(t, Verdict::Refuse { retry_after: 0 })
        }
    }

    /// Gives the place of `id` back. Refused without a wait, and harmless, if it has none.
    pub fn release(&mut self, t: u64, id: &str) -> Answer {
        self.drop_dead(t);
        let verdict = match self.leases.remove(id) {
            Some(_) => PASS,
            None => Verdict::Refuse { retry_after: 0 },
        };
        self.answer(t, verdict)
    }

    /// What [`Concurrency::acquire`] would answer to a holder that has no lease.
    pub fn peek(&self, t: u64) -> Answer {
        self.clone().acquire(t, "")
    }

    /// Changes the limit; leases above it stay until they are released or dead.
    pub fn set_limit(&mut self, t: u64, limit: u64) -> Answer {
        self.limit = limit;
        let mut copy = self.clone();
        copy.drop_dead(t);
        copy.answer(t, PASS)
    }

    fn drop_dead(&mut self, t: u64) {
        let t = i128::from(t);
        self.leases.retain(|_, expiry| *expiry > t);
    }

    fn live(&self) -> i128 {
        i128::try_from(self.leases.len()).unwrap_or(i128::MAX)
    }

    fn extend(&mut self, t: u64, id: &str) {
        // A lease without a lifetime is dead as soon as it is granted.
        if self.epoch == 0 {
            return;
        }
        let until = (i128::from(t) / self.epoch + 6) * self.epoch;
        let expiry = self.leases.entry(id.to_owned()).or_insert(until);
        *expiry = until.max(*expiry);
    }

    /// How long until one place more is free than now, if everyone keeps their lease.
    fn next_free(&self, t: u64) -> Option<u64> {
        if self.limit == 0 {
            return None;
        }
        let mut expiries: Vec<i128> = self.leases.values().copied().collect();
        expiries.sort_unstable();
        let above = usize::try_from(self.live() - i128::from(self.limit)).unwrap_or(0);
        expiries
            .get(above)
            .map(|expiry| to_u64(expiry - i128::from(t)))
    }

    fn answer(&self, t: u64, verdict: Verdict) -> Answer {
        let last = self.leases.values().max();
        Answer {
            verdict,
            remaining: to_u64(i128::from(self.limit) - self.live()),
            reset_after: last.map_or(0, |expiry| to_u64(expiry - i128::from(t))),
            next_after: self.next_free(t).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn no_more_leases_live_than_the_limit_and_refusals_tell_the_first_free_moment() {
        let mut rng = Rng::new(3);
        let mut gate = Concurrency::new(3, 100);
        let mut t = 0;
        for _ in 0..3_000 {
            t += rng.below(20);
            let id = rng.below(6).to_string();
            let answer = match rng.below(4) {
                0 => gate.release(t, &id),
                1 => gate.renew(t, &id),
                _ => gate.acquire(t, &id),
            };
            assert!(gate.leases.len() <= 3);
            if let Verdict::Refuse {
                retry_after: wait @ 1..,
            } = answer.verdict
            {
                assert!(!gate.peek(t + wait - 1).passed());
                assert!(gate.peek(t + wait).passed());
            }
        }
    }

    #[test]
    fn a_limit_lowered_below_the_live_leases_waits_for_as_many_as_it_takes() {
        let mut gate = Concurrency::new(4, 100);
        // They expire at 120, 140, 160 and 180.
        for t in [0, 20, 40, 60] {
            gate.acquire(t, &t.to_string());
        }
        let answer = gate.set_limit(70, 2);
        assert_eq!(
            (answer.remaining, answer.next_after, answer.reset_after),
            (0, 90, 110)
        );
        assert_eq!(
            gate.acquire(70, "x").verdict,
            Verdict::Refuse { retry_after: 90 }
        );
    }

    #[test]
    fn a_renewal_at_an_earlier_time_does_not_shorten_the_lease() {
        let mut gate = Concurrency::new(1, 100);
        gate.acquire(50, "x");
        assert_eq!(gate.renew(20, "x").reset_after, 140);
    }

    #[test]
    fn a_limit_of_zero_never_grants() {
        assert_eq!(
            Concurrency::new(0, 100).acquire(0, "x").verdict,
            Verdict::Never
        );
    }
}
