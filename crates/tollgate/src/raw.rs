//! All `unsafe` code of the crate: a large zeroed region, a prefetch, the processor's cycle counter.
//!
//! Each is a few lines that safe Rust cannot express. Nothing here knows limits, keys or threads.
//! Miri runs the tests of this module (`make miri`).

#![allow(unsafe_code)]

use crate::sync::AtomicU64;

/// Slots in a cache line.
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

/// A type for which all bits zero is a value.
///
/// # Safety
/// All bits zero must be a valid value, and the type must not need to be dropped.
pub(crate) unsafe trait Zeroable {}
// SAFETY: an atomic has the layout of its number.
unsafe impl Zeroable for std::sync::atomic::AtomicU64 {}
// SAFETY: as above.
unsafe impl Zeroable for std::sync::atomic::AtomicU8 {}
// SAFETY: eight atomics and nothing else.
#[cfg(not(loom))]
unsafe impl Zeroable for Line {}

/// A region of values, all zero at first. Pages that are never written take no memory.
///
/// The region comes from the system instead of the allocator where possible: an allocator that has freed such a
/// region before writes the zeros of the next one itself, and then every page takes memory at once.
pub(crate) struct Zeroed<T: Zeroable> {
    start: std::ptr::NonNull<T>,
    count: usize,
    memory: Memory,
}

// SAFETY: a region owns its values and nothing else.
unsafe impl<T: Zeroable + Send> Send for Zeroed<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroable + Sync> Sync for Zeroed<T> {}

impl<T: Zeroable> Zeroed<T> {
    /// A region of `count` values, or none if the memory cannot be had.
    pub(crate) fn new(count: usize) -> Option<Zeroed<T>> {
        // Aligned to a page in either case, which is enough for every `T` here.
        const { assert!(align_of::<T>() <= PAGE) };
        let size = count.checked_mul(size_of::<T>())?;
        let memory = Memory::zeroed(size.max(1))?;
        Some(Zeroed {
            start: memory.start.cast(),
            count,
            memory,
        })
    }

    /// Asks the system for huge pages where none was touched yet: they halve the misses of the address
    /// translation when millions of keys are hit at random. Asked only once a region is known to be used:
    /// the first touch of a huge page takes two megabytes, too much for a limit with a few keys.
    pub(crate) fn advise_huge_pages(&self) {
        self.memory.advise_huge_pages();
    }
}

impl<T: Zeroable> std::ops::Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned and `count` values lie behind it, by the construction above. All
        // bits zero are a value of `T`, and the memory is reached in no other way.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

const PAGE: usize = 4096;

/// Memory of this process, all zero at first.
struct Memory {
    start: std::ptr::NonNull<u8>,
    size: usize,
}

// The constants and the 64-bit offset below hold on these processors only. Others use the allocator.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
))]
mod system {
    use std::ffi::{c_int, c_void};
    unsafe extern "C" {
        pub(super) fn mmap(
            addr: *mut c_void,
            length: usize,
            protection: c_int,
            flags: c_int,
            file: c_int,
            offset: i64,
        ) -> *mut c_void;
        pub(super) fn munmap(addr: *mut c_void, length: usize) -> c_int;
        pub(super) fn madvise(addr: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    pub(super) const READ_WRITE: c_int = 3;
    /// Private, anonymous, and not counted before it is used.
    pub(super) const FLAGS: c_int = 0x02 | 0x20 | 0x4000;
    pub(super) const HUGE_PAGES: c_int = 14;
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
))]
impl Memory {
    fn zeroed(size: usize) -> Option<Memory> {
        if size > isize::MAX as usize {
            return None;
        }
        // SAFETY: new memory at a place of the system's choice; nothing that exists is touched.
        let start = unsafe {
            let anywhere = std::ptr::null_mut();
            system::mmap(anywhere, size, system::READ_WRITE, system::FLAGS, -1, 0)
        };
        // On failure `mmap` returns the last address, not null.
        let start = std::ptr::NonNull::new(start.cast::<u8>())?;
        (start.addr().get() != usize::MAX).then_some(Memory { start, size })
    }

    fn advise_huge_pages(&self) {
        // SAFETY: the range is this memory. The advice does not change its contents. If the kernel declines,
        // nothing changes, so the result does not matter.
        unsafe { system::madvise(self.start.as_ptr().cast(), self.size, system::HUGE_PAGES) };
    }
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
))]
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `zeroed` with this size, and nothing borrows it now.
        unsafe { system::munmap(self.start.as_ptr().cast(), self.size) };
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
)))]
impl Memory {
    fn zeroed(size: usize) -> Option<Memory> {
        let layout = std::alloc::Layout::from_size_align(size, PAGE).ok()?;
        // SAFETY: the caller ensures that the size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        std::ptr::NonNull::new(start).map(|start| Memory { start, size })
    }

    fn advise_huge_pages(&self) {}
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
)))]
impl Drop for Memory {
    fn drop(&mut self) {
        if let Ok(layout) = std::alloc::Layout::from_size_align(self.size, PAGE) {
            // SAFETY: allocated in `zeroed` with this layout, and nothing borrows it now.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// The lines of a table.
#[cfg(not(loom))]
pub(crate) struct Lines(Zeroed<Line>);

#[cfg(not(loom))]
impl Lines {
    /// A region of `count` lines, or none if the memory cannot be had.
    pub(crate) fn zeroed(count: usize) -> Option<Lines> {
        Zeroed::new(count).map(Lines)
    }

    pub(crate) fn advise_huge_pages(&self) {
        self.0.advise_huge_pages();
    }
}

#[cfg(not(loom))]
impl std::ops::Deref for Lines {
    type Target = [Line];

    #[inline(always)]
    fn deref(&self) -> &[Line] {
        &self.0
    }
}

#[cfg(loom)]
pub(crate) struct Lines(Box<[Line]>);

#[cfg(loom)]
impl Lines {
    pub(crate) fn zeroed(count: usize) -> Option<Lines> {
        Some(Lines((0..count).map(|_| Line::default()).collect()))
    }

    pub(crate) fn advise_huge_pages(&self) {}
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
pub(crate) fn prefetch(line: &Line) {
    use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
    // SAFETY: a prefetch of any address is allowed, and this one is of a live line. It is fetched
    // for writing, so that the charge does not have to ask for the line a second time.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(line).cast()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
#[inline(always)]
pub(crate) fn prefetch(_line: &Line) {}

/// The processor's cycle counter, if it has one that this program may read.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn cycles() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction, and it has no side effect.
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
        use std::sync::atomic::{AtomicU8, AtomicU64};
        let words = Zeroed::<AtomicU64>::new(1000).unwrap();
        words[999].store(7, Relaxed);
        assert_eq!(words.iter().map(|w| w.load(Relaxed)).sum::<u64>(), 7);
        assert_eq!(Zeroed::<AtomicU64>::new(0).map(|w| w.len()), Some(0));
        assert!(Zeroed::<AtomicU64>::new(usize::MAX / 8).is_none());
        let bytes = Zeroed::<AtomicU8>::new(1001).unwrap();
        bytes[1000].store(7, Relaxed);
        assert_eq!(bytes.iter().map(|b| b.load(Relaxed)).sum::<u8>(), 7);
    }

    #[test]
    fn cycles_move_on() {
        if let (Some(a), Some(b)) = (cycles(), cycles_in_order()) {
            assert!(b >= a);
        }
    }
}
