//! Builds a decision from decided charges.

use super::charge::{Charge, Source};
use super::gate::{Plan, PolicyGate};
use super::policy_decision::{PolicyDecision, Reason};
use super::store::StoreOp;
use super::store::memory::Decided;
use tollgate::Clock;
use tollgate::Moment;
use tollgate::{Decision, Origin, QuotaStatus, Verdict};

impl<C: Clock> PolicyGate<C> {
    /// Decides a request by the tables of this process.
    pub(super) fn execute(&self, plan: Plan, op: StoreOp, now: Moment) -> PolicyDecision {
        let Plan {
            mut charges,
            enforced,
            stop,
        } = plan;
        let mut answer = match stop {
            Some(reason) => unlimited(Verdict::Never, reason, now),
            None => match self.memory.decide(&mut charges, op, Source::Memory) {
                Decided::TooMany => unlimited(Verdict::Never, Reason::TooManyLimits, now),
                Decided::By(..) if enforced == 0 => {
                    unlimited(Verdict::Pass, without_enforced(&charges), now)
                }
                Decided::By(decision, binding) => decided(decision, binding),
            },
        };
        answer.charges = charges;
        if op == StoreOp::Charge && stop.is_none() {
            self.charge_remaining_in_memory(&answer);
        }
        answer
    }

    /// The decision on charges that a store has decided.
    pub(super) fn build_decision(&self, charges: Vec<Charge>, enforced: usize) -> PolicyDecision {
        let now = self.clock.now();
        let mut answer = unlimited(Verdict::Pass, without_enforced(&charges), now);
        answer.origin = origin(&charges);
        let denied = by(&charges, Source::Denied);
        if let Some(charge) = denied {
            answer.verdict = charge.outcome.verdict;
            answer.reason = Reason::StoreError(charge.rule);
            answer.status.remaining = 0;
            answer.charges = charges;
            return answer;
        }
        let counted = charges.iter().enumerate();
        let counted = counted.filter(|(_, charge)| charge.is_enforced() && !charge.is_open());
        let mut decisions = counted
            .map(|(at, charge)| {
                let decision = Decision {
                    verdict: charge.outcome.verdict,
                    status: charge.outcome.status,
                    issued: now,
                    origin: answer.origin,
                };
                (at, charge.cost, decision)
            })
            .peekable();
        if decisions.peek().is_some() {
            let (decision, binding) = tightest(decisions, now);
            answer.verdict = decision.verdict;
            answer.reason = Reason::Charge(binding.unwrap_or(0));
            answer.status = decision.status;
        } else if let Some(charge) = by(&charges, Source::Allowed) {
            answer.reason = Reason::StoreError(charge.rule);
        } else if enforced > 0 {
            answer.reason = Reason::Charge(0);
        }
        answer.charges = charges;
        for charge in &mut answer.charges {
            if charge.is_enforced() {
                charge.verdict = answer.verdict;
            }
        }
        answer
    }
}

/// Why a request passes that no enforced limit matches.
fn without_enforced(charges: &[Charge]) -> Reason {
    match charges {
        [] => Reason::Unmatched,
        _ => Reason::OnlyCounted,
    }
}

/// The first charge with this source.
fn by(charges: &[Charge], source: Source) -> Option<&Charge> {
    charges
        .iter()
        .find(|charge| charge.outcome.source == source)
}

/// The origin of a decision.
fn origin(charges: &[Charge]) -> Origin {
    let without_store = |charge: &Charge| match charge.outcome.source {
        Source::Allowed | Source::Denied => true,
        Source::Share => charge.is_enforced(),
        _ => false,
    };
    let by_store = |charge: &Charge| charge.outcome.source == Source::Store;
    let locally = |charge: &Charge| matches!(charge.outcome.source, Source::Lease | Source::Synced);
    match charges {
        _ if charges.iter().any(without_store) => Origin::Degraded,
        _ if charges.iter().any(by_store) => Origin::Fresh,
        _ if charges.iter().any(locally) => Origin::Leased,
        // Only counted charges were decided, by the share.
        _ if by(charges, Source::Share).is_some() => Origin::Degraded,
        _ => Origin::Fresh,
    }
}

fn decided(decision: Decision, binding: Option<usize>) -> PolicyDecision {
    PolicyDecision {
        verdict: decision.verdict,
        // Without a binding charge all of them are unlimited: the first gives the reason.
        reason: Reason::Charge(binding.unwrap_or(0)),
        status: decision.status,
        issued: decision.issued,
        origin: decision.origin,
        charges: Vec::new(),
    }
}

/// A decision without any limit.
pub(super) fn unlimited(verdict: Verdict, reason: Reason, now: Moment) -> PolicyDecision {
    PolicyDecision {
        verdict,
        reason,
        status: QuotaStatus {
            remaining: if verdict.is_admitted() { u64::MAX } else { 0 },
            ..QuotaStatus::default()
        },
        issued: now,
        origin: Origin::Fresh,
        charges: Vec::new(),
    }
}

/// The common decision of several limits, and the binding one: as if they were charged together.
pub(super) fn tightest(
    decisions: impl Iterator<Item = (usize, u64, Decision)>,
    now: Moment,
) -> (Decision, Option<usize>) {
    let rank = |verdict: Verdict| match verdict {
        Verdict::Never => 2,
        Verdict::Refuse { .. } => 1,
        _ => 0,
    };
    let mut worst: Option<(usize, u64, Decision)> = None;
    let mut delay = Verdict::Pass;
    for (at, cost, decision) in decisions {
        if let (Verdict::Wait { .. }, true) =
            (decision.verdict, decision.verdict.wait() > delay.wait())
        {
            delay = decision.verdict;
        }
        let more = decision.status.remaining / cost.max(1);
        let is_worse = worst.is_none_or(|(_, least, so_far)| {
            let (this, that) = (rank(decision.verdict), rank(so_far.verdict));
            match this.cmp(&that) {
                std::cmp::Ordering::Equal if this == 1 => {
                    decision.verdict.wait() > so_far.verdict.wait()
                }
                std::cmp::Ordering::Equal => {
                    (more, so_far.status.full_after) < (least, decision.status.full_after)
                }
                order => order.is_gt(),
            }
        });
        if is_worse {
            worst = Some((at, more, decision));
        }
    }
    match worst {
        None => (Decision::unlimited(now), None),
        Some((at, _, decision)) if decision.is_admitted() => (
            Decision {
                verdict: delay,
                ..decision
            },
            Some(at),
        ),
        Some((at, _, decision)) => (decision, Some(at)),
    }
}
