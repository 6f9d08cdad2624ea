//! The core's decision on a charge, from the state that the script found.
//!
//! # Theory
//!
//! A script returns the state and the time, not the decision. Here the state becomes a word of the core at that time, and the
//! core decides, so verdicts, waits and the status are the core's. Only the one rule that the core measures in seconds is applied
//! before: a bucket that is ahead by more than a second beyond full counts as just emptied.
//!
//! # Invariant
//!
//! The verdict here is the decision of the script. If they ever differ, the caller gets an error.

use redis::Value;
use tollgate::algorithm::PackedAlgorithm;
use tollgate::{Moment, Span};
use tollgate::{QuotaStatus, Verdict};

use super::BadReply;
use super::clock::ScriptClock;
use super::script_limit::{CellsCore, ScriptBucket, ScriptCells, ScriptLimit};

/// The core's decision on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyDecision {
    pub(super) verdict: Verdict,
    /// The status if the charge is not taken.
    pub(super) before: QuotaStatus,
    /// The status if it is.
    pub(super) after: QuotaStatus,
    /// The moment from which the charge counts, if it is taken.
    pub(super) issued: Moment,
}

/// The decision on `cost` at `now` (in units of the clock), from the state that was found.
pub(super) fn evaluate(
    script: &ScriptLimit,
    found: &Value,
    now: u64,
    cost: u64,
    clock: &ScriptClock,
) -> Result<KeyDecision, BadReply> {
    let at = Moment::from_nanos(now);
    let decision = match script {
        ScriptLimit::Bucket(bucket) => {
            let word = bucket_word(bucket, found, now, clock)?;
            match bucket.max_wait {
                None => charge(&bucket.core(), word, at, cost),
                Some(_) => charge(&bucket.queue(), word, at, cost),
            }
        }
        ScriptLimit::Window { core, .. } => {
            charge(core, window_word(found, core_number(core, at))?, at, cost)
        }
        ScriptLimit::Calendar { core, periods, .. } => {
            let real = Moment::from_nanos(now.saturating_mul(clock.unit));
            let window_time = periods.window_time(real);
            let decision = charge(
                core,
                window_word(found, core_number(core, window_time))?,
                window_time,
                cost,
            );
            return Ok(KeyDecision {
                verdict: periods.verdict_in_clock_time(decision.verdict, window_time),
                before: periods.status_in_clock_time(decision.before, window_time),
                after: periods.status_in_clock_time(decision.after, window_time),
                issued: real,
            });
        }
        ScriptLimit::Cells(cells) => {
            let coarse = now / cells.unit;
            let at = Moment::from_nanos(coarse);
            let word = cells_word(cells, found, coarse)?;
            let decision = match &cells.core {
                CellsCore::Sliding(core) => charge(core, word, at, cost),
                CellsCore::Permits(core) => charge(core, word, at, cost),
            };
            let unit = clock.unit.saturating_mul(cells.unit);
            return Ok(KeyDecision {
                issued: Moment::from_nanos(now.saturating_mul(clock.unit)),
                ..decision.in_nanos(unit)
            });
        }
        ScriptLimit::Log { limit, window } => {
            super::log::evaluate(*limit, *window, found, now, cost)?
        }
    };
    Ok(decision.in_nanos(clock.unit))
}

impl KeyDecision {
    /// Converts spans and moments from units of this many nanoseconds.
    fn in_nanos(self, unit: u64) -> KeyDecision {
        let span = |span: Span| Span::from_nanos(span.as_nanos().saturating_mul(unit));
        let status = |status: QuotaStatus| QuotaStatus {
            remaining: status.remaining,
            full_after: span(status.full_after),
            next_after: span(status.next_after),
        };
        KeyDecision {
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

/// The core's decision on a word.
fn charge<L: PackedAlgorithm>(core: &L, word: Option<u64>, at: Moment, cost: u64) -> KeyDecision {
    let step = core.charge(word, at, cost);
    let before = core.status(word, at);
    let after = match step.write {
        Some(word) if step.verdict.is_admitted() => core.status(Some(word), at),
        _ => before,
    };
    KeyDecision {
        verdict: step.verdict,
        before,
        after,
        issued: at,
    }
}

/// The bytes of a state; none if there is none.
fn bytes(found: &Value) -> Result<Option<&[u8]>, BadReply> {
    match found {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        other => Err(BadReply(format!("unexpected state {other:?}"))),
    }
}

/// A whole number in digits.
fn digits(text: &[u8]) -> Result<u64, BadReply> {
    let plain = text.iter().all(u8::is_ascii_digit);
    let text_of = std::str::from_utf8(text).ok().filter(|_| plain);
    let number = text_of.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| BadReply(format!("`{}` is not a number", text.escape_ascii())))
}

/// The moment at which a bucket is full again.
enum Bucketful<'a> {
    /// In ticks.
    Number(i128),
    /// In whole units of time and the remaining ticks.
    Text(&'a [u8]),
}

fn bucket_word(
    bucket: &ScriptBucket,
    found: &Value,
    now: u64,
    clock: &ScriptClock,
) -> Result<Option<u64>, BadReply> {
    // The scripts for a few buckets return the number itself, and a negative one if there is no state.
    let state = match found {
        Value::Int(below) if *below < 0 => None,
        Value::Int(full) => Some(Bucketful::Number(i128::from(*full))),
        found => match bytes(found)? {
            None => None,
            Some(text) if bucket.as_text => Some(Bucketful::Text(text)),
            Some(state) => {
                let eight = <[u8; 8]>::try_from(state)
                    .map_err(|_| BadReply(format!("`{}` is not a bucket", state.escape_ascii())))?;
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
    let most = bucket.farthest() + clock.second().saturating_mul(bucket.n);
    let missing = if missing > most {
        bucket.depth
    } else {
        missing
    };
    Ok(Some(now.wrapping_mul(bucket.n).wrapping_add(missing)))
}

/// The number of the window that `at` lies in, as the core counts them.
fn core_number(core: &tollgate::algorithm::window::Window, at: Moment) -> u64 {
    core.repair_after_clock_step(0, at) >> 32
}

/// A window's number has 21 bits in the state, 32 in the core's word.
const NUMBERS: u64 = 1 << 21;

fn window_word(found: &Value, number: u64) -> Result<Option<u64>, BadReply> {
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

fn cells_word(cells: &ScriptCells, found: &Value, coarse: u64) -> Result<Option<u64>, BadReply> {
    let Some(state) = bytes(found)? else {
        return Ok(None);
    };
    let bad = || BadReply(format!("`{}` are not cells", state.escape_ascii()));
    let (head, counts) = state.split_at_checked(8).ok_or_else(bad)?;
    let stored = number(head.get(1..).unwrap_or_default());
    let (count, size) = (cells.count_bytes(), cells.count_bytes() + cells.width() - 1);
    if counts.len() != size * (cells.before as usize + 1) {
        return Err(bad());
    }
    let index = coarse / cells.length;
    let index = match index.checked_sub(stored) {
        // All counts are out of the window: the core's word wraps, this state does not.
        Some(behind) if behind > u64::from(cells.before) => return Ok(None),
        None if stored - index > 1 => index,
        _ => stored,
    };
    let counts = counts.chunks_exact(size).map(|cell| {
        let at = |i: usize| cell.get(i).copied().map_or(0, u64::from);
        [
            number(cell.get(..count).unwrap_or_default()),
            at(count),
            at(count + 1),
        ]
    });
    Ok(Some(match &cells.core {
        CellsCore::Sliding(core) => core.word_of(index, counts),
        CellsCore::Permits(core) => core.word_of(index, counts.map(|[count, ..]| count)),
    }))
}

/// A number from its bytes, the most significant first.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
