//! Adaptive limits as subjects, without their guard: `remaining` is the new limit.

use super::convert::span;
use crate::parameters::Parameters;
use crate::replay::CaseRunner;
use crate::timeline::{Observation, Operation, TimelineStep};
use tollgate::shape::{Adaptive, Estimator};
use tollgate::shape::{EstimatorLimit, Sample};

/// The product's constant, which a timeline may state.
const BACKOFF_PERCENT: u32 = 90;
const DEFAULT_TIMEOUT_NS: u64 = 5_000_000_000;

/// The adaptive limit of these numbers.
///
/// # Errors
///
/// If they are of no adaptive limit, or make none.
pub fn open(numbers: &Parameters) -> Result<Box<dyn CaseRunner>, String> {
    let (by, initial, min, max, timeout_ns) = match *numbers {
        Parameters::Aimd {
            backoff_pct: Some(percent),
            ..
        } if percent != BACKOFF_PERCENT => {
            return Err(format!(
                "`backoff_pct` is {percent}, and must be {BACKOFF_PERCENT}"
            ));
        }
        Parameters::Aimd {
            initial,
            min,
            max,
            timeout_ns,
            ..
        } => (Estimator::Aimd, initial, min, max, timeout_ns),
        Parameters::Gradient2 { initial, min, max } => {
            (Estimator::Gradient2, initial, min, max, None)
        }
        _ => return Err(format!("{numbers:?} is no adaptive limit")),
    };
    let adaptive = Adaptive {
        by,
        min,
        max,
        initial,
        timeout: span(timeout_ns.unwrap_or(DEFAULT_TIMEOUT_NS)),
    };
    let limit = EstimatorLimit::new(&adaptive).map_err(|error| error.to_string())?;
    Ok(Box::new(Unguarded(limit)))
}

struct Unguarded(EstimatorLimit);

impl CaseRunner for Unguarded {
    fn apply(&mut self, step: &TimelineStep) -> Result<Observation, String> {
        let Operation::Sample {
            rtt_ns,
            inflight,
            drop,
        } = step.operation()?
        else {
            return Err(step.unsupported());
        };
        let limit = self.0.sample(Sample {
            rtt_ns,
            inflight,
            dropped: drop,
        });
        Ok(Observation {
            remaining: Some(u64::from(limit)),
            delay: Some(0),
            ..Observation::default()
        })
    }
}
