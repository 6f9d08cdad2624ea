//! Answers that wait for a client to read them.
//!
//! # Theory
//!
//! Answers are put onto a sheet. When it is full another one is begun: a single sheet that grew would be copied whenever it
//! grows, and take twice the memory of what stands on it. Where memory comes in large pages even the room that nothing stands on
//! counts, so full sheets have little of it.
//!
//! # Invariant
//!
//! A sheet that is written is given back, so what is kept is what is not written yet, and at most a sheet more.

use std::collections::VecDeque;

/// Room on a sheet, and what is left of it when another one is begun: more than most answers take.
const SHEET: usize = 64 * 1024;
const MARGIN: usize = 4 * 1024;

/// Answers of one connection.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Full sheets, the oldest first.
    full: VecDeque<Vec<u8>>,
    /// The sheet that is written on.
    last: Vec<u8>,
    /// Of the oldest sheet, what the client has been sent.
    written: usize,
    /// Bytes on full sheets.
    on_full: usize,
}

impl Answers {
    /// Where the next answer is put.
    #[inline]
    pub(super) fn sheet(&mut self) -> &mut Vec<u8> {
        &mut self.last
    }

    /// Begins another sheet, if this one is full.
    #[inline]
    pub(super) fn make_room(&mut self) {
        if self.last.len() > SHEET - MARGIN {
            self.turn_over();
        }
    }

    #[cold]
    fn turn_over(&mut self) {
        let mut sheet = std::mem::replace(&mut self.last, Vec::with_capacity(SHEET));
        // A long answer has made it grow.
        if sheet.capacity() - sheet.len() > 2 * MARGIN {
            sheet.shrink_to_fit();
        }
        self.on_full += sheet.len();
        self.full.push_back(sheet);
    }

    /// Bytes that the client was not sent yet.
    #[inline]
    pub(super) fn left(&self) -> usize {
        (self.on_full + self.last.len()).saturating_sub(self.written)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// What is sent next.
    #[inline]
    pub(super) fn next(&self) -> &[u8] {
        let first = self.full.front().unwrap_or(&self.last);
        first.get(self.written..).unwrap_or_default()
    }

    /// So much of that was sent. Is nothing left, after more than is kept for the next time?
    pub(super) fn sent(&mut self, count: usize) -> bool {
        self.written += count;
        if let Some(first) = self.full.front() {
            if self.written >= first.len() {
                self.on_full = self.on_full.saturating_sub(first.len());
                self.written = 0;
                self.full.pop_front();
            }
            return self.is_empty() && self.give_back();
        }
        if self.written >= self.last.len() {
            self.last.clear();
            self.written = 0;
            return self.give_back();
        }
        if self.written >= SHEET / 2 && self.written >= self.last.len() / 2 {
            // What is sent must not pile up under a client that always leaves something unread.
            self.last.drain(..self.written);
            self.written = 0;
        }
        false
    }

    /// Gives back what is not worth keeping.
    fn give_back(&mut self) -> bool {
        let is_much = self.last.capacity() > SHEET || self.full.capacity() > 0;
        if is_much {
            *self = Answers::default();
        }
        is_much
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a part of what is next, as a client that reads it.
    fn take(answers: &mut Answers, part: usize) -> Vec<u8> {
        let mut now = answers.next().to_vec();
        now.truncate(part);
        answers.sent(now.len());
        now
    }

    #[test]
    fn answers_are_sent_in_order_whatever_part_is_taken_at_a_time() {
        for part in [100, 3_000, 70_000, 1_000_000] {
            let mut answers = Answers::default();
            let (mut put, mut sent) = (Vec::new(), Vec::new());
            for round in 0..250_u8 {
                let answer = vec![round; usize::from(round) * 37];
                put.extend_from_slice(&answer);
                answers.make_room();
                answers.sheet().extend_from_slice(&answer);
                if round % 3 == 0 {
                    sent.extend(take(&mut answers, part));
                }
                assert_eq!(answers.left(), put.len() - sent.len());
            }
            assert!(part > 3_000 || answers.full.len() > 5);
            while !answers.is_empty() {
                let now = take(&mut answers, part);
                assert!(!now.is_empty());
                sent.extend(now);
            }
            assert_eq!(sent, put);
        }
    }

    #[test]
    fn room_is_little_more_than_what_stands_in_it_and_is_given_back_sheet_by_sheet() {
        for length in [30, 1_000, 60_000] {
            let mut answers = Answers::default();
            while answers.left() < 16 << 20 {
                answers.make_room();
                let filled = answers.last.len() + length;
                answers.sheet().resize(filled, b'x');
            }
            let room = |answers: &Answers| {
                let full = answers.full.iter().map(Vec::capacity).sum::<usize>();
                full + answers.last.capacity()
            };
            assert!(room(&answers) < 18 << 20, "{length}: {}", room(&answers));
            let mut is_over = false;
            while !answers.is_empty() {
                assert!(!is_over);
                let next = answers.next().len();
                is_over = answers.sent(next);
                assert!(room(&answers) <= answers.left() * 9 / 8 + 2 * SHEET);
            }
            assert!(is_over);
            assert_eq!((answers.full.capacity(), room(&answers)), (0, 0));
        }
    }

    #[test]
    fn what_is_small_stays_for_the_next_answer() {
        let mut answers = Answers::default();
        answers.sheet().extend_from_slice(b"+PONG\r\n");
        assert!(!answers.sent(7));
        assert!(answers.last.capacity() > 0);
    }
}
