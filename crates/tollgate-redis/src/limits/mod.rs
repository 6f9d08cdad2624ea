//! The limits of one policy, ready to be charged: the calls of a request, and the meaning of their replies.
//!
//! # Data flow
//!
//! ```text
//! SharedLimit --[script_limit]--> numbers of the scripts    --[key_names]--> names of its keys
//! SharedRequest --[arguments]--> calls, by slot    reply --[evaluate]--> the core's decision on the state found
//! ```
//!
//! # Invariant
//!
//! All keys of a call are in one slot. Of a group's calls the last one decides. Those before it move usage from former numbers
//! of a limit or charge a debt, and are right whatever the decision is.
//!
//! # What it does not know
//!
//! Connections, deadlines, and which server has a slot.
//!
//! A peek ([`SharedRequest::take`] is false) moves no usage either. Until a key's first charge under a changed limit, a peek sees
//! no usage; that charge moves the usage before it decides, so no more passes than allowed.

mod arguments;
pub(crate) mod clock;
mod evaluate;
pub(crate) mod fleet;
mod key_names;
mod log;
mod script_limit;
mod slot;

use std::collections::BTreeMap;
use std::fmt;

use redis::Value;
use tollgate::LimitError;
use tollgate::LimitId;
use tollgate_policy::shared::{SharedKey, SharedLimit, SharedOutcome, SharedRequest, SharedSettle};

use crate::script_call::ScriptCall;
use arguments::{ChargePart, Correction};
use clock::ScriptClock;
use evaluate::KeyDecision;
use key_names::KeyNames;
use script_limit::ScriptLimit;
pub(crate) use slot::slot;

/// The limits of one policy.
#[derive(Debug)]
pub(crate) struct LimitSet {
    limits: Vec<PreparedLimit>,
    clock: ScriptClock,
}

/// A limit that can be charged.
#[derive(Debug)]
pub(super) struct PreparedLimit {
    names: KeyNames,
    script: ScriptLimit,
    /// Its former numbers, the last first, where their state cannot be read with the present ones.
    former: Vec<(KeyNames, ScriptLimit)>,
}

/// Charges whose keys are in one slot, and the calls that decide them.
#[derive(Debug)]
pub(crate) struct ChargeGroup {
    pub(crate) slot: u16,
    /// By their places in the request.
    pub(crate) charges: Vec<usize>,
    /// In order; the last one decides.
    pub(crate) calls: Vec<ScriptCall>,
    /// Which of `charges` has a debt, and the call that charges it.
    pub(crate) debts: Vec<(usize, usize)>,
}

/// The reply to a group.
#[derive(Clone, Debug)]
pub(crate) struct GroupReply {
    /// One for each charge of the group.
    pub(crate) outcomes: Vec<SharedOutcome>,
    /// Whether the script took the charges.
    pub(crate) took: bool,
    /// Whether the core's arithmetic disagrees with the script.
    pub(crate) disagrees: bool,
}

/// A reply that does not match its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadReply(pub(crate) String);

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the reply does not match the call: {}", self.0)
    }
}

impl PreparedLimit {
    fn new(
        prefix: &str,
        limit: &SharedLimit<'_>,
        clock: &ScriptClock,
    ) -> Result<PreparedLimit, LimitError> {
        let script = ScriptLimit::new(limit.quota, clock)?;
        let names = |layout: &str| KeyNames::new(prefix, limit.id, layout, limit.plain);
        let mut layouts = vec![script.layout()];
        let mut former = Vec::new();
        // Numbers that cannot be charged have no usage.
        let scripts = limit
            .before
            .iter()
            .map(|quota| ScriptLimit::new(quota, clock));
        for script in scripts.flatten() {
            let layout = script.layout();
            if !layouts.contains(&layout) {
                former.push((names(&layout), script));
                layouts.push(layout);
            }
        }
        Ok(PreparedLimit {
            names: names(&script.layout()),
            script,
            former,
        })
    }
}

impl LimitSet {
    /// Prepares limits on the server's clock.
    ///
    /// # Errors
    /// The place of the first limit that cannot be enforced here, and why.
    pub(crate) fn new(
        prefix: &str,
        limits: &[SharedLimit<'_>],
    ) -> Result<LimitSet, (usize, LimitError)> {
        LimitSet::with_clock(prefix, limits, ScriptClock::SERVER)
    }

    /// Prepares limits on another clock.
    pub(crate) fn with_clock(
        prefix: &str,
        limits: &[SharedLimit<'_>],
        clock: ScriptClock,
    ) -> Result<LimitSet, (usize, LimitError)> {
        let prepare = |(place, limit): (usize, &SharedLimit<'_>)| {
            PreparedLimit::new(prefix, limit, &clock).map_err(|error| (place, error))
        };
        let limits = limits.iter().enumerate().map(prepare);
        Ok(LimitSet {
            limits: limits.collect::<Result<_, _>>()?,
            clock,
        })
    }

    /// Whether every limit counts in units of the clock, none in coarser ones.
    pub(crate) fn is_fine(&self) -> bool {
        let coarse =
            |script: &ScriptLimit| matches!(script, ScriptLimit::Cells(cells) if cells.unit > 1);
        !self.limits.iter().any(|limit| coarse(&limit.script))
    }

    /// Sets the node's time on a manual clock: it selects the periods of calendars.
    pub(crate) fn set_node_time(&mut self, now: tollgate::Moment) {
        self.clock.node_time = Some(now);
    }

    fn limit(&self, id: LimitId) -> Option<&PreparedLimit> {
        self.limits.get(id.index())
    }

    /// The charges at these places, with the data of their calls. A charge on an unknown limit is left out; its outcome is then
    /// missing in [`LimitSet::read`].
    fn parts<'a>(&'a self, request: &'a SharedRequest, places: &[usize]) -> Vec<ChargePart<'a>> {
        let part = |(at, place): (usize, &usize)| {
            let charge = request.charges.get(*place)?;
            let is_followed = places.get(at + 1) == Some(&(place + 1));
            let limit = self.limit(charge.limit)?;
            Some(ChargePart {
                charge,
                cost: charge.cost,
                enforced: charge.enforced,
                limit,
                script: limit.script.at_most(charge.most),
                name: limit.names.name(&charge.key),
                with_next: charge.with_next && !charge.enforced && is_followed,
            })
        };
        places.iter().enumerate().filter_map(part).collect()
    }

    /// Merges charges of one limit and key, and returns the place of each of `parts` among the merged ones. Two that were decided
    /// separately would find the same state, and the second would overwrite the first.
    fn merged<'a>(parts: Vec<ChargePart<'a>>) -> (Vec<ChargePart<'a>>, Vec<usize>) {
        let mut merged = Vec::<ChargePart<'a>>::with_capacity(parts.len());
        let mut places = Vec::new();
        for part in parts {
            let same = |other: &ChargePart<'_>| other.name == part.name;
            let place = merged.iter().position(same).unwrap_or(merged.len());
            places.push(place);
            match merged.get_mut(place) {
                Some(first) => {
                    first.cost = first.cost.saturating_add(part.cost);
                    first.enforced |= part.enforced;
                    // The smallest override holds for all.
                    if part.script.capacity() < first.script.capacity() {
                        first.script = part.script;
                    }
                }
                None => merged.push(part),
            }
        }
        (merged, places)
    }

    /// Groups of charges whose keys share a slot; one group of all if slots do not matter.
    pub(crate) fn groups(&self, request: &SharedRequest, by_slot: bool) -> Vec<ChargeGroup> {
        let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for place in 0..request.charges.len() {
            let slot = if by_slot {
                self.slot_of(request, place)
            } else {
                0
            };
            slots.entry(slot).or_default().push(place);
        }
        if slots.is_empty() && !by_slot {
            slots.insert(0, Vec::new());
        }
        let group = |(slot, charges)| self.group(request, slot, charges);
        slots.into_iter().map(group).collect()
    }

    /// One group for every single charge.
    pub(crate) fn singles(&self, request: &SharedRequest) -> Vec<ChargeGroup> {
        (0..request.charges.len())
            .map(|place| self.group(request, self.slot_of(request, place), vec![place]))
            .collect()
    }

    fn slot_of(&self, request: &SharedRequest, place: usize) -> u16 {
        let charge = request.charges.get(place);
        let name = charge.and_then(|c| Some(self.limit(c.limit)?.names.name(&c.key)));
        name.map_or(0, |name| slot(&name))
    }

    fn group(&self, request: &SharedRequest, slot: u16, charges: Vec<usize>) -> ChargeGroup {
        let parts = self.parts(request, &charges);
        let mut calls = Vec::with_capacity(1);
        let mut debts = Vec::new();
        for (at, part) in parts.iter().enumerate().filter(|_| request.take) {
            let present = &part.limit.script;
            for (names, script) in &part.limit.former {
                let former = names.name(&part.charge.key);
                let (from, to) = ((script, &former[..]), (present, &part.name[..]));
                calls.push(arguments::migrate(from, to, &self.clock));
            }
            if part.charge.owed > 0 {
                debts.push((at, calls.len()));
                let debt = Correction::ChargeSaturating;
                calls.push(self.correct(present, &part.name, &debt, part.charge.owed));
            }
        }
        let (merged, _) = LimitSet::merged(parts);
        calls.push(arguments::decide(&merged, request.take, &self.clock));
        ChargeGroup {
            slot,
            charges,
            calls,
            debts,
        }
    }

    fn correct(
        &self,
        script: &ScriptLimit,
        name: &[u8],
        correction: &Correction,
        cost: u64,
    ) -> ScriptCall {
        arguments::correct(script, name, correction, cost, &self.clock)
    }

    /// Reads the replies to the calls of a group.
    ///
    /// # Errors
    /// A reply of another shape, or none.
    pub(crate) fn read(
        &self,
        request: &SharedRequest,
        group: &ChargeGroup,
        replies: &[Value],
    ) -> Result<GroupReply, BadReply> {
        let bad = |text: &str| BadReply(text.into());
        let reply = replies.last().ok_or_else(|| bad("no deciding call"))?;
        let parts = self.parts(request, &group.charges);
        if parts.len() != group.charges.len() {
            return Err(bad("a charge on an unknown limit"));
        }
        let (parts, places) = LimitSet::merged(parts);
        let items = items(reply)?;
        let took = whole(items.get(1))? == 1;
        let mut decisions = self.decisions(&parts, items)?;
        for (at, part) in parts.iter().enumerate().filter(|(_, part)| part.with_next) {
            if let (false, Some([Some(one), Some(other)])) =
                (part.enforced, decisions.get_mut(at..at + 2))
            {
                one.verdict = one.verdict.stricter(other.verdict);
                other.verdict = one.verdict;
            }
        }
        let admits = |decision: &Option<KeyDecision>| {
            decision.is_some_and(|decision| decision.verdict.is_admitted())
        };
        let mut enforced = decisions.iter().zip(&parts);
        let passes = enforced.all(|(decision, part)| !part.enforced || admits(decision));
        let disagrees = request.take && took != passes;
        // The decision of the script stands.
        let passes = if request.take { took } else { passes };
        let decisions = places
            .iter()
            .filter_map(|place| decisions.get(*place).copied().flatten());
        let outcome = |decision: KeyDecision| SharedOutcome {
            verdict: decision.verdict,
            status: match passes && decision.verdict.is_admitted() {
                true => decision.after,
                false => decision.before,
            },
            issued: decision.issued,
            unpaid: 0,
        };
        let mut outcomes: Vec<SharedOutcome> = decisions.map(outcome).collect();
        for (at, call) in &group.debts {
            let reply = replies.get(*call).map(std::slice::from_ref);
            let reply = reply.ok_or_else(|| bad("a missing reply"))?;
            if let Some(outcome) = outcomes.get_mut(*at) {
                outcome.unpaid = self.read_settle(reply)?;
            }
        }
        Ok(GroupReply {
            outcomes,
            took,
            disagrees,
        })
    }

    /// The core's decisions on the states in a reply, in the order of `parts`.
    fn decisions(
        &self,
        parts: &[ChargePart<'_>],
        items: &[Value],
    ) -> Result<Vec<Option<KeyDecision>>, BadReply> {
        let now = whole(items.get(2))?;
        // The scripts for a few buckets return their states without an array.
        let mut states = match items.get(3) {
            Some(Value::Array(states)) => states.iter(),
            Some(_) => items.get(3..).unwrap_or_default().iter(),
            None => return Err(BadReply("no states".into())),
        };
        let mut decisions = vec![None; parts.len()];
        for place in arguments::order(parts) {
            let (Some(part), Some(decision)) = (parts.get(place), decisions.get_mut(place)) else {
                continue;
            };
            let state = states.next();
            let state = state.ok_or_else(|| BadReply("too few states".into()))?;
            let evaluated = evaluate::evaluate(&part.script, state, now, part.cost, &self.clock)?;
            *decision = Some(evaluated);
        }
        Ok(decisions)
    }

    /// The calls that refund what a group took.
    pub(crate) fn refunds(
        &self,
        request: &SharedRequest,
        group: &ChargeGroup,
        reply: &GroupReply,
    ) -> Vec<ScriptCall> {
        if !reply.took {
            return Vec::new();
        }
        let parts = self.parts(request, &group.charges);
        let taken = |(part, outcome): &(&ChargePart<'_>, &SharedOutcome)| {
            outcome.verdict.is_admitted() && part.charge.cost > 0
        };
        let refund = |(part, outcome): (&ChargePart<'_>, &SharedOutcome)| {
            let refund = Correction::Refund(outcome.issued);
            self.correct(&part.limit.script, &part.name, &refund, part.charge.cost)
        };
        let taken = parts.iter().zip(&reply.outcomes).filter(taken);
        taken.map(refund).collect()
    }

    /// The calls that settle a charge, and their slot. There are none if the usage was the charge.
    pub(crate) fn settle(&self, settle: &SharedSettle) -> (u16, Vec<ScriptCall>) {
        let Some(limit) = self.limit(settle.limit) else {
            return (0, Vec::new());
        };
        let name = limit.names.name(&settle.key);
        let (correction, cost) = match settle.used.checked_sub(settle.taken) {
            Some(0) => return (slot(&name), Vec::new()),
            Some(more) => (Correction::ChargeSaturating, more),
            None => (
                Correction::Refund(settle.issued),
                settle.taken - settle.used,
            ),
        };
        let call = self.correct(&limit.script, &name, &correction, cost);
        (slot(&name), vec![call])
    }

    /// The calls that forget what is counted for a key, with their slots: under its present name and the former ones.
    pub(crate) fn forget(&self, limit: LimitId, key: &SharedKey) -> Vec<(u16, ScriptCall)> {
        let Some(limit) = self.limit(limit) else {
            return Vec::new();
        };
        let former = limit.former.iter().map(|(names, _)| names);
        let names = std::iter::once(&limit.names).chain(former);
        let call = |names: &KeyNames| {
            let name = names.name(key);
            (slot(&name), fleet::forget_call(&name))
        };
        names.map(call).collect()
    }

    /// The units without room.
    ///
    /// # Errors
    /// Replies of another shape.
    pub(crate) fn read_settle(&self, replies: &[Value]) -> Result<u64, BadReply> {
        let mut unpaid = 0_u64;
        for reply in replies {
            let items = items(reply)?;
            let more = match items.get(2) {
                Some(Value::BulkString(digits)) => std::str::from_utf8(digits)
                    .ok()
                    .and_then(|digits| digits.parse::<u64>().ok()),
                _ => None,
            };
            let more = more.ok_or_else(|| BadReply(format!("{reply:?}")))?;
            unpaid = unpaid
                .saturating_add(whole(items.get(1))?)
                .saturating_add(more);
        }
        Ok(unpaid)
    }
}

fn items(reply: &Value) -> Result<&[Value], BadReply> {
    match reply {
        Value::Array(items) => Ok(items),
        other => Err(BadReply(format!("{other:?} is not an array"))),
    }
}

fn whole(item: Option<&Value>) -> Result<u64, BadReply> {
    match item {
        Some(Value::Int(number)) => {
            u64::try_from(*number).map_err(|_| BadReply(format!("{number} is negative")))
        }
        other => Err(BadReply(format!("{other:?} is not a whole number"))),
    }
}
