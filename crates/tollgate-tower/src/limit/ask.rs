//! How a gate is asked about a request: by all facts, or by one key.

use std::fmt;

use http::request::Parts;
use tollgate::Clock;
use tollgate::policy::{Begun, Facts, PolicyGate};

/// How a gate is asked. There are two ways: [`ByPolicy`] and [`ByKey`].
pub trait Ask: Clone + sealed::Sealed {
    /// Begins to decide a request.
    fn begin<C: Clock>(&self, gate: &PolicyGate<C>, parts: &Parts, facts: &Facts<'_>) -> Begun;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ByPolicy {}
    impl<F> Sealed for super::ByKey<F> {}
}

/// By its facts, against all limits of the policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByPolicy;

impl Ask for ByPolicy {
    #[inline]
    fn begin<C: Clock>(&self, gate: &PolicyGate<C>, _parts: &Parts, facts: &Facts<'_>) -> Begun {
        gate.begin(facts, true)
    }
}

/// By a key that a function finds, against the first limit of the policy.
#[derive(Clone, Copy)]
pub struct ByKey<F> {
    key: F,
}

impl<F> ByKey<F> {
    pub(super) fn new(key: F) -> ByKey<F> {
        ByKey { key }
    }
}

impl<F> fmt::Debug for ByKey<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByKey").finish_non_exhaustive()
    }
}

impl<F> Ask for ByKey<F>
where
    F: Fn(&Parts) -> Option<String> + Clone,
{
    fn begin<C: Clock>(&self, gate: &PolicyGate<C>, parts: &Parts, facts: &Facts<'_>) -> Begun {
        let key = (self.key)(parts).unwrap_or_default();
        let cost = facts.cost.unwrap_or(1);
        let rule = gate.rule(0);
        let begun = rule.and_then(|rule| gate.begin_named(&rule.name, &[&key], cost, true));
        begun.unwrap_or_else(|| gate.begin(facts, true))
    }
}
