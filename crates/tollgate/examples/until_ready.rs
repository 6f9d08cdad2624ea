//! Outgoing calls that wait until the limit of a remote API lets them go.
//!
//! ```text
//! cargo run -p tollgate --features tokio --example until_ready
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use std::time::Duration;

use tollgate::{Limiter, NotAdmitted};

/// Waits for the limit, a second at most, and calls the API.
pub(crate) async fn call(limiter: &Limiter, host: &str) -> Result<&'static str, NotAdmitted> {
    let ready = limiter
        .until_ready(host)
        .with_max_wait(Duration::from_secs(1));
    ready.with_jitter(Duration::from_millis(10)).await?;
    Ok("called")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::new("5/s burst 3".parse()?)?;
    for n in 1..=6 {
        println!("{n}: {}", call(&limiter, "api.example").await?);
    }
    Ok(())
}
