//! What is counted, and how an operator's scraper reads it.
//!
//! # Theory
//!
//! Every request counts something, so counting must cost next to nothing and never make two processors
//! wait for one line of memory. Counters are kept in *stripes*: each thread adds to its own, a scrape
//! adds them up. Which counters belong to which rule is found once, when a policy is put in force
//! ([`Handles`]); a request only indexes.
//!
//! # Invariant
//!
//! Names of series come from the policy alone. What a client sends can raise a number, never add a line.
//! Counters of a rule live as long as some policy in force has a rule of that name, so they go on over
//! reloads; the last that is let go takes them along.
//!
//! # Why not a library
//!
//! The text is a few lines of format, and all that is hard here (stripes, handles by rule, numbers that
//! are only looked up when scraped) would have to be built around one.
//!
//! It does not know what a decision means; that is for [`crate::engine`].

mod counters;
mod text;

pub(crate) use counters::{Counted, Histogram, RuleCounters, Striped, Undecided};
pub(crate) use text::{Kind, Text, in_millionths};

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_policy::Policy;

/// Whoever has numbers of its own to tell.
pub(crate) trait Scraped: Send + Sync + std::fmt::Debug {
    /// Tells them.
    fn scraped(&self, text: &mut Text);
}

/// All counters of a server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// How long decisions take.
    pub(crate) duration: Histogram,
    /// Requests that no limit had a part in.
    pub(crate) undecided: Striped<{ Undecided::COUNT }>,
    /// What only Envoy's door can meet; see [`Rls`].
    pub(crate) rls: Striped<{ Rls::COUNT }>,
    /// Requests that were decided without the store that a fleet shares; see [`Unasked`].
    pub(crate) degraded: Striped<2>,
    /// When the last of them was, in seconds since 1970; 0 if there was none.
    pub(crate) degraded_at: AtomicU64,
    /// Requests that loans, copies or remembered refusals decided; in the order of [`Unasked`].
    pub(crate) leased: Striped<2>,
    known: Mutex<Known>,
}

/// What only Envoy's rate limit service can meet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rls {
    /// A domain that no limit is for.
    UnknownDomain,
    /// A request that cannot be decided.
    Invalid,
    /// A limit that the caller sent along, and that was not followed.
    OverrideIgnored,
    /// A request that made us panic.
    Panicked,
}

impl Rls {
    pub(crate) const COUNT: usize = Rls::Panicked as usize + 1;
    /// Each with the name of its metric and what it means.
    pub(crate) const ALL: [(Rls, &'static str, &'static str); Rls::COUNT] = [
        (
            Rls::UnknownDomain,
            "tollgate_rls_unknown_domain_total",
            "Requests of Envoy in a domain that no limit is for.",
        ),
        (
            Rls::Invalid,
            "tollgate_rls_invalid_total",
            "Requests of Envoy that cannot be decided, because they are malformed or too large.",
        ),
        (
            Rls::OverrideIgnored,
            "tollgate_rls_overrides_ignored_total",
            "Limits that callers sent along with a descriptor and that were not followed: the domain does not, or the unit is not known.",
        ),
        (
            Rls::Panicked,
            "tollgate_rls_panics_total",
            "Requests of Envoy that made their handler panic, and were answered INTERNAL.",
        ),
    ];
}

/// What became of a request that was decided without asking the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unasked {
    /// It passed.
    Admitted,
    /// It did not.
    Refused,
}

/// Counters by what they are named after, for the next policy to find.
#[derive(Debug, Default)]
struct Known {
    rules: HashMap<Arc<str>, Arc<RuleCounters>>,
    denied: HashMap<Arc<str>, Arc<Striped<1>>>,
}

/// The counters of one policy, by the places of its rules.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    pub(crate) rules: Vec<Arc<RuleCounters>>,
    pub(crate) denied: Vec<(Arc<str>, Arc<Striped<1>>)>,
}

impl Metrics {
    /// The counters for a policy whose rules have these names; those of the policy before go on, and
    /// what neither has is forgotten.
    pub(crate) fn handles<'a>(
        &self,
        rules: impl Iterator<Item = &'a Arc<str>>,
        policy: &Policy,
    ) -> Handles {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Known::default();
        let rules = rules.map(|name| {
            let old = known.rules.get(name).cloned();
            let counters = old.unwrap_or_else(|| Arc::new(RuleCounters::named(name)));
            next.rules.insert(Arc::clone(name), Arc::clone(&counters));
            counters
        });
        let rules = rules.collect();
        let denied = policy.deny.iter().map(|rule| {
            let old = known.denied.get(&rule.name).cloned();
            let counter = old.unwrap_or_default();
            let name = Arc::clone(&rule.name);
            next.denied.insert(Arc::clone(&name), Arc::clone(&counter));
            (name, counter)
        });
        let denied = denied.collect();
        *known = next;
        Handles { rules, denied }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Door;

    fn handles(metrics: &Metrics, names: &[&str]) -> Handles {
        let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
        metrics.handles(names.iter(), &Policy::default())
    }

    #[test]
    fn counters_of_a_rule_that_stays_go_on_wherever_it_stands() {
        let metrics = Metrics::default();
        let before = handles(&metrics, &["a", "b"]);
        before.rules[1].add(Door::Http, Counted::Refused);
        let after = handles(&metrics, &["b", "c"]);
        assert_eq!(after.rules[0].of(Door::Http, Counted::Refused), 1);
        assert_eq!(after.rules[1].of(Door::Http, Counted::Refused), 0);
    }

    #[test]
    fn counters_of_a_rule_that_is_gone_are_forgotten() {
        let metrics = Metrics::default();
        handles(&metrics, &["a"]).rules[0].add(Door::Auth, Counted::Admitted);
        handles(&metrics, &["b"]);
        let again = handles(&metrics, &["a"]);
        assert_eq!(again.rules[0].of(Door::Auth, Counted::Admitted), 0);
    }
}
