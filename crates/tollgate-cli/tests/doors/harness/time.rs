//! Waiting, in the one place where a test may look at a clock: for something to become true, never for
//! some time to pass.

use std::time::{Duration, Instant};

/// How long anything may take that happens at all.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked at.
const PAUSE: Duration = Duration::from_millis(10);

/// When something began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// From now on.
    #[expect(
        clippy::disallowed_methods,
        reason = "the servers under test run in real time"
    )]
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// How long ago that was.
    pub(crate) fn passed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Asks until the answer is there, at most this long.
#[expect(
    clippy::disallowed_methods,
    reason = "the servers under test run in real time"
)]
pub(crate) fn within<T>(most: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let watch = Stopwatch::start();
    loop {
        if let Some(found) = ask() {
            return Some(found);
        }
        if watch.passed() > most {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Asks until the answer is there; fails with what was waited for.
pub(crate) fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    match within(PATIENCE, ask) {
        Some(found) => found,
        None => panic!("waited {PATIENCE:?} in vain: {what}"),
    }
}

/// Waits until it is so; fails with what was waited for.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || is_so().then_some(()));
}
