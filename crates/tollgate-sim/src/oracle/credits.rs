//! Burst credits: many times the rate for a while, then the rate.
//!
//! # Theory
//!
//! Two buckets, charged together or not at all. The *peak* bucket earns `M*r` and holds `slack`: it
//! bounds how fast. The *credit* bucket earns `r` and holds `(M-1)*r*D + slack`: it bounds how long.
//! From full credit a client runs at `M*r` for exactly `D`, because the credit then falls by
//! `(M-1)*r` per unit of time.
//!
//! `r*D` need not be a whole number of tokens. The level of [`super::bucket`] is kept in parts of a
//! token, so the credit holds the fraction too.
//!
//! What remains is what both can give; a reset is the later of the two.

use super::{OracleBucket, OracleDecision, OracleVerdict, PASS};
use crate::model::{KeyModel, ModelChange};

/// `mult` times the rate for `dur_ns`, then the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleBurstCredits {
    peak: OracleBucket,
    credit: OracleBucket,
}

impl OracleBurstCredits {
    /// Full credit at `n` units per `p_ns`.
    pub fn new(n: u64, p_ns: u64, mult: u64, dur_ns: u64, slack: u64) -> Self {
        let above = i128::from(mult.saturating_sub(1)).saturating_mul(i128::from(dur_ns));
        Self {
            peak: OracleBucket::token_bucket(slack, n.saturating_mul(mult), p_ns),
            credit: OracleBucket::credits(n, p_ns, above, slack),
        }
    }

    fn answer(&self, t: u64, verdict: OracleVerdict) -> OracleDecision {
        let (peak, credit) = (self.peak.answer(t, verdict), self.credit.answer(t, verdict));
        let remaining = peak.remaining.min(credit.remaining);
        let one_more = remaining.saturating_add(1);
        let waits = (
            self.peak.wait_for(t, one_more),
            self.credit.wait_for(t, one_more),
        );
        OracleDecision {
            verdict,
            remaining,
            reset_after: peak.reset_after.max(credit.reset_after),
            next_after: match waits {
                (Some(peak), Some(credit)) => peak.max(credit),
                _ => 0,
            },
        }
    }
}

impl KeyModel for OracleBurstCredits {
    /// Takes `cost` at `t` from both buckets, if both can give it.
    fn check(&mut self, t: u64, cost: u64) -> OracleDecision {
        let verdict = both(self.peak.judge(t, cost), self.credit.judge(t, cost));
        self.peak.settle(t, cost, verdict);
        self.credit.settle(t, cost, verdict);
        self.answer(t, verdict)
    }

    /// Gives to each bucket the cost less what the bucket has earned since the charge.
    fn change(&mut self, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        let ModelChange::Refund { .. } = change else {
            return Err(change.unsupported());
        };
        self.peak.change(t, change)?;
        self.credit.change(t, change)?;
        Ok(self.answer(t, PASS))
    }
}

/// The verdict of two limits together: never beats a refusal, a longer wait beats a shorter one.
fn both(one: OracleVerdict, other: OracleVerdict) -> OracleVerdict {
    match (one, other) {
        (OracleVerdict::Never, _) | (_, OracleVerdict::Never) => OracleVerdict::Never,
        (OracleVerdict::Refuse { retry_after: a }, OracleVerdict::Refuse { retry_after: b }) => {
            OracleVerdict::Refuse {
                retry_after: a.max(b),
            }
        }
        (refused @ OracleVerdict::Refuse { .. }, _)
        | (_, refused @ OracleVerdict::Refuse { .. }) => refused,
        (passed @ OracleVerdict::Pass { .. }, OracleVerdict::Pass { .. }) => passed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::promises;
    use super::*;

    #[test]
    fn waits_are_minimal_whichever_bucket_is_the_narrow_one() {
        for (seed, dur) in [(1, 0), (2, 5_000), (3, 70_001)] {
            promises::hold(
                OracleBurstCredits::new(7, 3_000, 4, dur, 6),
                seed,
                (300, 100, 7),
            );
        }
    }

    #[test]
    fn full_credit_lasts_exactly_its_time_at_the_peak_rate() {
        // 1 per 10 ns, ten times that for 300 ns: one every nanosecond, with a slack of one.
        let mut credits = OracleBurstCredits::new(1, 10, 10, 300, 1);
        let first_refused = (0..1_000).find(|&t| !credits.check(t, 1).passed());
        assert_eq!(first_refused, Some(301));
    }
}
