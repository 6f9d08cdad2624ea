//! Several token buckets, one decision: all are charged or none.
//!
//! # Theory
//!
//! A request names, for each limit it falls under, a key and a cost. It passes if and only if every
//! bucket covers its cost; then all pay. Otherwise nobody pays.
//!
//! One limit is reported. If the request passed: the one that could serve the fewest more such
//! requests, `floor(remaining / cost)`; among equals the one with the later reset, then the one
//! configured first. If it was refused: the refusing one with the longest wait, then the one
//! configured first. A limit that can never serve it beats all.
//!
//! # Invariant
//!
//! A refused request leaves every bucket as it was, but for a heal of those it would have charged.

use super::bucket::TokenBucket;
use super::{Answer, Verdict};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

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

/// What a request asks of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge<'a> {
    /// The limit, by name.
    pub limit: &'a str,
    /// Whose bucket.
    pub key: &'a str,
    /// How much. Zero is not charged, but the limit is reported as for one.
    pub cost: u64,
}

/// The answer of the reported limit, and which one that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// What the reported limit says; its verdict is that of the whole request.
    pub answer: Answer,
    /// The name of the reported limit.
    pub reported: String,
}

/// Why a request could not be judged at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HierarchyError {
    /// A charge names a limit that was not configured.
    UnknownLimit {
        /// The name in the charge.
        name: String,
    },
    /// Two charges name the same limit: one bucket cannot be charged twice in one decision.
    ChargedTwice {
        /// The name in both charges.
        name: String,
    },
    /// The request names no limit, so there is none to report.
    NoCharges,
}

impl fmt::Display for HierarchyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownLimit { name } => write!(f, "no limit is called `{name}`"),
            Self::ChargedTwice { name } => write!(f, "limit `{name}` is charged twice"),
            Self::NoCharges => write!(f, "the request names no limit"),
        }
    }
}

impl std::error::Error for HierarchyError {}

/// Named token buckets that are charged together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    limits: Vec<LimitSpec>,
    /// The buckets of each limit, in the order of configuration.
    buckets: Vec<HashMap<String, TokenBucket>>,
}

impl Hierarchy {
    /// All buckets of all limits full; the order given is the order of configuration.
    pub fn new(limits: Vec<LimitSpec>) -> Self {
        let buckets = limits.iter().map(|_| HashMap::new()).collect();
        Self { limits, buckets }
    }

    /// Charges every limit named at `t`, or none.
    ///
    /// # Errors
    ///
    /// If the charges do not name distinct, configured limits, or there are none.
    pub fn check(&mut self, t: u64, charges: &[Charge<'_>]) -> Result<Ruling, HierarchyError> {
        let charges = self.in_order(charges)?;
        let told: Vec<(usize, u64, Answer)> = charges
            .iter()
            .map(|&(limit, charge)| {
                (
                    limit,
                    charge.cost,
                    self.bucket(limit, charge.key).peek(t, charge.cost),
                )
            })
            .collect();

        let never = told
            .iter()
            .find(|(_, _, answer)| answer.verdict == Verdict::Never);
        let refused = told
            .iter()
            .filter_map(|entry| match entry.2.verdict {
                Verdict::Refuse { retry_after } => Some((retry_after, entry)),
                _ => None,
            })
            // Of equal waits the first: `max_by_key` alone would give the last.
            .rev()
            .max_by_key(|&(retry_after, _)| retry_after)
            .map(|(_, entry)| entry);
        let narrowest = told.iter().min_by_key(|(_, cost, answer)| {
            (
                answer.remaining / (*cost).max(1),
                Reverse(answer.reset_after),
            )
        });

        for &(limit, charge) in &charges {
            let mut bucket = self.bucket(limit, charge.key);
            match (never, refused) {
                (Some(_), _) => continue,
                (None, Some(_)) if charge.cost > 0 => bucket.level.heal(t),
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
            .ok_or(HierarchyError::NoCharges)?;
        let reported = self
            .limits
            .get(limit)
            .map(|spec| spec.name.clone())
            .unwrap_or_default();
        Ok(Ruling { answer, reported })
    }

    /// What [`Hierarchy::check`] would answer.
    ///
    /// # Errors
    ///
    /// As [`Hierarchy::check`].
    pub fn peek(&self, t: u64, charges: &[Charge<'_>]) -> Result<Ruling, HierarchyError> {
        self.clone().check(t, charges)
    }

    /// The charges with the place of their limit, in the order of configuration.
    fn in_order<'a>(
        &self,
        charges: &[Charge<'a>],
    ) -> Result<Vec<(usize, Charge<'a>)>, HierarchyError> {
        let mut placed = Vec::with_capacity(charges.len());
        for &charge in charges {
            let place = self
                .limits
                .iter()
                .position(|spec| spec.name == charge.limit);
            let place = place.ok_or_else(|| HierarchyError::UnknownLimit {
                name: charge.limit.to_owned(),
            })?;
            if placed.iter().any(|&(taken, _)| taken == place) {
                return Err(HierarchyError::ChargedTwice {
                    name: charge.limit.to_owned(),
                });
            }
            placed.push((place, charge));
        }
        placed.sort_by_key(|&(place, _)| place);
        Ok(placed)
    }

    /// A copy of the bucket of `key`: a key never seen has a full one.
    fn bucket(&self, limit: usize, key: &str) -> TokenBucket {
        let known = self.buckets.get(limit).and_then(|buckets| buckets.get(key));
        known.copied().unwrap_or_else(|| {
            let spec = self.limits.get(limit);
            spec.map_or(TokenBucket::new(0, 1, 1), |spec| {
                TokenBucket::new(spec.cap, spec.n, spec.p_ns)
            })
        })
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

    fn charge(limit: &str, cost: u64) -> Charge<'_> {
        Charge {
            limit,
            key: "k",
            cost,
        }
    }

    #[test]
    fn a_refusal_by_one_limit_charges_none() -> Result<(), HierarchyError> {
        let mut both = Hierarchy::new(vec![spec("wide", 10, 1), spec("narrow", 2, 1)]);
        let request = [charge("wide", 1), charge("narrow", 1)];
        assert!(both.check(0, &request)?.answer.passed());
        assert!(both.check(0, &request)?.answer.passed());
        let refused = both.check(0, &request)?;
        assert_eq!(
            refused.answer.verdict,
            Verdict::Refuse { retry_after: 1_000 }
        );
        assert_eq!(refused.reported, "narrow");
        assert_eq!(both.peek(0, &[charge("wide", 0)])?.answer.remaining, 8);
        Ok(())
    }

    #[test]
    fn the_longest_wait_is_reported_and_never_beats_it() -> Result<(), HierarchyError> {
        let mut all = Hierarchy::new(vec![
            spec("fast", 5, 2),
            spec("slow", 5, 1),
            spec("one", 1, 9),
        ]);
        let most = [charge("slow", 5), charge("fast", 5)];
        all.check(0, &most)?;
        assert_eq!(all.check(0, &most)?.reported, "slow");
        let three = [charge("slow", 5), charge("fast", 5), charge("one", 2)];
        let ruling = all.check(0, &three)?;
        assert_eq!(
            (ruling.answer.verdict, ruling.reported.as_str()),
            (Verdict::Never, "one")
        );
        Ok(())
    }

    #[test]
    fn ties_go_to_the_later_reset_and_then_to_the_order_of_configuration()
    -> Result<(), HierarchyError> {
        let mut all = Hierarchy::new(vec![spec("a", 5, 2), spec("b", 5, 1), spec("c", 5, 1)]);
        let request = [charge("c", 1), charge("b", 1), charge("a", 1)];
        assert_eq!(all.check(0, &request)?.reported, "b");
        all.check(0, &[charge("c", 4), charge("b", 4), charge("a", 1)])?;
        assert_eq!(
            all.check(0, &request)?.reported,
            "b",
            "of equal waits the first"
        );
        Ok(())
    }

    #[test]
    fn the_fewest_further_requests_decide_and_not_the_fewest_tokens() -> Result<(), HierarchyError>
    {
        let mut all = Hierarchy::new(vec![spec("bytes", 100, 1), spec("calls", 10, 1)]);
        let ruling = all.check(0, &[charge("bytes", 20), charge("calls", 1)])?;
        assert_eq!(
            (ruling.reported.as_str(), ruling.answer.remaining),
            ("bytes", 80)
        );
        Ok(())
    }

    #[test]
    fn a_charge_must_name_a_known_limit_once() {
        let mut all = Hierarchy::new(vec![spec("a", 5, 1)]);
        assert!(matches!(
            all.check(0, &[charge("b", 1)]),
            Err(HierarchyError::UnknownLimit { .. })
        ));
        assert!(matches!(
            all.check(0, &[charge("a", 1), charge("a", 1)]),
            Err(HierarchyError::ChargedTwice { .. })
        ));
        assert_eq!(all.check(0, &[]), Err(HierarchyError::NoCharges));
    }
}
