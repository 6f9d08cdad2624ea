//! The fast path: a token bucket at full scale, and a key that is in its home line or the line beside it.
//!
//! Nearly all charges are of this kind. The steps are those of `slot_ops`, with the bucket's step on its encoded
//! words ([`FastBucket`]). Nothing is passed by reference and nothing is called, so that all of it stays in
//! registers. All other charges return `None`, and the caller takes the general path.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use super::layout::tag;
use super::packed_table::PackedTable;
use super::slot_ops::candidate;
use super::tentative::{PendingWrite, Tentative};
use super::{CLAIM, LINES};
use crate::algorithm::bucket::{Bucket, FastBucket, FastStep};
use crate::decision::{Decision, Origin, QuotaStatus, Verdict};
use crate::raw::{Line, prefetch};
use crate::sync::AtomicU64;
use crate::time::Moment;

/// A key's slot, as it was found.
struct Found<'a> {
    key: u64,
    key_cell: &'a AtomicU64,
    cell: &'a AtomicU64,
    word: u64,
    bucket: FastBucket,
}

/// A key's home line, by its place and itself.
pub(super) type Home<'a> = (usize, &'a Line);

/// The distance to the other line of a pair.
const OTHER: usize = if LINES > 1 { 1 } else { 0 };

impl PackedTable<Bucket> {
    /// The home line of a key, asked for from memory.
    #[inline(always)]
    pub(super) fn fetch_home(&self, hash: u64) -> Option<Home<'_>> {
        let home = self.home(hash);
        let line = self.lines.get(home)?;
        prefetch(line);
        Some((home, line))
    }

    /// The slot of a key in its home line, or with `PAIR` in either line of its home pair.
    #[inline(always)]
    fn find_fast<'a, const PAIR: bool>(
        &'a self,
        hash: u64,
        (home, line): Home<'a>,
        now: Moment,
    ) -> Option<Found<'a>> {
        let current = self.current.read_full_scale()?;
        if !current.holds_at(now) {
            return None;
        }
        let key = tag(hash) | current.stamp;
        let (mut line, mut slot) = (line, candidate(line, key));
        // Orderings and argument as in `charge_slot`: the word, then the key.
        let mut word = line.words[slot].load(Acquire);
        if line.keys[slot].load(Acquire) != key {
            if !PAIR {
                return None;
            }
            line = self.lines.get(home ^ OTHER)?;
            slot = candidate(line, key);
            word = line.words[slot].load(Acquire);
            if line.keys[slot].load(Acquire) != key {
                return None;
            }
        }
        Some(Found {
            key,
            key_cell: &line.keys[slot],
            cell: &line.words[slot],
            word,
            bucket: FastBucket::from_encoded(&current.limit),
        })
    }

    /// Charges `cost`; the verdict and what `status` reads from the word afterwards.
    #[inline(always)]
    fn charge_found<const PAIR: bool, S>(
        &self,
        hash: u64,
        home: Home<'_>,
        now: Moment,
        cost: u64,
        status: impl Fn(&FastBucket, u64) -> S,
    ) -> Option<(Verdict, S)> {
        let Found {
            key,
            key_cell,
            cell,
            mut word,
            bucket,
        } = self.find_fast::<PAIR>(hash, home, now)?;
        loop {
            if word == CLAIM {
                return None;
            }
            let step = bucket.charge(word, now, cost)?;
            let (seen, after) = match step {
                FastStep::Pass { word: new } => {
                    // Not the weak form: a failure shows by another word.
                    match cell.compare_exchange(word, new, AcqRel, Acquire) {
                        Ok(seen) | Err(seen) => (seen, new),
                    }
                }
                FastStep::Refuse { .. } => (cell.load(Acquire), word),
            };
            if seen == word {
                return Some((bucket.verdict(step), status(&bucket, after)));
            }
            word = seen;
            if key_cell.load(Acquire) != key {
                return None;
            }
        }
    }

    /// Charges `cost` and reports only the verdict.
    #[inline(always)]
    pub(super) fn check_fast<const PAIR: bool>(
        &self,
        hash: u64,
        home: Home<'_>,
        now: Moment,
        cost: u64,
    ) -> Option<Verdict> {
        let charged = self.charge_found::<PAIR, ()>(hash, home, now, cost, |_, _| ());
        charged.map(|(verdict, ())| verdict)
    }

    /// Charges `cost` and reports the status.
    #[inline(always)]
    pub(super) fn charge_fast(
        &self,
        hash: u64,
        home: Home<'_>,
        now: Moment,
        cost: u64,
    ) -> Option<Decision> {
        let status = |bucket: &FastBucket, word| bucket.status(word, now);
        let (verdict, status) =
            self.charge_found::<true, QuotaStatus>(hash, home, now, cost, status)?;
        Some(Decision {
            verdict,
            status,
            issued: now,
            origin: Origin::Fresh,
        })
    }

    /// Decides a charge without making it.
    #[inline(always)]
    pub(super) fn tentative_fast<'a>(
        &'a self,
        hash: u64,
        home: Home<'a>,
        now: Moment,
        cost: u64,
    ) -> Option<Tentative<'a>> {
        let Found {
            cell, word, bucket, ..
        } = self.find_fast::<true>(hash, home, now)?;
        if word == CLAIM {
            return None;
        }
        let step = bucket.charge(word, now, cost)?;
        let new = match step {
            FastStep::Pass { word } => word,
            // A refusal must be seen to hold now.
            FastStep::Refuse { .. } if cell.load(Acquire) != word => return None,
            FastStep::Refuse { .. } => word,
        };
        Some(Tentative {
            verdict: bucket.verdict(step),
            status: bucket.status(new, now),
            write: PendingWrite { cell, word, new },
        })
    }
}
