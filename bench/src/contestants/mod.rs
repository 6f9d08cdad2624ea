//! The contestants, one small file each, and the list of all of them.
//!
//! To add one: write its file, declare it here, and give it a line in [`ALL`].

mod dashmap;
mod floor;
pub(crate) mod gates;
pub(crate) mod governor;
mod pingora;
mod throttlecrab;
pub(crate) mod tollgate;

use crate::measure::{Seat, Seated};
use crate::memory;
use crate::workload::{Config, Kind};

/// Keys in a batch, for contestants that take many at once.
pub(crate) const BATCH_LEN: usize = 32;

/// The name of the contestant that the others are compared with.
pub(crate) const BASELINE: &str = self::governor::Governor::NAME;

/// All contestants, in the order in which they take their turns and are printed.
pub(crate) const ALL: &[Entry] = &[
    Entry::of::<self::governor::Governor>(),
    Entry::of::<self::throttlecrab::Throttlecrab>(),
    Entry::of::<self::pingora::Pingora>(),
    Entry::of::<self::dashmap::DashMapBuckets>(),
    Entry::of::<self::tollgate::Exact>(),
    Entry::of::<self::tollgate::Coarse>(),
    Entry::of::<self::tollgate::Batch>(),
    Entry::of::<self::floor::Floor>(),
    Entry::of::<self::floor::FloorBatch>(),
];

/// A keyed rate limiter as its users would call it.
///
/// One instance serves one cell, so it is asked with one kind of key only. An implementation that
/// needs a table per key type holds both and leaves one empty.
///
/// Flavours of one limiter (another clock, batches) are contestants of their own: the type is what
/// selects the code, so that nothing is decided at run time inside the timed loop.
pub(crate) trait Contestant: Sync + Sized + 'static {
    /// Lower case, no spaces: it is a column, a JSON string and a word on the command line.
    const NAME: &'static str;

    /// Whether it decides anything. False for those that only show what the hardware allows, whose
    /// admissions mean nothing.
    const DECIDES: bool = true;

    fn new(config: &Config) -> Self;

    /// Whether one unit for this key is admitted now.
    ///
    /// A `&String` because that is what a limiter keyed by `String` asks its users for; it turns
    /// into `&str` by itself.
    #[allow(
        clippy::ptr_arg,
        reason = "governor's `check_key` takes a reference to its key type"
    )]
    fn check_str(&self, key: &String) -> bool;

    /// As [`Contestant::check_str`], for a number.
    fn check_u64(&self, key: u64) -> bool;

    /// How many of these keys, at most [`BATCH_LEN`], are admitted; each is asked for one unit.
    /// `None` if there is no such call, and then they are asked about one by one.
    #[inline(always)]
    fn check_batch_str(&self, _keys: &[&str]) -> Option<u32> {
        None
    }

    /// As [`Contestant::check_batch_str`], for numbers.
    #[inline(always)]
    fn check_batch_u64(&self, _keys: &[u64]) -> Option<u32> {
        None
    }
}

/// What can be done with a contestant whose type is no longer known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) decides: bool,
    /// Builds it for a comparison.
    pub(crate) seat: fn(&Config) -> Box<dyn Seat>,
    /// Builds it, inserts that many keys and tells how the memory of this process grew.
    pub(crate) weigh: fn(&Config, Kind) -> Option<memory::Weight>,
}

impl Entry {
    const fn of<C: Contestant>() -> Self {
        Self {
            name: C::NAME,
            decides: C::DECIDES,
            seat: |config| Box::new(Seated(C::new(config))),
            weigh: memory::weigh::<C>,
        }
    }
}
