//! How much more than its limit a fleet may let pass: stated before anything is put in force.
//!
//! # Theory
//!
//! *Exact*: the store decides every request. Nothing.
//!
//! *Lease*. Every unit that is spent was charged by the store before, at most a [term](super::store::lease) earlier.
//! So over all time no more passes than the store granted, and in a stretch of time at most what it granted
//! in it and what was on loan when it began. On loan are at most one block at each of `n` nodes, and a block is at
//! most a `4n`-th of what the limit holds: together a quarter; nor is it more than the limit gives in a
//! [term](super::store::lease). A block of a fixed window ends with it, so
//! there nothing comes on top; and a place that is on loan is held in the store, so of places there are never more at
//! once than the limit says.
//!
//! *Sync*. What passed and the store has not heard of is at each node at most two of `n` parts of what the limit
//! holds. If all nodes but one were idle, that one would be right; so the others are what may come on top: `n - 1` times as
//! much, less than twice the limit. A node that dies takes as much with it that nobody hears of. The store takes it afterwards, and who owes lets nothing pass: over all time the limit holds, but of windows what is too much in
//! one is not missing in the next.
//!
//! # What is not in it
//!
//! What a store forgets in a failover, and what passes while it gives no answer. The latter is the same for every way of
//! sharing and comes on top ([`Quota::max_outage_overshoot`]).

use super::rule::{OnStoreError, Quota, Sharing};
use super::store::lease::terms::LeaseTerms;
use super::store::sync::counter::SyncTerms;
use tollgate::Algorithm;

impl Quota {
    /// How many units above this quota may pass in any stretch of time, with so many nodes. Over all time nothing
    /// does.
    pub fn max_overshoot(&self, sharing: Sharing, nodes: u32) -> u64 {
        match (sharing, self.limit.algorithm()) {
            (Sharing::Exact, _)
            | (Sharing::Lease, Algorithm::FixedWindow { .. } | Algorithm::Concurrency { .. }) => 0,
            (Sharing::Lease, _) => LeaseTerms::from_quota(self).map_or(0, |terms| {
                terms
                    .block_max(nodes)
                    .saturating_mul(u64::from(nodes.max(1)))
            }),
            (Sharing::Sync, _) => SyncTerms::from_quota(self).map_or(0, |terms| {
                let others = u64::from(nodes.saturating_sub(1));
                terms.unsynced_max(nodes).saturating_mul(others)
            }),
        }
    }

    /// How many units more may pass on top of [`Quota::max_overshoot`] if the store stops answering: the shares of the nodes
    /// that the store had granted nothing. None: every request passes until it answers again.
    ///
    /// The two add up: what synced counters let pass before the store stops answering is not taken from the shares of
    /// other nodes.
    pub fn max_outage_overshoot(&self, on_store_error: OnStoreError, nodes: u32) -> Option<u64> {
        match on_store_error {
            OnStoreError::Allow => None,
            OnStoreError::Deny => Some(0),
            OnStoreError::Local => {
                let share = self.share(nodes).advertised().0;
                Some(share.saturating_mul(u64::from(nodes.saturating_sub(1))))
            }
        }
    }

    /// Is it large and fast enough to be lent to so many nodes? If not, `lease` is `exact`.
    pub fn is_leasable(&self, nodes: u32) -> bool {
        LeaseTerms::from_quota(self).is_some_and(|terms| terms.block_max(nodes) > 0)
    }

    /// Can it be shared in this way?
    pub fn supports(&self, sharing: Sharing) -> bool {
        match sharing {
            Sharing::Exact => true,
            Sharing::Lease => LeaseTerms::from_quota(self).is_some(),
            Sharing::Sync => SyncTerms::from_quota(self).is_some(),
        }
    }
}
