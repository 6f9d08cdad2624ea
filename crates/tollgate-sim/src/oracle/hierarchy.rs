//! Several token buckets, one decision: all are charged or none.
//!
//! # Theory
//!
//! A request names, for each limit it falls under, a key and a cost. It passes if and only if every
//! bucket covers its cost; then all are charged. Otherwise none is.
//!
//! One limit is reported. If the request passed: the one that could serve the fewest more such
//! requests, `floor(remaining / cost)`; among equals the one with the later reset, then the one
//! configured first. If it was refused: the refusing one with the longest wait, then the one
//! configured first. A limit that can never serve it beats all.
//!
//! # Invariant
//!
//! A refused request leaves every bucket as it was, except for a repair of those it would have charged.

use super::{OracleBucket, OracleDecision, OracleVerdict};
use crate::model::{GroupDecision, GroupModel, KeyModel, ModelCharge};
use std::cmp::Reverse;
use std::collections::HashMap;

/// One limit of a hierarchy: a token bucket for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSpec {
    /// What the limit is called.
    pub name: String,
    /// Tokens in a full bucket.
    pub cap: u64,
    /// Tokens earned every `p_ns`.
    pub n: u64,
    /// The period in nanoseconds.
    pub p_ns: u64,
}

/// Named token buckets that are charged together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleHierarchy {
    limits: Vec<LimitSpec>,
    /// The buckets of each limit, in the order of configuration.
    buckets: Vec<HashMap<String, OracleBucket>>,
}

impl OracleHierarchy {
    /// All buckets of all limits full; the order given is the order of configuration.
    pub fn new(limits: Vec<LimitSpec>) -> Self {
        let buckets = limits.iter().map(|_| HashMap::new()).collect();
        Self { limits, buckets }
    }

    /// The charges with the place of their limit, in the order of configuration.
    fn in_order<'a>(
        &self,
        charges: &[ModelCharge<'a>],
    ) -> Result<Vec<(usize, ModelCharge<'a>)>, String> {
        let mut placed = Vec::with_capacity(charges.len());
        for &charge in charges {
            let place = self
                .limits
                .iter()
                .position(|spec| spec.name == charge.limit);
            let place = place.ok_or_else(|| format!("no limit is called `{}`", charge.limit))?;
            if placed.iter().any(|&(taken, _)| taken == place) {
                return Err(format!("limit `{}` is charged twice", charge.limit));
            }
            placed.push((place, charge));
        }
        placed.sort_by_key(|&(place, _)| place);
        Ok(placed)
    }

    /// A copy of the bucket of `key`: a key never seen has a full one.
    fn bucket(&self, limit: usize, key: &str) -> OracleBucket {
        let known = self.buckets.get(limit).and_then(|buckets| buckets.get(key));
        known.copied().unwrap_or_else(|| {
            let spec = self.limits.get(limit);
            spec.map_or(OracleBucket::token_bucket(0, 1, 1), |spec| {
                OracleBucket::token_bucket(spec.cap, spec.n, spec.p_ns)
            })
        })
    }
}

impl GroupModel for OracleHierarchy {
    fn charge(
        &mut self,
        t: u64,
        charges: &[ModelCharge<'_>],
        take: bool,
    ) -> Result<GroupDecision, String> {
        let charges = self.in_order(charges)?;
        let answers: Vec<(usize, u64, OracleDecision)> = charges
            .iter()
            .map(|&(limit, charge)| {
                (
                    limit,
                    charge.cost,
                    self.bucket(limit, charge.key).peek(t, charge.cost),
                )
            })
            .collect();

        let never = answers
            .iter()
            .find(|(_, _, answer)| answer.verdict == OracleVerdict::Never);
        let refused = answers
            .iter()
            .filter_map(|entry| match entry.2.verdict {
                OracleVerdict::Refuse { retry_after } => Some((retry_after, entry)),
                _ => None,
            })
            // Of equal waits the first: `max_by_key` alone would give the last.
            .rev()
            .max_by_key(|&(retry_after, _)| retry_after)
            .map(|(_, entry)| entry);
        let narrowest = answers.iter().min_by_key(|(_, cost, answer)| {
            (
                answer.remaining / (*cost).max(1),
                Reverse(answer.reset_after),
            )
        });

        for &(limit, charge) in charges.iter().filter(|_| take) {
            let mut bucket = self.bucket(limit, charge.key);
            match (never, refused) {
                (Some(_), _) => continue,
                (None, Some(_)) if charge.cost > 0 => bucket.repair(t),
                (None, Some(_)) => continue,
                (None, None) => {
                    bucket.check(t, charge.cost);
                }
            }
            if let Some(buckets) = self.buckets.get_mut(limit) {
                buckets.insert(charge.key.to_owned(), bucket);
            }
        }
        let &(limit, _, answer) = never
            .or(refused)
            .or(narrowest)
            .ok_or("the request names no limit")?;
        let reported = self
            .limits
            .get(limit)
            .map(|spec| spec.name.clone())
            .unwrap_or_default();
        Ok(GroupDecision { answer, reported })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, cap: u64, n: u64) -> LimitSpec {
        LimitSpec {
            name: name.to_owned(),
            cap,
            n,
            p_ns: 1_000,
        }
    }

    fn charge(limit: &str, cost: u64) -> ModelCharge<'_> {
        ModelCharge {
            limit,
            key: "k",
            cost,
        }
    }

    #[test]
    fn a_refusal_by_one_limit_charges_none() -> Result<(), String> {
        let mut both = OracleHierarchy::new(vec![spec("wide", 10, 1), spec("narrow", 2, 1)]);
        let request = [charge("wide", 1), charge("narrow", 1)];
        assert!(both.charge(0, &request, true)?.answer.passed());
        assert!(both.charge(0, &request, true)?.answer.passed());
        let refused = both.charge(0, &request, true)?;
        assert_eq!(
            refused.answer.verdict,
            OracleVerdict::Refuse { retry_after: 1_000 }
        );
        assert_eq!(refused.reported, "narrow");
        assert_eq!(
            both.charge(0, &[charge("wide", 0)], false)?
                .answer
                .remaining,
            8
        );
        Ok(())
    }

    #[test]
    fn the_longest_wait_is_reported_and_never_beats_it() -> Result<(), String> {
        let mut all = OracleHierarchy::new(vec![
            spec("fast", 5, 2),
            spec("slow", 5, 1),
            spec("one", 1, 9),
        ]);
        let most = [charge("slow", 5), charge("fast", 5)];
        all.charge(0, &most, true)?;
        assert_eq!(all.charge(0, &most, true)?.reported, "slow");
        let three = [charge("slow", 5), charge("fast", 5), charge("one", 2)];
        let ruling = all.charge(0, &three, true)?;
        assert_eq!(
            (ruling.answer.verdict, ruling.reported.as_str()),
            (OracleVerdict::Never, "one")
        );
        Ok(())
    }

    #[test]
    fn ties_go_to_the_later_reset_and_then_to_the_order_of_configuration() -> Result<(), String> {
        let mut all = OracleHierarchy::new(vec![spec("a", 5, 2), spec("b", 5, 1), spec("c", 5, 1)]);
        let request = [charge("c", 1), charge("b", 1), charge("a", 1)];
        assert_eq!(all.charge(0, &request, true)?.reported, "b");
        all.charge(0, &[charge("c", 4), charge("b", 4), charge("a", 1)], true)?;
        assert_eq!(
            all.charge(0, &request, true)?.reported,
            "b",
            "of equal waits the first"
        );
        Ok(())
    }

    #[test]
    fn the_fewest_further_requests_decide_and_not_the_fewest_tokens() -> Result<(), String> {
        let mut all = OracleHierarchy::new(vec![spec("bytes", 100, 1), spec("calls", 10, 1)]);
        let ruling = all.charge(0, &[charge("bytes", 20), charge("calls", 1)], true)?;
        assert_eq!(
            (ruling.reported.as_str(), ruling.answer.remaining),
            ("bytes", 80)
        );
        Ok(())
    }

    #[test]
    fn a_charge_must_name_a_known_limit_once() {
        let mut all = OracleHierarchy::new(vec![spec("a", 5, 1)]);
        for (charges, error) in [
            (&[charge("b", 1)][..], "no limit is called `b`"),
            (
                &[charge("a", 1), charge("a", 1)],
                "limit `a` is charged twice",
            ),
            (&[], "the request names no limit"),
        ] {
            assert_eq!(all.charge(0, charges, true), Err(error.to_owned()));
        }
    }
}
