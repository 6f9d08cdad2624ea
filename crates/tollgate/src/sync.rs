//! Atomics, or loom's replacements for them, so that loom checks the code that runs.

#[cfg(loom)]
pub(crate) use loom::sync::Mutex;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::Mutex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};

/// Yields to another thread while this one waits for it.
#[cfg(loom)]
pub(crate) fn relax(_spins: &mut u32) {
    loom::thread::yield_now();
}

/// Yields to another thread while this one waits for it: first by spinning for nanoseconds, then by giving up the
/// processor, because the lock holder may not be running at all.
#[cfg(not(loom))]
pub(crate) fn relax(spins: &mut u32) {
    *spins += 1;
    if *spins < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
