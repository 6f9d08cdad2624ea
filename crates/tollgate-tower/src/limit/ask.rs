//! How a gate is asked about a request: by all facts, or by one key.

use std::fmt;

use http::Request;
use http::request::Parts;
use tollgate::Clock;
use tollgate_policy::{Facts, PolicyGate, Subject};

use crate::facts::with_parts;

/// How a gate is asked. There are two ways: [`ByPolicy`] and [`ByKey`].
pub trait Ask: Clone + sealed::Sealed {
    /// What is looked for in a request beside its facts.
    type Found;

    /// Looks for it. Afterwards the request is as it was before.
    fn look<B>(&self, request: &mut Request<B>) -> Self::Found;

    /// Says what is decided of a request.
    fn with_subject<C: Clock, R>(
        &self,
        gate: &PolicyGate<C>,
        found: Self::Found,
        facts: &Facts<'_>,
        f: impl FnOnce(Subject<'_>) -> R,
    ) -> R;
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
    type Found = ();

    #[inline]
    fn look<B>(&self, _request: &mut Request<B>) {}

    #[inline]
    fn with_subject<C: Clock, R>(
        &self,
        _gate: &PolicyGate<C>,
        _found: (),
        facts: &Facts<'_>,
        f: impl FnOnce(Subject<'_>) -> R,
    ) -> R {
        f(Subject::Request(facts))
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
    type Found = String;

    fn look<B>(&self, request: &mut Request<B>) -> String {
        with_parts(request, |parts| (self.key)(parts)).unwrap_or_default()
    }

    fn with_subject<C: Clock, R>(
        &self,
        gate: &PolicyGate<C>,
        key: String,
        facts: &Facts<'_>,
        f: impl FnOnce(Subject<'_>) -> R,
    ) -> R {
        // A policy without limits decides by its default.
        if gate.rule(0).is_none() {
            return f(Subject::Request(facts));
        }
        f(Subject::Rule {
            rule: 0,
            key: &[&key],
            cost: facts.cost.unwrap_or(1),
        })
    }
}
