//! What happened: counters, and what somebody should change.
//!
//! # Invariant
//!
//! Counting never waits: counters are single atomic additions, all of them relaxed, because nothing is decided by
//! them and none has to agree with another. Only warnings are behind a lock, and they are rare.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_policy::shared::{FaultKind, Latencies};

/// Warnings at the most: their places are servers, and a cluster has many.
const WARNINGS_MAX: usize = 256;

/// How long a warning stays after the last time that there was reason for it. What fails now and then is one warning that
/// stays, and not one that comes and goes with every answer.
const LASTS: Duration = Duration::from_secs(60);

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

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// A decision was answered.
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

    /// A decision was not answered.
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

/// What somebody should change.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// By code and by what it is about (a server, or nothing).
    raised: Mutex<BTreeMap<(&'static str, String), Raised>>,
}

#[derive(Debug)]
struct Raised {
    words: String,
    /// When it goes away by itself; otherwise it is taken back.
    until: Option<Instant>,
}

impl Warnings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(&'static str, String), Raised>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds until it is taken back: for what is looked at again and again, and seen to be mended.
    pub(crate) fn raise(&self, code: &'static str, about: &str, words: impl Into<String>) {
        self.put(code, about, words.into(), None);
    }

    /// Holds for a minute after the last time.
    pub(crate) fn mention(&self, code: &'static str, about: &str, words: impl Into<String>) {
        self.put(code, about, words.into(), Some(Instant::now() + LASTS));
    }

    fn put(&self, code: &'static str, about: &str, words: String, until: Option<Instant>) {
        let mut raised = self.lock();
        let key = (code, about.to_owned());
        let is_new = !raised.contains_key(&key);
        if is_new && raised.len() >= WARNINGS_MAX {
            return;
        }
        if is_new {
            tracing::warn!(code, about, "{words}");
        }
        raised.insert(key, Raised { words, until });
    }

    /// It is mended.
    pub(crate) fn take_back(&self, code: &'static str, about: &str) {
        self.keep_those(|(other, place), _| *other != code || place != about);
    }

    /// All that was raised about this server is mended. What was mentioned stays: it may happen again at any moment.
    pub(crate) fn take_back_all(&self, about: &str) {
        self.keep_those(|(_, place), raised| place != about || raised.until.is_some());
    }

    /// Whatever it was, it does not concern this server any more.
    pub(crate) fn forget(&self, about: &str) {
        self.keep_those(|(_, place), _| place != about);
    }

    /// Lets go of those that are old.
    pub(crate) fn let_go(&self) {
        let now = Instant::now();
        self.keep_those(|_, raised| raised.until.is_none_or(|until| now < until));
    }

    fn keep_those(&self, keep: impl Fn(&(&'static str, String), &Raised) -> bool) {
        self.lock().retain(|key, raised| {
            let kept = keep(key, raised);
            if !kept {
                tracing::info!(code = key.0, about = key.1, "the warning is gone");
            }
            kept
        });
    }

    /// Those that hold.
    pub(crate) fn list(&self) -> Vec<(&'static str, String)> {
        self.let_go();
        self.lock()
            .iter()
            .map(|((code, about), raised)| {
                let words = if about.is_empty() {
                    raised.words.clone()
                } else {
                    format!("{about}: {}", raised.words)
                };
                (*code, words)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_sorted_by_how_long_they_took() {
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
    async fn a_warning_holds_until_it_is_taken_back_or_old() {
        let warnings = Warnings::default();
        warnings.raise("a", "here", "words");
        warnings.mention("b", "", "other words");
        assert_eq!(
            warnings.list(),
            [("a", "here: words".into()), ("b", "other words".into())]
        );
        tokio::time::advance(LASTS).await;
        assert_eq!(warnings.list().len(), 1);
        warnings.take_back("a", "here");
        assert!(warnings.list().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_happens_now_and_then_is_one_warning_that_stays() {
        let warnings = Warnings::default();
        for _ in 0..5 {
            warnings.mention("out-of-memory", "here", "words");
            tokio::time::advance(LASTS / 2).await;
            warnings.raise("not-primary", "here", "words");
            warnings.take_back_all("here");
            let codes: Vec<_> = warnings.list().into_iter().map(|(code, _)| code).collect();
            assert_eq!(codes, ["out-of-memory"]);
        }
        tokio::time::advance(LASTS / 2).await;
        assert!(warnings.list().is_empty());
    }
}
