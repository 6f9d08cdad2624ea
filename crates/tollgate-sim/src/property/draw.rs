//! Limits with random numbers, and the profile of requests that tests each.

use super::input_profile::InputProfile;
use crate::parameters::Parameters;
use crate::rng::Rng;
use crate::subject::bucket_group::BucketGroup;
use crate::subject::group::credits_of;

/// The deepest bucket that the core keeps exactly, in ticks.
const DEPTH_MAX: u64 = 1 << 61;
/// The finest tick that the core keeps exactly, in parts of a nanosecond.
const TICKS_MAX: u64 = 1 << 20;
/// Time for a unit at the most: some two hours, so that a history sees a bucket fill often enough.
const PERIOD_MAX: u64 = 1 << 43;
/// The greatest limit of a sliding counter.
const COUNT_MAX: u64 = (1 << 24) - 1;

/// Which implementation is compared with the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The pure steps.
    Core,
    /// The same steps in the store, through the public interface.
    Store,
}

/// A limit of `algorithm`, by the name that [`super::ALGORITHMS`] has for it; none if there is no such name.
pub fn limit(rng: &mut Rng, algorithm: &str, side: Side) -> Option<(Parameters, InputProfile)> {
    Some(match algorithm {
        "token_bucket" => token_bucket(rng),
        "token_debt" => token_debt(rng),
        "gcra" => gcra(rng),
        "leaky_queue" => leaky_queue(rng),
        "fixed_window" => fixed_window(rng),
        "sliding_log" => sliding_log(rng),
        "sliding_counter" => sliding_counter(rng, side, false),
        "strict_counter" => sliding_counter(rng, side, true),
        "span_counter" => span_counter(rng, side),
        "burst_credits" => burst_credits(rng),
        _ => return None,
    })
}

/// A rate that the core keeps exactly for every capacity up to `cap`.
pub fn exact_rate(rng: &mut Rng, cap: u64) -> (u64, u64) {
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
fn capacity(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => 1,
        1..=5 => rng.between(1, 12),
        6 => rng.magnitude(1_000),
        _ => rng.magnitude(1_000_000),
    }
}

/// A window length: from a nanosecond to some days, a multiple of `parts`.
fn window(rng: &mut Rng, parts: u64) -> u64 {
    let window_ns = match rng.below(4) {
        0 => rng.pick(&[1_000_000_000, 60_000_000_000, 3_600_000_000_000]),
        1 => rng.between(1, 2_000),
        _ => rng.magnitude(1 << 48),
    };
    window_ns.next_multiple_of(parts)
}

fn token_bucket(rng: &mut Rng) -> (Parameters, InputProfile) {
    let cap = capacity(rng);
    let (n, p_ns) = exact_rate(rng, 2 * cap);
    let profile = InputProfile {
        cap_max: 2 * cap,
        has_rate: true,
        ..InputProfile::bucket(cap, n, p_ns)
    };
    (Parameters::TokenBucket { cap, n, p_ns }, profile)
}

/// With costs that are known afterwards, from a small debt to one of many times the capacity.
fn token_debt(rng: &mut Rng) -> (Parameters, InputProfile) {
    let cap = capacity(rng);
    // A larger one is kept to 19 binary digits.
    let debt = rng.between(1, (4 * cap).min(524_287));
    let (n, p_ns) = exact_rate(rng, cap + debt);
    let profile = InputProfile {
        has_late_costs: true,
        ..InputProfile::bucket(cap, n, p_ns)
    };
    (Parameters::TokenDebt { cap, n, p_ns, debt }, profile)
}

fn gcra(rng: &mut Rng) -> (Parameters, InputProfile) {
    let cap = capacity(rng);
    let (n, p_ns) = exact_rate(rng, 2 * cap);
    let gap = (p_ns / n).max(1);
    // Anything from no tolerance to a few cells of it, rarely a whole number of them.
    let tau_ns = match rng.below(4) {
        0 => 0,
        1 => rng.below(gap),
        _ => rng.below(gap.saturating_mul(cap)),
    };
    let holds = 1 + u128::from(tau_ns) * u128::from(n) / u128::from(p_ns);
    let cap = u64::try_from(holds).unwrap_or(u64::MAX);
    let profile = InputProfile::bucket(cap, n, p_ns);
    (Parameters::Gcra { n, p_ns, tau_ns }, profile)
}

/// With and without a longest wait.
fn leaky_queue(rng: &mut Rng) -> (Parameters, InputProfile) {
    let queue = capacity(rng);
    let (n, p_ns) = exact_rate(rng, 2 * queue);
    let profile = InputProfile::bucket(queue, n, p_ns);
    let max_wait_ns = match rng.below(3) {
        0 => None,
        1 => Some(rng.below(profile.fill.saturating_add(1))),
        _ => Some(rng.below(profile.tick.saturating_mul(3).saturating_add(1))),
    };
    let profile = InputProfile {
        cap_max: 2 * queue,
        has_rate: true,
        has_refunds: false,
        has_max_wait: max_wait_ns.is_some(),
        ..profile
    };
    let numbers = Parameters::LeakyQueue {
        queue,
        n,
        p_ns,
        max_wait_ns,
    };
    (numbers, profile)
}

fn fixed_window(rng: &mut Rng) -> (Parameters, InputProfile) {
    let limit = match rng.below(8) {
        0 => rng.magnitude(u64::from(u32::MAX) / 2 - 1),
        _ => capacity(rng),
    };
    let window_ns = window(rng, 1);
    let anchor_ns = match rng.below(3) {
        0 => 0,
        1 => rng.below(window_ns),
        _ => rng.below(1 << 50),
    };
    let profile = InputProfile {
        cap_max: 2 * limit,
        ..InputProfile::window(limit, window_ns, 1)
    };
    let numbers = Parameters::FixedWindow {
        limit,
        window_ns,
        anchor_ns,
    };
    (numbers, profile)
}

/// The limits are small: the oracle counts every unit.
fn sliding_log(rng: &mut Rng) -> (Parameters, InputProfile) {
    let limit = match rng.below(8) {
        0 => rng.between(1, 200),
        1..=2 => rng.between(1, 64),
        _ => rng.between(1, 12),
    };
    let window_ns = window(rng, 1);
    let profile = InputProfile {
        cap_max: 2 * limit,
        // The core's stamps cannot lie before the origin, where a repair near it would put them.
        floor: window_ns,
        ..InputProfile::window(limit, window_ns, 1)
    };
    (Parameters::SlidingLog { limit, window_ns }, profile)
}

/// A counter from which all was given back is as if never used. The store may forget it at the end of
/// an epoch, the steps and the oracle do not: after a step back they stand at different parts.
fn has_counter_refunds(side: Side) -> bool {
    side == Side::Core
}

/// The store chooses the layout by the limit; the steps take any limit that fits.
fn least_limit(side: Side, least: u64) -> u64 {
    if side == Side::Store { least } else { 1 }
}

/// In one of the layouts that limits get.
fn sliding_counter(rng: &mut Rng, side: Side, strict: bool) -> (Parameters, InputProfile) {
    let (least, most, sub) = if strict {
        rng.pick(&[
            (1, 2_047, 4),
            (2_048, 16_383, 3),
            (16_384, 262_143, 2),
            (262_144, COUNT_MAX, 1),
        ])
    } else {
        (65_536, COUNT_MAX, 1)
    };
    let least = least_limit(side, least);
    let limit = capacity(rng).clamp(least, most);
    let window_ns = window(rng, sub);
    let profile = InputProfile {
        // Strict counters keep a layout in which a lower limit fits, the others change to spans.
        cap_min: if strict { 1 } else { least },
        cap_max: most.min(2 * limit),
        has_refunds: has_counter_refunds(side),
        ..InputProfile::window(limit, window_ns, sub)
    };
    let numbers = Parameters::SlidingCounter {
        limit,
        window_ns,
        sub: sub as u32,
        strict,
    };
    (numbers, profile)
}

/// In one of the layouts that limits get.
fn span_counter(rng: &mut Rng, side: Side) -> (Parameters, InputProfile) {
    let (least, most, sub, span) =
        rng.pick(&[(1, 127, 3, 8), (128, 1_023, 2, 16), (1_024, 65_535, 1, 64)]);
    let limit = capacity(rng).clamp(least_limit(side, least), most);
    let window_ns = window(rng, u64::from(sub));
    let profile = InputProfile {
        cap_max: most.min(2 * limit),
        has_refunds: has_counter_refunds(side),
        ..InputProfile::window(limit, window_ns, u64::from(sub))
    };
    let numbers = Parameters::SpanCounter {
        limit,
        window_ns,
        sub,
        span,
    };
    (numbers, profile)
}

/// Burst credits whose two rates the core keeps exactly.
fn burst_credits(rng: &mut Rng) -> (Parameters, InputProfile) {
    loop {
        let slack = capacity(rng).min(1_000);
        let (n, p_ns) = exact_rate(rng, slack);
        let mult = rng.between(2, 12) as u32;
        let gap = (p_ns / n).max(1);
        let dur_ns = 1 + rng.magnitude(gap.saturating_mul(100).min(1 << 48));
        let numbers = Parameters::BurstCredits {
            n,
            p_ns,
            mult,
            dur_ns,
            slack,
        };
        // A tolerance that is no whole number of nanoseconds is rounded, which the oracle does not do.
        let early = u128::from(slack.saturating_sub(1)) * u128::from(p_ns);
        if early % u128::from(n) == 0 && is_kept_exactly(&numbers) {
            return (numbers, InputProfile::bucket(slack, n, p_ns));
        }
    }
}

fn is_kept_exactly(numbers: &Parameters) -> bool {
    let group = credits_of(numbers).and_then(|credits| BucketGroup::from_credits(&credits));
    group.is_ok_and(|group| group.is_exact())
}
