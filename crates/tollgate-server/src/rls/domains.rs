//! Which domains the policy in force knows.
//!
//! A domain that no limit is for is most often a misspelt one, and everything in it passes. So it is counted.
//! What the policy knows is worked out once for each policy; only requests that no limit matched ask.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate_policy::Match;
use tollgate_policy::pattern::TextPattern;

use crate::engine::Epoch;

/// The domains of the policy in force.
#[derive(Debug, Default)]
pub(super) struct Domains(ArcSwap<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Of which policy. None is 0.
    version: u64,
    /// A limit is for every domain.
    all: bool,
    exact: HashSet<String>,
    patterns: Vec<TextPattern>,
}

impl Domains {
    /// Is there anything for this domain?
    pub(super) fn are_known(&self, epoch: &Epoch, domain: &str) -> bool {
        let mut known = self.0.load_full();
        if known.version != epoch.version {
            known = Arc::new(Known::of(epoch));
            self.0.store(Arc::clone(&known));
        }
        known.all
            || known.exact.contains(domain)
            || known.patterns.iter().any(|p| p.matches(domain.as_bytes()))
    }
}

impl Known {
    fn of(epoch: &Epoch) -> Known {
        let mut known = Known {
            version: epoch.version,
            ..Known::default()
        };
        let policy = epoch.gate.policy();
        let followed = policy.follow.iter().flat_map(|follow| &follow.domains);
        known
            .exact
            .extend(followed.map(|domain| domain.to_string()));
        let limits = policy.limits.iter().map(|rule| &rule.matches);
        let lists = policy.allow.iter().chain(&policy.deny);
        for matches in limits.chain(lists.map(|rule| &rule.matches)) {
            match &matches.domain {
                Some(domain) => match domain.exact() {
                    Some(text) => {
                        known.exact.insert(text.to_owned());
                    }
                    None => known.patterns.push(domain.clone()),
                },
                None if is_for_descriptors(matches) => known.all = true,
                None => {}
            }
        }
        known
    }
}

/// May a request of this door match it? One that asks for a path or a header may not.
fn is_for_descriptors(matches: &Match) -> bool {
    matches.methods.is_empty()
        && matches.paths.is_empty()
        && matches.hosts.is_empty()
        && matches.headers.is_empty()
        && matches.query.is_empty()
        && matches.addresses.is_empty()
}
