//! Limits drawn at random, for each algorithm the same one twice: as the oracle has it and as the core
//! does.

use super::Walked;
use super::failure::Failure;
use super::history::walk;
use super::limits::{any_cap, any_rate, any_window, bucket_nature, window_nature};
use super::nature::Nature;
use crate::model::Model;
use crate::oracle::{
    BurstCredits, FixedWindow, Gcra, LeakyQueue, SlidingCounter, SlidingLog, SpanCounter,
    TokenBucket,
};
use crate::rng::Rng;
use crate::subject::core::spec::{
    CounterSpec, GcraSpec, QueueSpec, SpanSpec, TokenBucketSpec, WindowSpec,
};
use crate::subject::core::told::{rate, span};
use crate::subject::core::{CreditSteps, LogSteps, WordSteps};
use crate::subject::store::credits::CreditGate;
use crate::subject::store::model::StoreModel;
use tollgate::{Algorithm, Estimate};

/// Who is compared with the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The pure steps.
    Core,
    /// The same steps in the store, through the public interface.
    Store,
}

/// Walks the core's steps, or the limiter of `algorithm`, beside `oracle`.
fn beside<O: Model, C: Model>(
    (oracle, side): (O, Side),
    core: Result<C, String>,
    algorithm: Result<Algorithm, String>,
    nature: Nature,
    rng: &mut Rng,
    steps: u64,
) -> Walked {
    let setup = |params: &str, what| Box::new(Failure::setup(params, what));
    match side {
        Side::Core => {
            let core = core.map_err(|what| setup(&nature.params, what))?;
            walk(oracle, core, nature, rng, steps)
        }
        Side::Store => {
            let store = algorithm
                .and_then(StoreModel::new)
                .map_err(|what| setup(&nature.params, what))?;
            walk(oracle, store, nature, rng, steps)
        }
    }
}

/// A history of a token bucket.
pub fn token_bucket(rng: &mut Rng, steps: u64, side: Side) -> Walked {
    let cap = any_cap(rng);
    let (n, p_ns) = any_rate(rng, 2 * cap);
    let spec = TokenBucketSpec { cap, n, p_ns };
    let nature = Nature {
        cap_max: 2 * cap,
        has_rate: true,
        ..bucket_nature(format!("{spec:?}"), cap, n, p_ns)
    };
    let algorithm = rate(n, p_ns).map(|rate| Algorithm::TokenBucket { rate, burst: cap });
    let oracle = TokenBucket::new(cap, n, p_ns);
    beside(
        (oracle, side),
        WordSteps::new(spec),
        algorithm,
        nature,
        rng,
        steps,
    )
}

/// A history of a GCRA meter.
pub fn gcra(rng: &mut Rng, steps: u64, side: Side) -> Walked {
    let cap = any_cap(rng);
    let (n, p_ns) = any_rate(rng, 2 * cap);
    let gap = (p_ns / n).max(1);
    // Anything from no tolerance to a few cells of it, rarely a whole number of them.
    let tau_ns = match rng.below(4) {
        0 => 0,
        1 => rng.below(gap),
        _ => rng.below(gap.saturating_mul(cap)),
    };
    let spec = GcraSpec { n, p_ns, tau_ns };
    let holds = 1 + u128::from(tau_ns) * u128::from(n) / u128::from(p_ns);
    let cap = u64::try_from(holds).unwrap_or(u64::MAX);
    let nature = bucket_nature(format!("{spec:?}"), cap, n, p_ns);
    let algorithm = rate(n, p_ns).map(|rate| Algorithm::Gcra {
        rate,
        tolerance: span(tau_ns),
    });
    let oracle = Gcra::new(n, p_ns, tau_ns);
    beside(
        (oracle, side),
        WordSteps::new(spec),
        algorithm,
        nature,
        rng,
        steps,
    )
}

/// A history of a leaky queue, with and without a longest wait.
pub fn leaky_queue(rng: &mut Rng, steps: u64, side: Side) -> Walked {
    let queue = any_cap(rng);
    let (n, p_ns) = any_rate(rng, 2 * queue);
    let mut nature = bucket_nature(String::new(), queue, n, p_ns);
    let max_wait_ns = match rng.below(3) {
        0 => None,
        1 => Some(rng.below(nature.fill.saturating_add(1))),
        _ => Some(rng.below(nature.tick.saturating_mul(3).saturating_add(1))),
    };
    let spec = QueueSpec {
        queue,
        n,
        p_ns,
        max_wait_ns,
    };
    nature.params = format!("{spec:?}");
    nature.cap_max = 2 * queue;
    nature.has_rate = true;
    nature.has_refunds = false;
    nature.has_max_wait = max_wait_ns.is_some();
    let algorithm = rate(n, p_ns).map(|rate| Algorithm::LeakyBucket {
        rate,
        queue,
        max_wait: max_wait_ns.map(span),
    });
    let oracle = LeakyQueue::new(queue, n, p_ns, max_wait_ns);
    beside(
        (oracle, side),
        WordSteps::new(spec),
        algorithm,
        nature,
        rng,
        steps,
    )
}

/// A history of a fixed window.
pub fn fixed_window(rng: &mut Rng, steps: u64, side: Side) -> Walked {
    let limit = match rng.below(8) {
        0 => rng.magnitude(u64::from(u32::MAX) / 2 - 1),
        _ => any_cap(rng),
    };
    let window_ns = any_window(rng, 1);
    let anchor_ns = match rng.below(3) {
        0 => 0,
        1 => rng.below(window_ns),
        _ => rng.below(1 << 50),
    };
    let spec = WindowSpec {
        limit,
        window_ns,
        anchor_ns,
    };
    let nature = Nature {
        cap_max: 2 * limit,
        ..window_nature(format!("{spec:?}"), limit, window_ns, 1)
    };
    let algorithm = Algorithm::FixedWindow {
        limit,
        window: span(window_ns),
        anchor: span(anchor_ns),
    };
    let oracle = FixedWindow::new(limit, window_ns, anchor_ns);
    beside(
        (oracle, side),
        WordSteps::new(spec),
        Ok(algorithm),
        nature,
        rng,
        steps,
    )
}

/// A history of a sliding log. The limits are small: the oracle counts every unit.
pub fn sliding_log(rng: &mut Rng, steps: u64, side: Side) -> Walked {
    let limit = match rng.below(8) {
        0 => rng.between(1, 200),
        1..=2 => rng.between(1, 64),
        _ => rng.between(1, 12),
    };
    let window_ns = any_window(rng, 1);
    let nature = Nature {
        cap_max: 2 * limit,
        // The core's stamps cannot lie before the origin, where a heal near it would put them.
        floor: window_ns,
        ..window_nature(
            format!("limit {limit} window_ns {window_ns}"),
            limit,
            window_ns,
            1,
        )
    };
    let algorithm = Algorithm::SlidingLog {
        limit,
        window: span(window_ns),
    };
    let oracle = SlidingLog::new(limit, window_ns);
    let core = LogSteps::new(limit, window_ns);
    beside((oracle, side), core, Ok(algorithm), nature, rng, steps)
}

/// A counter from which all was given back is as if never used. The store may forget it at the end of
/// an era, the steps and the oracle do not: after a step back they stand at different parts.
fn counter_refunds(side: Side) -> bool {
    side == Side::Core
}

/// A history of a sliding counter in one of the layouts that limits get.
pub fn sliding_counter(rng: &mut Rng, steps: u64, side: Side, is_strict: bool) -> Walked {
    const MOST: u64 = (1 << 24) - 1;
    let (least, most, sub) = if is_strict {
        rng.pick(&[
            (1, 2_047, 4),
            (2_048, 16_383, 3),
            (16_384, 262_143, 2),
            (262_144, MOST, 1),
        ])
    } else {
        (65_536, MOST, 1)
    };
    // The store chooses the layout by the limit; the steps take any limit that fits.
    let least = if side == Side::Store { least } else { 1 };
    let limit = any_cap(rng).clamp(least, most);
    let window_ns = any_window(rng, sub);
    let spec = CounterSpec {
        limit,
        window_ns,
        sub: sub as u32,
        is_strict,
    };
    let nature = Nature {
        // Strict counters keep a layout in which a lower limit fits, the others change to spans.
        cap_min: if is_strict { 1 } else { least },
        cap_max: most.min(2 * limit),
        has_refunds: counter_refunds(side),
        ..window_nature(format!("{spec:?}"), limit, window_ns, sub)
    };
    let algorithm = Algorithm::SlidingWindow {
        limit,
        window: span(window_ns),
        estimate: if is_strict {
            Estimate::Strict
        } else {
            Estimate::Span
        },
    };
    let oracle = SlidingCounter::new(limit, window_ns, sub, is_strict);
    beside(
        (oracle, side),
        WordSteps::new(spec),
        Ok(algorithm),
        nature,
        rng,
        steps,
    )
}

/// A history of a span counter in one of the layouts that limits get.
pub fn span_counter(rng: &mut Rng, steps: u64, side: Side) -> Walked {
    let (least, most, sub, parts) =
        rng.pick(&[(1, 127, 3, 8), (128, 1_023, 2, 16), (1_024, 65_535, 1, 64)]);
    // The store chooses the layout by the limit; the steps take any limit that fits.
    let least = if side == Side::Store { least } else { 1 };
    let limit = any_cap(rng).clamp(least, most);
    let window_ns = any_window(rng, u64::from(sub));
    let spec = SpanSpec {
        limit,
        window_ns,
        sub,
        span: parts,
    };
    let nature = Nature {
        cap_max: most.min(2 * limit),
        has_refunds: counter_refunds(side),
        ..window_nature(format!("{spec:?}"), limit, window_ns, u64::from(sub))
    };
    let algorithm = Algorithm::SlidingWindow {
        limit,
        window: span(window_ns),
        estimate: Estimate::Span,
    };
    let oracle = SpanCounter::new(limit, window_ns, u64::from(sub), u64::from(parts));
    beside(
        (oracle, side),
        WordSteps::new(spec),
        Ok(algorithm),
        nature,
        rng,
        steps,
    )
}

/// A history of burst credits.
pub fn burst_credits(rng: &mut Rng, steps: u64, side: Side) -> Walked {
    loop {
        let slack = any_cap(rng).min(1_000);
        let (n, p_ns) = any_rate(rng, slack);
        let mult = rng.between(2, 12) as u32;
        let gap = (p_ns / n).max(1);
        let dur_ns = 1 + rng.magnitude(gap.saturating_mul(100).min(1 << 48));
        let Ok(rate) = rate(n, p_ns) else {
            continue;
        };
        let credits = tollgate_policy::BurstCredits {
            rate,
            times: mult,
            duration: span(dur_ns),
            slack: Some(slack),
        };
        let Ok(core) = CreditSteps::new(&credits) else {
            continue;
        };
        // A tolerance that is no whole number of nanoseconds is rounded, which the oracle does not do.
        let early = u128::from(slack.saturating_sub(1)) * u128::from(p_ns);
        if !core.is_exact() || early % u128::from(n) != 0 {
            continue;
        }
        let params = format!("n {n} p_ns {p_ns} mult {mult} dur_ns {dur_ns} slack {slack}");
        let nature = bucket_nature(params, slack, n, p_ns);
        let oracle = BurstCredits::new(n, p_ns, u64::from(mult), dur_ns, slack);
        return match side {
            Side::Core => walk(oracle, core, nature, rng, steps),
            Side::Store => match CreditGate::new(&credits) {
                Ok(gate) => walk(oracle, gate, nature, rng, steps),
                Err(what) => Err(Box::new(Failure::setup(nature.params, what))),
            },
        };
    }
}
