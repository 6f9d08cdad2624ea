//! The layout of the table: how a hash becomes a place and a tag, and how a stamped word is read.

use super::{Extent, LINES};
use crate::algorithm::PackedAlgorithm;
use crate::time::Moment;

/// Bits of the epoch in a stamp; the rest numbers the generation.
pub(super) const EPOCH_BITS: u32 = 14;
const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;

/// The 48 bits of a hash that a slot keeps, above its stamp.
#[inline(always)]
pub(super) const fn tag(hash: u64) -> u64 {
    hash << 16
}

/// The bits of a tag that choose between the segments that its base segment was split into.
#[inline(always)]
pub(super) const fn branch(tag: u64) -> usize {
    (tag >> 32) as usize & 0xff_ffff
}

/// How many segments are in use: their number, and the mask for the branch at the current doubling.
/// One word, so that all of it is seen together.
///
/// Segments are numbered in the order in which they come into use, base by base within each branch, and
/// lie in that order, so that a table that has grown little has touched little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) segments: usize,
    mask: usize,
    /// Are all segments of this mask in use? Only while the table is being doubled they are not.
    whole: bool,
}

const WHOLE: u64 = 1 << 63;

impl Shape {
    pub(super) fn of(segments: usize, extent: Extent) -> Shape {
        let doublings = (segments / extent.base).max(1).ilog2();
        let whole = extent.base << doublings == segments;
        Shape {
            segments,
            mask: ((2usize << doublings) - 1) >> usize::from(whole),
            whole,
        }
    }

    #[inline(always)]
    pub(super) const fn to_word(self) -> u64 {
        let whole = if self.whole { WHOLE } else { 0 };
        whole | (self.mask as u64) << 32 | self.segments as u64
    }

    #[inline(always)]
    pub(super) const fn from_word(word: u64) -> Shape {
        Shape {
            segments: (word & 0xffff_ffff) as usize,
            mask: (word >> 32) as usize & 0x7fff_ffff,
            whole: word & WHOLE != 0,
        }
    }

    /// The segment of a hash. Linear hashing: take one bit of the branch more than the last
    /// doubling had, and one less where that segment does not exist yet.
    #[inline(always)]
    pub(super) fn segment(self, hash: u64, extent: Extent) -> usize {
        // None of these can overflow: `base` is below 64, and there are at most 2^24 segments. So the mask is below
        // 2^24 as well, and leaves the bits of the branch.
        let base = ((hash >> 32) as usize).wrapping_mul(extent.base) >> 32;
        let branch = (hash >> 16) as usize;
        let at = |mask: usize| base.wrapping_add(extent.base.wrapping_mul(branch & mask));
        let segment = at(self.mask);
        if self.whole {
            return segment;
        }
        // Whether it falls back is as good as random: computed, not branched on.
        at(self.mask >> usize::from(segment >= self.segments))
    }

    /// The segment that is split to make the next one, and the bit of the branch that says who moves.
    pub(super) fn next_split(self, extent: Extent) -> (usize, usize) {
        let bit = (self.segments / extent.base).max(1).ilog2();
        (self.segments - (extent.base << bit), 1 << bit)
    }
}

/// The line at distance `d` from a key's home, within its segment: the two lines of the home pair first
/// (the processor fetches them together), then other pairs at a stride taken from the hash, so that
/// full neighbourhoods do not spill into each other.
#[inline(always)]
pub(super) const fn line_at(hash: u64, d: usize) -> usize {
    let home = home_line(hash);
    // Odd, so that every pair is met once; from bits that choose neither line nor base segment.
    let stride = (hash >> 2) as usize | 1;
    let pair = (home >> 1).wrapping_add(stride.wrapping_mul(d >> 1));
    (pair << 1 | (home ^ d) & 1) & (LINES - 1)
}

/// A key's home line within its segment: bits of the hash that are not in the tag.
#[inline(always)]
pub(super) const fn home_line(hash: u64) -> usize {
    (hash >> 48) as usize & (LINES - 1)
}

/// The stamp for an epoch and a generation. Never zero, so that a key of zero is an empty slot.
pub(super) const fn stamp(generation: u64, epoch: u64) -> u16 {
    // Three generations are distinct; there are never more than two at once.
    (((generation % 3 + 1) << EPOCH_BITS) as u16) | (epoch & EPOCH_MASK) as u16
}

/// What a step is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Only to read: nothing is written.
    Read,
    /// To change the word.
    Write,
    /// To charge this cost. A cost of zero, or one that can never pass, only reads.
    Charge(u64),
}

impl Intent {
    /// May a state that was repaired on reading be written as it was read?
    pub(super) fn writes(self, limit: &impl PackedAlgorithm) -> bool {
        match self {
            Intent::Read => false,
            Intent::Write => true,
            Intent::Charge(cost) => (1..=limit.capacity()).contains(&cost),
        }
    }
}

/// How old the slots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StampAge {
    /// As their stamps say.
    Valid,
    /// So long has passed since the last sweep that stamps repeat: every word is fresh by now.
    Expired,
    /// The clock was set back so far that stamps repeat: every word needs repairing.
    Future,
}

/// The context for reading a slot: the active limit, the previous one, and the moment.
pub(super) struct ReadContext<'a, A> {
    pub(super) age: StampAge,
    pub(super) limit: &'a A,
    /// The current stamp.
    pub(super) stamp: u16,
    /// The limit of the generation before, which some slots may still be stamped with.
    pub(super) before: &'a A,
    pub(super) now: Moment,
}

/// The word of a slot as it is to be read now; none if that is a key never used.
pub(super) fn read_slot<A: PackedAlgorithm>(
    key: u64,
    word: u64,
    context: &ReadContext<'_, A>,
) -> Option<u64> {
    let now = context.now;
    let written = key as u16;
    let of_this = written >> EPOCH_BITS == context.stamp >> EPOCH_BITS;
    let limit = if of_this {
        context.limit
    } else {
        context.before
    };
    // The signed difference of the epochs, modulo the range of the stamp.
    let unused = 64 - EPOCH_BITS;
    let ahead =
        ((limit.epoch(now).number.wrapping_sub(u64::from(written)) << unused) as i64) >> unused;
    let word = match (context.age, ahead) {
        (StampAge::Expired, _) | (StampAge::Valid, 2..) => return None,
        (StampAge::Valid, -1..=1) if limit.is_unused(word, now) => return None,
        (StampAge::Valid, -1..=1) => word,
        (StampAge::Future, _) | (StampAge::Valid, _) => limit.repair_after_clock_step(word, now),
    };
    if of_this {
        Some(word)
    } else {
        context.limit.convert(limit, word, now)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_hash_has_one_segment_and_splitting_moves_only_the_split_one() {
        let extent = Extent { base: 5, most: 40 };
        let mut hash = 1u64;
        let hashes: Vec<u64> = (0..5000)
            .map(|_| {
                hash = hash
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                hash ^ hash >> 29
            })
            .collect();
        for segments in extent.base..extent.most {
            let (now, next) = (Shape::of(segments, extent), Shape::of(segments + 1, extent));
            assert_eq!(Shape::from_word(now.to_word()), now);
            let (from, bit) = now.next_split(extent);
            for h in &hashes {
                let (a, b) = (now.segment(*h, extent), next.segment(*h, extent));
                assert!(a < segments && b <= segments);
                if a == from && branch(tag(*h)) & bit != 0 {
                    assert_eq!(b, segments, "moves to the new segment");
                } else {
                    assert_eq!(a, b, "stays");
                }
            }
        }
    }

    #[test]
    fn a_key_may_live_in_every_line_once_and_its_pair_comes_first() {
        for hash in (0..LINES as u64 * 8).map(|i| (i << 48) ^ i.wrapping_mul(77)) {
            let lines: Vec<usize> = (0..LINES).map(|d| line_at(hash, d)).collect();
            assert_eq!(lines[..2], [home_line(hash), home_line(hash) ^ 1]);
            let mut sorted = lines.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), LINES);
        }
    }

    #[test]
    fn segments_fill_evenly() {
        let extent = Extent::for_keys(1_000_000).unwrap();
        let shape = Shape::of(extent.most, extent);
        let secret = crate::key::KeySecret::from_seed(1);
        let mut counts = vec![0usize; extent.most];
        for i in 0..1_000_000u64 {
            counts[shape.segment(secret.hash(&i), extent)] += 1;
        }
        let most = counts.iter().max().unwrap();
        assert!(*most < LINES * 4 * 9 / 10, "{most}");
    }
}
