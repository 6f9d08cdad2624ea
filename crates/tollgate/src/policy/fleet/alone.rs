//! Decisions of this node alone, when the store gives none: its share, what it then owes, and what each limit says.

use super::super::answer::{Answer, Basis, Role, RuleCharge};
use super::super::build::horizon;
use super::super::gate::{Ask, PolicyGate, unlimited};
use super::super::rule::OnStoreError;
use super::owing::Owed;
use super::{Asking, Fleet, Question, Step};
use crate::clock::Clock;
use crate::decision::{Origin, Verdict};
use crate::gate::LimitId;
use crate::limit::Algorithm;
use crate::time::{Moment, Span};

/// When to ask again if a limit refuses because the store is away: it is tried several times a second.
const TRY_AGAIN: Span = Span::from_secs(1);

impl<C: Clock> PolicyGate<C> {
    /// Sees to it that this node's limiters hold its share of each limit, whatever the number of nodes is
    /// now, and forgets what is owed and does not count any more. To be called every now and then.
    pub fn divide(&self) {
        let Some(fleet) = &self.fleet else {
            return;
        };
        fleet.owing.sweep(self.clock.now());
        let nodes = fleet.store.nodes().max(1);
        for (variant, (_, limiter)) in self.variants.iter().zip(self.limiters()) {
            let share = variant.quota.share(nodes).limit;
            if limiter.limit().algorithm() != share.algorithm() {
                // A share is of the same kind, so this fails only for want of memory; the old share stays.
                let _ = limiter.change(share);
            }
        }
    }

    /// What a key was let pass while the store was away and has not earned back.
    pub(super) fn owed(&self, fleet: &Fleet, limit: LimitId, hash: u64) -> Owed {
        let variant = self.variants.get(limit.index());
        let known_by = variant.map_or(0, |variant| variant.known_by);
        let until = match fleet.owing.is_empty() {
            true => Moment::ORIGIN,
            false => variant.map_or(Moment::ORIGIN, |variant| {
                self.clock.now().plus(horizon(&variant.quota))
            }),
        };
        // The share holds these units, less what was earned since, and what the store let pass itself.
        let most = || self.gate.limiter(limit).used(hash);
        Owed::take(&fleet.owing, (known_by, hash), most, until)
    }

    /// Notes what the store is to be told. Places of concurrency limits are given back to whoever granted
    /// them, so they are not among it.
    pub(in crate::policy) fn owe(&self, limit: LimitId, hash: u64, units: u64) {
        let variant = self.variants.get(limit.index());
        let (Some(fleet), Some(variant)) = (&self.fleet, variant) else {
            return;
        };
        let limit = variant.quota.limit.algorithm();
        if units > 0 && !matches!(limit, Algorithm::Concurrency { .. }) {
            let until = self.clock.now().plus(horizon(&variant.quota));
            fleet.owing.add(variant.known_by, hash, units, until);
        }
    }

    /// Decides without the store, as each limit says.
    pub(super) fn fall_back(&self, asking: Asking) -> Answer {
        let Asking {
            mut plan,
            ask,
            step,
            began,
        } = asking;
        // What was to be told may not have been heard, and is owed again. What loans paid is put back, unless they paid for
        // everything that is enforced: a limit that is only counted changes nothing.
        if let Step::Ask(Question {
            ways: Some(ways), ..
        }) = step
        {
            let mut counts = plan.charges.iter().enumerate();
            if counts.all(|(at, charge)| charge.role != Role::Enforced || ways.is_paid(at)) {
                return self.paid(plan, ways, began);
            }
        }
        let on_error = |charge: &RuleCharge| {
            let rule = self.rules.get(charge.rule);
            rule.map_or(OnStoreError::Local, |live| live.rule.on_store_error)
        };
        let enforced = |charge: &&RuleCharge| charge.role == Role::Enforced;
        let mut wishes = plan.charges.iter().filter(enforced);
        let denies = wishes.find(|charge| on_error(charge) == OnStoreError::Deny);
        if let Some(rule) = denies.map(|charge| charge.rule) {
            let refused = Verdict::Refuse {
                retry_after: TRY_AGAIN,
            };
            let mut answer = unlimited(refused, Basis::StoreError(rule), self.clock.now());
            answer.standing.remaining = 0;
            answer.origin = Origin::Degraded;
            for charge in plan.charges.iter_mut() {
                charge.verdict = refused;
            }
            answer.charges = plan.charges;
            if ask == Ask::Charge {
                self.take_rest(&answer);
                self.owe_rest(&answer);
            }
            return answer;
        }
        // Who is let pass is not counted here: it does not bind, and nothing of it is left to tell.
        let mut let_pass = None;
        for charge in &mut plan.charges {
            if charge.role == Role::Enforced && on_error(charge) == OnStoreError::Allow {
                charge.role = Role::Unlimited;
                let_pass.get_or_insert(charge.rule);
                plan.enforced -= 1;
            }
        }
        let binds = plan.enforced > 0;
        let mut answer = self.carry_out(plan, began, ask);
        answer.origin = Origin::Degraded;
        if let (Some(rule), false) = (let_pass, binds) {
            answer.basis = Basis::StoreError(rule);
        }
        if answer.verdict == Verdict::Never
            && let Some(charge) = answer.binding()
            && charge.cost <= self.whole_capacity(charge)
        {
            // Too much for this node's share, not for the limit.
            answer.verdict = Verdict::Refuse {
                retry_after: TRY_AGAIN,
            };
        }
        if ask == Ask::Charge && answer.is_admitted() {
            let took = |c: &&RuleCharge| c.role == Role::Enforced && c.verdict.is_admitted();
            for charge in answer.charges.iter().filter(took) {
                self.owe(charge.limit, charge.hash, charge.cost);
            }
        }
        if ask == Ask::Charge {
            self.owe_rest(&answer);
        }
        answer
    }

    /// The greatest cost that can ever pass a limit as it is written.
    fn whole_capacity(&self, charge: &RuleCharge) -> u64 {
        let variant = self.variants.get(charge.limit.index());
        let whole = variant.map_or(0, |variant| variant.quota.advertised().0);
        charge.most.map_or(whole, u64::from)
    }
}
