//! The policy file: what is read, what is reported, what is imported.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod bad_sections;
mod hostile;
mod import;
mod lint;
mod resolve;
mod sections;
mod store;
