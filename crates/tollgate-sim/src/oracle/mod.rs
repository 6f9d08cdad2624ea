//! The oracle: a second implementation of every limiter, slow and obvious.
//!
//! # Theory
//!
//! A fast limiter packs its state into one word per key, and an error in that packing is hard to
//! see. The models here keep what the definitions speak of and nothing else: a bucket is a level of
//! tokens, a window is a counter, a log is a list of stamps, a concurrency limit is a map from lease
//! to expiry. They share no code with the product, so that a mistake has to be made twice, in two
//! different shapes, before the two agree on it.
//!
//! # Invariant
//!
//! All arithmetic is on whole numbers in `i128`, in units chosen so that nothing is ever rounded
//! except at the very end, when an answer is given in whole units and whole nanoseconds.
//!
//! # Four rules that every model keeps
//!
//! * `peek` is `check` on a copy that is thrown away. It therefore reports a request that passes as
//!   if it had been taken.
//! * A cost of zero takes nothing; a cost that can never fit is [`OracleVerdict::Never`]. Neither
//!   changes anything, not even to repair.
//! * A refused request changes nothing, except that a state from far in the future is repaired.
//! * `next_after` is the wait of a request for one unit more than `remaining`.
//!
//! # What it does not know
//!
//! Keys, threads, stores and clocks: one value is one key, and time is an argument.
//!
//! The domain is wide but not endless: capacity times period, and limit times window times parts,
//! have to fit in 126 bits. Beyond that an answer means nothing. A rate, period, window or number of
//! parts of zero is read as one, so that every model is total.

pub mod bucket;
pub mod concurrency;
pub mod counter;
pub mod credits;
pub mod hierarchy;
pub mod log;
pub mod window;

pub use bucket::{OracleBucket, OracleLeakyQueue};
pub use concurrency::OracleConcurrency;
pub use counter::OracleSlidingCounter;
pub use credits::OracleBurstCredits;
pub use hierarchy::{LimitSpec, OracleHierarchy};
pub use log::OracleSlidingLog;
pub use window::OracleFixedWindow;

/// The verdict on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OracleVerdict {
    /// The request passes, after waiting `delay` nanoseconds (zero but in a leaky queue).
    Pass {
        /// How long the caller has to wait before it starts.
        delay: u64,
    },
    /// The request is refused.
    Refuse {
        /// Least wait after which the same request passes if nothing else happens. Zero only where
        /// waiting cannot help: a lease that is lost or unknown.
        retry_after: u64,
    },
    /// The cost is above the limiter's maximum.
    Never,
}

/// The full answer to one request, in whole units and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleDecision {
    /// The verdict.
    pub verdict: OracleVerdict,
    /// Whole units that could still be taken at this instant, after this decision.
    pub remaining: u64,
    /// Least wait after which the limiter is as good as never used.
    pub reset_after: u64,
    /// Least wait after which `remaining` is larger; zero when it is at its maximum.
    pub next_after: u64,
}

impl OracleDecision {
    /// Whether the request passed.
    pub fn passed(&self) -> bool {
        matches!(self.verdict, OracleVerdict::Pass { .. })
    }
}

/// The verdict of a request that starts at once.
const PASS: OracleVerdict = OracleVerdict::Pass { delay: 0 };

/// Division rounded towards plus infinity; `by` is positive.
fn ceil_div(what: i128, by: i128) -> i128 {
    let floor = what.div_euclid(by);
    if what.rem_euclid(by) == 0 {
        floor
    } else {
        floor + 1
    }
}

/// A non-negative number as an answer. What no `u64` can hold is reported as the largest one.
fn to_u64(what: i128) -> u64 {
    u64::try_from(what.max(0)).unwrap_or(u64::MAX)
}

/// Zero would divide by nothing; one is the nearest total reading.
fn at_least_one(what: u64) -> i128 {
    i128::from(what.max(1))
}

/// The promises that hold for every model, checked by asking the model itself.
#[cfg(test)]
mod promises {
    use super::OracleVerdict;
    use crate::model::KeyModel;
    use crate::rng::Rng;
    use std::fmt::Debug;

    /// Walks a random timeline and checks every promise at every step.
    ///
    /// `step` bounds how far time moves. Time now and then stops or moves back a little
    /// (`skew`), which no promise may notice.
    pub(super) fn hold<M: KeyModel + PartialEq + Debug>(
        mut model: M,
        seed: u64,
        (step, skew, cost_max): (u64, u64, u64),
    ) {
        let mut rng = Rng::new(seed);
        let mut newest = 1_000_000;
        for _ in 0..3_000 {
            let t = match rng.below(4) {
                0 => newest,
                1 => newest - rng.below(skew),
                _ => newest + rng.below(step),
            };
            newest = newest.max(t);
            let cost = rng.below(cost_max + 1);
            let before = model.clone();
            let peeked = model.peek(t, cost);
            assert_eq!(before, model);
            let answer = model.check(t, cost);
            assert_eq!(
                peeked, answer,
                "peek and check disagree at {t} on {cost}: {before:?}"
            );
            if cost == 0 {
                assert!(answer.passed());
            }
            if cost == 0 || !answer.passed() {
                assert_eq!(
                    before, model,
                    "a request that took nothing left a trace at {t}"
                );
            }
            if let OracleVerdict::Refuse { retry_after } = answer.verdict {
                assert!(
                    retry_after >= 1,
                    "a refusal without a wait: {answer:?} {model:?}"
                );
                assert!(
                    !model.peek(t + retry_after - 1, cost).passed(),
                    "cost {cost} at {t} passes before its wait: {answer:?} {model:?}"
                );
                assert!(
                    model.peek(t + retry_after, cost).passed(),
                    "cost {cost} at {t} does not pass after its wait: {answer:?} {model:?}"
                );
            }
            if answer.next_after > 0 {
                let early = model.peek(t + answer.next_after - 1, 0).remaining;
                let then = model.peek(t + answer.next_after, 0).remaining;
                assert!(
                    early <= answer.remaining && answer.remaining < then,
                    "`remaining` at {t} does not grow after its wait: {answer:?}, {early} {then} {model:?}"
                );
            }
            // While the clock is behind the state, the debt is reported as if it were not.
            if t == newest {
                let later = model.peek(t + answer.reset_after, 0);
                assert_eq!(
                    later.next_after, 0,
                    "not as new after its wait: {answer:?} {model:?}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_up_is_right_on_both_sides_of_zero() {
        assert_eq!([ceil_div(7, 3), ceil_div(6, 3), ceil_div(0, 3)], [3, 2, 0]);
        assert_eq!([ceil_div(-7, 3), ceil_div(-6, 3)], [-2, -2]);
    }

    #[test]
    fn an_answer_too_large_is_reported_as_the_largest_number() {
        assert_eq!(to_u64(i128::MAX), u64::MAX);
        assert_eq!(to_u64(-1), 0);
    }
}
