//! Pressure controller: computes the scale of all limits, which falls quickly under overload and rises slowly
//! afterwards.
//!
//! # Theory
//!
//! Every step reads signals: the latency of a backend, the share of its failed responses, and the CPU usage of
//! this machine. Each has a bound. If any signal is *over* its bound, the scale is cut to nine tenths. If all are
//! *well* (at most nine tenths of the bound, or not observed), it grows by a fiftieth. In between it stays.
//! Additive increase and multiplicative decrease make several controllers of one backend converge. The band
//! between the two keeps a single controller from oscillating around its bound.
//!
//! From full scale to a tenth takes 22 steps, and back 45: at two steps a second 11 and 23 seconds.
//!
//! # Invariant
//!
//! The scale is never above one and never below the lowest floor: below that it would change nothing, and only
//! delay recovery. Steps that come too soon change nothing, so more frequent calls do not shrink limits faster.
//!
//! # No signal
//!
//! A signal that is not observed counts as well: the backend has no traffic, or is not monitored. The scale grows.
//!
//! # Manual control
//!
//! [`PressureController::hold`] fixes the scale for a time, whatever the signals say. Afterwards the controller
//! continues from there, so that a repaired backend does not get full load at once.
//!
//! # Limits
//!
//! The controller is a plain value. It reads no clock; the caller provides signals and applies the scale.

use crate::PressureRule;
use tollgate::Scale;
use tollgate::{Moment, Span};

/// Steps closer together than this change nothing.
pub const STEP_MIN: Span = Span::from_millis(100);
/// The increment of a step up: a fiftieth.
const UP: u32 = 65_536 / 50;

/// Signals since the last step. `None` is not observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureSignals {
    /// Mean latency of the backend.
    pub latency: Option<Span>,
    /// Share of failed responses of the backend, in ten-thousandths.
    pub errors: Option<u32>,
    /// Share of this machine's processors in use, in ten-thousandths.
    pub cpu: Option<u32>,
}

/// The combined level of all signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PressureLevel {
    /// All signals are well.
    Well,
    /// In between: the scale stays.
    Near,
    /// A signal is over its bound.
    Over,
}

/// The controller: a scale, and when it may change.
#[derive(Clone, Debug)]
pub struct PressureController {
    rule: PressureRule,
    scale: Scale,
    /// The last step.
    stepped: Option<Moment>,
    /// Until when the manual scale holds.
    held: Option<Moment>,
}

impl PressureController {
    /// No pressure.
    pub fn new(rule: PressureRule) -> PressureController {
        PressureController {
            rule,
            scale: Scale::ONE,
            stepped: None,
            held: None,
        }
    }

    /// Continues with another rule from the current scale.
    pub fn set_rule(&mut self, rule: PressureRule) {
        self.rule = rule;
        self.scale = self.scale.max(self.floor());
    }

    /// The rule.
    pub fn rule(&self) -> &PressureRule {
        &self.rule
    }

    /// The current scale.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Until when the manual scale holds, if it does at `now`.
    pub fn held_until(&self, now: Moment) -> Option<Moment> {
        self.held.filter(|until| now < *until)
    }

    /// The lowest floor, below which no limit shrinks.
    pub fn floor(&self) -> Scale {
        let floors = self.rule.floors.iter().map(|(_, floor)| *floor);
        floors.fold(self.rule.floor, Scale::min)
    }

    /// The level of these signals.
    pub fn level(&self, signals: &PressureSignals) -> PressureLevel {
        let nanos = |span: Span| span.as_nanos();
        let share = |of: u32| u64::from(of);
        let by = [
            level_of(signals.latency.map(nanos), self.rule.latency.map(nanos)),
            level_of(signals.errors.map(share), self.rule.errors.map(share)),
            level_of(signals.cpu.map(share), self.rule.cpu.map(share)),
        ];
        by.into_iter().max().unwrap_or(PressureLevel::Well)
    }

    /// One step: returns the new scale.
    pub fn step(&mut self, signals: &PressureSignals, now: Moment) -> Scale {
        let is_due = match self.stepped {
            // A clock that was set back does not block steps.
            Some(last) => now < last || now.since(last) >= STEP_MIN,
            None => true,
        };
        if !is_due {
            return self.scale;
        }
        self.stepped = Some(now);
        if self.held_until(now).is_some() {
            return self.scale;
        }
        self.held = None;
        let q16 = self.scale.as_q16();
        self.scale = match self.level(signals) {
            // At most 65536 * 9, and rounded down: it always shrinks.
            PressureLevel::Over => Scale::from_q16(q16 * 9 / 10).max(self.floor()),
            PressureLevel::Near => self.scale,
            PressureLevel::Well => Scale::from_q16(q16 + UP),
        };
        self.scale
    }

    /// Fixes the scale (at the lowest floor, if that is more) until `until`, whatever the signals say. Returns the
    /// effective scale.
    pub fn hold(&mut self, scale: Scale, until: Moment) -> Scale {
        self.scale = scale.max(self.floor());
        self.held = Some(until);
        self.scale
    }

    /// Ends manual control. Returns whether it was active.
    pub fn release(&mut self, now: Moment) -> bool {
        let was = self.held_until(now).is_some();
        self.held = None;
        was
    }
}

/// The level of one signal, if it is observed and has a bound.
fn level_of(observed: Option<u64>, bound: Option<u64>) -> PressureLevel {
    let (Some(observed), Some(bound)) = (observed, bound) else {
        return PressureLevel::Well;
    };
    if observed > bound {
        PressureLevel::Over
    } else if u128::from(observed) * 10 > u128::from(bound) * 9 {
        PressureLevel::Near
    } else {
        PressureLevel::Well
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn percent(percent: u32) -> Scale {
        Scale::from_q16(65_536 * percent / 100)
    }

    fn by_cpu() -> PressureController {
        PressureController::new(PressureRule {
            cpu: Some(8_000),
            floor: percent(20),
            floors: vec![(Arc::from("free"), percent(5))],
            ..PressureRule::default()
        })
    }

    fn busy(cpu: u32) -> PressureSignals {
        PressureSignals {
            cpu: Some(cpu),
            ..PressureSignals::default()
        }
    }

    #[test]
    fn pressure_cuts_to_nine_tenths_down_to_the_lowest_floor() {
        let mut p = by_cpu();
        assert_eq!(p.step(&busy(8_001), at(0)).as_q16(), 58_982);
        assert_eq!(p.step(&busy(8_001), at(500)).as_q16(), 53_083);
        for step in 2..100 {
            p.step(&busy(10_000), at(step * 500));
        }
        assert_eq!(p.scale(), percent(5));
    }

    #[test]
    fn from_a_tenth_all_is_back_in_forty_six_steps_at_the_most() {
        let mut p = by_cpu();
        p.hold(percent(10), at(0));
        let steps = (1..).find(|step| p.step(&busy(0), at(step * 500)) == Scale::ONE);
        assert_eq!(steps, Some(46));
    }

    #[test]
    fn between_well_and_over_nothing_changes() {
        let mut p = by_cpu();
        p.step(&busy(9_000), at(0));
        let scale = p.scale();
        for (step, cpu) in [7_201, 8_000, 7_600].into_iter().enumerate() {
            assert_eq!(p.step(&busy(cpu), at(500 * (step as u64 + 1))), scale);
        }
        assert!(p.step(&busy(7_200), at(9_000)) > scale);
    }

    #[test]
    fn any_signal_over_its_bound_is_pressure_and_one_without_a_bound_never_is() {
        let p = PressureController::new(PressureRule {
            latency: Some(Span::from_millis(200)),
            errors: Some(500),
            ..PressureRule::default()
        });
        let slow = PressureSignals {
            latency: Some(Span::from_millis(201)),
            errors: Some(0),
            cpu: Some(10_000),
        };
        assert_eq!(p.level(&slow), PressureLevel::Over);
        let failing = PressureSignals {
            latency: Some(Span::from_millis(1)),
            errors: Some(501),
            cpu: None,
        };
        assert_eq!(p.level(&failing), PressureLevel::Over);
        assert_eq!(p.level(&busy(10_000)), PressureLevel::Well);
    }

    #[test]
    fn no_signal_is_no_pressure() {
        let mut p = by_cpu();
        p.step(&busy(9_000), at(0));
        let scale = p.scale();
        assert!(p.step(&PressureSignals::default(), at(500)) > scale);
    }

    #[test]
    fn steps_that_come_too_soon_change_nothing() {
        let mut p = by_cpu();
        let scale = p.step(&busy(9_000), at(1_000));
        assert_eq!(p.step(&busy(9_000), at(1_099)), scale);
        assert!(p.step(&busy(9_000), at(1_100)) < scale);
        // Nor does a clock that was set back stop it for long.
        assert!(p.step(&busy(0), at(0)) < scale);
        assert!(p.step(&busy(0), at(100)) > p.floor());
    }

    #[test]
    fn a_manual_scale_holds_until_its_end_and_the_controller_continues_from_it() {
        let mut p = by_cpu();
        assert_eq!(p.hold(percent(50), at(10_000)), percent(50));
        assert_eq!(p.step(&busy(10_000), at(5_000)), percent(50));
        assert_eq!(p.step(&busy(0), at(9_999)), percent(50));
        assert_eq!(p.held_until(at(9_999)), Some(at(10_000)));
        assert_eq!(p.step(&busy(0), at(10_099)).as_q16(), 32_768 + UP);
        assert_eq!(p.held_until(at(10_099)), None);
    }

    #[test]
    fn releasing_returns_to_automatic_control() {
        let mut p = by_cpu();
        p.hold(percent(50), at(10_000));
        assert!(p.release(at(1)));
        assert!(!p.release(at(2)));
        assert!(p.step(&busy(10_000), at(500)) < percent(50));
    }

    #[test]
    fn a_manual_scale_stays_above_the_floor_and_a_higher_floor_raises_it() {
        let mut p = by_cpu();
        assert_eq!(p.hold(percent(1), at(1)), percent(5));
        p.set_rule(PressureRule {
            floor: percent(30),
            ..PressureRule::default()
        });
        assert_eq!(p.scale(), percent(30));
    }
}
