//! Costs that are told after the fact: what a request takes although it does not pass.
//!
//! # Theory
//!
//! A request that is refused costs nothing, because it does nothing. That is wrong where the cost is told when the
//! work is done: then nobody can be refused any more, and whoever always tells more than is left would never
//! pay. A limit that is for such costs says so ([`WhenOver::TakeRest`]): what a request could not take is taken
//! from it as far as it is there, be it this limit that refuses or another one. The answer stays what it was.
//!
//! # Invariant
//!
//! Nothing is taken beyond what the limit holds, so nobody owes anything. A window is then used up until it
//! ends. A bucket goes on earning at once: after a report of many times its burst it has one unit again as
//! soon as one unit is earned. Whoever needs more than that takes a window.
//!
//! # In a fleet
//!
//! The store is told in a second question, which is only asked if the first one refused. If it gives no answer
//! to that, it is owed: the next charge for the key tells it.
//!
//! # What it does not know
//!
//! Places in concurrency limits and in leaky buckets: these are somebody's own for a time, and nobody takes
//! them afterwards.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::answer::{Answer, Role, RuleCharge};
use super::gate::PolicyGate;
use super::rule::WhenOver;
use crate::clock::Clock;
use crate::limit::Algorithm;
use crate::store::shared::SharedSettle;

impl<C: Clock> PolicyGate<C> {
    /// Is this charge to be taken although it was not, as far as that can be?
    fn takes_rest(&self, passes: bool, charge: &RuleCharge) -> bool {
        let was_taken = passes && charge.verdict.is_admitted();
        if was_taken || charge.role == Role::Unlimited {
            return false;
        }
        let rule = self.rules.get(charge.rule).map(|live| &live.rule);
        let is_meant = rule.is_some_and(|rule| rule.when_over == WhenOver::TakeRest);
        let quota = self.quota(charge.limit).map(|q| q.limit.algorithm());
        let is_place = matches!(
            quota,
            None | Some(Algorithm::Concurrency { .. } | Algorithm::LeakyBucket { .. })
        );
        is_meant && !is_place
    }

    /// Takes what is left for charges that were not taken, in this process.
    pub(super) fn take_rest(&self, answer: &Answer) {
        let passes = answer.is_admitted();
        for charge in &answer.charges {
            if self.takes_rest(passes, charge) {
                let limiter = self.gate.limiter(charge.limit);
                limiter.settle_hash(charge.hash, charge.issued, 0, charge.cost);
            }
        }
    }

    /// Notes for the store what [`PolicyGate::take_rest`] took without it.
    pub(super) fn owe_rest(&self, answer: &Answer) {
        let passes = answer.is_admitted();
        for charge in &answer.charges {
            if self.takes_rest(passes, charge) {
                self.owe(charge.limit, charge.hash, charge.cost);
            }
        }
    }

    /// The same as [`PolicyGate::take_rest`] in the store that a fleet shares; what it does not answer before
    /// `over` is owed.
    pub(super) async fn take_rest_there(&self, answer: &Answer, over: impl Future<Output = ()>) {
        let passes = answer.is_admitted();
        let Some(fleet) = &self.fleet else {
            return;
        };
        let numbered = answer.charges.iter().zip(&answer.keys);
        let taken: Vec<_> = numbered
            .filter(|(charge, _)| self.takes_rest(passes, charge))
            .map(|(charge, key)| {
                // Kept warm, as what the store lets pass is.
                let limiter = self.gate.limiter(charge.limit);
                limiter.take_over(charge.hash, charge.cost);
                let settle = SharedSettle {
                    limit: charge.limit,
                    key: key.clone(),
                    issued: charge.issued,
                    taken: 0,
                    used: charge.cost,
                };
                (charge, settle)
            })
            .collect();
        if taken.is_empty() {
            return;
        }
        let limits = Arc::clone(&fleet.limits);
        let asked = taken.iter().map(|(_, settle)| Some(limits.settle(settle)));
        let mut asked: Vec<_> = asked.collect();
        let mut failed = vec![false; taken.len()];
        let mut over = pin!(over);
        poll_fn(|context| {
            let mut waits = false;
            for (place, failed) in asked.iter_mut().zip(&mut failed) {
                match place.as_mut().map(|answer| answer.as_mut().poll(context)) {
                    Some(Poll::Ready(settled)) => {
                        *failed = settled.is_err();
                        *place = None;
                    }
                    Some(Poll::Pending) => waits = true,
                    None => {}
                }
            }
            match waits {
                true => over.as_mut().poll(context),
                false => Poll::Ready(()),
            }
        })
        .await;
        let unheard = asked.iter().zip(&failed).zip(&taken);
        for ((place, failed), (charge, _)) in unheard {
            if *failed || place.is_some() {
                self.owe(charge.limit, charge.hash, charge.cost);
            }
        }
    }
}
