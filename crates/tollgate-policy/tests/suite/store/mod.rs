//! Policies whose state is in a shared store: exact, leased and synced limits, reloads, faults of the store, threads.

mod counted_once;
mod counting;
mod decide;
mod exact;
mod kit;
mod lease;
mod lease_faults;
mod moving_clock;
mod retry;
mod sync;
mod threads;
