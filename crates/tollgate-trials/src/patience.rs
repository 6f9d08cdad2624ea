//! Waiting with an end.
//!
//! Real servers take their time, so trials look again and again. Every such wait has a deadline: a trial
//! that hangs tells nobody what it waited for.

use std::time::{Duration, Instant};

use crate::trouble::{Outcome, Trouble};

/// How long to rest between two looks.
const REST: Duration = Duration::from_millis(10);

/// What one look found.
#[derive(Debug)]
pub enum Look<T> {
    /// What was waited for.
    There(T),
    /// Not yet; what was seen instead.
    NotYet(String),
}

/// The time of the world outside.
#[expect(
    clippy::disallowed_methods,
    reason = "servers and networks live in real time"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Lets real time pass.
#[expect(
    clippy::disallowed_methods,
    reason = "servers and networks live in real time"
)]
pub fn rest(time: Duration) {
    std::thread::sleep(time);
}

/// Looks until it is there. `waited_for` completes the sentence "waited until ..."; `log` is asked for only
/// if the wait was in vain. An error from `look` ends the wait at once.
pub fn wait_until<T>(
    waited_for: &str,
    patience: Duration,
    log: impl FnOnce() -> String,
    mut look: impl FnMut() -> Outcome<Look<T>>,
) -> Outcome<T> {
    let start = now();
    loop {
        let last = match look()? {
            Look::There(found) => return Ok(found),
            Look::NotYet(seen) => seen,
        };
        if start.elapsed() >= patience {
            return Err(Trouble::Late {
                waited_for: waited_for.into(),
                patience,
                last,
                log: log(),
            });
        }
        rest(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_it_is_there() {
        let mut looks = 0;
        let found = wait_until("three", Duration::from_secs(5), String::new, || {
            looks += 1;
            Ok(if looks == 3 {
                Look::There(looks)
            } else {
                Look::NotYet(format!("{looks}"))
            })
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn a_vain_wait_says_what_it_saw_last_and_what_the_log_says() {
        let vain: Outcome<()> = wait_until(
            "pigs fly",
            Duration::from_millis(20),
            || "oink".into(),
            || Ok(Look::NotYet("a pig on the ground".into())),
        );
        let said = vain.unwrap_err().to_string();
        assert!(said.contains("until pigs fly"), "{said}");
        assert!(said.contains("a pig on the ground"), "{said}");
        assert!(said.contains("oink"), "{said}");
    }
}
