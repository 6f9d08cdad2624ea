//! Measures the peak memory of a piece of work.
//!
//! Counts requested bytes for each thread. Memory that another thread frees is not counted; targets have one thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted.
struct CountingAllocator;

fn change(by: isize) {
    // A thread that ends counts no more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get().wrapping_add(by));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        change(signed(layout.size()));
        // SAFETY: the caller's guarantee is forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        change(-signed(layout.size()));
        // SAFETY: the caller's guarantee is forwarded.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist during the move.
        change(signed(size));
        change(-signed(layout.size()));
        // SAFETY: the caller's guarantee is forwarded.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs `work`, and returns its result and the peak of additional bytes in use.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let done = work();
    let peak = PEAK.with(Cell::get).wrapping_sub(before);
    (done, usize::try_from(peak).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_use_at_once_is_counted_and_freed_memory_is_not() {
        let (_, taken) = peak(|| {
            for _ in 0..10 {
                drop(std::hint::black_box(vec![0_u8; 10_000]));
            }
        });
        assert!((10_000..20_000).contains(&taken), "{taken}");
        let (kept, taken) = peak(|| [(); 10].map(|()| vec![0_u8; 10_000]));
        assert!((100_000..110_000).contains(&taken), "{taken}");
        drop(kept);
    }
}
