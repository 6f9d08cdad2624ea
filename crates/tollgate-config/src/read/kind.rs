//! The algorithms by name, and the fields that belong to each.

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

/// All fields that belong to single algorithms.
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
    /// Each algorithm with its name in the file.
    pub(crate) const ALL: [(&str, Kind); 8] = [
        ("token-bucket", Kind::TokenBucket),
        ("gcra", Kind::Gcra),
        ("leaky-bucket", Kind::LeakyBucket),
        ("fixed-window", Kind::FixedWindow),
        ("sliding-log", Kind::SlidingLog),
        ("sliding-window", Kind::SlidingWindow),
        ("burst-credits", Kind::BurstCredits),
        ("concurrency", Kind::Concurrency),
    ];

    pub(crate) fn name(self) -> &'static str {
        let found = Kind::ALL.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }

    /// The fields that it takes beside `allow`.
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

    /// The fields that it requires beside `allow`.
    pub(crate) const fn required(self) -> &'static [&'static str] {
        match self {
            Kind::Gcra => &["tolerance"],
            Kind::LeakyBucket => &["queue"],
            Kind::BurstCredits => &["times", "for"],
            Kind::Concurrency => &["ttl"],
            _ => &[],
        }
    }

    /// The algorithm that owns a field.
    pub(crate) fn owner(field: &str) -> Option<Kind> {
        let found = Kind::ALL.iter().find(|(_, k)| k.fields().contains(&field));
        found.map(|(_, kind)| *kind)
    }

    /// The algorithm of a resolved quota.
    pub(crate) fn from_quota(quota: &Quota) -> Option<Kind> {
        if BurstCredits::from_quota(quota).is_some() {
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

/// An example of a field.
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
        for (name, kind) in Kind::ALL {
            assert_eq!(kind.name(), name);
            assert!(
                kind.required()
                    .iter()
                    .all(|field| kind.fields().contains(field))
            );
            assert!(kind.fields().iter().all(|field| OWNED.contains(field)));
        }
    }
}
