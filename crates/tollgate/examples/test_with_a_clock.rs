//! A test of rate-limited code, on a clock that the test sets.
//!
//! ```text
//! cargo run -p tollgate --example test_with_a_clock
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use std::time::Duration;

use tollgate::{Clock, Limiter, ManualClock};

/// Code that is limited takes any clock: [`tollgate::MonotonicClock`] if none is named.
pub(crate) struct Mailer<C: Clock> {
    limiter: Limiter<C>,
}

impl<C: Clock> Mailer<C> {
    pub(crate) fn new(limiter: Limiter<C>) -> Mailer<C> {
        Mailer { limiter }
    }

    /// Sends a mail, unless the address had one within a minute.
    pub(crate) fn send(&self, address: &str) -> bool {
        self.limiter.check(address).is_admitted()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new();
    let mailer = Mailer::new(Limiter::with_clock("1/min".parse()?, clock.clone())?);
    assert!(mailer.send("ada@example.org"));
    assert!(!mailer.send("ada@example.org"));
    clock.advance(Duration::from_secs(60));
    assert!(mailer.send("ada@example.org"));
    println!("a minute passed in no time");
    Ok(())
}
