//! The one place with `unsafe`: a large zeroed region, a prefetch, the processor's cycle counter.
//!
//! Each is a few lines that safe Rust has no word for. Nothing here knows limits, keys or threads.
//! Miri runs the tests of this module (`make miri`).

#![allow(unsafe_code)]

use crate::sync::AtomicU64;

/// Slots in a line.
pub(crate) const SLOTS: usize = 4;

/// One cache line: four slots of a key and a word. Keys and words lie apart so that a search reads
/// four neighbours.
#[repr(C, align(64))]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Line {
    pub(crate) keys: [AtomicU64; SLOTS],
    pub(crate) words: [AtomicU64; SLOTS],
}

/// `count` words, all zero, or none if the memory cannot be had. Pages that are never written take no
/// memory.
pub(crate) fn zeroed_words(count: usize) -> Option<Box<[std::sync::atomic::AtomicU64]>> {
    use std::sync::atomic::AtomicU64;
    let layout = std::alloc::Layout::array::<AtomicU64>(count).ok()?;
    if layout.size() == 0 {
        return Some(Box::new([]));
    }
    // SAFETY: the size is not zero.
    let start = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<AtomicU64>();
    if start.is_null() {
        return None;
    }
    let slice = std::ptr::slice_from_raw_parts_mut(start, count);
    // SAFETY: `start` was allocated by the global allocator with the layout of `[AtomicU64; count]`,
    // and zero is a valid atomic.
    Some(unsafe { Box::from_raw(slice) })
}

/// A region of lines, all zero at first. Pages that are never written take no memory.
#[cfg(not(loom))]
pub(crate) struct Lines {
    /// The first line.
    start: std::ptr::NonNull<Line>,
    count: usize,
    /// The memory as it was allocated. Of words and not of lines: an allocator that is asked for more
    /// than its own alignment writes the zeros itself, and then every page takes memory at once.
    memory: std::ptr::NonNull<u8>,
    layout: std::alloc::Layout,
}

// SAFETY: a region is nothing but atomics that it alone owns.
#[cfg(not(loom))]
unsafe impl Send for Lines {}
// SAFETY: as above; atomics may be shared.
#[cfg(not(loom))]
unsafe impl Sync for Lines {}

#[cfg(not(loom))]
impl Lines {
    /// A region of `count` lines, or none if the memory cannot be had.
    pub(crate) fn zeroed(count: usize) -> Option<Lines> {
        // One line more, because the first may have to begin later than the memory.
        let layout =
            std::alloc::Layout::array::<u64>(count.checked_add(1)?.checked_mul(8)?).ok()?;
        // SAFETY: the size is not zero.
        let memory = std::ptr::NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        let skip = memory.align_offset(align_of::<Line>());
        // Owns the memory from here on, so that it is given back whatever follows.
        let mut lines = Lines {
            start: memory.cast(),
            count: 0,
            memory,
            layout,
        };
        if skip > size_of::<Line>() {
            return None; // memory that cannot be aligned: no such allocator is known
        }
        advise_huge_pages(memory, layout.size());
        // SAFETY: at most a line into an allocation that is a line longer than `count` lines.
        lines.start = unsafe { memory.add(skip) }.cast();
        lines.count = count;
        Some(lines)
    }
}

#[cfg(not(loom))]
impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout, and nothing borrows it any more.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), self.layout) };
    }
}

#[cfg(not(loom))]
impl std::ops::Deref for Lines {
    type Target = [Line];

    #[inline(always)]
    fn deref(&self) -> &[Line] {
        // SAFETY: `start` is aligned and `count` lines lie behind it, by the construction above. A
        // `Line` is eight atomic words and nothing else, all zero at first, and the memory is reached
        // in no other way.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

#[cfg(loom)]
pub(crate) struct Lines(Box<[Line]>);

#[cfg(loom)]
impl Lines {
    pub(crate) fn zeroed(count: usize) -> Option<Lines> {
        Some(Lines((0..count).map(|_| Line::default()).collect()))
    }
}

#[cfg(loom)]
impl std::ops::Deref for Lines {
    type Target = [Line];
    fn deref(&self) -> &[Line] {
        &self.0
    }
}

impl Lines {
    /// Asks the processor to fetch a line that will be charged soon. A hint: it changes nothing.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        if let Some(line) = self.get(index) {
            prefetch(line);
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
#[inline(always)]
fn prefetch(line: &Line) {
    use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
    // SAFETY: a prefetch of any address is allowed, and this one is of a live line. It is fetched
    // for writing, so that the charge does not have to ask for the line a second time.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(line).cast()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
#[inline(always)]
fn prefetch(_line: &Line) {}

/// From this size on a region is worth asking for huge pages: they halve the misses of the address
/// translation when millions of keys are hit at random.
#[cfg(not(loom))]
const HUGE_PAGES_FROM: usize = 8 << 20;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
fn advise_huge_pages(memory: std::ptr::NonNull<u8>, size: usize) {
    unsafe extern "C" {
        fn madvise(addr: *mut std::ffi::c_void, length: usize, advice: i32) -> i32;
    }
    const MADV_HUGEPAGE: i32 = 14;
    const PAGE: usize = 4096;
    let skip = memory.align_offset(PAGE);
    if size < HUGE_PAGES_FROM || skip > size {
        return;
    }
    let length = (size - skip) & !(PAGE - 1);
    // SAFETY: the range lies within the allocation. The advice does not change what the memory
    // holds; if the kernel will not take it, all stays as it was, so the answer does not matter.
    unsafe { madvise(memory.add(skip).as_ptr().cast(), length, MADV_HUGEPAGE) };
}

#[cfg(all(not(all(target_os = "linux", not(miri))), not(loom)))]
fn advise_huge_pages(_memory: std::ptr::NonNull<u8>, size: usize) {
    let _ = size < HUGE_PAGES_FROM;
}

/// The processor's cycle counter, if it has one that this program may read.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn cycles() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction; it has no effect but its answer.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

/// The cycle counter, read no earlier than everything before it in the program.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn cycles_in_order() -> Option<u64> {
    // SAFETY: as above; the fence waits for earlier instructions to complete.
    unsafe { std::arch::x86_64::_mm_lfence() };
    cycles()
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn cycles() -> Option<u64> {
    None
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn cycles_in_order() -> Option<u64> {
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_region_is_zero_and_can_be_written() {
        let lines = Lines::zeroed(10).unwrap();
        assert_eq!(lines.len(), 10);
        for (i, line) in lines.iter().enumerate() {
            assert_eq!(std::ptr::from_ref(line) as usize % 64, 0);
            for slot in 0..SLOTS {
                assert_eq!(line.keys[slot].load(Relaxed), 0);
                line.words[slot].store(i as u64, Relaxed);
            }
            lines.prefetch(i);
        }
        lines.prefetch(99);
        assert_eq!(lines[9].words[3].load(Relaxed), 9);
    }

    #[test]
    fn a_region_of_nothing_is_nothing() {
        assert_eq!(Lines::zeroed(0).map(|l| l.len()), Some(0));
    }

    #[test]
    fn a_region_that_cannot_be_had_is_none_and_not_a_crash() {
        assert!(Lines::zeroed(usize::MAX / 64).is_none());
    }

    #[test]
    fn words_are_zero_and_can_be_written() {
        let words = zeroed_words(1000).unwrap();
        words[999].store(7, Relaxed);
        assert_eq!(words.iter().map(|w| w.load(Relaxed)).sum::<u64>(), 7);
        assert_eq!(zeroed_words(0).map(|w| w.len()), Some(0));
        assert!(zeroed_words(usize::MAX / 8).is_none());
    }

    #[test]
    fn cycles_move_on() {
        if let (Some(a), Some(b)) = (cycles(), cycles_in_order()) {
            assert!(b >= a);
        }
    }
}
