//! Builds the script calls of a request: their keys and arguments.

use std::borrow::Cow;

use tollgate::Moment;
use tollgate_policy::shared::SharedCharge;

use super::PreparedLimit;
use super::clock::ScriptClock;
use super::script_limit::{EXACT, ScriptBucket, ScriptLimit};
use crate::script_call::{Arguments, ScriptCall, ScriptName};

/// More ticks than a bucket can miss, however far its clock was set back: for charges that take nothing, so that they neither
/// fail nor repair.
const NO_BOUND: i64 = 1 << 62;

/// One charge, with its limit and the name of its key; or several of one limit and key.
pub(super) struct ChargePart<'a> {
    pub(super) charge: &'a SharedCharge,
    /// The sum of all.
    pub(super) cost: u64,
    /// Whether any of them is.
    pub(super) enforced: bool,
    pub(super) limit: &'a PreparedLimit,
    /// The limit's own numbers, or with the override of the request.
    pub(super) script: Cow<'a, ScriptLimit>,
    pub(super) name: Vec<u8>,
    /// Whether it is only counted, and taken together with the next part or not at all.
    pub(super) with_next: bool,
}

impl ChargePart<'_> {
    fn is_log(&self) -> bool {
        matches!(*self.script, ScriptLimit::Log { .. })
    }

    /// Its bucket, if the limit is one.
    fn bucket(&self) -> Option<ScriptBucket> {
        match *self.script {
            ScriptLimit::Bucket(bucket) => Some(bucket),
            _ => None,
        }
    }
}

/// The order of the parts in a call: limits with a single value first, then logs.
pub(super) fn order(parts: &[ChargePart<'_>]) -> Vec<usize> {
    let logs = (0..parts.len()).filter(|i| parts.get(*i).is_some_and(ChargePart::is_log));
    let values = (0..parts.len()).filter(|i| parts.get(*i).is_some_and(|part| !part.is_log()));
    values.chain(logs).collect()
}

/// The call that decides.
pub(super) fn decide(parts: &[ChargePart<'_>], take: bool, clock: &ScriptClock) -> ScriptCall {
    let buckets = || {
        let of = |part: &ChargePart<'_>| part.bucket().filter(|_| part.enforced);
        parts.iter().map(of).collect::<Option<Vec<_>>>()
    };
    match buckets() {
        Some(buckets) if !parts.is_empty() => decide_buckets(parts, &buckets, take),
        _ => decide_any(parts, take, clock),
    }
}

fn decide_buckets(parts: &[ChargePart<'_>], buckets: &[ScriptBucket], take: bool) -> ScriptCall {
    let (mut keys, mut args) = (Arguments::default(), Arguments::default());
    let (mut numbers, mut depths, mut beyond) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_plain = true;
    for (part, bucket) in parts.iter().zip(buckets) {
        is_plain &= part.cost > 0 && !bucket.as_text;
        keys.push(&part.name);
        let n = packed(bucket.n);
        let (need, most, farthest) = match bucket.worth(part.cost).filter(|_| take) {
            Some(0) => (0, NO_BOUND, NO_BOUND),
            Some(need) => (
                packed(need),
                packed(bucket.most_missing(need)),
                packed(bucket.farthest()),
            ),
            None => (0, -1, NO_BOUND),
        };
        let n = if bucket.as_text { -n } else { n };
        numbers.extend([n, need, most, packed(bucket.step)]);
        depths.push(packed(bucket.depth));
        beyond.push(farthest);
    }
    numbers.extend(depths);
    numbers.extend(beyond);
    args.push_packed(&numbers);
    ScriptCall {
        script: match keys.len() {
            1 if is_plain => ScriptName::OneBucket,
            2 if is_plain => ScriptName::TwoBuckets,
            3 if is_plain => ScriptName::ThreeBuckets,
            4 if is_plain => ScriptName::FourBuckets,
            _ => ScriptName::Buckets,
        },
        keys,
        args,
    }
}

/// A number as the scripts unpack it. All numbers of limits are far below the bound.
fn packed(number: u64) -> i64 {
    i64::try_from(number).map_or(NO_BOUND, |number| number.min(NO_BOUND))
}

fn decide_any(parts: &[ChargePart<'_>], take: bool, clock: &ScriptClock) -> ScriptCall {
    let (mut keys, mut args) = (Arguments::default(), Arguments::default());
    let values = parts.iter().filter(|part| !part.is_log()).count();
    args.push_number(u64::from(take));
    args.push_number(values);
    args.push_number(parts.len());
    for part in order(parts).into_iter().filter_map(|i| parts.get(i)) {
        let (script, cost) = (&*part.script, part.cost);
        let can_pass = cost <= script.capacity();
        keys.push(&part.name);
        args.push(kind(script));
        args.push(match (part.enforced, part.with_next) {
            (true, _) => b"e",
            (false, false) => b"c",
            (false, true) => b"j",
        });
        match script {
            ScriptLimit::Bucket(bucket) => {
                let need = bucket.worth(cost);
                args.push_number(need.map_or(-1, i128::from));
                let n = i128::from(bucket.n);
                args.push_number(if bucket.as_text { -n } else { n });
                args.push_number(bucket.most_missing(need.unwrap_or(0)));
                args.push_number(bucket.depth);
                args.push_number(bucket.step);
                args.push_number(bucket.farthest());
            }
            _ => {
                args.push_number(if can_pass { i128::from(cost) } else { -1 });
                numbers(script, clock, &mut args);
            }
        }
    }
    ScriptCall {
        script: ScriptName::AnyLimits,
        keys,
        args,
    }
}

fn kind(script: &ScriptLimit) -> &'static [u8] {
    match script {
        ScriptLimit::Bucket(_) => b"b",
        ScriptLimit::Window { .. } => b"w",
        ScriptLimit::Calendar { .. } => b"c",
        ScriptLimit::Cells(_) => b"s",
        ScriptLimit::Log { .. } => b"l",
    }
}

/// The numbers of a limit, as `state.lua` reads them. Buckets have their own.
fn numbers(script: &ScriptLimit, clock: &ScriptClock, args: &mut Arguments) {
    match script {
        ScriptLimit::Bucket(_) => {}
        ScriptLimit::Window {
            limit,
            length,
            anchor,
            ..
        } => {
            for number in [limit, length, anchor] {
                args.push_number(*number);
            }
        }
        ScriptLimit::Calendar { limit, periods, .. } => {
            let around = periods.bounds_at(clock.approximate_now());
            args.push_number(*limit);
            // As the core counts windows: the first is number one.
            args.push_number(around.number + 1);
            for moment in [around.from, around.to, around.next] {
                args.push_number(moment.as_nanos().div_ceil(clock.unit));
            }
        }
        ScriptLimit::Cells(cells) => {
            for number in [
                cells.limit,
                cells.length,
                u64::from(cells.before),
                u64::from(cells.tail),
                cells.divisions,
                cells.most,
                cells.unit,
            ] {
                args.push_number(number);
            }
            args.push(cells.format().as_bytes());
        }
        ScriptLimit::Log { limit, window } => {
            args.push_number(*limit);
            args.push_number(*window);
        }
    }
}

/// A key with the numbers of its limit, as `amend.lua` reads them. An unconditional charge moves usage of a former limit
/// (`moves`), or is one that is known afterwards.
fn state_arguments(
    script: &ScriptLimit,
    name: &[u8],
    moves: bool,
    clock: &ScriptClock,
    keys: &mut Arguments,
    args: &mut Arguments,
) {
    keys.push(name);
    args.push(kind(script));
    match script {
        ScriptLimit::Bucket(bucket) => {
            let n = i128::from(bucket.n);
            args.push_number(if bucket.as_text { -n } else { n });
            args.push_number(bucket.p);
            args.push_number(bucket.depth);
            args.push_number(bucket.step);
            let (deepest, farthest) = (bucket.deepest(), bucket.farthest());
            args.push_number(if moves { farthest } else { deepest });
            args.push_number(farthest);
        }
        other => numbers(other, clock, args),
    }
}

/// A correction of a charge.
pub(super) enum Correction {
    /// Refunds a charge of this moment of the store's clock.
    Refund(Moment),
    /// Charges usage that is known afterwards, as far as there is room.
    ChargeSaturating,
}

/// The call that corrects one charge by `cost` units.
pub(super) fn correct(
    script: &ScriptLimit,
    name: &[u8],
    correction: &Correction,
    cost: u64,
    clock: &ScriptClock,
) -> ScriptCall {
    let (mut keys, mut args) = (Arguments::default(), Arguments::default());
    // More units than any limit holds would not be exact.
    let most = match script {
        ScriptLimit::Bucket(bucket) => EXACT / bucket.p,
        _ => 1 << 32,
    };
    let counted = cost.min(most);
    match correction {
        Correction::Refund(issued) => {
            let is_queue = matches!(script, ScriptLimit::Bucket(b) if b.max_wait.is_some());
            args.push(if is_queue { b"q" } else { b"r" });
            args.push_number(counted);
            args.push_number(0);
            args.push_number(issued_as(script, *issued, clock));
        }
        Correction::ChargeSaturating => {
            args.push(b"f");
            args.push_number(counted);
            args.push_number(cost - counted);
            args.push_number(0);
        }
    }
    state_arguments(script, name, false, clock, &mut keys, &mut args);
    ScriptCall {
        script: ScriptName::Settle,
        keys,
        args,
    }
}

/// The moment of a charge, as the script reads it: a moment for buckets and logs, the number of the window or cell for the
/// others.
fn issued_as(script: &ScriptLimit, issued: Moment, clock: &ScriptClock) -> u64 {
    let units = issued.as_nanos() / clock.unit;
    match script {
        ScriptLimit::Bucket(_) | ScriptLimit::Log { .. } => units,
        ScriptLimit::Window { length, anchor, .. } => units
            .checked_sub(*anchor)
            .map_or(0, |since| since / length + 1),
        ScriptLimit::Calendar { periods, .. } => periods.bounds_at(issued).number + 1,
        ScriptLimit::Cells(cells) => units / cells.unit / cells.length,
    }
}

/// The call that moves a key's usage.
pub(super) fn migrate(
    from: (&ScriptLimit, &[u8]),
    to: (&ScriptLimit, &[u8]),
    clock: &ScriptClock,
) -> ScriptCall {
    let (mut keys, mut args) = (Arguments::default(), Arguments::default());
    state_arguments(from.0, from.1, true, clock, &mut keys, &mut args);
    state_arguments(to.0, to.1, true, clock, &mut keys, &mut args);
    ScriptCall {
        script: ScriptName::Migrate,
        keys,
        args,
    }
}
