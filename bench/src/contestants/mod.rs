//! The contestants, one small file each, and the list of all of them.
//!
//! To add one: write its file, declare it here, and give it a line in [`ALL`].

pub(crate) mod gates;
pub(crate) mod governor;
mod noop;
mod throttlecrab;
pub(crate) mod tollgate;

use crate::measure::Turns;
use crate::memory::{MemoryUse, measure_memory};
use crate::workload::{Config, KeyKind};

/// Keys in a batch, for contestants that take many at once.
pub(crate) const BATCH_LEN: usize = 32;

/// The name of the contestant that the others are compared with.
pub(crate) const BASELINE: &str = self::governor::Governor::NAME;

/// All contestants, in the order in which they take their turns and are printed.
pub(crate) const ALL: &[Entry] = &[
    Entry::new::<self::governor::Governor>(),
    Entry::new::<self::throttlecrab::Throttlecrab>(),
    Entry::new::<self::tollgate::Exact>(),
    Entry::new::<self::tollgate::Coarse>(),
    Entry::new::<self::tollgate::Batch>(),
    Entry::new::<self::noop::Noop>(),
    Entry::new::<self::noop::NoopBatch>(),
];

/// A keyed rate limiter as its users would call it.
///
/// One instance serves one cell, so it sees one kind of key only. An implementation that needs a table per key type holds both
/// and leaves one empty.
///
/// Variants of one limiter (another clock, batches) are contestants of their own: the type selects the code, so that nothing is
/// selected at run time inside the timed loop.
pub(crate) trait KeyedLimiter: Sync + Sized + 'static {
    /// Lower case, no spaces: it is a column, a JSON string and a word on the command line.
    const NAME: &'static str;

    /// Whether it decides anything. False for those that only show the limit of the hardware: their admissions mean nothing.
    const DECIDES: bool = true;

    fn new(config: &Config) -> Self;

    /// Whether one unit for this key is admitted now.
    ///
    /// A `&String` because a limiter keyed by `String` needs one; it derefs to `&str`.
    #[allow(
        clippy::ptr_arg,
        reason = "governor's `check_key` takes a reference to its key type"
    )]
    fn check_str(&self, key: &String) -> bool;

    /// As [`KeyedLimiter::check_str`], for a number.
    fn check_u64(&self, key: u64) -> bool;

    /// How many of these keys, at most [`BATCH_LEN`], are admitted, each with one unit. `None` if there is no such call; then
    /// they are checked one by one.
    #[inline(always)]
    fn check_batch_str(&self, _keys: &[&str]) -> Option<u32> {
        None
    }

    /// As [`KeyedLimiter::check_batch_str`], for numbers.
    #[inline(always)]
    fn check_batch_u64(&self, _keys: &[u64]) -> Option<u32> {
        None
    }
}

/// A contestant whose type is erased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) decides: bool,
    /// Builds it for a comparison.
    pub(crate) build: fn(&Config) -> Box<dyn Turns>,
    /// Builds it, inserts all keys and returns how the memory of this process grew.
    pub(crate) memory: fn(&Config, KeyKind) -> Option<MemoryUse>,
}

impl Entry {
    const fn new<C: KeyedLimiter>() -> Self {
        Self {
            name: C::NAME,
            decides: C::DECIDES,
            build: |config| Box::new(C::new(config)),
            memory: measure_memory::<C>,
        }
    }
}
