//! The arguments of the scripts.

use std::borrow::Cow;

use tollgate::time::Moment;
use tollgate_policy::shared::SharedCharge;

use super::Prepared;
use super::clock::Timing;
use super::meter::{BucketMeter, EXACT, Meter};
use crate::call::{Call, Texts, Which};

/// More ticks than a bucket can miss, however far its clock was set back: for charges that take nothing, so
/// that they neither fail nor heal.
const NO_BOUND: i64 = 1 << 62;

/// One charge, with its limit and the name of its state; or several of one limit and key.
pub(super) struct Part<'a> {
    pub(super) charge: &'a SharedCharge,
    /// Of all of them.
    pub(super) cost: u64,
    /// Is any of them?
    pub(super) enforced: bool,
    pub(super) limit: &'a Prepared,
    /// The limit's own, or with the number that came with the request.
    pub(super) meter: Cow<'a, Meter>,
    pub(super) name: Vec<u8>,
    /// Is it only counted, and with the next part: both or neither?
    pub(super) with_next: bool,
}

impl Part<'_> {
    fn is_log(&self) -> bool {
        matches!(*self.meter, Meter::Log { .. })
    }

    /// The bucket that it charges, if it is one.
    fn bucket(&self) -> Option<BucketMeter> {
        match *self.meter {
            Meter::Bucket(bucket) => Some(bucket),
            _ => None,
        }
    }
}

/// The order in which the script is given the parts: words first, then logs.
pub(super) fn order(parts: &[Part<'_>]) -> Vec<usize> {
    let logs = (0..parts.len()).filter(|i| parts.get(*i).is_some_and(Part::is_log));
    let words = (0..parts.len()).filter(|i| parts.get(*i).is_some_and(|part| !part.is_log()));
    words.chain(logs).collect()
}

/// The call that decides.
pub(super) fn decide(parts: &[Part<'_>], take: bool, clock: &Timing) -> Call {
    let buckets = || {
        let of = |part: &Part<'_>| part.bucket().filter(|_| part.enforced);
        parts.iter().map(of).collect::<Option<Vec<_>>>()
    };
    match buckets() {
        Some(buckets) if !parts.is_empty() => decide_buckets(parts, &buckets, take),
        _ => decide_any(parts, take, clock),
    }
}

fn decide_buckets(parts: &[Part<'_>], buckets: &[BucketMeter], take: bool) -> Call {
    let (mut keys, mut args) = (Texts::default(), Texts::default());
    let (mut numbers, mut depths) = (Vec::new(), Vec::new());
    let mut is_plain = true;
    for (part, bucket) in parts.iter().zip(buckets) {
        is_plain &= part.cost > 0 && !bucket.as_text;
        keys.push(&part.name);
        let n = packed(bucket.n);
        let (need, most, depth) = match bucket.worth(part.cost).filter(|_| take) {
            Some(0) => (0, NO_BOUND, NO_BOUND),
            Some(need) => (
                packed(need),
                packed(bucket.most_missing(need)),
                packed(bucket.depth),
            ),
            None => (0, -1, NO_BOUND),
        };
        let n = if bucket.as_text { -n } else { n };
        numbers.extend([n, need, most, packed(bucket.step)]);
        depths.push(depth);
    }
    numbers.extend(depths);
    args.push_packed(&numbers);
    Call {
        script: match keys.len() {
            1 if is_plain => Which::One,
            2 if is_plain => Which::Two,
            3 if is_plain => Which::Three,
            4 if is_plain => Which::Four,
            _ => Which::Buckets,
        },
        keys,
        args,
    }
}

/// A number as the scripts unpack it. All that limits compile to are far below.
fn packed(number: u64) -> i64 {
    i64::try_from(number).map_or(NO_BOUND, |number| number.min(NO_BOUND))
}

fn decide_any(parts: &[Part<'_>], take: bool, clock: &Timing) -> Call {
    let (mut keys, mut args) = (Texts::default(), Texts::default());
    let words = parts.iter().filter(|part| !part.is_log()).count();
    args.push_number(u64::from(take));
    args.push_number(words as u64);
    args.push_number(parts.len() as u64);
    for part in order(parts).into_iter().filter_map(|i| parts.get(i)) {
        let (meter, cost) = (&*part.meter, part.cost);
        let can_pass = cost <= meter.capacity();
        keys.push(&part.name);
        args.push(kind(meter));
        args.push(match (part.enforced, part.with_next) {
            (true, _) => b"e",
            (false, false) => b"c",
            (false, true) => b"j",
        });
        match meter {
            Meter::Bucket(bucket) => {
                let need = bucket.worth(cost);
                args.push_signed(need.map_or(-1, i128::from));
                let n = i128::from(bucket.n);
                args.push_signed(if bucket.as_text { -n } else { n });
                args.push_number(bucket.most_missing(need.unwrap_or(0)));
                args.push_number(bucket.depth);
                args.push_number(bucket.step);
            }
            _ => {
                args.push_signed(if can_pass { i128::from(cost) } else { -1 });
                numbers(meter, clock, &mut args);
            }
        }
    }
    Call {
        script: Which::Any,
        keys,
        args,
    }
}

fn kind(meter: &Meter) -> &'static [u8] {
    match meter {
        Meter::Bucket(_) => b"b",
        Meter::Window { .. } => b"w",
        Meter::Calendar { .. } => b"c",
        Meter::Parts(_) => b"s",
        Meter::Log { .. } => b"l",
    }
}

/// The numbers of a limit, as `states.lua` wants them. Buckets have their own.
fn numbers(meter: &Meter, clock: &Timing, args: &mut Texts) {
    match meter {
        Meter::Bucket(_) => {}
        Meter::Window {
            limit,
            length,
            anchor,
            ..
        } => {
            for number in [limit, length, anchor] {
                args.push_number(*number);
            }
        }
        Meter::Calendar { limit, periods, .. } => {
            let around = periods.bounds_at(clock.about_now());
            args.push_number(*limit);
            // As the core counts windows: the first is number one.
            args.push_number(around.number + 1);
            for moment in [around.from, around.to, around.next] {
                args.push_number(moment.as_nanos().div_ceil(clock.unit));
            }
        }
        Meter::Parts(parts) => {
            for number in [
                parts.limit,
                parts.part,
                u64::from(parts.before),
                u64::from(parts.tail),
                parts.divisions,
                parts.most,
                parts.unit,
            ] {
                args.push_number(number);
            }
            args.push(parts.format().as_bytes());
        }
        Meter::Log { limit, window } => {
            args.push_number(*limit);
            args.push_number(*window);
        }
    }
}

/// A state with the numbers of its limit, as `amend.lua` wants them.
fn amended(meter: &Meter, name: &[u8], clock: &Timing, keys: &mut Texts, args: &mut Texts) {
    keys.push(name);
    args.push(kind(meter));
    match meter {
        Meter::Bucket(bucket) => {
            let n = i128::from(bucket.n);
            args.push_signed(if bucket.as_text { -n } else { n });
            args.push_number(bucket.p);
            args.push_number(bucket.depth);
            args.push_number(bucket.step);
        }
        other => numbers(other, clock, args),
    }
}

/// What a correction does.
pub(super) enum Correction {
    /// Gives back what was taken at a moment of the store's clock.
    Refund(Moment),
    /// Takes what was used already.
    Force,
}

/// The call that corrects one charge by `cost` units.
pub(super) fn correct(
    meter: &Meter,
    name: &[u8],
    correction: &Correction,
    cost: u64,
    clock: &Timing,
) -> Call {
    let (mut keys, mut args) = (Texts::default(), Texts::default());
    // More than this is more than any limit holds, and would not be exact.
    let most = match meter {
        Meter::Bucket(bucket) => EXACT / bucket.p,
        _ => 1 << 32,
    };
    let counted = cost.min(most);
    match correction {
        Correction::Refund(issued) => {
            let is_queue = matches!(meter, Meter::Bucket(b) if b.max_wait.is_some());
            args.push(if is_queue { b"q" } else { b"r" });
            args.push_number(counted);
            args.push_number(0);
            args.push_number(issued_as(meter, *issued, clock));
        }
        Correction::Force => {
            args.push(b"f");
            args.push_number(counted);
            args.push_number(cost - counted);
            args.push_number(0);
        }
    }
    amended(meter, name, clock, &mut keys, &mut args);
    Call {
        script: Which::Settle,
        keys,
        args,
    }
}

/// When something was taken, as the script wants it: a moment for buckets and logs, the number of the window
/// or part for the others.
fn issued_as(meter: &Meter, issued: Moment, clock: &Timing) -> u64 {
    let units = issued.as_nanos() / clock.unit;
    match meter {
        Meter::Bucket(_) | Meter::Log { .. } => units,
        Meter::Window { length, anchor, .. } => units
            .checked_sub(*anchor)
            .map_or(0, |since| since / length + 1),
        Meter::Calendar { periods, .. } => periods.bounds_at(issued).number + 1,
        Meter::Parts(parts) => units / parts.unit / parts.part,
    }
}

/// The call that moves a key's usage.
pub(super) fn move_over(old: (&Meter, &[u8]), new: (&Meter, &[u8]), clock: &Timing) -> Call {
    let (mut keys, mut args) = (Texts::default(), Texts::default());
    args.push_number(1);
    amended(old.0, old.1, clock, &mut keys, &mut args);
    amended(new.0, new.1, clock, &mut keys, &mut args);
    Call {
        script: Which::Move,
        keys,
        args,
    }
}
