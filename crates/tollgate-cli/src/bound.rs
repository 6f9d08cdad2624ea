//! The overshoot bound of each limit in a fleet, known before a policy is activated.

use serde::Serialize;
use tollgate_config::{Loaded, StoreSpec};
use tollgate_policy::{DefaultAction, LimitRule, Quota, Sharing};

/// The number of nodes that is assumed if the policy names none.
const NODES: u32 = 8;

/// The overshoot bound of one quota under its sharing mode.
pub(crate) struct Bound<'a> {
    limit: &'a str,
    tier: Option<&'a str>,
    sharing: Sharing,
    units: u64,
    above: u64,
    nodes: u32,
    /// Additional units if the store stops answering; `None`: all.
    outage: Option<u64>,
    /// Whether the number of nodes is assumed.
    is_assumed: bool,
    /// Whether `sharing: lease` takes effect.
    is_leased: bool,
}

impl<'a> Bound<'a> {
    fn new(
        rule: &'a LimitRule,
        tier: Option<&'a str>,
        quota: &Quota,
        stated: Option<u32>,
    ) -> Bound<'a> {
        let nodes = stated.unwrap_or(NODES);
        Bound {
            limit: &rule.name,
            tier,
            sharing: rule.sharing,
            units: quota.advertised().0,
            above: quota.max_overshoot(rule.sharing, nodes),
            outage: quota.max_outage_overshoot(rule.on_store_error, nodes),
            nodes,
            is_assumed: stated.is_none(),
            is_leased: rule.sharing == Sharing::Lease && quota.is_leasable(nodes),
        }
    }

    /// The bound as a sentence.
    pub(crate) fn sentence(&self) -> String {
        let tier = self.tier.map(|tier| format!(", tier `{tier}`"));
        let who = format!("`{}`{}", self.limit, tier.unwrap_or_default());
        let Bound { units, above, .. } = self;
        let (sharing, nodes) = (self.sharing.name(), nodes(self.nodes, self.is_assumed));
        let outage = match self.outage {
            Some(0) => String::new(),
            Some(outage) => {
                format!("; if the store stops answering, at most {outage} on top of that")
            }
            None => "; everything while the store does not answer".to_owned(),
        };
        let bound = match above {
            _ if self.sharing == Sharing::Lease && !self.is_leased => format!(
                "{who} ({sharing}): too small or too slow to lease to {nodes}, so the store decides every request"
            ),
            0 if self.sharing == Sharing::Exact => {
                format!("{who} ({sharing}): never more than it allows")
            }
            0 => format!("{who} ({sharing}): never more than it allows, with {nodes}"),
            above => format!(
                "{who} ({sharing}): in any stretch of time at most {above} more than it allows ({units} at once, and what it earns), with {nodes}"
            ),
        };
        bound + &outage
    }

    /// The record for JSON.
    pub(crate) fn record(&self, file: &'a str) -> Record<'a> {
        let decided = match (self.sharing, self.is_leased) {
            (Sharing::Exact, _) | (Sharing::Lease, false) => Sharing::Exact,
            (sharing, _) => sharing,
        };
        Record {
            file,
            limit: self.limit,
            tier: self.tier,
            sharing: self.sharing.name(),
            decided: decided.name(),
            units: self.units,
            nodes: self.nodes,
            above: self.above,
            outage: self.outage,
        }
    }
}

/// A bound in JSON.
#[derive(Serialize)]
pub(crate) struct Record<'a> {
    file: &'a str,
    limit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'a str>,
    sharing: &'static str,
    decided: &'static str,
    units: u64,
    nodes: u32,
    above: u64,
    /// Absent: everything passes while the store does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<u64>,
}

fn nodes(count: u32, is_assumed: bool) -> String {
    match (count, is_assumed) {
        (count, true) => format!("{count} nodes (assumed: nothing says how many there are)"),
        (1, _) => "1 node".to_owned(),
        (count, _) => format!("{count} nodes"),
    }
}

/// The bounds of all limits and their tiers, if nodes do not share all of them exactly.
pub(crate) fn bounds(loaded: &Loaded) -> Vec<Bound<'_>> {
    let StoreSpec::Shared(store) = &loaded.store else {
        return Vec::new();
    };
    let nodes = store.nodes;
    let default = match &loaded.policy.default {
        DefaultAction::Limit(rule) => Some(&**rule),
        _ => None,
    };
    let rules: Vec<&LimitRule> = loaded.policy.limits.iter().chain(default).collect();
    if rules.iter().all(|rule| rule.sharing == Sharing::Exact) {
        return Vec::new();
    }
    let bounds = rules.into_iter().flat_map(|rule| {
        let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
        let tiers = tiers.map(move |tier| Bound::new(rule, Some(&tier.name), &tier.quota, nodes));
        std::iter::once(Bound::new(rule, None, &rule.quota, nodes)).chain(tiers)
    });
    bounds.collect()
}
