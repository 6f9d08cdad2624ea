//! The atomics, or loom's stand-ins for them, so that the very code that runs is what loom exhausts.

#[cfg(loom)]
pub(crate) use loom::sync::Mutex;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::Mutex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};

/// Lets another thread go on while this one waits for it.
#[cfg(loom)]
pub(crate) fn relax(_spins: &mut u32) {
    loom::thread::yield_now();
}

/// Lets another thread go on while this one waits for it: first for nanoseconds, then by giving up
/// the processor, because the one who holds the lock may not be running at all.
#[cfg(not(loom))]
pub(crate) fn relax(spins: &mut u32) {
    *spins += 1;
    if *spins < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
