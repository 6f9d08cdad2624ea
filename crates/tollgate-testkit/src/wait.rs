//! Waits for conditions in real time, always with a deadline.
//!
//! A wait polls a condition every 10 ms. One that fails names the condition, what was observed last, and the log of
//! the server that it waited for.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How long [`wait()`] waits: longer than anything takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// Pause between two checks.
const POLL: Duration = Duration::from_millis(10);

/// What one check observed.
#[derive(Debug)]
pub enum Check<T> {
    /// The condition holds.
    Ready(T),
    /// The condition does not hold yet; the text is the observation.
    Pending(String),
}

impl From<bool> for Check<()> {
    fn from(holds: bool) -> Check<()> {
        match holds {
            true => Check::Ready(()),
            false => Check::Pending("false".into()),
        }
    }
}

impl<T> From<Option<T>> for Check<T> {
    fn from(found: Option<T>) -> Check<T> {
        found.map_or_else(|| Check::Pending("nothing".into()), Check::Ready)
    }
}

/// The present moment.
#[expect(
    clippy::disallowed_methods,
    reason = "servers and networks run in real time"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Blocks this thread for `time`. Prefer [`wait()`] wherever there is a condition.
#[expect(
    clippy::disallowed_methods,
    reason = "servers and networks run in real time"
)]
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Waits until `check` gives `true` or `Some`, and returns what is in it. Panics after [`DEADLINE`].
#[track_caller]
pub fn wait<T, C: Into<Check<T>>>(what: &str, mut check: impl FnMut() -> C) -> T {
    let checked = || Ok(check().into());
    match wait_for(what, DEADLINE, String::new, checked) {
        Ok(found) => found,
        Err(error) => panic!("{error}"),
    }
}

/// Waits until `check` is ready. `what` completes the sentence "waited until ..."; `log` is called only after a
/// timeout. An error from `check` ends the wait at once.
pub fn wait_for<T>(
    what: &str,
    deadline: Duration,
    log: impl FnOnce() -> String,
    mut check: impl FnMut() -> Result<Check<T>>,
) -> Result<T> {
    let start = now();
    loop {
        let last = match check()? {
            Check::Ready(found) => return Ok(found),
            Check::Pending(seen) => seen,
        };
        if start.elapsed() >= deadline {
            return Err(Error::Timeout {
                what: what.into(),
                deadline,
                last,
                log: log(),
            });
        }
        sleep(POLL);
    }
}

/// Waits in async code until `holds`, and returns how long that took. Panics after `deadline`.
pub async fn wait_async(
    what: &str,
    deadline: Duration,
    mut holds: impl AsyncFnMut() -> bool,
) -> Duration {
    let start = tokio::time::Instant::now();
    while !holds().await {
        assert!(
            start.elapsed() < deadline,
            "waited {deadline:?} in vain until {what}"
        );
        tokio::time::sleep(POLL / 5).await;
    }
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_the_condition_holds() {
        let mut checks = 0;
        let found = wait("there are three", || {
            checks += 1;
            (checks == 3).then_some(checks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    fn a_timeout_names_the_condition_the_last_observation_and_the_log() {
        let result: Result<()> = wait_for(
            "the server answers",
            Duration::from_millis(20),
            || "out of memory".into(),
            || Ok(Check::Pending("connection refused".into())),
        );
        let text = result.unwrap_err().to_string();
        assert!(text.contains("until the server answers"), "{text}");
        assert!(text.contains("connection refused"), "{text}");
        assert!(text.contains("out of memory"), "{text}");
    }
}
