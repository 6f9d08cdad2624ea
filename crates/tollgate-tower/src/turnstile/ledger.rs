//! What was served of each class of client, over all rules that a queue has followed.
//!
//! # Theory
//!
//! A rule names its classes in some order, and the next rule in another. A request knows its class by the
//! place that it had in the rule when it came. So each class has an account of its own, by its name, which
//! it keeps for good: whoever arrives is told the account, and it is counted there whatever the order is by
//! then. A class that is gone keeps what it had, and goes on if it comes back.
//!
//! There are as many accounts as classes were ever named: that is for whoever writes policies, not for
//! clients.

use std::sync::Arc;

use tollgate_policy::QueueRule;

use super::report::Served;

/// What was served of each class.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: Vec<(Arc<str>, Served)>,
    /// The account of each class of the rule, in its order.
    order: Vec<usize>,
    of_none: Served,
}

impl Ledger {
    /// Follows another rule from now on.
    pub(super) fn follow(&mut self, rule: &QueueRule) {
        let tiers = rule.weights.iter().flat_map(|weights| &weights.tiers);
        self.order.clear();
        for (name, _) in tiers {
            let known = self.accounts.iter().position(|(known, _)| known == name);
            self.order.push(known.unwrap_or(self.accounts.len()));
            if known.is_none() {
                self.accounts.push((Arc::clone(name), Served::default()));
            }
        }
    }

    /// The account of a class by its place in the rule; None for those that belong to none.
    pub(super) fn account(&self, tier: Option<usize>) -> Option<usize> {
        self.order.get(tier?).copied()
    }

    pub(super) fn count(&mut self, account: Option<usize>, cost: u64) {
        let known = account.and_then(|account| self.accounts.get_mut(account));
        let served = known.map_or(&mut self.of_none, |(_, served)| served);
        served.count(cost);
    }

    /// What was served of each class of the rule, in its order.
    pub(super) fn served(&self) -> Vec<Served> {
        let accounts = self.order.iter().filter_map(|at| self.accounts.get(*at));
        accounts.map(|(_, served)| *served).collect()
    }

    /// What was served that belongs to no class.
    pub(super) fn of_none(&self) -> Served {
        self.of_none
    }
}
