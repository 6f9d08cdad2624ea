//! Bounds on how much more than its limit a fleet may admit, known before a policy is activated.
//!
//! # Theory
//!
//! *Exact*: the store decides every request. The bound is zero.
//!
//! *Lease*. Every unit that is spent was charged by the store before, at most a [term](super::store::lease)
//! earlier. So over all time no more passes than the store granted, and in any period at most what it granted in
//! it and what was leased when it began. Leased are at most one block at each of `n` nodes, and a block is at most
//! a `4n`-th of what the limit holds: together a quarter. Nor is a block more than the limit gives in a
//! [term](super::store::lease). A block of a fixed window ends with it, so there the bound is zero. A leased
//! permit is held in the store, so there are never more permits at once than the limit allows.
//!
//! *Sync*. The unsynced usage of each node is at most two of `n` parts of what the limit holds. If all nodes but
//! one were idle, that one would be right; so the others bound the overshoot: `n - 1` times as much, less than
//! twice the limit. A node that dies loses its unsynced usage, at most as much again. The store takes unsynced
//! usage afterwards, and a node in debt admits nothing, so over all time the limit holds. Overshoot of one window
//! is not missing in the next.
//!
//! # Not included
//!
//! Usage that a store loses in a failover, and usage admitted while it does not answer. The latter is the same for
//! all modes of sharing and adds to this bound ([`Quota::max_outage_overshoot`]).

use super::rule::{OnStoreError, Quota, Sharing};
use super::store::lease::terms::LeaseTerms;
use super::store::sync::counter::SyncTerms;
use tollgate::Algorithm;

impl Quota {
    /// The most units above this quota that may pass in any period, with this many nodes. Over all time the bound
    /// is zero.
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

    /// The most units on top of [`Quota::max_overshoot`] that may pass if the store stops answering: the shares of
    /// the nodes that the store had granted nothing. `None`: every request passes until it answers again.
    ///
    /// The two add up: usage of synced counters before the outage is not taken from the shares of other nodes.
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

    /// Whether it is large and fast enough to be leased to this many nodes. If not, `lease` is `exact`.
    pub fn is_leasable(&self, nodes: u32) -> bool {
        LeaseTerms::from_quota(self).is_some_and(|terms| terms.block_max(nodes) > 0)
    }

    /// Whether it can be shared in this mode.
    pub fn supports(&self, sharing: Sharing) -> bool {
        // A debt is counted where the state is, or it would be earned at several nodes.
        let has_debt = self.limit.max_debt() > 0;
        match sharing {
            Sharing::Exact => true,
            _ if has_debt => false,
            Sharing::Lease => LeaseTerms::from_quota(self).is_some(),
            Sharing::Sync => SyncTerms::from_quota(self).is_some(),
        }
    }
}
