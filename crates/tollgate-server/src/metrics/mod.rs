//! Counters, and the text that a scraper reads.
//!
//! # Theory
//!
//! Every request counts something, so counting costs a few additions and never makes two processors wait for one cache
//! line. Counters are kept in *stripes*: each thread adds to its own, and a scrape adds them up. The counters of a policy's
//! rules are looked up once, when the policy becomes active ([`Handles`]); a request only indexes.
//!
//! # Invariant
//!
//! Names and labels come from the policy alone. A client can raise a number, never add a series. Counters of a rule
//! live as long as some active policy has a rule of that name, so they continue over reloads.
//!
//! # Why not a library
//!
//! The format is a few lines. Stripes, handles by rule, and numbers that are only computed for a scrape would have to be built
//! around one.
//!
//! What a decision means is for [`crate::engine`].

mod counters;
mod exposition;

pub(crate) use counters::{
    Histogram, LimitOutcome, RuleCounters, Striped, UpstreamLatency, VerdictCounters, WithoutLimit,
};
pub(crate) use exposition::{Exposition, Kind, ratio, seconds};

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_policy::Policy;

/// A front end with metrics of its own.
pub(crate) trait Collector: Send + Sync + std::fmt::Debug {
    /// Writes them.
    fn collect(&self, out: &mut Exposition);
}

/// All counters of a server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// How long decisions take.
    pub(crate) duration: Histogram,
    /// Requests that no limit decided.
    pub(crate) without_limit: Striped<{ WithoutLimit::COUNT }>,
    pub(crate) rls: Striped<{ Rls::COUNT }>,
    /// Requests decided without the shared store.
    pub(crate) degraded: VerdictCounters,
    /// When the last of them was, in seconds since 1970; 0 if there was none.
    pub(crate) degraded_at: AtomicU64,
    /// Requests decided by leases, synced counters or remembered refusals.
    pub(crate) leased: VerdictCounters,
    known: Mutex<Handles>,
}

/// Events that only Envoy's rate limit service has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rls {
    /// A domain that the policy does not know.
    UnknownDomain,
    /// A request that cannot be decided.
    Invalid,
    /// A limit sent with a descriptor that was ignored.
    OverrideIgnored,
    /// A request whose handler panicked.
    Panicked,
}

impl Rls {
    pub(crate) const COUNT: usize = Rls::Panicked as usize + 1;
    /// Each with the name and the help of its metric.
    pub(crate) const ALL: [(Rls, &'static str, &'static str); Rls::COUNT] = [
        (
            Rls::UnknownDomain,
            "tollgate_rls_unknown_domain_requests_total",
            "Envoy requests in a domain that the policy does not know.",
        ),
        (
            Rls::Invalid,
            "tollgate_rls_invalid_requests_total",
            "Envoy requests that are malformed or too large.",
        ),
        (
            Rls::OverrideIgnored,
            "tollgate_rls_ignored_overrides_total",
            "Limits sent with a descriptor and ignored: the policy does not follow the domain, or the unit is unknown.",
        ),
        (
            Rls::Panicked,
            "tollgate_rls_panics_total",
            "Envoy requests whose handler panicked and that were answered with INTERNAL.",
        ),
    ];
}

/// The counters of one policy, in the order of its rules and of its deny list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handles {
    pub(crate) rules: Vec<Arc<RuleCounters>>,
    pub(crate) denied: Vec<(Arc<str>, Arc<Striped<1>>)>,
}

impl Metrics {
    /// The counters for a policy whose rules have these names. Counters of the previous policy continue; what the new one
    /// lacks is dropped.
    pub(crate) fn handles<'a>(
        &self,
        rules: impl Iterator<Item = &'a Arc<str>>,
        policy: &Policy,
    ) -> Handles {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let old = |rule: &Arc<RuleCounters>| (Arc::clone(&rule.name), Arc::clone(rule));
        let old_rules: HashMap<_, _> = known.rules.iter().map(old).collect();
        let old_denied: HashMap<_, _> = known.denied.iter().cloned().collect();
        let rule = |name: &Arc<str>| {
            let old = old_rules.get(name).cloned();
            old.unwrap_or_else(|| Arc::new(RuleCounters::new(name)))
        };
        let denied = |name: &Arc<str>| {
            let old = old_denied.get(name).cloned();
            (Arc::clone(name), old.unwrap_or_default())
        };
        *known = Handles {
            rules: rules.map(rule).collect(),
            denied: policy.deny.iter().map(|rule| denied(&rule.name)).collect(),
        };
        known.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Protocol;

    fn handles(metrics: &Metrics, names: &[&str]) -> Handles {
        let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
        metrics.handles(names.iter(), &Policy::default())
    }

    #[test]
    fn counters_of_a_rule_that_stays_continue_at_any_position() {
        let metrics = Metrics::default();
        let before = handles(&metrics, &["a", "b"]);
        before.rules[1].add(Protocol::Http, LimitOutcome::Refuse);
        let after = handles(&metrics, &["b", "c"]);
        assert_eq!(after.rules[0].get(Protocol::Http, LimitOutcome::Refuse), 1);
        assert_eq!(after.rules[1].get(Protocol::Http, LimitOutcome::Refuse), 0);
    }

    #[test]
    fn counters_of_a_removed_rule_are_dropped() {
        let metrics = Metrics::default();
        handles(&metrics, &["a"]).rules[0].add(Protocol::Auth, LimitOutcome::Pass);
        handles(&metrics, &["b"]);
        let again = handles(&metrics, &["a"]);
        assert_eq!(again.rules[0].get(Protocol::Auth, LimitOutcome::Pass), 0);
    }
}
