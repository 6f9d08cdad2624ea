//! Floods limiters with keys that never return: their memory, and whether a throttled key gains by it.
//!
//! # Method
//!
//! The limit is one unit an hour with a burst of one, so that every key that was ever admitted stays in use to the end. First
//! a *victim* spends its unit. Then each of many distinct keys is checked once, and after every thousand the victim is checked
//! again. It must be refused every time: a limiter that forgets it under pressure lets a flood reset a limit.
//!
//! Each limiter is flooded in a fresh child process of this same program, so that the growth is its own. One that states no
//! cap is stopped when the process holds [`RESIDENT_MAX`].
//!
//! # What is demanded
//!
//! Tollgate grows by no more than its stated cap, give or take [`OVER_MAX_PERCENT`], and never admits the victim.

use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::args::{Flood, FloodChild, Flooded};
use crate::contestants::KeyedLimiter;
use crate::contestants::governor::Governor;
use crate::contestants::tollgate::Exact;
use crate::keys::id;
use crate::output::{Output, Row, short_count};
use crate::system::{Growth, no_proc, print_result, resident, run_child};
use crate::workload::{Config, Mode};

/// Where a limiter without a cap is stopped.
const RESIDENT_MAX: u64 = 2 << 30;

/// What the growth may exceed the stated cap by: the process is more than its limiter.
const OVER_MAX_PERCENT: u64 = 10;

/// The victim is checked again after this many keys.
const POLL_EVERY: usize = 1_000;

/// Resident memory is read after this many keys: often enough to stop in time, rarely enough to cost nothing.
const MEASURE_EVERY: usize = 500 * POLL_EVERY;

/// The number of the victim, which is none of the flood's.
const VICTIM: u32 = u32::MAX;

/// The result of a flood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FloodResult {
    /// Distinct keys that were checked.
    keys: u64,
    /// How many of them were admitted.
    admitted: u64,
    /// How often the victim was checked after it had spent its unit.
    victim_polls: u64,
    victim_admitted: u64,
    elapsed_ns: u64,
    before_bytes: u64,
    growth_bytes: u64,
    /// Stated cap of Tollgate, and its decisions on the shared overflow bucket.
    cap_bytes: Option<u64>,
    overflow: Option<u64>,
    /// Duration of governor's `retain_recent` at the end, and the keys that it kept.
    retain_ns: Option<u64>,
    kept: Option<u64>,
}

impl FloodResult {
    fn is_correct(&self) -> bool {
        self.cap_bytes.is_none_or(|cap| {
            let most = cap + cap * OVER_MAX_PERCENT / 100;
            self.growth_bytes <= most && self.victim_admitted == 0
        })
    }
}

/// Floods both; returns whether Tollgate kept within its cap and held the victim back.
pub(crate) fn run(args: &Flood, out: &mut Output<'_>) -> io::Result<bool> {
    let (keys, max_keys) = (args.keys.to_string(), args.max_keys.to_string());
    let mut rows = Vec::new();
    let mut remarks = Vec::new();
    let mut all_correct = true;
    for limiter in [Flooded::Tollgate, Flooded::Governor] {
        let name = limiter.name();
        let words = ["flood-child", name, &keys, &max_keys];
        let result: FloodResult = run_child(&words, &format!("flooding `{name}`"))?;
        all_correct &= result.is_correct();
        rows.push(row(args, name, &result));
        remarks.extend(remark(args, &result));
    }
    let title = format!(
        "a flood of {} distinct u64 keys; tollgate has room for {}; 1 per hour, burst 1",
        short_count(args.keys),
        short_count(args.max_keys)
    );
    out.rows(&title, &rows)?;
    for remark in remarks {
        out.line(&remark)?;
    }
    Ok(all_correct)
}

fn row(args: &Flood, name: &str, result: &FloodResult) -> Row {
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let cap = result.cap_bytes;
    let growth_to_cap = cap.map(|cap| result.growth_bytes as f64 / cap.max(1) as f64);
    let ns_per_key = result.elapsed_ns as f64 / result.keys.max(1) as f64;
    Row::new("flood", name)
        .json("keys", args.keys)
        .count("keys_reached", "keys reached", result.keys)
        .count("admitted", "new keys admitted", result.admitted)
        .json("victim_polls", result.victim_polls)
        .count("victim_admitted", "victim admitted", result.victim_admitted)
        .figure("ns_per_key", "ns per key", ns_per_key, 1)
        .json("resident_before_bytes", result.before_bytes)
        .json("growth_bytes", result.growth_bytes)
        .column("growth MB", megabytes(result.growth_bytes))
        .json("max_keys", cap.map(|_| args.max_keys))
        .json("cap_bytes", cap)
        .column("stated cap MB", cap.map_or("none".to_owned(), megabytes))
        .figure("growth_to_cap", "growth / cap", growth_to_cap, 3)
        .count("overflow", "overflow decisions", result.overflow)
        .json("as_expected", cap.map(|_| result.is_correct()))
        .json("retain_recent_ns", result.retain_ns)
        .json("kept_by_retain_recent", result.kept)
}

fn remark(args: &Flood, result: &FloodResult) -> Option<String> {
    if let Some((retain_ns, kept)) = result.retain_ns.zip(result.kept) {
        let stopped = match result.keys < args.keys as u64 {
            true => format!(
                "  governor was stopped at {} GiB of resident memory\n",
                RESIDENT_MAX >> 30
            ),
            false => String::new(),
        };
        // The victim has a key too.
        let held = result.keys + 1;
        return Some(format!(
            "{stopped}  governor keeps a key until `retain_recent` is called for those at rest: called now, it went through\n  \
             {held} keys in {:.0} ms and dropped {}",
            retain_ns as f64 / 1e6,
            held.saturating_sub(kept)
        ));
    }
    if result.victim_admitted > 0 {
        return Some("  ! the victim was admitted: the flood pushed its key out".to_owned());
    }
    (!result.is_correct())
        .then(|| format!("  ! the growth is more than {OVER_MAX_PERCENT} % above the stated cap"))
}

/// Runs the child: floods one limiter and prints the result.
pub(crate) fn run_child_process(child: FloodChild, out: &mut dyn io::Write) -> io::Result<()> {
    let result = match child.limiter {
        Flooded::Tollgate => flood::<Exact>(child, None, |limiter, result| FloodResult {
            cap_bytes: Some(limiter.memory_cap() as u64),
            overflow: Some(limiter.overflow_count()),
            ..result
        }),
        Flooded::Governor => flood::<Governor>(child, Some(RESIDENT_MAX), |limiter, result| {
            let begin = Instant::now();
            let kept = limiter.retain_recent() as u64;
            FloodResult {
                retain_ns: Some(nanos(begin.elapsed())),
                kept: Some(kept),
                ..result
            }
        }),
    };
    print_result(&result.ok_or_else(no_proc)?, out)
}

/// Floods one limiter in this process. `None` if the system does not report the memory of a process.
fn flood<C: KeyedLimiter>(
    child: FloodChild,
    resident_max: Option<u64>,
    finish: impl FnOnce(&C, FloodResult) -> FloodResult,
) -> Option<FloodResult> {
    let limiter = |max_keys| C::new(&Config::new(max_keys, Mode::Refuse));
    // A small flood first, so that loading the code from the file is not part of the growth.
    check_all(&limiter(1_000), 5_000, None);
    let growth = Growth::start()?;
    let limiter = limiter(child.max_keys);
    let result = check_all(&limiter, child.keys, resident_max);
    let result = FloodResult {
        before_bytes: growth.before(),
        growth_bytes: growth.resident()?,
        ..result
    };
    Some(finish(&limiter, result))
}

/// Checks `keys` distinct keys, or until the process holds `resident_max`.
fn check_all<C: KeyedLimiter>(limiter: &C, keys: usize, resident_max: Option<u64>) -> FloodResult {
    let victim = id(VICTIM);
    limiter.check_u64(victim);
    let mut result = FloodResult {
        victim_polls: 1,
        // It is throttled now, or the rest means nothing.
        victim_admitted: u64::from(limiter.check_u64(victim)),
        ..FloodResult::default()
    };
    let mut buffer = Vec::with_capacity(POLL_EVERY);
    let mut elapsed = Duration::ZERO;
    for first in (0..keys).step_by(POLL_EVERY) {
        let end = keys.min(first + POLL_EVERY);
        buffer.clear();
        // Key numbers stay below `KEYS_MAX`, which fits.
        buffer.extend((first..end).map(|number| id(number as u32)));
        let begin = Instant::now();
        let is_admitted = |&key: &u64| u64::from(limiter.check_u64(key));
        result.admitted += buffer.iter().map(is_admitted).sum::<u64>();
        elapsed += begin.elapsed();
        result.keys += buffer.len() as u64;
        result.victim_polls += 1;
        result.victim_admitted += u64::from(limiter.check_u64(victim));
        if let Some(most) = resident_max
            && end.is_multiple_of(MEASURE_EVERY)
            && resident().is_none_or(|bytes| bytes > most)
        {
            break;
        }
    }
    result.elapsed_ns = nanos(elapsed);
    result
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(growth_bytes: u64, victim_admitted: u64) -> FloodResult {
        FloodResult {
            growth_bytes,
            victim_admitted,
            cap_bytes: Some(1_000),
            ..FloodResult::default()
        }
    }

    #[test]
    fn a_tenth_above_the_cap_is_the_process_and_more_is_the_limiter() {
        assert!(result(1_100, 0).is_correct());
        assert!(!result(1_101, 0).is_correct());
    }

    #[test]
    fn a_victim_that_was_admitted_once_is_a_failure() {
        assert!(!result(1_000, 1).is_correct());
    }
}
