//! Load shedding: scales all limits twice a second.
//!
//! # Theory
//!
//! A loop samples the signals: CPU use of this machine, and latency and errors of backends. The controller
//! ([`tollgate_policy::pressure`]) turns them into a scale, which the loop applies to the active policy. A scale set
//! by an operator takes the same path and applies at once.
//!
//! # Invariant
//!
//! Every active policy is under the current scale within one step. Nothing here is on the request path.
//!
//! # Limits
//!
//! Each node of a fleet scales itself, and decisions of a shared store are not scaled. The scale does not survive a
//! restart: a new process samples again, and an operator sets it again.

mod signals;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::MissedTickBehavior;
use tollgate::{Moment, Scale, Span};
use tollgate_policy::PressureRule;
use tollgate_policy::pressure::{PressureController, PressureLevel, PressureSignals};

use super::{ActivePolicy, Engine, locked, seconds};
use crate::metrics::{Exposition, Kind, ratio};

pub use signals::{BackendTotals, Backends};
use signals::{BackendWindow, Processors};

/// Interval of control steps.
const STEP_EVERY: Duration = Duration::from_millis(500);

/// The controller and its signals.
#[derive(Debug)]
pub(super) struct PressureState {
    controller: PressureController,
    processors: Processors,
    backends: Option<(Arc<dyn Backends>, BackendWindow)>,
    /// The last sample.
    signals: PressureSignals,
    /// The last version and scale that were applied.
    applied: (u64, Scale),
}

/// The scale of all limits and its cause, for operators.
#[derive(Clone, Debug, Serialize)]
pub struct PressureReport {
    /// The scale before floors: `58.98%`.
    pub scale: Share,
    /// The scale of limits without a tier.
    pub plain: Share,
    /// The scale of the limits of each tier.
    pub tiers: BTreeMap<Arc<str>, Share>,
    /// Until when an operator's scale holds, in seconds since 1970.
    pub held_until: Option<u64>,
    /// The signals relative to their bounds: `well`, `near`, `over`.
    pub level: &'static str,
    /// How long backends take on average, in milliseconds.
    pub latency_ms: Option<u64>,
    /// The share of failed answers of backends.
    pub errors: Option<Share>,
    /// The share of this machine's processors in use.
    pub cpu: Option<Share>,
}

/// The scale in health reports.
#[derive(Clone, Debug, Serialize)]
pub struct PressureHealth {
    /// The scale before floors.
    pub scale: Share,
    /// An operator set it.
    pub held: bool,
}

/// A share in ten-thousandths, written as a percentage: `50%`, `58.98%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, part) => write!(f, "{whole}.{part:02}%"),
        }
    }
}

impl Serialize for Share {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl From<Scale> for Share {
    fn from(scale: Scale) -> Share {
        Share(scale.as_share())
    }
}

impl PressureState {
    pub(super) fn new(rule: PressureRule) -> PressureState {
        PressureState {
            controller: PressureController::new(rule),
            processors: Processors::default(),
            backends: None,
            signals: PressureSignals::default(),
            applied: (1, Scale::ONE),
        }
    }

    /// Samples the signals and takes one control step.
    fn step(&mut self, now: Moment) {
        let backends = self.backends.as_mut();
        let stats = backends.map(|(source, seen)| seen.next(source.observed(), now));
        let stats = stats.unwrap_or_default();
        self.signals = PressureSignals {
            latency: stats.latency,
            errors: stats.errors,
            cpu: self.processors.in_use(),
        };
        if !(stats.is_old && self.is_over_by_backends()) {
            self.controller.step(&self.signals, now);
        }
        // Otherwise the same answers have lowered the scale already, and nothing shows that backends recovered.
    }

    /// Returns `true` if only signals of backends are over a bound.
    fn is_over_by_backends(&self) -> bool {
        let of_this_machine = PressureSignals {
            cpu: self.signals.cpu,
            ..PressureSignals::default()
        };
        self.controller.level(&self.signals) == PressureLevel::Over
            && self.controller.level(&of_this_machine) != PressureLevel::Over
    }

    /// Takes the rule of this policy and applies the scale to it if it changed.
    fn activate(&mut self, active: &ActivePolicy) {
        let (version, before) = self.applied;
        if version != active.version {
            self.controller
                .set_rule(active.gate.pressure_rule().into_owned());
        }
        let scale = self.controller.scale();
        if self.applied != (active.version, scale) {
            apply(active, scale);
            self.applied = (active.version, scale);
        }
        if (before == Scale::ONE) != (scale == Scale::ONE) {
            tracing::warn!(
                target: "tollgate::pressure", scale = %Share::from(scale),
                level = word(self.controller.level(&self.signals)),
                "{}", if scale == Scale::ONE { "limits no longer scaled" } else { "limits scaled down" }
            );
        }
    }
}

/// Applies a scale to limits and queues. Other parts of a policy that react to load are scaled here too.
fn apply(active: &ActivePolicy, scale: Scale) {
    active.gate.set_pressure(scale);
    let left = active.gate.pressure_rule().scale_of(None, scale);
    for (_, queue) in active.queues.iter() {
        queue.set_scale(left);
    }
}

const fn word(level: PressureLevel) -> &'static str {
    match level {
        PressureLevel::Well => "well",
        PressureLevel::Near => "near",
        PressureLevel::Over => "over",
    }
}

impl Engine {
    /// Replaces the source of backend statistics.
    pub fn watch_backends(&self, backends: Arc<dyn Backends>) {
        let seen = BackendWindow::new(backends.observed(), self.now());
        locked(&self.pressure).backends = Some((backends, seen));
    }

    /// Names of upstreams whose servers are all down, and whether these are all upstreams.
    pub(super) fn unavailable_backends(&self) -> (Vec<String>, bool) {
        let under = locked(&self.pressure);
        let backends = under.backends.as_ref();
        backends.map_or_else(Default::default, |(backends, _)| {
            (backends.unavailable(), backends.is_none_up())
        })
    }

    /// Runs one control step. Waits for a running reload, so it must not run on a thread that serves requests.
    pub fn step_pressure(&self) {
        let _in_order = self.state();
        let mut under = locked(&self.pressure);
        under.step(self.now());
        under.activate(&self.active());
    }

    /// Holds the scale for the duration `lasts`, whatever the signals are. Returns the previous scale.
    pub fn hold_pressure(&self, scale: Scale, lasts: Span) -> (Share, PressureReport) {
        let before = {
            let _in_order = self.state();
            let mut under = locked(&self.pressure);
            let before = under.controller.scale();
            under.controller.hold(scale, self.now().plus(lasts));
            under.activate(&self.active());
            before
        };
        (before.into(), self.pressure())
    }

    /// Ends a hold: signals control the scale again, from its current value. Returns whether there was a hold.
    pub fn release_pressure(&self) -> (bool, PressureReport) {
        let was = locked(&self.pressure).controller.release(self.now());
        (was, self.pressure())
    }

    /// The scale and its cause.
    pub fn pressure(&self) -> PressureReport {
        let under = locked(&self.pressure);
        let active = self.active();
        let (scale, signals) = (under.controller.scale(), under.signals);
        let tiers = active.gate.pressure_by_tier().into_iter();
        PressureReport {
            scale: scale.into(),
            plain: active.gate.pressure_rule().scale_of(None, scale).into(),
            tiers: tiers.map(|(name, left)| (name, left.into())).collect(),
            held_until: under.controller.held_until(self.now()).map(seconds),
            level: word(under.controller.level(&signals)),
            latency_ms: signals.latency.map(|l| l.as_nanos() / 1_000_000),
            errors: signals.errors.map(Share),
            cpu: signals.cpu.map(Share),
        }
    }

    pub(super) fn pressure_health(&self) -> PressureHealth {
        let under = locked(&self.pressure);
        PressureHealth {
            scale: under.controller.scale().into(),
            held: under.controller.held_until(self.now()).is_some(),
        }
    }

    pub(super) fn collect_pressure(&self, policy: &ActivePolicy, out: &mut Exposition) {
        let (scale, signals, rule) = {
            let pressure = locked(&self.pressure);
            let controller = &pressure.controller;
            (
                controller.scale(),
                pressure.signals,
                controller.rule().clone(),
            )
        };
        let of_one = |scale: Scale| ratio(scale.as_q16().into(), Scale::ONE.as_q16().into());
        out.value(
            "tollgate_pressure_scale_ratio",
            Kind::Gauge,
            "Scale applied to all limits, before floors.",
            of_one(scale),
        );
        let tiers = policy.gate.pressure_by_tier();
        out.family(
            "tollgate_pressure_tier_scale_ratio",
            Kind::Gauge,
            "Scale applied to the limits of a tier.",
            tiers
                .iter()
                .map(|(tier, scale)| ([("tier", &**tier)], of_one(*scale))),
        );
        let of_bound = |signal, observed: Option<u64>, bound: Option<u64>| {
            Some(([("signal", signal)], ratio(observed?, bound?)))
        };
        let nanos = |span: Span| span.as_nanos();
        let series = [
            of_bound(
                "latency",
                signals.latency.map(nanos),
                rule.latency.map(nanos),
            ),
            of_bound(
                "errors",
                signals.errors.map(u64::from),
                rule.errors.map(u64::from),
            ),
            of_bound("cpu", signals.cpu.map(u64::from), rule.cpu.map(u64::from)),
        ];
        out.family(
            "tollgate_pressure_signal_ratio",
            Kind::Gauge,
            "A signal relative to its bound: above 1 limits shrink, up to 0.9 they grow.",
            series.into_iter().flatten(),
        );
    }
}

/// Runs control steps until `stop`.
pub(crate) async fn step_every(engine: Arc<Engine>, stop: impl Future<Output = ()>) {
    let mut tick = tokio::time::interval(STEP_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            _ = tick.tick() => {}
        }
        let engine = Arc::clone(&engine);
        // It may have to wait for a reload.
        let _ = tokio::task::spawn_blocking(move || engine.step_pressure()).await;
    }
}

#[cfg(test)]
mod tests;
