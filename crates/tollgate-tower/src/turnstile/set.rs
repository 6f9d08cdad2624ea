//! The queues of a policy.

use tollgate_policy::QueueRule;

use super::{QueueError, Turnstile};

/// The queues of one policy, in its order. A queue that the policy before had by the same name goes on.
#[derive(Debug, Default)]
pub struct QueueSet {
    queues: Vec<(QueueRule, Turnstile)>,
}

impl QueueSet {
    /// The queues of a policy that may follow another one. Nothing changes for those that go on until
    /// [`QueueSet::put_in_force`].
    ///
    /// # Errors
    /// A queue that cannot be.
    pub fn new(rules: &[QueueRule], before: Option<&QueueSet>) -> Result<QueueSet, QueueError> {
        let turnstile = |rule: &QueueRule| {
            let mut old = before.into_iter().flat_map(|before| &before.queues);
            let fresh = Turnstile::new(rule)?;
            let goes_on = old.find(|(old, _)| old.name == rule.name);
            Ok(goes_on.map_or(fresh, |(_, turnstile)| turnstile.clone()))
        };
        let queues = rules
            .iter()
            .map(|rule| Ok((rule.clone(), turnstile(rule)?)));
        let queues = queues.collect::<Result<_, QueueError>>()?;
        Ok(QueueSet { queues })
    }

    /// Has the queues that go on follow their new rules.
    pub fn put_in_force(&self) {
        for (rule, turnstile) in &self.queues {
            turnstile.change(rule);
        }
    }

    /// A queue by its place in the policy.
    pub fn get(&self, at: usize) -> Option<&Turnstile> {
        self.queues.get(at).map(|(_, turnstile)| turnstile)
    }

    /// Every queue with its rule.
    pub fn iter(&self) -> impl Iterator<Item = (&QueueRule, &Turnstile)> {
        self.queues
            .iter()
            .map(|(rule, turnstile)| (rule, turnstile))
    }
}
