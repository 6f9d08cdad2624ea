//! From what the store, a loan or a copy said to the answer.

use super::super::answer::{Answer, Basis, Role};
use super::super::gate::{Ask, Plan, PolicyGate, tightest, unlimited};
use super::account::Terms;
use super::leased::Ways;
use super::{Asking, Outcome, Question, Step};
use crate::clock::Clock;
use crate::decision::{Decision, Origin, Standing, Verdict};
use crate::limit::Algorithm;
use crate::store::shared::SharedOutcome;
use crate::time::{Moment, Span};

impl<C: Clock> PolicyGate<C> {
    /// What an outcome comes to.
    pub(super) fn answer(&self, asking: Asking, outcome: Outcome) -> Answer {
        match outcome {
            Outcome::Nothing => self.fall_back(asking),
            Outcome::Refused(at, wait) => self.refused_by_loan(asking.plan, at, wait),
            Outcome::Paid(ways) => self.paid(asking.plan, ways, self.clock.now()),
            Outcome::Told(sent, outcomes) => {
                let now = self.clock.now();
                let Asking {
                    mut plan,
                    ask,
                    step,
                    ..
                } = asking;
                let Step::Ask(question) = step else {
                    return self.conclude(plan, now, outcomes, Origin::Fresh);
                };
                let asked = question.request.charges.iter().zip(&outcomes);
                let mut enforced = asked.filter(|(charge, _)| charge.enforced);
                let passes = enforced.all(|(_, outcome)| outcome.verdict.is_admitted());
                if passes && ask == Ask::Charge {
                    self.keep_warm(&question, &outcomes, &mut plan);
                }
                let told = match (question.ways, &self.fleet) {
                    (Some(ways), Some(fleet)) => {
                        for (at, charge) in plan.charges.iter_mut().enumerate() {
                            charge.is_lent = ways.is_lent(at);
                        }
                        let nodes = fleet.store.nodes().max(1);
                        ways.conclude(&plan.keys, (nodes, sent), passes, &outcomes)
                    }
                    _ => self.in_order(&plan, outcomes),
                };
                self.conclude(plan, now, told, Origin::Fresh)
            }
        }
    }

    /// A request that loans or copies paid for.
    pub(super) fn paid(&self, mut plan: Plan, ways: Ways, now: Moment) -> Answer {
        self.keep_paid_warm(&ways, &mut plan);
        for charge in &mut plan.charges {
            charge.is_lent = charge.role != Role::Unlimited;
        }
        let told = ways.conclude(&[], (1, now), true, &[]);
        self.conclude(plan, now, told, Origin::Leased)
    }

    /// What the store says, with a place for those that do not count.
    fn in_order(&self, plan: &Plan, outcomes: Vec<SharedOutcome>) -> Vec<SharedOutcome> {
        if outcomes.len() == plan.charges.len() {
            return outcomes;
        }
        let mut outcomes = outcomes.into_iter();
        let free = SharedOutcome {
            verdict: Verdict::Pass,
            standing: Standing::default(),
            issued: self.clock.now(),
            unpaid: 0,
        };
        let told = plan.charges.iter().map(|charge| match charge.role {
            Role::Unlimited => free,
            _ => outcomes.next().unwrap_or(free),
        });
        told.collect()
    }

    /// The answer that outcomes come to, one for each charge.
    fn conclude(
        &self,
        mut plan: Plan,
        now: Moment,
        told: Vec<SharedOutcome>,
        origin: Origin,
    ) -> Answer {
        for (charge, outcome) in plan.charges.iter_mut().zip(&told) {
            if charge.role != Role::Unlimited {
                charge.verdict = outcome.verdict;
                charge.issued = outcome.issued;
                charge.is_shared = true;
            }
        }
        let mut answer = unlimited(Verdict::Pass, Basis::Unmatched, now);
        answer.origin = origin;
        if plan.enforced > 0 {
            let numbered = plan.charges.iter().enumerate().zip(&told);
            let enforced = numbered.filter(|((_, charge), _)| charge.role == Role::Enforced);
            let decisions = enforced.map(|((at, charge), outcome)| {
                let decision = Decision {
                    verdict: outcome.verdict,
                    standing: outcome.standing,
                    issued: now,
                    origin,
                };
                (at, charge.cost, decision)
            });
            let (decision, binding) = tightest(decisions, now);
            answer.verdict = decision.verdict;
            answer.basis = Basis::Charge(binding.unwrap_or(0));
            answer.standing = decision.standing;
        }
        for charge in &mut plan.charges {
            if charge.role == Role::Enforced {
                charge.verdict = answer.verdict;
            }
        }
        answer.charges = plan.charges;
        answer.keys = plan.keys;
        answer.outcomes = told;
        answer
    }

    /// A request that the store would refuse, as a loan knows. The others are told as this node sees them.
    pub(super) fn refused_by_loan(&self, mut plan: Plan, at: usize, wait: Span) -> Answer {
        let now = self.clock.now();
        let refused = Verdict::Refuse { retry_after: wait };
        let told = plan.charges.iter().enumerate().map(|(place, charge)| {
            let stands = self.gate.limiter(charge.limit).peek_hash(charge.hash, 0);
            SharedOutcome {
                verdict: if place == at { refused } else { Verdict::Pass },
                standing: match place == at {
                    true => Standing {
                        remaining: 0,
                        next_after: wait,
                        full_after: stands.standing.full_after.max(wait),
                    },
                    false => stands.standing,
                },
                issued: now,
                unpaid: 0,
            }
        });
        let told: Vec<_> = told.collect();
        // What was not asked does not bind.
        let binding = told.get(at).map(|told| told.standing).unwrap_or_default();
        for charge in &mut plan.charges {
            if charge.role == Role::Enforced {
                charge.verdict = refused;
            }
            charge.is_shared = charge.role != Role::Unlimited;
        }
        Answer {
            standing: binding,
            origin: Origin::Leased,
            charges: plan.charges,
            keys: plan.keys,
            outcomes: told,
            ..unlimited(refused, Basis::Charge(at), now)
        }
    }

    /// Takes what the store let pass here, and what it lent, from this node's share, too.
    fn keep_warm(&self, question: &Question, outcomes: &[SharedOutcome], plan: &mut Plan) {
        let asked = question.request.charges.iter().zip(&question.places);
        for ((asked, at), outcome) in asked.zip(outcomes) {
            let Some(charge) = plan.charges.get_mut(*at) else {
                continue;
            };
            let limiter = self.gate.limiter(charge.limit);
            let is_place = matches!(limiter.limit().algorithm(), Algorithm::Concurrency { .. });
            if outcome.verdict.is_admitted() {
                let units = if is_place { charge.cost } else { asked.cost };
                let taken = limiter.take_over(charge.hash, units);
                charge.in_share = taken.min(charge.cost);
            }
        }
        if let Some(ways) = &question.ways {
            self.keep_paid_warm(ways, plan);
        }
    }

    /// The same for what was paid here. What a block pays for was taken from the share with the block; but places are
    /// given back one by one, and of what copies let pass nobody knew before.
    fn keep_paid_warm(&self, ways: &Ways, plan: &mut Plan) {
        let paid = plan.charges.iter_mut().enumerate();
        for (_, charge) in paid.filter(|(at, _)| ways.is_paid(*at)) {
            let Some(variant) = self.variants.get(charge.limit.index()) else {
                continue;
            };
            let is_place = matches!(
                variant.quota.limit.algorithm(),
                Algorithm::Concurrency { .. }
            );
            if is_place || matches!(variant.loans, Some(Terms::Copy(_))) {
                let limiter = self.gate.limiter(charge.limit);
                charge.in_share = limiter.take_over(charge.hash, charge.cost);
            }
        }
    }
}
