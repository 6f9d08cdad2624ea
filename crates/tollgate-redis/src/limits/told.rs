//! What a state comes to: the core's own answer to a charge, from the state that the script found.
//!
//! # Theory
//!
//! The script tells the state and the time, not the answer. Here the state becomes a word of the core at that
//! time, and the core is asked, so verdicts, waits and what is left are the core's. Only the one thing that the
//! core measures in seconds is done before: a bucket that is further ahead than a second beyond full counts
//! as just emptied.
//!
//! # Invariant
//!
//! A verdict here is what the script decided; if it ever is not, the caller is told.

use redis::Value;
use tollgate::algorithm::OneWord;
use tollgate::decision::{QuotaStatus, Verdict};
use tollgate::time::{Moment, Span};

use super::Garbled;
use super::clock::Timing;
use super::meter::{BucketMeter, Meter, PartsCore, PartsMeter};

/// What the core says of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) verdict: Verdict,
    /// What is left if it is not taken.
    pub(super) before: QuotaStatus,
    /// What is left if it is.
    pub(super) after: QuotaStatus,
    /// When it counts from, if it is taken.
    pub(super) issued: Moment,
}

/// The answer to `cost` at `now` (in units of the clock) for what was found at the meter's key.
pub(super) fn told(
    meter: &Meter,
    found: &Value,
    now: u64,
    cost: u64,
    clock: &Timing,
) -> Result<Told, Garbled> {
    let at = Moment::from_nanos(now);
    let told = match meter {
        Meter::Bucket(bucket) => {
            let word = bucket_word(bucket, found, now, clock)?;
            match bucket.max_wait {
                None => ask(&bucket.core(), word, at, cost),
                Some(_) => ask(&bucket.queue(), word, at, cost),
            }
        }
        Meter::Window { core, .. } => {
            ask(core, window_word(found, core_number(core, at))?, at, cost)
        }
        Meter::Calendar { core, periods, .. } => {
            let real = Moment::from_nanos(now.saturating_mul(clock.unit));
            let face = periods.window_time(real);
            let told = ask(
                core,
                window_word(found, core_number(core, face))?,
                face,
                cost,
            );
            return Ok(Told {
                verdict: periods.verdict_in_clock_time(told.verdict, face),
                before: periods.status_in_clock_time(told.before, face),
                after: periods.status_in_clock_time(told.after, face),
                issued: real,
            });
        }
        Meter::Parts(parts) => {
            let coarse = now / parts.unit;
            let at = Moment::from_nanos(coarse);
            let word = parts_word(parts, found, coarse)?;
            let told = match &parts.core {
                PartsCore::Sliding(core) => ask(core, word, at, cost),
                PartsCore::Permits(core) => ask(core, word, at, cost),
            };
            let unit = clock.unit.saturating_mul(parts.unit);
            return Ok(Told {
                issued: Moment::from_nanos(now.saturating_mul(clock.unit)),
                ..told.in_nanos(unit)
            });
        }
        Meter::Log { limit, window } => super::log::told(*limit, *window, found, now, cost)?,
    };
    Ok(told.in_nanos(clock.unit))
}

impl Told {
    /// The same with spans and moments in nanoseconds, told in units of so many.
    fn in_nanos(self, unit: u64) -> Told {
        let span = |span: Span| Span::from_nanos(span.as_nanos().saturating_mul(unit));
        let status = |status: QuotaStatus| QuotaStatus {
            remaining: status.remaining,
            full_after: span(status.full_after),
            next_after: span(status.next_after),
        };
        Told {
            verdict: match self.verdict {
                Verdict::Wait { delay } => Verdict::Wait { delay: span(delay) },
                Verdict::Refuse { retry_after } => Verdict::Refuse {
                    retry_after: span(retry_after),
                },
                other => other,
            },
            before: status(self.before),
            after: status(self.after),
            issued: Moment::from_nanos(self.issued.as_nanos().saturating_mul(unit)),
        }
    }
}

/// Asks the core.
fn ask<L: OneWord>(core: &L, word: Option<u64>, at: Moment, cost: u64) -> Told {
    let step = core.charge(word, at, cost);
    let before = core.status(word, at);
    let after = match step.write {
        Some(word) if step.verdict.is_admitted() => core.status(Some(word), at),
        _ => before,
    };
    Told {
        verdict: step.verdict,
        before,
        after,
        issued: at,
    }
}

/// The bytes of a state; none if there is none.
fn bytes(found: &Value) -> Result<Option<&[u8]>, Garbled> {
    match found {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        other => Err(Garbled(format!("a state is {other:?}"))),
    }
}

/// A whole number in digits.
fn digits(text: &[u8]) -> Result<u64, Garbled> {
    let plain = text.iter().all(u8::is_ascii_digit);
    let text_of = std::str::from_utf8(text).ok().filter(|_| plain);
    let number = text_of.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| Garbled(format!("`{}` is no number", text.escape_ascii())))
}

/// When a bucket is full again, as a state says it.
enum Bucketful<'a> {
    /// In ticks.
    Number(i128),
    /// In whole units of time and the ticks that remain.
    Text(&'a [u8]),
}

fn bucket_word(
    bucket: &BucketMeter,
    found: &Value,
    now: u64,
    clock: &Timing,
) -> Result<Option<u64>, Garbled> {
    // The scripts for a few buckets tell the number itself, and one below zero if there is none.
    let state = match found {
        Value::Int(below) if *below < 0 => None,
        Value::Int(full) => Some(Bucketful::Number(i128::from(*full))),
        found => match bytes(found)? {
            None => None,
            Some(text) if bucket.as_text => Some(Bucketful::Text(text)),
            Some(state) => {
                let eight = <[u8; 8]>::try_from(state)
                    .map_err(|_| Garbled(format!("`{}` is no bucket", state.escape_ascii())))?;
                Some(Bucketful::Number(-i128::from(i64::from_le_bytes(eight))))
            }
        },
    };
    let Some(state) = state else {
        return Ok(None);
    };
    let n = i128::from(bucket.n);
    let since = i128::from(now) - i128::from(clock.since);
    let missing = match state {
        Bucketful::Text(text) => {
            let mut halves = text.splitn(2, |byte| *byte == b':');
            let whole = i128::from(digits(halves.next().unwrap_or_default())?);
            let rest = i128::from(digits(halves.next().unwrap_or_default())?);
            (whole - since) * n + rest
        }
        Bucketful::Number(full) => full - since * n,
    };
    let Ok(missing) = u64::try_from(missing) else {
        return Ok(None);
    };
    let most = bucket.depth + clock.second().saturating_mul(bucket.n);
    let missing = if missing > most {
        bucket.depth
    } else {
        missing
    };
    Ok(Some(now.wrapping_mul(bucket.n).wrapping_add(missing)))
}

/// The number of the window that `at` lies in, as the core counts them.
fn core_number(core: &tollgate::algorithm::window::Window, at: Moment) -> u64 {
    core.heal(0, at) >> 32
}

/// A window's number has 21 bits in the state, 32 in the core's word.
const NUMBERS: u64 = 1 << 21;

fn window_word(found: &Value, number: u64) -> Result<Option<u64>, Garbled> {
    let Some(state) = bytes(found)? else {
        return Ok(None);
    };
    let state = digits(state)?;
    let (stored, count) = (state >> 32, state & u64::from(u32::MAX));
    let behind = number.wrapping_sub(stored) % NUMBERS;
    // The stored window lies behind by less than half of all numbers, or else ahead.
    let full = if behind < NUMBERS / 2 {
        number.wrapping_sub(behind)
    } else {
        number.wrapping_add(NUMBERS - behind)
    };
    Ok(Some(full << 32 | count))
}

fn parts_word(parts: &PartsMeter, found: &Value, coarse: u64) -> Result<Option<u64>, Garbled> {
    let Some(state) = bytes(found)? else {
        return Ok(None);
    };
    let garbled = || Garbled(format!("`{}` are no parts", state.escape_ascii()));
    let (head, cells) = state.split_at_checked(8).ok_or_else(garbled)?;
    let stored = number(head.get(1..).unwrap_or_default());
    let (count, size) = (parts.count_bytes(), parts.count_bytes() + parts.width() - 1);
    if cells.len() != size * (parts.before as usize + 1) {
        return Err(garbled());
    }
    let index = coarse / parts.part;
    let index = match index.checked_sub(stored) {
        // All that it counts is out of the window: the core's word wraps, this state does not.
        Some(behind) if behind > u64::from(parts.before) => return Ok(None),
        None if stored - index > 1 => index,
        _ => stored,
    };
    let cells = cells.chunks_exact(size).map(|cell| {
        let at = |i: usize| cell.get(i).copied().map_or(0, u64::from);
        [
            number(cell.get(..count).unwrap_or_default()),
            at(count),
            at(count + 1),
        ]
    });
    Ok(Some(match &parts.core {
        PartsCore::Sliding(core) => core.word_of(index, cells),
        PartsCore::Permits(core) => core.word_of(index, cells.map(|[count, ..]| count)),
    }))
}

/// A number from its bytes, the greatest first.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
