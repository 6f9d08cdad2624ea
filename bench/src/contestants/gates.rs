//! Several limits on one request: charged by a gate of Tollgate, which charges all or none, and one after the other,
//! which guarantees less.
//!
//! Both report what is left, so both do the work of `Limiter::charge`, not of the shorter
//! `Limiter::check`. They are not in the list of contestants: they do more than a check.

#![allow(
    clippy::expect_used,
    reason = "a benchmark that cannot be set up should say so and stop"
)]

use tollgate::{Gate, LimitId, Limiter, MonotonicClock};

use super::tollgate::{limit, limiter};
use super::{Entry, KeyedLimiter};
use crate::workload::Config;

/// A number of limits, charged one by one and together.
pub(crate) const GATES: [(usize, [Entry; 2]); 3] = [
    (
        2,
        [Entry::new::<OneByOne<2>>(), Entry::new::<Together<2>>()],
    ),
    (
        3,
        [Entry::new::<OneByOne<3>>(), Entry::new::<Together<3>>()],
    ),
    (
        4,
        [Entry::new::<OneByOne<4>>(), Entry::new::<Together<4>>()],
    ),
];

/// All or none of the limits, in one call.
pub(crate) struct Together<const LIMITS: usize> {
    gate: Gate,
    limits: [LimitId; LIMITS],
}

/// All of the limits, one call each, whatever the verdicts of the others.
pub(crate) struct OneByOne<const LIMITS: usize>([Limiter; LIMITS]);

impl<const LIMITS: usize> KeyedLimiter for Together<LIMITS> {
    const NAME: &'static str = "together";

    fn new(config: &Config) -> Self {
        let mut gate = Gate::new();
        let limits = std::array::from_fn(|_| {
            gate.add(limit(config))
                .expect("there is memory for the keys")
        });
        Self { gate, limits }
    }

    fn check_str(&self, key: &String) -> bool {
        let charges = self
            .limits
            .map(|limit| self.gate.charge(limit, key.as_str(), 1));
        self.gate.admit(&charges).decision.is_admitted()
    }

    fn check_u64(&self, key: u64) -> bool {
        let charges = self.limits.map(|limit| self.gate.charge(limit, &key, 1));
        self.gate.admit(&charges).decision.is_admitted()
    }
}

impl<const LIMITS: usize> KeyedLimiter for OneByOne<LIMITS> {
    const NAME: &'static str = "one-by-one";

    fn new(config: &Config) -> Self {
        let clock = MonotonicClock::new();
        Self(std::array::from_fn(|_| limiter(config, clock.clone())))
    }

    fn check_str(&self, key: &String) -> bool {
        self.0.iter().fold(true, |all, limiter| {
            all & limiter.charge(key.as_str(), 1).is_admitted()
        })
    }

    fn check_u64(&self, key: u64) -> bool {
        self.0.iter().fold(true, |all, limiter| {
            all & limiter.charge(&key, 1).is_admitted()
        })
    }
}
