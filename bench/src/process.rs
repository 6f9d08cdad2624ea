//! This process and its children: how much memory is resident, numbers from a child, and what the
//! kernel says of itself.

use std::io;
use std::process::{Command, Stdio};

/// What to say where there is no `/proc`.
pub(crate) fn no_proc() -> io::Error {
    io::Error::other("this system does not tell the memory of a process in `/proc`")
}

/// Runs this same program with `args` and reads the `N` numbers it prints; `what` it does is for the
/// message if it fails.
pub(crate) fn numbers_of_child<const N: usize>(args: &[&str], what: &str) -> io::Result<[u64; N]> {
    let child = Command::new(std::env::current_exe()?)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !child.status.success() {
        let status = child.status;
        return Err(io::Error::other(format!("{what} ended with {status}")));
    }
    parse_numbers(&String::from_utf8_lossy(&child.stdout))
        .ok_or_else(|| io::Error::other(format!("{what} did not print {N} numbers")))
}

fn parse_numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = text
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    numbers?.try_into().ok()
}

/// Resident memory, quick to read: while a process grows it is read again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    page_bytes: u64,
}

impl Resident {
    /// `None` where the system does not tell.
    pub(crate) fn new() -> Option<Self> {
        let page_bytes = page_bytes(&std::fs::read("/proc/self/auxv").ok()?)?;
        let resident = Self { page_bytes };
        // Once for nothing, so that the buffers for reading are not part of any growth.
        resident.bytes()?;
        Some(resident)
    }

    /// In bytes. The kernel's counters may lag behind by a few dozen pages per processor.
    pub(crate) fn bytes(self) -> Option<u64> {
        resident_pages(&std::fs::read_to_string("/proc/self/statm").ok()?)?
            .checked_mul(self.page_bytes)
    }
}

/// The second number of `statm`.
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_whitespace().nth(1)?.parse().ok()
}

/// Ticks of the clock in which `/proc` counts the time of processes.
pub(crate) fn ticks_per_second() -> Option<u64> {
    const CLOCK_TICKS: usize = 17;
    told_at_start(&std::fs::read("/proc/self/auxv").ok()?, CLOCK_TICKS)
}

/// The size of a page.
fn page_bytes(auxv: &[u8]) -> Option<u64> {
    const PAGE_SIZE: usize = 6;
    told_at_start(auxv, PAGE_SIZE)
}

/// What the kernel tells every program as it starts it: pairs of words, of which the first says what
/// the second is.
fn told_at_start(auxv: &[u8], what: usize) -> Option<u64> {
    const WORD: usize = size_of::<usize>();
    auxv.chunks_exact(2 * WORD).find_map(|pair| {
        let (kind, value) = pair.split_first_chunk::<WORD>()?;
        let is_wanted = usize::from_ne_bytes(*kind) == what;
        is_wanted.then_some(usize::from_ne_bytes(*value.first_chunk()?) as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_prints_exactly_as_many_numbers_as_are_asked_for() {
        assert_eq!(parse_numbers("1 2 3\n"), Some([1, 2, 3]));
        assert_eq!(parse_numbers::<3>("1 2"), None);
        assert_eq!(parse_numbers::<3>("1 2 3 4"), None);
        assert_eq!(parse_numbers::<2>("1 x"), None);
    }

    #[test]
    fn the_size_of_a_page_is_found_by_its_number() {
        let words: [usize; 6] = [33, 7, 6, 16_384, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(page_bytes(&bytes), Some(16_384));
        assert_eq!(page_bytes(&bytes[..20]), None);
        assert_eq!(resident_pages("100 7 3 1 0 9 0\n"), Some(7));
    }
}
