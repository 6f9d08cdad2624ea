//! Output of one connection that waits for its client to read it.
//!
//! # Theory
//!
//! Output is written into buffers of 64 KiB. A single buffer that grows would be copied whenever it grows, and take twice the
//! memory of its content. Where memory comes in large pages even unused capacity counts, so full buffers have little of it.
//!
//! Every connection may keep [`FREE_BYTES`]. That alone would deadlock: many clients send a whole pipeline before they read the
//! first reply. So a connection may borrow more, up to [`MAX_BYTES`], from a budget that all share ([`OutputBudget`]); when
//! that is exhausted, the connection is not read from until its client has read some output.
//!
//! # Bounds
//!
//! | what | bound |
//! |---|---|
//! | output of a connection | 16 MiB, and the reply to one command |
//! | output of all connections | 256 KiB each, and 64 MiB together |
//! | buffers of a connection | its unsent output, and one buffer more |

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Size of a buffer, and what is left of it when the next one begins: more than most replies take.
const BUFFER_BYTES: usize = 64 * 1024;
const MARGIN_BYTES: usize = 4 * 1024;
/// Output that every connection may keep.
const FREE_BYTES: usize = 256 * 1024;
/// Most output of one connection.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Borrowed at a time.
const BLOCK_BYTES: usize = 256 * 1024;
/// What all connections together may borrow.
const BUDGET_BYTES: usize = 64 * 1024 * 1024;

/// Output memory that all connections share.
#[derive(Debug)]
pub(super) struct OutputBudget(AtomicUsize);

impl Default for OutputBudget {
    fn default() -> OutputBudget {
        OutputBudget(AtomicUsize::new(BUDGET_BYTES))
    }
}

/// The output of one connection. Returns what it borrowed on drop.
#[derive(Debug)]
pub(super) struct Output<'a> {
    budget: &'a OutputBudget,
    borrowed: usize,
    /// Full buffers, oldest first.
    full: VecDeque<Vec<u8>>,
    /// The buffer that replies are written into.
    last: Vec<u8>,
    /// Bytes of the oldest buffer that were sent.
    sent: usize,
    /// Bytes in full buffers.
    full_bytes: usize,
}

impl<'a> Output<'a> {
    pub(super) fn new(budget: &'a OutputBudget) -> Output<'a> {
        Output {
            budget,
            borrowed: 0,
            full: VecDeque::new(),
            last: Vec::new(),
            sent: 0,
            full_bytes: 0,
        }
    }

    /// The buffer for the next reply.
    #[inline]
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.last
    }

    /// Begins another buffer if this one is full.
    #[inline]
    pub(super) fn rotate_if_full(&mut self) {
        if self.last.len() > BUFFER_BYTES - MARGIN_BYTES {
            self.rotate();
        }
    }

    #[cold]
    fn rotate(&mut self) {
        let mut buffer = std::mem::replace(&mut self.last, Vec::with_capacity(BUFFER_BYTES));
        // A long reply has made it grow.
        if buffer.capacity() - buffer.len() > 2 * MARGIN_BYTES {
            buffer.shrink_to_fit();
        }
        self.full_bytes += buffer.len();
        self.full.push_back(buffer);
    }

    /// Bytes not sent yet.
    #[inline]
    pub(super) fn unsent(&self) -> usize {
        (self.full_bytes + self.last.len()).saturating_sub(self.sent)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.unsent() == 0
    }

    /// True if no further reply may be written.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.unsent() >= self.allowed()
    }

    fn allowed(&self) -> usize {
        FREE_BYTES + self.borrowed
    }

    /// Borrows another block. Returns false if the connection has its maximum, or the budget is exhausted.
    pub(super) fn borrow(&mut self) -> bool {
        if self.allowed() + BLOCK_BYTES > MAX_BYTES {
            return false;
        }
        // Relaxed: nothing is published through the number.
        let left = &self.budget.0;
        let taken = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(BLOCK_BYTES));
        if taken.is_ok() {
            self.borrowed += BLOCK_BYTES;
        }
        taken.is_ok()
    }

    /// The bytes to send next.
    #[inline]
    pub(super) fn next(&self) -> &[u8] {
        let first = self.full.front().unwrap_or(&self.last);
        first.get(self.sent..).unwrap_or_default()
    }

    /// Removes bytes that were sent, and returns memory that is no longer needed.
    pub(super) fn consume(&mut self, count: usize) {
        self.sent += count;
        if let Some(first) = self.full.front() {
            if self.sent >= first.len() {
                self.full_bytes = self.full_bytes.saturating_sub(first.len());
                self.sent = 0;
                self.full.pop_front();
            }
        } else if self.sent >= self.last.len() {
            self.last.clear();
            self.sent = 0;
        } else if self.sent >= BUFFER_BYTES / 2 && self.sent >= self.last.len() / 2 {
            // Sent bytes must not pile up under a client that always leaves something unread.
            self.last.drain(..self.sent);
            self.sent = 0;
        }
        let is_large = self.last.capacity() > BUFFER_BYTES || self.full.capacity() > 0;
        if self.is_empty() && is_large {
            self.last = Vec::new();
            self.full = VecDeque::new();
            self.release(self.borrowed);
            return;
        }
        // A client that reads on, but never to the end, must not hold a block for ever.
        while self.borrowed >= BLOCK_BYTES && self.unsent() + 2 * BLOCK_BYTES < self.allowed() {
            self.release(BLOCK_BYTES);
        }
    }

    fn release(&mut self, bytes: usize) {
        self.borrowed -= bytes;
        self.budget.0.fetch_add(bytes, Relaxed);
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        self.release(self.borrowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a part of what is next, as a client that reads it.
    fn take(output: &mut Output<'_>, part: usize) -> Vec<u8> {
        let mut now = output.next().to_vec();
        now.truncate(part);
        output.consume(now.len());
        now
    }

    #[test]
    fn output_is_sent_in_order_in_parts_of_any_size() {
        for part in [100, 3_000, 70_000, 1_000_000] {
            let budget = OutputBudget::default();
            let mut output = Output::new(&budget);
            let (mut written, mut sent) = (Vec::new(), Vec::new());
            for round in 0..250_u8 {
                let reply = vec![round; usize::from(round) * 37];
                written.extend_from_slice(&reply);
                output.rotate_if_full();
                output.buffer().extend_from_slice(&reply);
                if round % 3 == 0 {
                    sent.extend(take(&mut output, part));
                }
                assert_eq!(output.unsent(), written.len() - sent.len());
            }
            assert!(part > 3_000 || output.full.len() > 5);
            while !output.is_empty() {
                let now = take(&mut output, part);
                assert!(!now.is_empty());
                sent.extend(now);
            }
            assert_eq!(sent, written);
        }
    }

    #[test]
    fn capacity_is_little_more_than_the_content_and_is_freed_buffer_by_buffer() {
        for length in [30, 1_000, 60_000] {
            let budget = OutputBudget::default();
            let mut output = Output::new(&budget);
            while output.unsent() < 16 << 20 {
                output.rotate_if_full();
                let filled = output.last.len() + length;
                output.buffer().resize(filled, b'x');
            }
            let capacity = |output: &Output<'_>| {
                let full = output.full.iter().map(Vec::capacity).sum::<usize>();
                full + output.last.capacity()
            };
            let full = capacity(&output);
            assert!(full < 18 << 20, "{length}: {full}");
            while !output.is_empty() {
                let next = output.next().len();
                output.consume(next);
                assert!(capacity(&output) <= output.unsent() * 9 / 8 + 2 * BUFFER_BYTES);
            }
            assert_eq!((output.full.capacity(), capacity(&output)), (0, 0));
        }
    }

    #[test]
    fn a_small_buffer_is_kept_for_the_next_reply() {
        let budget = OutputBudget::default();
        let mut output = Output::new(&budget);
        output.buffer().extend_from_slice(b"+PONG\r\n");
        output.consume(7);
        assert!(output.last.capacity() > 0);
    }

    #[test]
    fn blocks_are_returned_although_some_output_is_unread() {
        let budget = OutputBudget::default();
        let mut output = Output::new(&budget);
        while output.borrow() {
            output.rotate_if_full();
            output.buffer().extend_from_slice(&[b'x'; BUFFER_BYTES]);
        }
        while output.unsent() > BUFFER_BYTES {
            let next = output.next().len();
            output.consume(next);
        }
        assert!(output.allowed() <= BUFFER_BYTES + 2 * BLOCK_BYTES + FREE_BYTES);
        drop(output);
        assert_eq!(budget.0.load(Relaxed), BUDGET_BYTES);
    }

    #[test]
    fn no_connection_borrows_more_than_its_bound_and_all_no_more_than_the_budget() {
        let budget = OutputBudget::default();
        let mut outputs: Vec<Output<'_>> = (0..10).map(|_| Output::new(&budget)).collect();
        for output in &mut outputs {
            while output.borrow() {}
            assert!(output.allowed() <= MAX_BYTES);
        }
        let borrowed: usize = outputs.iter().map(|output| output.borrowed).sum();
        assert_eq!(borrowed, BUDGET_BYTES);
        drop(outputs);
        assert!(Output::new(&budget).borrow(), "all of it was returned");
    }
}
