//! What a case is called in the public interface.

use super::super::core::spec::{
    CounterSpec, GcraSpec, QueueSpec, SpanSpec, TokenBucketSpec, WindowSpec,
};
use super::super::core::told::{rate, span};
use super::super::given::Given;
use super::not_expressible;
use crate::model::{Change, has_no};
use crate::replay::CannotOpen;
use crate::subject::keyed::change_of;
use crate::timeline::Case;
use tollgate::algorithm::sliding::{Layout, Sliding, Tail};
use tollgate::{Algorithm, Estimate, Span};

/// The algorithm of `case`.
///
/// # Errors
///
/// If it is not to be had in public, or its numbers are wrong.
pub fn algorithm_of(case: &Case) -> Result<Algorithm, CannotOpen> {
    Ok(match case.algorithm.as_str() {
        "token_bucket" => {
            let spec = TokenBucketSpec::of(case)?;
            Algorithm::TokenBucket {
                rate: rate(spec.n, spec.p_ns)?,
                burst: spec.cap,
            }
        }
        "gcra" => {
            let spec = GcraSpec::of(case)?;
            Algorithm::Gcra {
                rate: rate(spec.n, spec.p_ns)?,
                tolerance: span(spec.tau_ns),
            }
        }
        "leaky_queue" => {
            let spec = QueueSpec::of(case)?;
            Algorithm::LeakyBucket {
                rate: rate(spec.n, spec.p_ns)?,
                queue: spec.queue,
                max_wait: spec.max_wait_ns.map(span),
            }
        }
        "fixed_window" => {
            let spec = WindowSpec::of(case)?;
            Algorithm::FixedWindow {
                limit: spec.limit,
                window: span(spec.window_ns),
                anchor: span(spec.anchor_ns),
            }
        }
        "sliding_log" => {
            let given = Given::of_case(case, &["limit", "window_ns"])?;
            Algorithm::SlidingLog {
                limit: given.need("limit")?,
                window: span(given.need("window_ns")?),
            }
        }
        "sliding_counter" => {
            let spec = CounterSpec::of(case)?;
            sliding(spec.limit, spec.window_ns, spec.layout())?
        }
        "span_counter" => {
            let spec = SpanSpec::of(case)?;
            sliding(spec.limit, spec.window_ns, spec.layout())?
        }
        "concurrency" => {
            return Err(not_expressible(
                "a charge does not name the holder of a permit",
            ));
        }
        "aimd" | "gradient2" | "sfq" => {
            return Err(not_expressible("no store is behind it"));
        }
        other => return Err(format!("the store has no `{other}`").into()),
    })
}

/// The sliding window that has this layout because of its limit.
fn sliding(limit: u64, window_ns: u64, layout: Layout) -> Result<Algorithm, CannotOpen> {
    let window = span(window_ns);
    let estimate = match layout.tail {
        Tail::Whole => Estimate::Strict,
        Tail::Span | Tail::Even => Estimate::Span,
    };
    if layout_of(limit, window, estimate) != Some(layout) {
        return Err(not_expressible("not the layout that this limit gets"));
    }
    Ok(Algorithm::SlidingWindow {
        limit,
        window,
        estimate,
    })
}

fn layout_of(limit: u64, window: Span, estimate: Estimate) -> Option<Layout> {
    let sliding = Sliding::new(limit, window, estimate).ok()?;
    Some(sliding.shape().layout)
}

/// Whether every step of `case` can be said of `algorithm`.
///
/// # Errors
///
/// If one cannot.
pub fn expressible(case: &Case, algorithm: &Algorithm) -> Result<(), CannotOpen> {
    let Algorithm::SlidingWindow {
        limit,
        window,
        estimate,
    } = *algorithm
    else {
        return Ok(());
    };
    for step in case.steps.iter().filter(|step| step.op == "set_cap") {
        if let Change::SetCap { cap } = change_of(step)?
            && layout_of(cap, window, estimate) != layout_of(limit, window, estimate)
        {
            return Err(not_expressible("another limit gets another layout"));
        }
    }
    Ok(())
}

/// `algorithm` with another limit.
///
/// # Errors
///
/// If this algorithm has no such change.
pub fn changed(algorithm: &Algorithm, change: Change) -> Result<Algorithm, String> {
    let mut changed = *algorithm;
    match (&mut changed, change) {
        (Algorithm::TokenBucket { burst: cap, .. }, Change::SetCap { cap: to })
        | (Algorithm::LeakyBucket { queue: cap, .. }, Change::SetCap { cap: to })
        | (Algorithm::FixedWindow { limit: cap, .. }, Change::SetCap { cap: to })
        | (Algorithm::SlidingLog { limit: cap, .. }, Change::SetCap { cap: to })
        | (Algorithm::SlidingWindow { limit: cap, .. }, Change::SetCap { cap: to }) => *cap = to,
        (Algorithm::TokenBucket { rate: of, .. }, Change::SetRate { n, p_ns })
        | (Algorithm::Gcra { rate: of, .. }, Change::SetRate { n, p_ns })
        | (Algorithm::LeakyBucket { rate: of, .. }, Change::SetRate { n, p_ns }) => {
            *of = rate(n, p_ns)?;
        }
        _ => return Err(has_no(change)),
    }
    Ok(changed)
}
