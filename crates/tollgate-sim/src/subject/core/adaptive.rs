//! Adaptive limits as subjects: `remaining` is the new limit.

use super::super::given::Given;
use super::super::unsupported;
use crate::replay::{Observed, Subject};
use crate::timeline::{Case, Step};
use tollgate::shape::{AdaptiveLimit, Aimd, Gradient2, Sample, Vegas};

/// The adaptive limit that `case` asks for.
///
/// # Errors
///
/// If it has numbers that make no limit, or are not understood.
pub fn open(case: &Case) -> Result<Box<dyn Subject>, String> {
    let told = |error: tollgate::shape::AdaptiveError| error.to_string();
    Ok(match case.algorithm.as_str() {
        "aimd" => {
            let known = ["initial", "min", "max", "backoff_pct", "timeout_ns"];
            let given = Given::of_case(case, &known)?;
            let mut builder = Aimd::builder();
            if let Some(initial) = given.find("initial")? {
                builder = builder.initial(initial);
            }
            if let Some(min) = given.find("min")? {
                builder = builder.min(min);
            }
            if let Some(max) = given.find("max")? {
                builder = builder.max(max);
            }
            if let Some(percent) = given.find::<u32>("backoff_pct")? {
                builder = builder.backoff(f64::from(percent) / 100.0);
            }
            if let Some(timeout_ns) = given.find("timeout_ns")? {
                builder = builder.timeout_ns(timeout_ns);
            }
            Box::new(Adaptive(builder.build().map_err(told)?))
        }
        "vegas" => {
            let given = Given::of_case(case, &["initial", "min", "max"])?;
            let mut builder = Vegas::builder();
            if let Some(initial) = given.find("initial")? {
                builder = builder.initial(initial);
            }
            if let Some(min) = given.find("min")? {
                builder = builder.min(min);
            }
            if let Some(max) = given.find("max")? {
                builder = builder.max(max);
            }
            Box::new(Adaptive(builder.build().map_err(told)?))
        }
        "gradient2" => {
            let known = ["initial", "min", "max", "queue", "long_window"];
            let given = Given::of_case(case, &known)?;
            let mut builder = Gradient2::builder();
            if let Some(initial) = given.find("initial")? {
                builder = builder.initial(initial);
            }
            if let Some(min) = given.find("min")? {
                builder = builder.min(min);
            }
            if let Some(max) = given.find("max")? {
                builder = builder.max(max);
            }
            if let Some(queue) = given.find("queue")? {
                builder = builder.queue(queue);
            }
            if let Some(samples) = given.find("long_window")? {
                builder = builder.long_window(samples);
            }
            Box::new(Adaptive(builder.build().map_err(told)?))
        }
        other => return Err(format!("`{other}` is no adaptive limit")),
    })
}

/// A limit that can be told the latency of an idle backend.
trait Probe: AdaptiveLimit {
    /// The limit after the probe; none if this kind has no probes.
    fn probe(&mut self, _rtt_ns: u64) -> Option<u32> {
        None
    }
}

impl Probe for Aimd {}

impl Probe for Gradient2 {}

impl Probe for Vegas {
    fn probe(&mut self, rtt_ns: u64) -> Option<u32> {
        Some(Vegas::probe(self, rtt_ns))
    }
}

struct Adaptive<L>(L);

impl<L: Probe> Subject for Adaptive<L> {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        let limit = match step.op.as_str() {
            "sample" => {
                let given = Given::of_step(step, &["rtt_ns", "inflight", "drop"])?;
                self.0.sample(Sample {
                    rtt_ns: given.need("rtt_ns")?,
                    inflight: given.need("inflight")?,
                    dropped: given.flag("drop")?,
                })
            }
            "probe" => {
                let given = Given::of_step(step, &["rtt_ns"])?;
                let probed = self.0.probe(given.need("rtt_ns")?);
                probed.ok_or_else(|| unsupported(step))?
            }
            _ => return Err(unsupported(step)),
        };
        Ok(Observed {
            remaining: Some(u64::from(limit)),
            delay: Some(0),
            ..Observed::default()
        })
    }
}
