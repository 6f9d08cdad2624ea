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
use super::packed_table::PendingWrite;
use crate::calendar::Periods;
use crate::clock::Clock;
use crate::decision::{Decision, Origin, QuotaStatus, Verdict};
use crate::time::{Moment, Span};

/// Charges in one request at the most; everything is kept on the stack.
pub const CHARGES_MAX: usize = 16;

/// One charge of a request.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) table: &'a KeyTable,
    pub(crate) hash: u64,
    pub(crate) cost: u64,
    /// How many its window holds, if that came with the request.
    pub(crate) most: Option<u32>,
    /// The face of the clock that this limit runs on, if it is not the clock itself.
    pub(crate) face: Option<&'a Periods>,
}

impl Part<'_> {
    /// What this limit's face of the clock shows at `now`.
    #[inline(always)]
    fn at(&self, now: Moment) -> Moment {
        match self.face {
            None => now,
            Some(periods) => periods.face(now),
        }
    }

    /// A verdict of this limit, in spans of the clock itself.
    #[inline(always)]
    fn told(&self, verdict: Verdict, now: Moment) -> Verdict {
        match self.face {
            None => verdict,
            Some(periods) => periods.told(verdict, periods.face(now)),
        }
    }

    /// A status of this limit, in spans of the clock itself.
    #[inline(always)]
    fn stands(&self, status: QuotaStatus, now: Moment) -> QuotaStatus {
        match self.face {
            None => status,
            Some(periods) => periods.stands(status, periods.face(now)),
        }
    }

    /// Decides it without making it.
    #[inline(always)]
    fn offer<C: Clock>(&self, now: Moment, clock: &C) -> TentativeCharge<'_> {
        let fresh = || self.at(clock.fresh());
        match self.most {
            None => self.table.offer(self.hash, self.at(now), fresh, self.cost),
            Some(most) => {
                let asked = (self.cost, most);
                self.table
                    .offer_at_most(self.hash, self.at(now), fresh, asked)
            }
        }
    }

    /// What is left once its offer at this place is made, or if it is not.
    fn status_at(&self, place: &PendingWrite<'_>, now: Moment, made: bool) -> QuotaStatus {
        let status = match self.most {
            None => self.table.status_at(place, self.at(now), made),
            Some(most) => (self.table).status_at_most(place, self.at(now), made, most),
        };
        self.stands(status, now)
    }

    fn charge<C: Clock>(&self, now: Moment, clock: &C) -> Decision {
        let fresh = || self.at(clock.fresh());
        if let Some(most) = self.most {
            let asked = (self.cost, most);
            return self
                .table
                .charge_at_most(self.hash, self.at(now), fresh, asked);
        }
        self.table.charge(self.hash, self.at(now), fresh, self.cost)
    }

    /// `issued` is on this limit's face.
    fn refund<C: Clock>(&self, clock: &C, issued: Moment) {
        self.table
            .refund(self.hash, self.at(clock.fresh()), self.cost, issued);
    }
}

/// What became of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MultiOutcome {
    pub(crate) decision: Decision,
    /// The charge that decided, or was closest to deciding.
    pub(crate) binding: usize,
}

/// What has happened to one part.
#[derive(Clone, Copy)]
enum Committed<'a> {
    /// Nothing yet.
    Nothing,
    /// Committed at this place, with this verdict.
    At(PendingWrite<'a>, Verdict),
    /// Charged in full.
    Charged(Decision),
}

/// Charges all parts or none, and tells the numbers of the binding one. At most [`CHARGES_MAX`]; the
/// caller sees to it.
pub(crate) fn all_or_none<C: Clock>(parts: &[Part<'_>], clock: &C) -> MultiOutcome {
    // What is kept for each part is large, so room is made for few unless there are many.
    match parts.len() {
        1 => alone(parts, clock),
        0..=2 => all_or_none_of::<2, C>(parts, clock),
        3..=4 => all_or_none_of::<4, C>(parts, clock),
        _ => all_or_none_of::<CHARGES_MAX, C>(parts, clock),
    }
}

/// One charge by itself is all or none anyway: it is made where it is decided.
fn alone<C: Clock>(parts: &[Part<'_>], clock: &C) -> MultiOutcome {
    let now = clock.now();
    let decision = match parts.first() {
        Some(part) => {
            let decision = part.charge(now, clock);
            Decision {
                verdict: part.told(decision.verdict, now),
                status: part.stands(decision.status, now),
                // On a face of its own it was issued at a moment of that face.
                issued: if part.face.is_some() {
                    now
                } else {
                    decision.issued
                },
                ..decision
            }
        }
        None => Decision::unlimited(now),
    };
    MultiOutcome {
        decision,
        binding: 0,
    }
}

#[inline(never)]
fn all_or_none_of<const N: usize, C: Clock>(parts: &[Part<'_>], clock: &C) -> MultiOutcome {
    let parts = parts.get(..N).unwrap_or(parts);
    let mut refused = None;
    for _ in 0..3 {
        let now = clock.now();
        let nothing = TentativeCharge {
            verdict: Verdict::Pass,
            place: None,
        };
        let mut offers = [nothing; N];
        for (offer, part) in offers.iter_mut().zip(parts) {
            *offer = part.offer(now, clock);
            offer.verdict = part.told(offer.verdict, now);
        }
        let offers = &offers[..parts.len()];
        if let Some((binding, verdict)) = refusal(offers) {
            if verdict != Verdict::Never {
                heal_refused(parts, offers, now, clock);
            }
            return refusal_of(parts, offers, binding, verdict, now);
        }
        // All in place and unchanged, as a rule: a swap each, and nothing more to remember.
        let is_committed =
            |offer: &TentativeCharge<'_>| offer.place.is_some_and(|place| place.commit());
        let committed = offers
            .iter()
            .take_while(|offer| is_committed(offer))
            .count();
        if committed == offers.len() {
            return admission(parts, now, |i, part| at_offer(part, offers.get(i), now));
        }
        let mut made = [Committed::Nothing; N];
        match commit_rest(parts, offers, &mut made, committed, now, clock) {
            None => {
                return admission(parts, now, |i, part| at_made(part, made.get(i), now));
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
fn refusal(offers: &[TentativeCharge<'_>]) -> Option<(usize, Verdict)> {
    let mut worst: Option<(usize, Verdict)> = None;
    for (i, offer) in offers.iter().enumerate() {
        let worse = match (offer.verdict, worst) {
            (Verdict::Never, Some((_, Verdict::Never))) => false,
            (Verdict::Never, _) => true,
            (Verdict::Refuse { .. }, None) => true,
            (Verdict::Refuse { retry_after: a }, Some((_, Verdict::Refuse { retry_after: b }))) => {
                a > b
            }
            _ => false,
        };
        if worse {
            worst = Some((i, offer.verdict));
        }
    }
    worst
}

/// The one thing that a refusal writes: a clock that was set back is made good, or the key would be
/// locked out until it has caught up.
#[cold]
fn heal_refused<C: Clock>(
    parts: &[Part<'_>],
    offers: &[TentativeCharge<'_>],
    now: Moment,
    clock: &C,
) {
    for (part, offer) in parts.iter().zip(offers) {
        match (offer.verdict, &offer.place) {
            // What a refused step wants to write is a heal. If the swap fails, somebody else did it.
            (Verdict::Refuse { .. }, Some(place)) => {
                place.commit();
            }
            // Not where it was expected: charge it for real. It is refused, or else, if something was
            // given back just now, it is given back too.
            (Verdict::Refuse { .. }, None) => {
                let decision = part.charge(now, clock);
                if decision.is_admitted() {
                    part.refund(clock, decision.issued);
                }
            }
            _ => {}
        }
    }
}

#[cold]
fn refusal_of(
    parts: &[Part<'_>],
    offers: &[TentativeCharge<'_>],
    binding: usize,
    verdict: Verdict,
    now: Moment,
) -> MultiOutcome {
    let status = match (parts.get(binding), offers.get(binding)) {
        (
            Some(part),
            Some(TentativeCharge {
                place: Some(place), ..
            }),
        ) => part.status_at(place, now, false),
        (Some(part), _) => {
            let face = part.at(now);
            let peeked = match part.most {
                None => part.table.peek(part.hash, face, || face, part.cost),
                Some(most) => {
                    let asked = (part.cost, most);
                    part.table.peek_at_most(part.hash, face, || face, asked)
                }
            };
            part.stands(peeked.status, now)
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
    parts: &[Part<'a>],
    offers: &[TentativeCharge<'a>],
    made: &mut [Committed<'a>],
    committed: usize,
    now: Moment,
    clock: &C,
) -> Option<MultiOutcome> {
    for (i, (part, offer)) in parts.iter().zip(offers).enumerate() {
        made[i] = match offer.place {
            Some(place) if i < committed || place.commit() => Committed::At(place, offer.verdict),
            _ => {
                let decision = part.charge(now, clock);
                if !decision.is_admitted() {
                    take_back(parts, made, now, clock);
                    return Some(MultiOutcome {
                        decision: Decision {
                            verdict: part.told(decision.verdict, now),
                            status: part.stands(decision.status, now),
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

/// The decision on a part whose offer was committed.
#[inline(always)]
fn at_offer(part: &Part<'_>, offer: Option<&TentativeCharge<'_>>, now: Moment) -> Option<Decision> {
    let offer = offer?;
    Some(Decision {
        verdict: offer.verdict,
        status: part.status_at(offer.place.as_ref()?, now, true),
        issued: now,
        origin: Origin::Fresh,
    })
}

/// The decision on a part, whichever way it was made.
fn at_made(part: &Part<'_>, made: Option<&Committed<'_>>, now: Moment) -> Option<Decision> {
    match made? {
        Committed::Nothing => None,
        Committed::Charged(decision) => Some(Decision {
            verdict: part.told(decision.verdict, now),
            status: part.stands(decision.status, now),
            issued: now,
            ..*decision
        }),
        Committed::At(place, verdict) => Some(Decision {
            verdict: *verdict,
            status: part.status_at(place, now, true),
            issued: now,
            origin: Origin::Fresh,
        }),
    }
}

#[cold]
fn take_back<C: Clock>(parts: &[Part<'_>], made: &[Committed<'_>], now: Moment, clock: &C) {
    for (part, made) in parts.iter().zip(made) {
        let issued = match made {
            Committed::Nothing => continue,
            Committed::At(place, _) if place.revert() => continue,
            Committed::At(..) => part.at(now),
            Committed::Charged(decision) => decision.issued,
        };
        part.refund(clock, issued);
    }
}

/// The decision on a request that passed: the numbers of the limit with the least left for requests of
/// this cost, then the one that takes longest to be full, then the first.
#[inline(always)]
fn admission(
    parts: &[Part<'_>],
    now: Moment,
    decision_on: impl Fn(usize, &Part<'_>) -> Option<Decision>,
) -> MultiOutcome {
    let mut delay = Span::ZERO;
    let mut binding: Option<(usize, Decision, u64)> = None;
    for (i, part) in parts.iter().enumerate() {
        let Some(decision) = decision_on(i, part) else {
            continue;
        };
        delay = delay.max(decision.verdict.wait().unwrap_or(Span::ZERO));
        // Most requests cost one: spare them the division.
        let more = match part.cost {
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
