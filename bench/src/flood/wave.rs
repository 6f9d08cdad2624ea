//! The flood itself, the same for every limiter.

use std::time::{Duration, Instant};

use crate::contestants::Contestant;
use crate::process::Resident;
use crate::stream::id;

/// The victim asks again after so many keys.
const POLL_EVERY: usize = 1_000;

/// Resident memory is read after so many keys: often enough to stop in time, rarely enough to cost
/// nothing.
const WEIGH_EVERY: usize = 100 * POLL_EVERY;

/// The number of the victim, which is none of the flood's.
const VICTIM: u32 = u32::MAX;

/// What a flood came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wave {
    /// Distinct keys that were asked about.
    pub(super) keys: u64,
    /// How many of them were admitted.
    pub(super) admitted: u64,
    /// How often the victim asked after it had spent its unit.
    pub(super) victim_polls: u64,
    pub(super) victim_admitted: u64,
    pub(super) elapsed_ns: u64,
}

/// Asks about `keys` distinct keys, or until the process holds as much as it may.
pub(super) fn wave<C: Contestant>(
    limiter: &C,
    keys: usize,
    until: Option<(Resident, u64)>,
) -> Wave {
    let victim = id(VICTIM);
    limiter.check_u64(victim);
    let mut wave = Wave {
        keys: 0,
        admitted: 0,
        victim_polls: 1,
        // It is throttled now, or the rest means nothing.
        victim_admitted: u64::from(limiter.check_u64(victim)),
        elapsed_ns: 0,
    };
    let mut stage = Vec::with_capacity(POLL_EVERY);
    let mut elapsed = Duration::ZERO;
    for first in (0..keys).step_by(POLL_EVERY) {
        let end = keys.min(first + POLL_EVERY);
        stage.clear();
        // Key numbers stay below `KEYS_MAX`, which fits.
        stage.extend((first..end).map(|number| id(number as u32)));
        let begin = Instant::now();
        let is_admitted = |&key: &u64| u64::from(limiter.check_u64(key));
        wave.admitted += stage.iter().map(is_admitted).sum::<u64>();
        elapsed += begin.elapsed();
        wave.keys += stage.len() as u64;
        wave.victim_polls += 1;
        wave.victim_admitted += u64::from(limiter.check_u64(victim));
        if let Some((resident, most)) = until
            && end.is_multiple_of(WEIGH_EVERY)
            && resident.bytes().is_none_or(|bytes| bytes > most)
        {
            break;
        }
    }
    wave.elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    wave
}
