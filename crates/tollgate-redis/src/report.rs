//! Counters and warnings.
//!
//! # Invariant
//!
//! Counting never blocks: counters are single atomic additions, all relaxed, because no decision depends on them and none has to
//! agree with another. Only warnings are behind a lock, and they are rare.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_policy::shared::{FaultKind, Latencies};

/// Bound of warnings: their subjects are servers, and a cluster has many.
const WARNINGS_MAX: usize = 256;

/// How long a brief warning holds after its last occurrence. An intermittent failure is one warning that stays, not one that
/// comes and goes with every reply.
const BRIEF: Duration = Duration::from_secs(60);

/// Counters of a store.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counts: [AtomicU64; Latencies::BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
    faults: [AtomicU64; FaultKind::ALL.len()],
    pub(crate) reloaded_scripts: AtomicU64,
    pub(crate) script_errors: AtomicU64,
    pub(crate) redirects: AtomicU64,
    pub(crate) compensated: AtomicU64,
    pub(crate) resets: AtomicU64,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Counts a decision with an answer.
    pub(crate) fn answered(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let place = Latencies::BOUNDS_US
            .iter()
            .position(|bound| us <= *bound)
            .unwrap_or(Latencies::BOUNDS_US.len());
        if let Some(counter) = self.counts.get(place) {
            count(counter);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Counts a decision without an answer.
    pub(crate) fn failed(&self, kind: FaultKind) {
        let place = FaultKind::ALL.iter().position(|other| *other == kind);
        if let Some(counter) = place.and_then(|place| self.faults.get(place)) {
            count(counter);
        }
    }

    pub(crate) fn latencies(&self) -> Latencies {
        Latencies {
            counts: read_all(&self.counts),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn faults(&self) -> [u64; FaultKind::ALL.len()] {
        read_all(&self.faults)
    }
}

fn read_all<const N: usize>(counters: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|place| {
        counters
            .get(place)
            .map_or(0, |counter| counter.load(Ordering::Relaxed))
    })
}

/// Conditions that an operator must fix.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// By code and subject (a server, or nothing).
    raised: Mutex<BTreeMap<(&'static str, String), Warning>>,
}

#[derive(Debug)]
struct Warning {
    message: String,
    /// When it expires; otherwise it holds until it is cleared.
    until: Option<Instant>,
}

impl Warnings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(&'static str, String), Warning>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises a warning that holds until it is cleared: for conditions that are checked again and again.
    pub(crate) fn raise(&self, code: &'static str, about: &str, message: impl Into<String>) {
        self.insert(code, about, message.into(), None);
    }

    /// Raises a warning that holds for a minute after the last occurrence.
    pub(crate) fn raise_briefly(
        &self,
        code: &'static str,
        about: &str,
        message: impl Into<String>,
    ) {
        self.insert(code, about, message.into(), Some(Instant::now() + BRIEF));
    }

    fn insert(&self, code: &'static str, about: &str, message: String, until: Option<Instant>) {
        let mut raised = self.lock();
        let key = (code, about.to_owned());
        if !raised.contains_key(&key) {
            if raised.len() >= WARNINGS_MAX {
                return;
            }
            tracing::warn!(code, about, "{message}");
        }
        raised.insert(key, Warning { message, until });
    }

    /// Clears one warning.
    pub(crate) fn clear(&self, code: &'static str, about: &str) {
        self.retain(|(other, subject), _| *other != code || subject != about);
    }

    /// Clears the warnings about a server that hold until they are cleared. Brief ones stay: they may occur again.
    pub(crate) fn clear_lasting(&self, about: &str) {
        self.retain(|(_, subject), warning| subject != about || warning.until.is_some());
    }

    /// Clears all warnings about a server that is not used any more.
    pub(crate) fn clear_all(&self, about: &str) {
        self.retain(|(_, subject), _| subject != about);
    }

    /// Removes expired warnings.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        self.retain(|_, warning| warning.until.is_none_or(|until| now < until));
    }

    fn retain(&self, keep: impl Fn(&(&'static str, String), &Warning) -> bool) {
        self.lock().retain(|key, warning| {
            let kept = keep(key, warning);
            if !kept {
                tracing::info!(code = key.0, about = key.1, "warning cleared");
            }
            kept
        });
    }

    /// The warnings that hold: code and message.
    pub(crate) fn list(&self) -> Vec<(&'static str, String)> {
        self.expire();
        let raised = self.lock();
        let text = |((code, about), warning): (&(&'static str, String), &Warning)| {
            let message = &warning.message;
            match about.as_str() {
                "" => (*code, message.clone()),
                about => (*code, format!("{about}: {message}")),
            }
        };
        raised.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_latency() {
        let counters = Counters::default();
        for us in [50, 51, 8_000, 50_001] {
            counters.answered(Duration::from_micros(us));
        }
        let latencies = counters.latencies();
        assert_eq!(latencies.counts, [1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1]);
        assert_eq!(latencies.sum_us, 58_102);
    }

    #[test]
    fn faults_are_counted_by_kind() {
        let counters = Counters::default();
        counters.failed(FaultKind::Late);
        counters.failed(FaultKind::Refused);
        counters.failed(FaultKind::Refused);
        assert_eq!(counters.faults(), [0, 1, 0, 0, 0, 0, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_warning_holds_until_it_is_cleared_or_expires() {
        let warnings = Warnings::default();
        warnings.raise("a", "here", "words");
        warnings.raise_briefly("b", "", "other words");
        assert_eq!(
            warnings.list(),
            [("a", "here: words".into()), ("b", "other words".into())]
        );
        tokio::time::advance(BRIEF).await;
        assert_eq!(warnings.list().len(), 1);
        warnings.clear("a", "here");
        assert!(warnings.list().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_intermittent_failure_is_one_warning_that_stays() {
        let warnings = Warnings::default();
        for _ in 0..5 {
            warnings.raise_briefly("out-of-memory", "here", "words");
            tokio::time::advance(BRIEF / 2).await;
            warnings.raise("not-primary", "here", "words");
            warnings.clear_lasting("here");
            let codes: Vec<_> = warnings.list().into_iter().map(|(code, _)| code).collect();
            assert_eq!(codes, ["out-of-memory"]);
        }
        tokio::time::advance(BRIEF / 2).await;
        assert!(warnings.list().is_empty());
    }
}
