//! One limit for each user, and what a user reads of it.
//!
//! ```text
//! cargo run -p tollgate --example keyed
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use tollgate::{Limiter, Verdict};

/// Takes `cost` for a user: the response's status, and a line for the user.
pub(crate) fn respond(limiter: &Limiter, user: &str, cost: u64) -> (u16, String) {
    let decision = limiter.charge(user, cost);
    match decision.verdict {
        Verdict::Pass => (200, format!("{} left", decision.remaining())),
        Verdict::Refuse { retry_after } => {
            (429, format!("Retry-After: {}", retry_after.as_secs_ceil()))
        }
        Verdict::Never => (400, format!("at most {} at once", limiter.capacity())),
        // Only a leaky bucket makes a request wait.
        Verdict::Wait { delay } => (200, format!("continues after {delay}")),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Clones share the state: keep one in each task or thread.
    let limiter = Limiter::new("5/s burst 10".parse()?)?;
    for (user, cost) in [("ada", 4), ("ada", 6), ("ada", 3), ("bob", 1), ("bob", 11)] {
        let (status, line) = respond(&limiter, user, cost);
        println!("{user} pays {cost:>2}: {status} {line}");
    }
    Ok(())
}
