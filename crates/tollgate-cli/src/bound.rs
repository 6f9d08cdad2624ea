//! How much more than its limits a fleet may let pass, told before a policy is put in force.

use serde::Serialize;
use tollgate_config::{Loaded, StoreSpec};
use tollgate_policy::{DefaultAction, LimitRule, Quota, Sharing};

/// If nobody says how many nodes there are, the bound is told for so many.
const NODES: u32 = 8;

/// How much more than a quota a fleet may let pass, as it is shared.
pub(crate) struct Bound<'a> {
    limit: &'a str,
    tier: Option<&'a str>,
    sharing: Sharing,
    units: u64,
    above: u64,
    nodes: u32,
    /// What may come on top of that if the store stops answering; none: everything.
    outage: Option<u64>,
    /// Did nobody say how many nodes there are?
    is_assumed: bool,
    /// Is anything of it ever lent, if it is to be?
    is_lent: bool,
}

impl<'a> Bound<'a> {
    fn new(
        rule: &'a LimitRule,
        tier: Option<&'a str>,
        quota: &Quota,
        told: Option<u32>,
    ) -> Bound<'a> {
        let nodes = told.unwrap_or(NODES);
        Bound {
            limit: &rule.name,
            tier,
            sharing: rule.sharing,
            units: quota.advertised().0,
            above: quota.max_overshoot(rule.sharing, nodes),
            outage: quota.max_outage_overshoot(rule.on_store_error, nodes),
            nodes,
            is_assumed: told.is_none(),
            is_lent: rule.sharing == Sharing::Lease && quota.is_leasable(nodes),
        }
    }

    /// For people.
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
            _ if self.sharing == Sharing::Lease && !self.is_lent => format!(
                "{who} ({sharing}): too small or too slow to be lent to {nodes}, so the store decides every request"
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

    /// For programs.
    pub(crate) fn record(&self, file: &'a str) -> Record<'a> {
        let decided = match (self.sharing, self.is_lent) {
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

/// A bound, as JSON has it.
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
