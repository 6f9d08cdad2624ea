//! How much memory something takes at the most.
//!
//! Counted for each thread by itself, in what is asked of the allocator. What is freed by another thread than took it is
//! not seen; targets have one thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted.
struct Counted;

fn change(by: isize) {
    // A thread that ends has nothing to count any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get().wrapping_add(by));
        let _ = MOST.try_with(|most| most.set(most.get().max(live.get())));
    });
}

fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

// SAFETY: everything is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        change(signed(layout.size()));
        // SAFETY: as promised to this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        change(-signed(layout.size()));
        // SAFETY: as promised to this function.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While it is moved both are there.
        change(signed(size));
        change(-signed(layout.size()));
        // SAFETY: as promised to this function.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Does it, and says how many bytes more than before were in use at the most.
pub fn most<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(Cell::get);
    MOST.with(|most| most.set(before));
    let done = work();
    let most = MOST.with(Cell::get).wrapping_sub(before);
    (done, usize::try_from(most).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_at_once_is_counted_and_what_is_freed_is_not() {
        let (_, taken) = most(|| {
            for _ in 0..10 {
                drop(std::hint::black_box(vec![0_u8; 10_000]));
            }
        });
        assert!((10_000..20_000).contains(&taken), "{taken}");
        let (kept, taken) = most(|| [(); 10].map(|()| vec![0_u8; 10_000]));
        assert!((100_000..110_000).contains(&taken), "{taken}");
        drop(kept);
    }
}
