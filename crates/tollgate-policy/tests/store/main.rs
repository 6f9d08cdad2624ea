//! Policies whose state is in a shared store: exact, leased and synced limits, reloads, faults of the store, threads.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod counted_once;
mod counting;
mod decide;
mod exact;
mod kit;
mod lease;
mod lease_faults;
mod retry;
mod sync;
mod threads;
