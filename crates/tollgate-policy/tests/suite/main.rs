//! The policy engine through its public interface.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod batch;
mod burst_credits;
mod debt;
mod limit_override;
mod policy;
mod pressure;
mod reload;
mod store;
