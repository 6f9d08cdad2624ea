//! Adaptive limits as subjects, without their guard: `remaining` is the new limit.

use super::super::given::Given;
use super::super::unsupported;
use super::told::span;
use crate::replay::{Observed, Subject};
use crate::timeline::{Case, Step};
use tollgate::shape::{Adaptive, Estimator};
use tollgate::shape::{Sample, UnguardedLimit};

/// The adaptive limit that `case` asks for.
///
/// # Errors
///
/// If it has numbers that make no limit, or are not understood.
pub fn open(case: &Case) -> Result<Box<dyn Subject>, String> {
    let (by, known): (_, &[&str]) = match case.algorithm.as_str() {
        "aimd" => (
            Estimator::Aimd,
            &["initial", "min", "max", "backoff_pct", "timeout_ns"],
        ),
        "gradient2" => (Estimator::Gradient2, &["initial", "min", "max"]),
        other => return Err(format!("`{other}` is no adaptive limit")),
    };
    let given = Given::of_case(case, known)?;
    if let Some(percent) = given.find::<u32>("backoff_pct")?
        && percent != 90
    {
        return Err(format!("`backoff_pct` is {percent}, and must be 90"));
    }
    let adaptive = Adaptive {
        by,
        min: given.need("min")?,
        max: given.need("max")?,
        initial: given.need("initial")?,
        timeout: span(given.find("timeout_ns")?.unwrap_or(5_000_000_000)),
    };
    let limit = UnguardedLimit::new(&adaptive).map_err(|error| error.to_string())?;
    Ok(Box::new(Unguarded(limit)))
}

struct Unguarded(UnguardedLimit);

impl Subject for Unguarded {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        if step.op != "sample" {
            return Err(unsupported(step));
        }
        let given = Given::of_step(step, &["rtt_ns", "inflight", "drop"])?;
        let limit = self.0.sample(Sample {
            rtt_ns: given.need("rtt_ns")?,
            inflight: given.need("inflight")?,
            dropped: given.flag("drop")?,
        });
        Ok(Observed {
            remaining: Some(u64::from(limit)),
            delay: Some(0),
            ..Observed::default()
        })
    }
}
