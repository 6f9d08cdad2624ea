//! Several limits, one decision: all of them are charged, or none.
//!
//! # Theory
//!
//! First every charge is decided without being made. If one is refused, so is the request, and nothing
//! was written. If all pass, each is committed by one swap from the very word it was decided on. A swap
//! that fails has lost a race: that limit is then charged anew, and if it refuses now, what was
//! committed is taken back and all is tried again, three times at the most.
//!
//! # Guarantees
//!
//! 1. Every limit keeps its own law at all times: each change is a charge or a strict refund of that
//!    limit alone.
//! 2. A request is admitted only if all its charges stand.
//! 3. A refusal that no serial order would give happens only while another request, itself refused, is
//!    between its swap and taking it back: a few steps long, and at most its cost.
//!
//! A charge that is taken back at once and that nobody has seen meanwhile leaves no trace at all; else
//! it is given back strictly, with a fresh reading of the clock.
//!
//! # Why not lock the keys
//!
//! A thread that is stopped while it holds them stops everyone else; and sorting and locking costs more
//! than the charges. There is no global order here and nothing that can wait for another.

use super::key_table::{KeyTable, TentativeCharge};
use super::op::KeyOp;
use super::tentative::PendingWrite;
use crate::algorithm::Refund;
use crate::clock::Clock;
use crate::decision::{Decision, Origin, QuotaStatus, Verdict};
use crate::time::{Moment, Span};

/// Charges in one request at the most; everything is kept on the stack.
pub const MAX_CHARGES: usize = 16;

/// A charge of a request with the table of its limit.
#[derive(Clone, Copy)]
pub(crate) struct ResolvedCharge<'a> {
    pub(crate) table: &'a KeyTable,
    pub(crate) hash: u64,
    pub(crate) cost: u64,
    /// The number of the window, if it comes with the request.
    pub(crate) max: Option<u32>,
}

impl ResolvedCharge<'_> {
    /// Decides it without making it.
    #[inline(always)]
    fn tentative<C: Clock>(&self, now: Moment, clock: &C) -> TentativeCharge<'_> {
        let fresh = || clock.fresh();
        (self.table).tentative(self.hash, now, fresh, self.cost, self.max)
    }

    /// The status once this write is made, or while it is not.
    fn status_at(&self, write: &PendingWrite<'_>, now: Moment, is_made: bool) -> QuotaStatus {
        self.table.status_at(write, now, is_made, self.max)
    }

    fn charge<C: Clock>(&self, now: Moment, clock: &C) -> Decision {
        let fresh = || clock.fresh();
        (self.table).charge(self.hash, now, fresh, self.cost, self.max)
    }

    fn refund<C: Clock>(&self, clock: &C, issued: Moment) {
        let now = clock.fresh();
        let refund = KeyOp::Refund(Refund {
            charged: self.cost,
            kept: 0,
            issued,
            delay: Span::ZERO,
        });
        // What is given back shows in the next decision.
        let _ = self.table.apply(&refund, self.hash, now, || now);
    }
}

/// What became of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MultiOutcome {
    pub(crate) decision: Decision,
    /// The charge that decided, or was closest to deciding.
    pub(crate) binding: usize,
}

/// What has happened to one charge.
#[derive(Clone, Copy)]
enum Committed<'a> {
    /// Nothing yet.
    Nothing,
    /// Committed at this place, with this verdict.
    At(PendingWrite<'a>, Verdict),
    /// Charged in full.
    Charged(Decision),
}

/// Charges all charges or none, and tells the numbers of the binding one. At most [`MAX_CHARGES`]; the
/// caller sees to it.
pub(crate) fn all_or_none<C: Clock>(charges: &[ResolvedCharge<'_>], clock: &C) -> MultiOutcome {
    // What is kept for each charge is large, so room is made for few unless there are many.
    match charges.len() {
        1 => single(charges, clock),
        0..=2 => all_or_none_of::<2, C>(charges, clock),
        3..=4 => all_or_none_of::<4, C>(charges, clock),
        _ => all_or_none_of::<MAX_CHARGES, C>(charges, clock),
    }
}

/// One charge by itself is all or none anyway: it is made where it is decided.
fn single<C: Clock>(charges: &[ResolvedCharge<'_>], clock: &C) -> MultiOutcome {
    let now = clock.now();
    let decision = charges.first().map(|charge| charge.charge(now, clock));
    MultiOutcome {
        decision: decision.unwrap_or_else(|| Decision::unlimited(now)),
        binding: 0,
    }
}

#[inline(never)]
fn all_or_none_of<const N: usize, C: Clock>(
    charges: &[ResolvedCharge<'_>],
    clock: &C,
) -> MultiOutcome {
    let charges = charges.get(..N).unwrap_or(charges);
    let mut refused = None;
    for _ in 0..3 {
        let now = clock.now();
        let nothing = TentativeCharge {
            verdict: Verdict::Pass,
            write: None,
        };
        let mut tentatives = [nothing; N];
        for (tentative, charge) in tentatives.iter_mut().zip(charges) {
            *tentative = charge.tentative(now, clock);
        }
        let tentatives = &tentatives[..charges.len()];
        if let Some((binding, verdict)) = refusal(tentatives) {
            if verdict != Verdict::Never {
                repair_refused(charges, tentatives, now, clock);
            }
            return refusal_of(charges, tentatives, binding, verdict, now);
        }
        // All in place and unchanged, as a rule: a swap each, and nothing more to remember.
        let is_committed =
            |tentative: &TentativeCharge<'_>| tentative.write.is_some_and(|write| write.commit());
        let committed = tentatives
            .iter()
            .take_while(|tentative| is_committed(tentative))
            .count();
        if committed == tentatives.len() {
            return admission(charges, now, |i, charge| {
                at_offer(charge, tentatives.get(i), now)
            });
        }
        let mut made = [Committed::Nothing; N];
        match commit_rest(charges, tentatives, &mut made, committed, now, clock) {
            None => {
                return admission(charges, now, |i, charge| at_made(charge, made.get(i), now));
            }
            lost => refused = lost,
        }
    }
    // Three times somebody else was quicker, and then there was not enough left.
    refused.unwrap_or(MultiOutcome {
        decision: Decision::unlimited(clock.now()),
        binding: 0,
    })
}

/// The refusal that decides, if any: never before all, then the longest wait, then the first.
#[inline(always)]
fn refusal(tentatives: &[TentativeCharge<'_>]) -> Option<(usize, Verdict)> {
    let mut worst: Option<(usize, Verdict)> = None;
    for (i, tentative) in tentatives.iter().enumerate() {
        let worse = match (tentative.verdict, worst) {
            (Verdict::Never, Some((_, Verdict::Never))) => false,
            (Verdict::Never, _) => true,
            (Verdict::Refuse { .. }, None) => true,
            (Verdict::Refuse { retry_after: a }, Some((_, Verdict::Refuse { retry_after: b }))) => {
                a > b
            }
            _ => false,
        };
        if worse {
            worst = Some((i, tentative.verdict));
        }
    }
    worst
}

/// The one thing that a refusal writes: a clock that was set back is made good, or the key would be
/// locked out until it has caught up.
#[cold]
fn repair_refused<C: Clock>(
    charges: &[ResolvedCharge<'_>],
    tentatives: &[TentativeCharge<'_>],
    now: Moment,
    clock: &C,
) {
    for (charge, tentative) in charges.iter().zip(tentatives) {
        match (tentative.verdict, &tentative.write) {
            // What a refused step wants to write is a repair. If the swap fails, somebody else did it.
            (Verdict::Refuse { .. }, Some(write)) => {
                write.commit();
            }
            // Not where it was expected: charge it for real. It is refused, or else, if something was
            // given back just now, it is given back too.
            (Verdict::Refuse { .. }, None) => {
                let decision = charge.charge(now, clock);
                if decision.is_admitted() {
                    charge.refund(clock, decision.issued);
                }
            }
            _ => {}
        }
    }
}

#[cold]
fn refusal_of(
    charges: &[ResolvedCharge<'_>],
    tentatives: &[TentativeCharge<'_>],
    binding: usize,
    verdict: Verdict,
    now: Moment,
) -> MultiOutcome {
    let status = match (charges.get(binding), tentatives.get(binding)) {
        (
            Some(charge),
            Some(TentativeCharge {
                write: Some(write), ..
            }),
        ) => charge.status_at(write, now, false),
        (Some(charge), _) => {
            let peek = KeyOp::Peek {
                cost: charge.cost,
                max: charge.max,
            };
            let peeked = charge.table.apply(&peek, charge.hash, now, || now);
            peeked.decision.status
        }
        _ => QuotaStatus::default(),
    };
    MultiOutcome {
        decision: Decision {
            verdict,
            status,
            issued: now,
            origin: Origin::Fresh,
        },
        binding,
    }
}

/// Makes the charges after the first `committed`; or none at all, and says which was refused.
#[cold]
fn commit_rest<'a, C: Clock>(
    charges: &[ResolvedCharge<'a>],
    tentatives: &[TentativeCharge<'a>],
    made: &mut [Committed<'a>],
    committed: usize,
    now: Moment,
    clock: &C,
) -> Option<MultiOutcome> {
    for (i, (charge, tentative)) in charges.iter().zip(tentatives).enumerate() {
        made[i] = match tentative.write {
            Some(write) if i < committed || write.commit() => {
                Committed::At(write, tentative.verdict)
            }
            _ => {
                let decision = charge.charge(now, clock);
                if !decision.is_admitted() {
                    take_back(charges, made, now, clock);
                    return Some(MultiOutcome {
                        decision: Decision {
                            issued: now,
                            ..decision
                        },
                        binding: i,
                    });
                }
                Committed::Charged(decision)
            }
        };
    }
    None
}

/// The decision on a charge whose tentative was committed.
#[inline(always)]
fn at_offer(
    charge: &ResolvedCharge<'_>,
    tentative: Option<&TentativeCharge<'_>>,
    now: Moment,
) -> Option<Decision> {
    let tentative = tentative?;
    Some(Decision {
        verdict: tentative.verdict,
        status: charge.status_at(tentative.write.as_ref()?, now, true),
        issued: now,
        origin: Origin::Fresh,
    })
}

/// The decision on a charge, whichever way it was made.
fn at_made(
    charge: &ResolvedCharge<'_>,
    made: Option<&Committed<'_>>,
    now: Moment,
) -> Option<Decision> {
    match made? {
        Committed::Nothing => None,
        Committed::Charged(decision) => Some(Decision {
            issued: now,
            ..*decision
        }),
        Committed::At(write, verdict) => Some(Decision {
            verdict: *verdict,
            status: charge.status_at(write, now, true),
            issued: now,
            origin: Origin::Fresh,
        }),
    }
}

#[cold]
fn take_back<C: Clock>(
    charges: &[ResolvedCharge<'_>],
    made: &[Committed<'_>],
    now: Moment,
    clock: &C,
) {
    for (charge, made) in charges.iter().zip(made) {
        let issued = match made {
            Committed::Nothing => continue,
            Committed::At(write, _) if write.revert() => continue,
            Committed::At(..) => now,
            Committed::Charged(decision) => decision.issued,
        };
        charge.refund(clock, issued);
    }
}

/// The decision on a request that passed: the numbers of the limit with the least left for requests of
/// this cost, then the one that takes longest to be full, then the first.
#[inline(always)]
fn admission(
    charges: &[ResolvedCharge<'_>],
    now: Moment,
    decision_on: impl Fn(usize, &ResolvedCharge<'_>) -> Option<Decision>,
) -> MultiOutcome {
    let mut delay = Span::ZERO;
    let mut binding: Option<(usize, Decision, u64)> = None;
    for (i, charge) in charges.iter().enumerate() {
        let Some(decision) = decision_on(i, charge) else {
            continue;
        };
        delay = delay.max(decision.verdict.wait().unwrap_or(Span::ZERO));
        // Most requests cost one: spare them the division.
        let more = match charge.cost {
            0 | 1 => decision.status.remaining,
            cost => decision.status.remaining / cost,
        };
        let closer = binding.as_ref().is_none_or(|(_, tightest, least)| {
            more < *least
                || (more == *least && decision.status.full_after > tightest.status.full_after)
        });
        if closer {
            binding = Some((i, decision, more));
        }
    }
    match binding {
        Some((binding, decision, _)) => MultiOutcome {
            decision: Decision {
                verdict: Verdict::after(delay.as_nanos()),
                ..decision
            },
            binding,
        },
        None => MultiOutcome {
            decision: Decision::unlimited(now),
            binding: 0,
        },
    }
}
