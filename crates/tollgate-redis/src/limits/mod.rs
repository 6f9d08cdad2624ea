//! The limits of one policy, ready to be charged: what is sent for a request, and what the replies mean.
//!
//! # The road
//!
//! ```text
//! SharedLimit --[meter]--> numbers that a script counts with     --[name]--> what its keys are called
//! SharedRequest --[calls]--> calls, by slot     reply --[told]--> the core's answer to the state found
//! ```
//!
//! # Invariant
//!
//! All keys of a call are in one slot. Of a group's calls the last one decides; those before it move usage
//! from an earlier form of a limit, or take what is owed, and are right whatever becomes of the request.
//!
//! # What it does not know
//!
//! Connections, deadlines, and which server has a slot.
//!
//! A question that takes nothing ([`SharedRequest::take`]) moves nothing either. Until a key's first charge under
//! a limit that was changed, such a question is answered as if nothing had been used under the limit as it
//! was; that charge moves the usage before it decides, so no more passes than may.

mod calls;
pub(crate) mod clock;
mod log;
mod meter;
mod name;
mod slot;
mod told;

use std::collections::BTreeMap;
use std::fmt;

use redis::Value;
use tollgate::algorithm::LimitError;
use tollgate::gate::LimitId;
use tollgate_policy::shared::{SharedKey, SharedLimit, SharedOutcome, SharedRequest, SharedSettle};

use crate::call::{Call, Texts, Which};
use calls::{Correction, Part};
use clock::Timing;
use meter::Meter;
use name::Naming;
pub(crate) use slot::slot;

/// The limits of one policy.
#[derive(Debug)]
pub(crate) struct Limits {
    limits: Vec<Prepared>,
    clock: Timing,
}

/// A limit that can be charged.
#[derive(Debug)]
pub(super) struct Prepared {
    naming: Naming,
    meter: Meter,
    /// What it was, the last first, where its state cannot be read as what it is.
    before: Vec<(Naming, Meter)>,
}

/// Charges whose keys are in one slot, and the calls that decide them.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) slot: u16,
    /// By their places in the request.
    pub(crate) charges: Vec<usize>,
    /// In order; the last one decides.
    pub(crate) calls: Vec<Call>,
    /// Which call takes what is owed for which of `charges`.
    pub(crate) owed: Vec<(usize, usize)>,
}

/// What became of a group.
#[derive(Debug)]
pub(crate) struct Ruling {
    /// One for each charge of the group.
    pub(crate) outcomes: Vec<SharedOutcome>,
    /// Did the script take them?
    pub(crate) took: bool,
    /// Does the core's arithmetic come to something else than the script did?
    pub(crate) disagrees: bool,
}

/// A reply that is none to this question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Garbled(pub(crate) String);

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the reply is not one to this question: {}", self.0)
    }
}

impl Prepared {
    fn new(prefix: &str, limit: &SharedLimit<'_>, clock: &Timing) -> Result<Prepared, LimitError> {
        let meter = Meter::new(limit.quota, clock)?;
        let meaning = meter.meaning();
        let naming = |meaning: &str| Naming::new(prefix, limit.id, meaning, limit.plain);
        // What could not be charged before was not: there is nothing to move.
        let mut before: Vec<(Naming, Meter)> = Vec::new();
        let mut known = vec![meaning.clone()];
        for meter in limit
            .before
            .iter()
            .filter_map(|q| Meter::new(q, clock).ok())
        {
            let meaning = meter.meaning();
            if !known.contains(&meaning) {
                before.push((naming(&meaning), meter));
                known.push(meaning);
            }
        }
        Ok(Prepared {
            naming: naming(&meaning),
            meter,
            before,
        })
    }

    /// The name of a key's state.
    fn name(&self, key: &SharedKey) -> Vec<u8> {
        self.naming.name(key)
    }
}

impl Limits {
    /// Makes limits chargeable.
    ///
    /// # Errors
    /// The place of the first limit that cannot be enforced here, and why.
    pub(crate) fn new(
        prefix: &str,
        limits: &[SharedLimit<'_>],
    ) -> Result<Limits, (usize, LimitError)> {
        Limits::on(prefix, limits, Timing::SERVER)
    }

    /// As [`Limits::new`], on another clock than the server's.
    pub(crate) fn on(
        prefix: &str,
        limits: &[SharedLimit<'_>],
        clock: Timing,
    ) -> Result<Limits, (usize, LimitError)> {
        let prepare = |(place, limit): (usize, &SharedLimit<'_>)| {
            Prepared::new(prefix, limit, &clock).map_err(|error| (place, error))
        };
        let limits = limits.iter().enumerate().map(prepare);
        Ok(Limits {
            limits: limits.collect::<Result<_, _>>()?,
            clock,
        })
    }

    /// Is every limit counted in units of the clock, none in coarser ones?
    pub(crate) fn is_fine(&self) -> bool {
        let coarse = |meter: &Meter| matches!(meter, Meter::Parts(parts) if parts.unit > 1);
        !self.limits.iter().any(|limit| coarse(&limit.meter))
    }

    /// The time that periods of a calendar are chosen by, on a clock that is told the time.
    pub(crate) fn think_it_is(&mut self, now: tollgate::time::Moment) {
        self.clock.thought = Some(now);
    }

    fn limit(&self, id: LimitId) -> Option<&Prepared> {
        self.limits.get(id.index())
    }

    /// The charges at these places, with all that is needed to ask for them. One on a limit that was never
    /// made known is left out; its outcome is then missed in [`Limits::read`].
    fn parts<'a>(&'a self, request: &'a SharedRequest, places: &[usize]) -> Vec<Part<'a>> {
        let part = |(at, place): (usize, &usize)| {
            let charge = request.charges.get(*place)?;
            let follows = places.get(at + 1) == Some(&(place + 1));
            let limit = self.limit(charge.limit)?;
            Some(Part {
                charge,
                cost: charge.cost,
                enforced: charge.enforced,
                limit,
                meter: limit.meter.at_most(charge.most),
                name: limit.name(&charge.key),
                with_next: charge.with_next && !charge.enforced && follows,
            })
        };
        places.iter().enumerate().filter_map(part).collect()
    }

    /// The parts that the script is asked for, and which of them each of `parts` is in. Charges of one limit
    /// and key are asked as one: two that were looked at by themselves would find the same state, and the
    /// second would be written over the first.
    fn joined<'a>(parts: Vec<Part<'a>>) -> (Vec<Part<'a>>, Vec<usize>) {
        let (mut asked, mut places) = (Vec::<Part<'a>>::with_capacity(parts.len()), Vec::new());
        for part in parts {
            let same = |other: &Part<'_>| other.name == part.name;
            let place = asked.iter().position(same).unwrap_or(asked.len());
            places.push(place);
            match asked.get_mut(place) {
                Some(first) => {
                    first.cost = first.cost.saturating_add(part.cost);
                    first.enforced |= part.enforced;
                    // The least of what came along holds for all.
                    if part.meter.capacity() < first.meter.capacity() {
                        first.meter = part.meter;
                    }
                }
                None => asked.push(part),
            }
        }
        (asked, places)
    }

    /// Groups of charges whose keys share a slot; one group of all if slots do not matter.
    pub(crate) fn groups(&self, request: &SharedRequest, by_slot: bool) -> Vec<Group> {
        let all = 0..request.charges.len();
        if !by_slot {
            return vec![self.group(request, 0, all.collect())];
        }
        let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for place in all {
            slots
                .entry(self.slot_of(request, place))
                .or_default()
                .push(place);
        }
        let group = |(slot, charges)| self.group(request, slot, charges);
        slots.into_iter().map(group).collect()
    }

    /// One group for every single charge.
    pub(crate) fn singles(&self, request: &SharedRequest) -> Vec<Group> {
        (0..request.charges.len())
            .map(|place| self.group(request, self.slot_of(request, place), vec![place]))
            .collect()
    }

    fn slot_of(&self, request: &SharedRequest, place: usize) -> u16 {
        let charge = request.charges.get(place);
        let named = charge.and_then(|c| Some(self.limit(c.limit)?.name(&c.key)));
        named.map_or(0, |name| slot(&name))
    }

    fn group(&self, request: &SharedRequest, slot: u16, charges: Vec<usize>) -> Group {
        let parts = self.parts(request, &charges);
        let mut calls = Vec::with_capacity(1);
        let mut told = Vec::new();
        for (at, part) in parts.iter().enumerate().filter(|_| request.take) {
            for (naming, meter) in &part.limit.before {
                let old = naming.name(&part.charge.key);
                let new = (&part.limit.meter, &part.name[..]);
                calls.push(calls::move_over((meter, &old), new, &self.clock));
            }
            if part.charge.owed > 0 {
                let owed = part.charge.owed;
                let meter = &part.limit.meter;
                let force = &Correction::Force;
                told.push((at, calls.len()));
                calls.push(calls::correct(meter, &part.name, force, owed, &self.clock));
            }
        }
        let (asked, _) = Limits::joined(parts);
        calls.push(calls::decide(&asked, request.take, &self.clock));
        Group {
            slot,
            charges,
            calls,
            owed: told,
        }
    }

    /// What the calls of a group came to.
    ///
    /// # Errors
    /// A reply of another shape, or none.
    pub(crate) fn read(
        &self,
        request: &SharedRequest,
        group: &Group,
        replies: &[Value],
    ) -> Result<Ruling, Garbled> {
        let Some(reply) = replies.last() else {
            return Err(Garbled("no call decides".into()));
        };
        let parts = self.parts(request, &group.charges);
        if parts.len() != group.charges.len() {
            return Err(Garbled("a charge is on a limit that is not known".into()));
        }
        let (parts, places) = Limits::joined(parts);
        let items = items(reply)?;
        let took = whole(items.get(1))? == 1;
        let now = whole(items.get(2))?;
        // The scripts for a few buckets spare themselves an array.
        let mut found = match items.get(3) {
            Some(Value::Array(found)) => found.iter(),
            Some(_) => items.get(3..).unwrap_or_default().iter(),
            None => return Err(Garbled("it tells of no states".into())),
        };
        let mut answers = vec![None; parts.len()];
        for place in calls::order(&parts) {
            let Some(part) = parts.get(place) else {
                continue;
            };
            let meter = &*part.meter;
            let state = found.next();
            let state = state.ok_or_else(|| Garbled("it tells of too few states".into()))?;
            let told = told::told(meter, state, now, part.cost, &self.clock)?;
            if let Some(answer) = answers.get_mut(place) {
                *answer = Some(told);
            }
        }
        for (at, part) in parts.iter().enumerate().filter(|(_, part)| part.with_next) {
            if let (false, Some([Some(one), Some(other)])) =
                (part.enforced, answers.get_mut(at..at + 2))
            {
                one.verdict = one.verdict.stricter(other.verdict);
                other.verdict = one.verdict;
            }
        }
        let passes = answers
            .iter()
            .zip(&parts)
            .all(|(told, part)| !part.enforced || told.is_some_and(|t| t.verdict.is_admitted()));
        let answers: Vec<told::Told> = places
            .iter()
            .filter_map(|place| answers.get(*place).copied().flatten())
            .collect();
        let disagrees = request.take && took != passes;
        // What the script did stands.
        let passes = if request.take { took } else { passes };
        let outcomes = answers.iter().map(|told| SharedOutcome {
            verdict: told.verdict,
            status: if passes && told.verdict.is_admitted() {
                told.after
            } else {
                told.before
            },
            issued: told.issued,
            unpaid: 0,
        });
        let mut outcomes: Vec<SharedOutcome> = outcomes.collect();
        for (at, call) in &group.owed {
            let reply = replies.get(*call).map(std::slice::from_ref);
            let reply = reply.ok_or_else(|| Garbled("there is a reply too few".into()))?;
            if let Some(outcome) = outcomes.get_mut(*at) {
                outcome.unpaid = self.read_settle(reply)?;
            }
        }
        Ok(Ruling {
            outcomes,
            took,
            disagrees,
        })
    }

    /// The calls that give back what a group took.
    pub(crate) fn undo(
        &self,
        request: &SharedRequest,
        group: &Group,
        ruling: &Ruling,
    ) -> Vec<Call> {
        if !ruling.took {
            return Vec::new();
        }
        let parts = self.parts(request, &group.charges);
        let taken = |(part, outcome): &(&Part<'_>, &SharedOutcome)| {
            outcome.verdict.is_admitted() && part.charge.cost > 0
        };
        parts
            .iter()
            .zip(&ruling.outcomes)
            .filter(taken)
            .map(|(part, outcome)| {
                let back = Correction::Refund(outcome.issued);
                let (meter, cost) = (&part.limit.meter, part.charge.cost);
                calls::correct(meter, &part.name, &back, cost, &self.clock)
            })
            .collect()
    }

    /// The calls that correct a charge, all in the slot that comes first.
    pub(crate) fn settle(&self, settle: &SharedSettle) -> (u16, Vec<Call>) {
        let Some(limit) = self.limit(settle.limit) else {
            return (0, Vec::new());
        };
        let name = limit.name(&settle.key);
        let slot = slot(&name);
        let correct = |correction, cost| {
            vec![calls::correct(
                &limit.meter,
                &name,
                &correction,
                cost,
                &self.clock,
            )]
        };
        let calls = match settle.used.checked_sub(settle.taken) {
            Some(0) => Vec::new(),
            Some(more) => correct(Correction::Force, more),
            None => correct(
                Correction::Refund(settle.issued),
                settle.taken - settle.used,
            ),
        };
        (slot, calls)
    }

    /// The units that could not be taken.
    ///
    /// # Errors
    /// Replies of another shape.
    pub(crate) fn read_settle(&self, replies: &[Value]) -> Result<u64, Garbled> {
        let mut unpaid = 0_u64;
        for reply in replies {
            let items = items(reply)?;
            let more = match items.get(2) {
                Some(Value::BulkString(digits)) => std::str::from_utf8(digits)
                    .ok()
                    .and_then(|digits| digits.parse::<u64>().ok()),
                _ => None,
            };
            let more = more.ok_or_else(|| Garbled(format!("{reply:?}")))?;
            unpaid = unpaid
                .saturating_add(whole(items.get(1))?)
                .saturating_add(more);
        }
        Ok(unpaid)
    }
}

/// Tells that the node `node` is alive for the next `ttl_ms`; for 0, that it is gone.
pub(crate) fn beat(prefix: &str, node: &str, ttl_ms: u64) -> Call {
    let (mut keys, mut args) = (Texts::default(), Texts::default());
    let prefix = prefix.replace(['{', '}'], "");
    keys.push(format!("{prefix}:{{nodes}}").as_bytes());
    args.push(node.as_bytes());
    args.push_number(ttl_ms);
    Call {
        script: Which::Beat,
        keys,
        args,
    }
}

/// How many nodes are alive.
///
/// # Errors
/// A reply of another shape.
pub(crate) fn read_beat(reply: &Value) -> Result<u32, Garbled> {
    let count = whole(items(reply)?.get(1))?;
    u32::try_from(count).map_err(|_| Garbled(format!("{count} nodes")))
}

fn items(reply: &Value) -> Result<&[Value], Garbled> {
    match reply {
        Value::Array(items) => Ok(items),
        other => Err(Garbled(format!("{other:?} is no array"))),
    }
}

fn whole(item: Option<&Value>) -> Result<u64, Garbled> {
    match item {
        Some(Value::Int(number)) => {
            u64::try_from(*number).map_err(|_| Garbled(format!("{number} is below zero")))
        }
        other => Err(Garbled(format!("{other:?} is no whole number"))),
    }
}
