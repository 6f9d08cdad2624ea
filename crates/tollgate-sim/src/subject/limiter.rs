//! A keyed limiter of the public interface.

use super::convert::{answer_of, at, rate, span};
use crate::model::{Model, ModelChange};
use crate::oracle::OracleDecision;
use crate::parameters::Parameters;
use crate::replay::CannotOpen;
use crate::timeline::{Operation, TimelineCase};
use tollgate::algorithm::sliding::{Layout, Sliding, Tail};
use tollgate::{Algorithm, Decision, Estimate, Limit, Limiter, ManualClock, Origin, QuotaStatus};

/// Room for the keys of any timeline, and quick to lay out.
pub(super) const MAX_KEYS: usize = 256;

/// The product's algorithm of these numbers.
///
/// # Errors
///
/// If the numbers make no limit, or the public interface would choose another layout for it.
pub fn algorithm_of(numbers: &Parameters) -> Result<Algorithm, CannotOpen> {
    let algorithm = algorithm_in_any_layout(numbers)?;
    if let Algorithm::SlidingWindow {
        limit,
        window,
        estimate,
    } = algorithm
    {
        let chosen = Sliding::new(limit, window, estimate).ok();
        if chosen.map(|sliding| sliding.shape().layout) != layout_of(numbers) {
            return Err(CannotOpen::not_expressible(
                "not the layout that this limit gets",
            ));
        }
    }
    Ok(algorithm)
}

/// The product's limit of these numbers.
///
/// # Errors
///
/// As [`algorithm_of`].
pub fn limit_of(numbers: &Parameters) -> Result<Limit, CannotOpen> {
    let debt = match *numbers {
        Parameters::TokenDebt { debt, .. } => debt,
        _ => 0,
    };
    Limit::new(algorithm_of(numbers)?)
        .and_then(|limit| limit.with_max_debt(debt))
        .map_err(|error| error.to_string().into())
}

/// The same where the layout is not chosen anew: a limiter keeps its layout when its limit changes.
fn algorithm_in_any_layout(numbers: &Parameters) -> Result<Algorithm, CannotOpen> {
    use Parameters as P;
    Ok(match *numbers {
        P::TokenBucket { cap, n, p_ns } | P::TokenDebt { cap, n, p_ns, .. } => {
            Algorithm::TokenBucket {
                rate: rate(n, p_ns)?,
                burst: cap,
            }
        }
        P::Gcra { n, p_ns, tau_ns } => Algorithm::Gcra {
            rate: rate(n, p_ns)?,
            tolerance: span(tau_ns),
        },
        P::LeakyQueue {
            queue,
            n,
            p_ns,
            max_wait_ns,
        } => Algorithm::LeakyBucket {
            rate: rate(n, p_ns)?,
            queue,
            max_wait: max_wait_ns.map(span),
        },
        P::FixedWindow {
            limit,
            window_ns,
            anchor_ns,
        } => Algorithm::FixedWindow {
            limit,
            window: span(window_ns),
            anchor: span(anchor_ns),
        },
        P::SlidingLog { limit, window_ns } => Algorithm::SlidingLog {
            limit,
            window: span(window_ns),
        },
        P::SlidingCounter {
            limit, window_ns, ..
        }
        | P::SpanCounter {
            limit, window_ns, ..
        } => Algorithm::SlidingWindow {
            limit,
            window: span(window_ns),
            estimate: match numbers {
                P::SlidingCounter { strict: true, .. } => Estimate::Strict,
                _ => Estimate::Span,
            },
        },
        P::Concurrency { .. } => {
            return Err(CannotOpen::not_expressible(
                "a charge does not name the holder of a permit",
            ));
        }
        P::BurstCredits { .. } | P::Aimd { .. } | P::Gradient2 { .. } => {
            return Err(format!("{numbers:?} is no single limit").into());
        }
    })
}

/// How the word of a sliding window is divided.
pub(super) fn layout_of(numbers: &Parameters) -> Option<Layout> {
    match *numbers {
        Parameters::SlidingCounter { sub, strict, .. } => Some(Layout {
            parts: sub,
            divisions: 1,
            tail: if strict { Tail::Whole } else { Tail::Even },
        }),
        Parameters::SpanCounter { sub, span, .. } => Some(Layout {
            parts: sub,
            divisions: span,
            tail: Tail::Span,
        }),
        _ => None,
    }
}

/// Whether every change of the limit in `case` keeps a layout that the public interface chooses.
///
/// # Errors
///
/// If one does not.
pub fn check_layouts(case: &TimelineCase, numbers: &Parameters) -> Result<(), CannotOpen> {
    if layout_of(numbers).is_none() {
        return Ok(());
    }
    for step in &case.steps {
        if let Ok(Operation::SetCap { cap }) = step.operation() {
            algorithm_of(&numbers.with(ModelChange::SetCap { cap })?)?;
        }
    }
    Ok(())
}

/// A limiter and the clock that its steps move.
#[derive(Debug)]
pub struct StoreLimiter {
    numbers: Parameters,
    limiter: Limiter<ManualClock>,
}

impl StoreLimiter {
    /// A limiter never used, on a clock of its own.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit, or the public interface cannot express it.
    pub fn new(numbers: Parameters) -> Result<Self, CannotOpen> {
        let limit = limit_of(&numbers)?.with_max_keys(MAX_KEYS);
        let limiter = Limiter::with_clock(limit, ManualClock::new());
        let limiter = limiter.map_err(|error| error.to_string())?;
        Ok(Self { numbers, limiter })
    }
}

/// The decision of a charge that passed at `issued`, as its caller would still have it.
pub(super) fn charged_at(issued: u64) -> Decision {
    Decision {
        verdict: tollgate::Verdict::Pass,
        status: QuotaStatus::default(),
        issued: at(issued),
        origin: Origin::Fresh,
    }
}

impl Model for StoreLimiter {
    fn check(&mut self, key: &str, t: u64, cost: u64) -> OracleDecision {
        self.limiter.clock().set(at(t));
        answer_of(&self.limiter.charge(key, cost))
    }

    fn peek(&self, key: &str, t: u64, cost: u64) -> OracleDecision {
        self.limiter.clock().set(at(t));
        answer_of(&self.limiter.peek(key, cost))
    }

    fn change(&mut self, key: &str, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        self.limiter.clock().set(at(t));
        match change {
            ModelChange::Refund { .. } if self.numbers.is_queue() => {
                return Err(change.unsupported());
            }
            ModelChange::Refund { cost, issued } => {
                let _ = self.limiter.settle(key, &charged_at(issued), cost, 0);
            }
            ModelChange::Late { cost } => {
                let _ = self.limiter.settle(key, &charged_at(t), 0, cost);
            }
            ModelChange::SetCap { .. } | ModelChange::SetRate { .. } => {
                let numbers = self.numbers.with(change)?;
                let algorithm = algorithm_in_any_layout(&numbers);
                let algorithm = algorithm.map_err(|error| error.to_string())?;
                Limit::new(algorithm)
                    .and_then(|limit| self.limiter.change(limit))
                    .map_err(|error| error.to_string())?;
                self.numbers = numbers;
            }
        }
        Ok(self.peek(key, t, 0))
    }
}
