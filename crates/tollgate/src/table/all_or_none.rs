//! Several limits, one decision: all of them are charged, or none.
//!
//! # Theory
//!
//! First every charge is decided without being made. If one is refused, so is the request, and nothing was written. If
//! all pass, each is committed by one swap from the very word it was decided on. A swap that fails has lost a race:
//! what was committed is taken back, and all is decided again. After three lost races, or if a key is not in the table
//! yet, the charges are made one after the other, and taken back if one of them is refused.
//!
//! # Guarantees
//!
//! 1. Every limit keeps its own law at all times: each change is a charge or a strict refund of that
//!    limit alone.
//! 2. A request is admitted only if all its charges stand.
//! 3. A refusal that no serial order would give happens only while another request, itself refused, is
//!    between its swap and taking it back: a few steps long, and at most its cost.
//!
//! A charge that is taken back at once and that no other charge has followed leaves no trace. Otherwise
//! it is given back strictly, with a fresh reading of the clock.
//!
//! # Why not lock the keys
//!
//! A thread that is preempted while it holds them stops all others; and sorting and locking costs more
//! than the charges. There is no global order here and nothing that can wait for another.

use super::fast_path::Home;
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

impl<'a> ResolvedCharge<'a> {
    /// Decides it without making it.
    fn tentative<C: Clock>(&self, now: Moment, clock: &C) -> TentativeCharge<'a> {
        let fresh = || clock.fresh();
        (self.table).tentative(self.hash, now, fresh, self.cost, self.max)
    }

    /// The same on the fast path.
    #[inline(always)]
    fn tentative_fast(&self, home: Option<Home<'a>>, now: Moment) -> Option<TentativeCharge<'a>> {
        (self.table).tentative_fast(self.hash, home?, now, self.cost)
    }

    #[inline(always)]
    fn charge<C: Clock>(&self, clock: &C) -> Decision {
        let (now, fresh) = (|| clock.now(), || clock.fresh());
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

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MultiOutcome {
    pub(crate) decision: Decision,
    /// The charge that decided, or was closest to deciding.
    pub(crate) binding: usize,
}

/// Charges all charges or none, and reports the numbers of the binding one. The caller passes at most
/// [`MAX_CHARGES`].
#[inline(always)]
pub(crate) fn all_or_none<C: Clock>(charges: &[ResolvedCharge<'_>], clock: &C) -> MultiOutcome {
    // What is kept for each charge takes room on the stack, which is cleared first.
    match charges {
        [charge] => single(charge, clock),
        [] | [_, _] => all_or_none_of::<2, C>(charges, clock),
        [_, _, _] | [_, _, _, _] => all_or_none_of::<4, C>(charges, clock),
        _ => all_or_none_of::<MAX_CHARGES, C>(charges, clock),
    }
}

/// One charge by itself is all or none anyway: it is made where it is decided.
#[inline(always)]
fn single<C: Clock>(charge: &ResolvedCharge<'_>, clock: &C) -> MultiOutcome {
    MultiOutcome {
        decision: charge.charge(clock),
        binding: 0,
    }
}

/// How often all is decided again after a lost race.
const TRIES: u32 = 3;

#[inline(never)]
fn all_or_none_of<'a, const N: usize, C: Clock>(
    charges: &[ResolvedCharge<'a>],
    clock: &C,
) -> MultiOutcome {
    // Token buckets whose keys are in place, as a rule. The fast path and the general one are two instances of one
    // function, so that the first keeps everything in registers.
    let fast = |charge: &ResolvedCharge<'a>, home, now| charge.tentative_fast(home, now);
    if let Attempt::Decided(outcome) = attempt::<N, C>(charges, clock, fast) {
        return outcome;
    }
    let general = |charge: &ResolvedCharge<'a>, _, now| Some(charge.tentative(now, clock));
    for _ in 0..TRIES {
        match attempt::<N, C>(charges, clock, general) {
            Attempt::Decided(outcome) => return outcome,
            Attempt::LostRace => {}
            Attempt::NotInPlace => break,
        }
    }
    one_by_one(charges, clock)
}

/// The outcome of one attempt to take all charges.
enum Attempt {
    Decided(MultiOutcome),
    /// Another charge was faster. Nothing is charged.
    LostRace,
    /// A key is not in the table, or not where `decide` looks. Nothing is charged.
    NotInPlace,
}

/// Decides all charges by `decide` and commits them.
#[inline(always)]
fn attempt<'a, const N: usize, C: Clock>(
    charges: &[ResolvedCharge<'a>],
    clock: &C,
    decide: impl Fn(&ResolvedCharge<'a>, Option<Home<'a>>, Moment) -> Option<TentativeCharge<'a>>,
) -> Attempt {
    // The memory of all keys is on its way before the first is decided. Each array is made at once: filled and then
    // overwritten, it would be read back before its stores are done.
    let charges = charges.get(..N).unwrap_or(charges);
    let homes: [_; N] = std::array::from_fn(|at| {
        let charge = charges.get(at)?;
        charge.table.fetch(charge.hash)
    });
    let mut writes: [Option<PendingWrite<'a>>; N] = std::array::from_fn(|_| None);
    let now = clock.now();
    let mut binding = Binding::new(now);
    let (mut is_in_place, mut needs_repair) = (true, false);
    for at in 0..charges.len() {
        let charge = &charges[at];
        let Some(tentative) = decide(charge, homes[at], now) else {
            return Attempt::NotInPlace;
        };
        match &tentative.write {
            None => is_in_place = false,
            // What a refused step wants to write is a repair.
            Some(write) => {
                needs_repair |= write.is_change() && !tentative.verdict.is_admitted();
            }
        }
        writes[at] = tentative.write;
        binding.add(at, charge.cost, tentative.verdict, tentative.status);
    }
    if let Some(refusal) = binding.refusal() {
        if (needs_repair || !is_in_place) && refusal.decision.verdict != Verdict::Never {
            repair_refused(charges, now, clock);
        }
        return Attempt::Decided(refusal);
    }
    if !is_in_place {
        return Attempt::NotInPlace;
    }
    // As a rule nothing has changed since: one swap each.
    for at in 0..charges.len() {
        if !writes[at].is_some_and(|write| write.commit()) {
            take_back(charges, &writes[..at], now, clock);
            return Attempt::LostRace;
        }
    }
    Attempt::Decided(binding.admission())
}

/// The charge that decides a request: the strictest refusal, or else the tightest charge.
struct Binding {
    now: Moment,
    /// The longest wait of charges that pass.
    delay: Span,
    at: usize,
    verdict: Verdict,
    status: QuotaStatus,
    origin: Origin,
    /// How many more requests of its cost the tightest charge has room for.
    room: u64,
}

impl Binding {
    #[inline(always)]
    fn new(now: Moment) -> Binding {
        let Decision { status, .. } = Decision::unlimited(now);
        Binding {
            now,
            delay: Span::ZERO,
            at: 0,
            verdict: Verdict::Pass,
            status,
            origin: Origin::Fresh,
            room: u64::MAX,
        }
    }

    /// Compares the next charge; true if it is the binding one so far. A refusal goes before a pass: a charge that never
    /// passes first, then the longest wait. Among charges that pass, the one with the least left for requests of its
    /// cost decides, then the one that takes longest to be full. Among equals the first decides.
    #[inline(always)]
    fn add(&mut self, at: usize, cost: u64, verdict: Verdict, status: QuotaStatus) -> bool {
        // Most requests cost one: spare them the division.
        let room = match cost {
            0 | 1 => status.remaining,
            cost => status.remaining / cost,
        };
        let is_binding = match (verdict, self.verdict) {
            (Verdict::Pass | Verdict::Wait { .. }, Verdict::Pass | Verdict::Wait { .. }) => {
                self.delay = self.delay.max(verdict.wait().unwrap_or(Span::ZERO));
                let is_later = status.full_after > self.status.full_after;
                at == 0 || room < self.room || (room == self.room && is_later)
            }
            (Verdict::Pass | Verdict::Wait { .. }, _) => false,
            (_, Verdict::Pass | Verdict::Wait { .. }) => true,
            (
                Verdict::Refuse { retry_after },
                Verdict::Refuse {
                    retry_after: longest,
                },
            ) => retry_after > longest,
            (_, strictest) => strictest != Verdict::Never,
        };
        if is_binding {
            (self.at, self.verdict, self.status, self.room) = (at, verdict, status, room);
        }
        is_binding
    }

    #[inline(always)]
    fn outcome(&self, verdict: Verdict) -> MultiOutcome {
        MultiOutcome {
            decision: Decision {
                verdict,
                status: self.status,
                issued: self.now,
                origin: self.origin,
            },
            binding: self.at,
        }
    }

    /// The refusal, if a charge was refused.
    #[inline(always)]
    fn refusal(&self) -> Option<MultiOutcome> {
        (!self.verdict.is_admitted()).then(|| self.outcome(self.verdict))
    }

    /// The decision on a request all of whose charges passed.
    #[inline(always)]
    fn admission(&self) -> MultiOutcome {
        self.outcome(Verdict::after(self.delay.as_nanos()))
    }
}

/// The one thing that a refusal writes: a state whose clock was set back is repaired, or the key would be
/// locked out until the clock has caught up.
#[cold]
#[inline(never)]
fn repair_refused<C: Clock>(charges: &[ResolvedCharge<'_>], now: Moment, clock: &C) {
    for charge in charges {
        let tentative = charge.tentative(now, clock);
        match (tentative.verdict, &tentative.write) {
            // If the swap fails, another thread has made the repair.
            (Verdict::Refuse { .. }, Some(write)) => {
                write.commit();
            }
            // Not where it was expected: charge it for real. It is refused, or else, if something was
            // given back just now, it is given back too.
            (Verdict::Refuse { .. }, None) => {
                let decision = charge.charge(clock);
                if decision.is_admitted() {
                    charge.refund(clock, decision.issued);
                }
            }
            _ => {}
        }
    }
}

/// Takes back what was committed: without a trace if no other charge came after it, else strictly.
#[cold]
#[inline(never)]
fn take_back<C: Clock>(
    charges: &[ResolvedCharge<'_>],
    committed: &[Option<PendingWrite<'_>>],
    now: Moment,
    clock: &C,
) {
    for (charge, write) in charges.iter().zip(committed) {
        if !write.is_some_and(|write| write.revert()) {
            charge.refund(clock, now);
        }
    }
}

/// Makes the charges one after the other. If one is refused, those before it are given back.
#[cold]
#[inline(never)]
fn one_by_one<C: Clock>(charges: &[ResolvedCharge<'_>], clock: &C) -> MultiOutcome {
    let now = clock.now();
    let mut binding = Binding::new(now);
    let mut made = [now; MAX_CHARGES];
    for (at, (charge, issued)) in charges.iter().zip(&mut made).enumerate() {
        let decision = charge.charge(clock);
        *issued = decision.issued;
        if binding.add(at, charge.cost, decision.verdict, decision.status) {
            binding.origin = decision.origin;
        }
        if let Some(refusal) = binding.refusal() {
            for (charge, issued) in charges.iter().zip(made).take(at) {
                charge.refund(clock, issued);
            }
            return refusal;
        }
    }
    binding.admission()
}
