//! Tests of operation: files, signals and the admin port.

#![cfg(unix)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "what a helper of a test cannot do ends the test, and its arguments are written where it is called"
)]

mod admin;
mod overrides;
mod pressure;
mod reload;
mod run;
mod scrape;
mod state;
mod support;
