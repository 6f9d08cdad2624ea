//! Numbers for limits, drawn at random, and the proportions of limits that have them.

use super::nature::Nature;
use crate::oracle::bucket::HEAL_NS;
use crate::rng::Rng;

/// The deepest bucket that the core keeps exactly, in ticks.
const DEPTH_MAX: u64 = 1 << 61;
/// The finest tick that the core keeps exactly, in parts of a nanosecond.
const TICKS_MAX: u64 = 1 << 20;
/// Time for a unit at the most: some two hours, so that a history sees a bucket fill often enough.
const PERIOD_MAX: u64 = 1 << 43;

/// A rate that the core keeps exactly for every capacity up to `cap`.
pub fn any_rate(rng: &mut Rng, cap: u64) -> (u64, u64) {
    let n = match rng.below(4) {
        0 => 1,
        1 => rng.between(1, 12),
        2 => rng.magnitude(1000),
        _ => rng.magnitude(TICKS_MAX),
    };
    let longest = (DEPTH_MAX / cap.max(1)).clamp(1, PERIOD_MAX);
    let p_ns = match rng.below(4) {
        0 => rng.pick(&[1, 3, 1_000, 1_000_000, 1_000_000_000, 3_000_000_000]),
        _ => rng.magnitude(longest),
    };
    (n, p_ns.min(longest))
}

/// A capacity: mostly a handful, sometimes many.
pub fn any_cap(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => 1,
        1..=5 => rng.between(1, 12),
        6 => rng.magnitude(1_000),
        _ => rng.magnitude(1_000_000),
    }
}

/// The proportions of a bucket: `n` units every `p_ns`, `cap` at the most.
pub fn bucket_nature(params: String, cap: u64, n: u64, p_ns: u64) -> Nature {
    let fill = u128::from(cap) * u128::from(p_ns) / u128::from(n.max(1));
    Nature {
        params,
        cap,
        cap_min: 1,
        cap_max: 0,
        tick: p_ns / n.max(1),
        fill: u64::try_from(fill).unwrap_or(u64::MAX),
        small_back: HEAL_NS,
        floor: 0,
        has_refunds: true,
        has_rate: false,
        has_max_wait: false,
        goes_far_back: true,
    }
}

/// The proportions of a limit on a window that is cut into `parts`.
pub fn window_nature(params: String, limit: u64, window_ns: u64, parts: u64) -> Nature {
    Nature {
        params,
        cap: limit,
        cap_min: 1,
        cap_max: 0,
        tick: window_ns / limit.max(1),
        fill: window_ns,
        small_back: window_ns / parts.max(1),
        floor: 0,
        has_refunds: true,
        has_rate: false,
        has_max_wait: false,
        goes_far_back: true,
    }
}

/// A window length: from a nanosecond to some days, a multiple of `parts`.
pub fn any_window(rng: &mut Rng, parts: u64) -> u64 {
    let window_ns = match rng.below(4) {
        0 => rng.pick(&[1_000_000_000, 60_000_000_000, 3_600_000_000_000]),
        1 => rng.between(1, 2_000),
        _ => rng.magnitude(1 << 48),
    };
    window_ns.next_multiple_of(parts)
}
