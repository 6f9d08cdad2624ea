//! The algorithms by their names, and the fields that each of them owns.

use tollgate::Algorithm;
use tollgate_policy::{BurstCredits, Quota};

/// An algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    TokenBucket,
    Gcra,
    LeakyBucket,
    FixedWindow,
    SlidingLog,
    SlidingWindow,
    BurstCredits,
    Concurrency,
}

/// Each algorithm with its name.
pub(crate) const KINDS: [(&str, Kind); 8] = [
    ("token-bucket", Kind::TokenBucket),
    ("gcra", Kind::Gcra),
    ("leaky-bucket", Kind::LeakyBucket),
    ("fixed-window", Kind::FixedWindow),
    ("sliding-log", Kind::SlidingLog),
    ("sliding-window", Kind::SlidingWindow),
    ("burst-credits", Kind::BurstCredits),
    ("concurrency", Kind::Concurrency),
];

/// The fields that belong to some algorithms only.
pub(crate) const OWNED: &[&str] = &[
    "burst",
    "tolerance",
    "queue",
    "max_wait",
    "estimate",
    "times",
    "for",
    "slack",
    "ttl",
    "calendar",
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        let found = KINDS.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }

    /// The fields that it takes beside `allow`, those first that it cannot do without.
    pub(crate) const fn fields(self) -> &'static [&'static str] {
        match self {
            Kind::TokenBucket => &["burst"],
            Kind::Gcra => &["tolerance"],
            Kind::LeakyBucket => &["queue", "max_wait"],
            Kind::FixedWindow => &["calendar"],
            Kind::SlidingLog => &[],
            Kind::SlidingWindow => &["estimate"],
            Kind::BurstCredits => &["times", "for", "slack"],
            Kind::Concurrency => &["ttl"],
        }
    }

    /// How many of its fields it cannot do without.
    pub(crate) const fn needed(self) -> usize {
        match self {
            Kind::Gcra | Kind::LeakyBucket | Kind::Concurrency => 1,
            Kind::BurstCredits => 2,
            _ => 0,
        }
    }

    /// The algorithm that owns a field.
    pub(crate) fn owner(field: &str) -> Option<Kind> {
        let found = KINDS.iter().find(|(_, k)| k.fields().contains(&field));
        found.map(|(_, kind)| *kind)
    }

    /// What a resolved quota was written as.
    pub(crate) fn of(quota: &Quota) -> Option<Kind> {
        if BurstCredits::of(quota).is_some() {
            return Some(Kind::BurstCredits);
        }
        Some(match quota.limit.algorithm() {
            Algorithm::TokenBucket { .. } => Kind::TokenBucket,
            Algorithm::Gcra { .. } => Kind::Gcra,
            Algorithm::LeakyBucket { .. } => Kind::LeakyBucket,
            Algorithm::FixedWindow { .. } => Kind::FixedWindow,
            Algorithm::SlidingLog { .. } => Kind::SlidingLog,
            Algorithm::SlidingWindow { .. } => Kind::SlidingWindow,
            Algorithm::Concurrency { .. } => Kind::Concurrency,
        })
    }
}

/// A field as it is written.
pub(crate) fn sample(field: &str) -> &'static str {
    match field {
        "burst" => "burst: 10",
        "tolerance" => "tolerance: 250ms",
        "queue" => "queue: 5000",
        "max_wait" => "max_wait: 2s",
        "estimate" => "estimate: strict",
        "times" => "times: 10",
        "for" => "for: 30s",
        "slack" => "slack: 4",
        "ttl" => "ttl: 30s",
        "calendar" => "calendar: { every: month }",
        _ => "allow: 5/s",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owned_field_has_an_owner_and_a_sample() {
        for field in OWNED {
            assert!(Kind::owner(field).is_some(), "{field}");
            assert!(sample(field).starts_with(field), "{field}");
        }
        for (name, kind) in KINDS {
            assert_eq!(kind.name(), name);
            assert!(kind.needed() <= kind.fields().len());
            assert!(kind.fields().iter().all(|field| OWNED.contains(field)));
        }
    }
}
