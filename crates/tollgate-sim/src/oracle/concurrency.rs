//! Concurrency limit: at most a number of leases at once, each with an expiry.
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
//! Whether a holder stops when its lease is lost, and (on purpose) any repair: the expiry itself bounds
//! how long a wrong clock can hold a place. Limits above 255, whose epochs are longer.

use super::{OracleDecision, OracleVerdict, PASS, to_u64};
use crate::model::{PermitModel, PermitOp};
use std::collections::BTreeMap;

/// At most `limit` live leases, each for at least a lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleConcurrency {
    limit: u64,
    epoch: i128,
    /// Expiry of each lease, by its id.
    leases: BTreeMap<String, i128>,
}

impl OracleConcurrency {
    /// No leases yet.
    pub fn new(limit: u64, ttl_ns: u64) -> Self {
        Self {
            limit,
            epoch: i128::from(ttl_ns.div_ceil(5)),
            leases: BTreeMap::new(),
        }
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

    /// How long until one place more is free than now, if all holders keep their leases.
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

    fn answer(&self, t: u64, verdict: OracleVerdict) -> OracleDecision {
        let last = self.leases.values().max();
        OracleDecision {
            verdict,
            remaining: to_u64(i128::from(self.limit) - self.live()),
            reset_after: last.map_or(0, |expiry| to_u64(expiry - i128::from(t))),
            next_after: self.next_free(t).unwrap_or(0),
        }
    }
}

impl PermitModel for OracleConcurrency {
    fn apply(&mut self, t: u64, op: PermitOp, id: &str) -> Result<OracleDecision, String> {
        if let PermitOp::SetLimit(limit) = op {
            self.limit = limit;
            let mut copy = self.clone();
            copy.drop_dead(t);
            return Ok(copy.answer(t, PASS));
        }
        if op == PermitOp::Peek {
            return self.clone().apply(t, PermitOp::Acquire, "");
        }
        self.drop_dead(t);
        let is_held = self.leases.contains_key(id);
        let verdict = match op {
            PermitOp::Acquire if is_held || self.live() < i128::from(self.limit) => PASS,
            PermitOp::Acquire => match self.next_free(t) {
                Some(retry_after) => OracleVerdict::Refuse { retry_after },
                None => OracleVerdict::Never,
            },
            _ if is_held => PASS,
            // Waiting does not bring a lost lease back.
            _ => OracleVerdict::Refuse { retry_after: 0 },
        };
        if verdict == PASS {
            match op {
                PermitOp::Release => drop(self.leases.remove(id)),
                _ => self.extend(t, id),
            }
        }
        Ok(self.answer(t, verdict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn apply(permits: &mut OracleConcurrency, t: u64, op: PermitOp, id: &str) -> OracleDecision {
        permits.apply(t, op, id).unwrap()
    }

    #[test]
    fn no_more_leases_live_than_the_limit_and_refusals_report_the_first_free_moment() {
        let mut rng = Rng::new(3);
        let mut permits = OracleConcurrency::new(3, 100);
        let mut t = 0;
        for _ in 0..3_000 {
            t += rng.below(20);
            let id = rng.below(6).to_string();
            let op = match rng.below(4) {
                0 => PermitOp::Release,
                1 => PermitOp::Renew,
                _ => PermitOp::Acquire,
            };
            let answer = apply(&mut permits, t, op, &id);
            assert!(permits.leases.len() <= 3);
            if let OracleVerdict::Refuse {
                retry_after: wait @ 1..,
            } = answer.verdict
            {
                assert!(!apply(&mut permits, t + wait - 1, PermitOp::Peek, "").passed());
                assert!(apply(&mut permits, t + wait, PermitOp::Peek, "").passed());
            }
        }
    }

    #[test]
    fn a_limit_lowered_below_the_live_leases_waits_for_as_many_as_it_takes() {
        let mut permits = OracleConcurrency::new(4, 100);
        // They expire at 120, 140, 160 and 180.
        for t in [0, 20, 40, 60] {
            apply(&mut permits, t, PermitOp::Acquire, &t.to_string());
        }
        let answer = apply(&mut permits, 70, PermitOp::SetLimit(2), "");
        assert_eq!(
            (answer.remaining, answer.next_after, answer.reset_after),
            (0, 90, 110)
        );
        assert_eq!(
            apply(&mut permits, 70, PermitOp::Acquire, "x").verdict,
            OracleVerdict::Refuse { retry_after: 90 }
        );
    }

    #[test]
    fn a_renewal_at_an_earlier_time_does_not_shorten_the_lease() {
        let mut permits = OracleConcurrency::new(1, 100);
        apply(&mut permits, 50, PermitOp::Acquire, "x");
        assert_eq!(
            apply(&mut permits, 20, PermitOp::Renew, "x").reset_after,
            140
        );
    }

    #[test]
    fn a_limit_of_zero_never_grants() {
        assert_eq!(
            apply(
                &mut OracleConcurrency::new(0, 100),
                0,
                PermitOp::Acquire,
                "x"
            )
            .verdict,
            OracleVerdict::Never
        );
    }
}
