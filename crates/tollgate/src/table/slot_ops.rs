//! Operations on one slot: find, charge, take over. This module has the proof of safety.
//!
//! A slot is a key and a word that are two atomics. The key changes only while the word is [`CLAIM`],
//! and only one thread at a time claims (it holds the segment's lock). So a charge that
//!
//! 1. reads the word `w` (not `CLAIM`),
//! 2. reads the key and finds it its own,
//! 3. swaps the word from `w`, or for a refusal reads it again and finds it still `w`,
//!
//! has seen key and word as they were together, *unless* between 1 and 3 the slot was taken over and the new key's
//! word came to be exactly `w`. It cannot: a slot is taken over only when `w` is fresh, and the word written then
//! is not fresh, so it lies beyond `w`; charges move it further. What moves a word back (refunds, repairs, another
//! limit) leaves it at or after the moment it is done at, which is after the take-over, unless the clock itself
//! was set back by more than a second while this thread was stopped between two instructions, and the 64 bits then
//! happen to agree.
//!
//! Loom checks all interleavings: `two_threads_adding_one_key_share_its_slot`, `the_last_unit_is_taken_once`,
//! `a_slot_taken_over_is_not_charged_for_the_old_key`.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::CLAIM;
use super::layout::{Intent, ReadContext, StampAge, read_slot, tag};
use crate::algorithm::PackedAlgorithm;
use crate::raw::{Line, SLOTS};
use crate::sync::AtomicU64;

/// The only slot of a line that may hold `key`. Whether it does is found out when it is used, so the
/// reads are relaxed.
#[inline(always)]
pub(super) fn candidate(line: &Line, key: u64) -> usize {
    // Three comparisons, and nothing is decided: which of the four it is cannot be predicted.
    let is = |slot: usize| usize::from(line.keys[slot].load(Relaxed) == key);
    (is(1) | (is(2) << 1) | (is(3) * 3)) & (SLOTS - 1)
}

/// The slot of a line that seems to hold `key`.
#[inline(always)]
pub(super) fn find(line: &Line, key: u64) -> Option<usize> {
    let slot = candidate(line, key);
    (line.keys[slot].load(Relaxed) == key).then_some(slot)
}

/// Applies `step` to the word of a slot if it holds `key`; the result and the word afterwards. None if
/// the slot does not hold the key, or not any more.
#[inline]
pub(super) fn charge_slot<R>(
    line: &Line,
    slot: usize,
    key: u64,
    step: impl Fn(u64) -> (R, Option<u64>),
) -> Option<(R, u64)> {
    let (key_cell, cell) = (&line.keys[slot], &line.words[slot]);
    // Acquire: if the thread that set the slot's key wrote this word, the key is seen as well.
    let mut word = cell.load(Acquire);
    loop {
        // Acquire: if this key was written by a take-over, the claim before it is seen below.
        if word == CLAIM || key_cell.load(Acquire) != key {
            return None;
        }
        let (result, write) = step(word);
        match write {
            // AcqRel: Release, so that a charge passes on what the addition of the key published; Acquire as for
            // the load above, for the next turn.
            Some(new) => match cell.compare_exchange_weak(word, new, AcqRel, Acquire) {
                Ok(_) => return Some((result, new)),
                Err(there) => word = there,
            },
            None => match cell.load(Acquire) {
                again if again == word => return Some((result, word)),
                there => word = there,
            },
        }
    }
}

/// Under the lock: freezes the word of a slot that holds a key, and returns it. Charges that read it meanwhile
/// take the slow path and wait for the lock.
pub(super) fn claim(cell: &AtomicU64) -> u64 {
    let mut word = cell.load(Acquire);
    loop {
        // AcqRel: Acquire takes over what the last charge published, Release puts the claim before
        // the change of the key.
        match cell.compare_exchange_weak(word, CLAIM, AcqRel, Acquire) {
            Ok(_) => return word,
            Err(there) => word = there,
        }
    }
}

/// Under the lock: claims a slot if it is free. The caller then writes key and word, in this order.
pub(super) fn take_over<A: PackedAlgorithm>(
    line: &Line,
    slot: usize,
    context: &ReadContext<'_, A>,
) -> bool {
    let (key_cell, cell) = (&line.keys[slot], &line.words[slot]);
    // Relaxed: keys change only under the lock that the caller holds.
    let key = key_cell.load(Relaxed);
    if key == 0 {
        // No thread charges a slot without a key.
        cell.store(CLAIM, Relaxed);
        return true;
    }
    let mut word = cell.load(Acquire);
    loop {
        if read_slot(key, word, context).is_some() {
            return false;
        }
        match cell.compare_exchange_weak(word, CLAIM, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(there) => word = there, // revived just now, or a spurious failure
        }
    }
}

/// Under the lock: applies `step` to the key's slot, whatever its stamp, and stamps it anew if there is something
/// to write. The result and the word afterwards. A word that could only be read by repairing or converting it is
/// written as it was read, unless the operation only reads. Otherwise it would be repaired again, at a later
/// moment, each time.
pub(super) fn apply_locked<A: PackedAlgorithm, R>(
    line: &Line,
    slot: usize,
    hash: u64,
    intent: Intent,
    context: &ReadContext<'_, A>,
    step: impl Fn(Option<u64>) -> (R, Option<u64>),
) -> (R, Option<u64>) {
    let (key_cell, cell) = (&line.keys[slot], &line.words[slot]);
    let key = key_cell.load(Relaxed);
    let mut word = cell.load(Acquire);
    loop {
        let readable = read_slot(key, word, context);
        let (result, write) = step(readable);
        let changed = readable.filter(|r| *r != word && intent.writes(context.limit));
        let there = match write.or(changed) {
            None => match cell.load(Acquire) {
                again if again == word => return (result, readable),
                there => there,
            },
            Some(new) => match cell.compare_exchange_weak(word, CLAIM, AcqRel, Acquire) {
                Ok(_) => {
                    key_cell.store(tag(hash) | u64::from(context.stamp), Release);
                    cell.store(new, Release);
                    return (result, Some(new));
                }
                Err(there) => there,
            },
        };
        word = there;
    }
}

/// Under the lock: brings a slot to the current stamp, or frees it.
pub(super) fn restamp<A: PackedAlgorithm>(line: &Line, slot: usize, context: &ReadContext<'_, A>) {
    let (key_cell, cell) = (&line.keys[slot], &line.words[slot]);
    let key = key_cell.load(Relaxed);
    // The current stamp proves that the word is valid, unless stamps repeat.
    if key == 0 || (key as u16 == context.stamp && context.age == StampAge::Valid) {
        return;
    }
    let word = claim(cell);
    match read_slot(key, word, context) {
        Some(word) => {
            key_cell.store(key & !0xffff | u64::from(context.stamp), Release);
            cell.store(word, Release);
        }
        // The word stays claimed: a slot without a key is never charged.
        None => key_cell.store(0, Release),
    }
}
