//! At most two jobs at once for each user.
//!
//! ```text
//! cargo run -p tollgate --example concurrency
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use std::time::Duration;

use tollgate::{ConcurrencyLimiter, NotAdmitted, Permit};

/// Starts a job. It runs until its permit is dropped.
pub(crate) fn start(jobs: &ConcurrencyLimiter, user: &str) -> Result<Permit, NotAdmitted> {
    jobs.acquire(user)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A permit that is neither dropped nor renewed counts for 30 seconds.
    let jobs = ConcurrencyLimiter::new(2, Duration::from_secs(30))?;
    let first = start(&jobs, "ada")?;
    let _second = start(&jobs, "ada")?;
    match start(&jobs, "ada") {
        Ok(_) => println!("three at once"),
        Err(error) => println!("the third job is refused: {error}"),
    }
    drop(first);
    let _third = start(&jobs, "ada")?;
    println!("the first job is done, so the next one starts");
    Ok(())
}
