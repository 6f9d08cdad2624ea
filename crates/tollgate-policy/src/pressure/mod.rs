//! Load-shedding settings of a policy.
//!
//! Under overload a backend gets less traffic: while a signal is over its bound, all limits shrink step by step,
//! and they grow back afterwards. The *floor* of a tier bounds how far its limits may shrink.
//!
//! The caller provides the signals and the steps.

use std::sync::Arc;

use tollgate::Scale;
use tollgate::Span;

/// The signals that count as pressure, and how far limits shrink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PressureRule {
    /// Bound of the backend's mean latency.
    pub latency: Option<Span>,
    /// Bound of the share of failed responses of the backend, in ten-thousandths.
    pub errors: Option<u32>,
    /// Bound of the share of this machine's processors in use, in ten-thousandths.
    pub cpu: Option<u32>,
    /// The floor of all limits.
    pub floor: Scale,
    /// Floors of tiers, by their name.
    pub floors: Vec<(Arc<str>, Scale)>,
}

impl Default for PressureRule {
    /// No signal but manual control, and a floor of a tenth.
    fn default() -> PressureRule {
        PressureRule {
            latency: None,
            errors: None,
            cpu: None,
            floor: Scale::from_q16(6_554),
            floors: Vec::new(),
        }
    }
}

impl PressureRule {
    /// The scale of a tier's limits under `scale`.
    pub fn scale_of(&self, tier: Option<&str>, scale: Scale) -> Scale {
        let own = |tier: &str| self.floors.iter().find(|(name, _)| **name == *tier);
        let floor = tier.and_then(own).map_or(self.floor, |(_, floor)| *floor);
        scale.max(floor)
    }
}

pub mod controller;

pub use controller::{PressureController, PressureLevel, PressureSignals};

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> PressureRule {
        PressureRule {
            floor: Scale::from_q16(6_554),
            floors: vec![
                (Arc::from("pro"), Scale::from_q16(32_768)),
                (Arc::from("free"), Scale::from_q16(655)),
            ],
            ..PressureRule::default()
        }
    }

    #[test]
    fn without_pressure_every_tier_has_its_full_limits() {
        for tier in [None, Some("pro"), Some("free"), Some("unknown")] {
            assert_eq!(rule().scale_of(tier, Scale::ONE), Scale::ONE);
        }
    }

    #[test]
    fn a_tier_keeps_its_own_floor_and_the_rest_the_common_one() {
        let least = Scale::from_q16(1);
        assert_eq!(rule().scale_of(Some("pro"), least).as_q16(), 32_768);
        assert_eq!(rule().scale_of(Some("free"), least).as_q16(), 655);
        assert_eq!(rule().scale_of(Some("unknown"), least).as_q16(), 6_554);
        assert_eq!(rule().scale_of(None, least).as_q16(), 6_554);
    }

    #[test]
    fn above_its_floor_a_tier_shrinks_as_all_do() {
        let half = Scale::from_q16(40_000);
        for tier in [None, Some("pro"), Some("free")] {
            assert_eq!(rule().scale_of(tier, half), half);
        }
    }

    #[test]
    fn the_default_rule_leaves_a_tenth() {
        let usual = PressureRule::default();
        assert_eq!((usual.latency, usual.errors, usual.cpu), (None, None, None));
        assert_eq!(usual.scale_of(None, Scale::from_q16(0)).apply_to(1000), 100);
    }
}
