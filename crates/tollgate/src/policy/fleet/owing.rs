//! What keys were let pass while the store was away, until it is told.
//!
//! # Invariant
//!
//! At most [`OWING_MAX`] keys. While there is none, nobody takes the lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::time::Moment;

/// Keys that may owe the store something at once. What does not fit is not told later.
const OWING_MAX: usize = 1 << 16;

/// What keys were let pass while the store was away: by limit and by key.
#[derive(Debug, Default)]
pub(in crate::policy) struct Owing {
    keys: Mutex<HashMap<(u64, u64), Debt>>,
    /// How many there are, so that nobody takes the lock while there are none.
    count: AtomicUsize,
}

/// What is just being told to the store. It is owed again unless it was told.
#[derive(Debug)]
pub(super) struct Owed {
    owing: Arc<Owing>,
    limit: u64,
    hash: u64,
    units: u64,
    until: Moment,
}

impl Owed {
    /// Takes out what a key owes, at most `most` of it.
    pub(super) fn take(
        owing: &Arc<Owing>,
        (limit, hash): (u64, u64),
        most: impl FnOnce() -> u64,
        until: Moment,
    ) -> Owed {
        let units = match owing.take(limit, hash) {
            0 => 0,
            units => units.min(most()),
        };
        Owed {
            owing: Arc::clone(owing),
            limit,
            hash,
            units,
            until,
        }
    }

    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// The store has heard it.
    pub(super) fn was_told(mut self) {
        self.units = 0;
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if self.units > 0 {
            self.owing
                .add(self.limit, self.hash, self.units, self.until);
        }
    }
}

/// What one key owes.
#[derive(Clone, Copy, Debug)]
struct Debt {
    units: u64,
    /// From then on nothing of it counts any more.
    until: Moment,
}

impl Owing {
    fn keys(&self) -> MutexGuard<'_, HashMap<(u64, u64), Debt>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does nobody owe anything?
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    pub(super) fn add(&self, limit: u64, hash: u64, units: u64, until: Moment) {
        let mut keys = self.keys();
        let is_room = keys.len() < OWING_MAX;
        match keys.entry((limit, hash)) {
            Entry::Occupied(mut debt) => {
                let debt = debt.get_mut();
                debt.units = debt.units.saturating_add(units);
                debt.until = until;
            }
            Entry::Vacant(place) if is_room => {
                place.insert(Debt { units, until });
            }
            Entry::Vacant(_) => {}
        }
        self.count.store(keys.len(), Relaxed);
    }

    pub(super) fn take(&self, limit: u64, hash: u64) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let mut keys = self.keys();
        let debt = keys.remove(&(limit, hash));
        self.count.store(keys.len(), Relaxed);
        debt.map_or(0, |debt| debt.units)
    }

    /// So much of what a key owes was given back before it was told.
    pub(in crate::policy) fn forgive(&self, limit: u64, hash: u64, units: u64) {
        if self.is_empty() {
            return;
        }
        let mut keys = self.keys();
        if let Entry::Occupied(mut debt) = keys.entry((limit, hash)) {
            let left = debt.get().units.saturating_sub(units);
            match left {
                0 => {
                    debt.remove();
                }
                left => debt.get_mut().units = left,
            }
        }
        self.count.store(keys.len(), Relaxed);
    }

    /// Forgets what does not count any more.
    pub(super) fn sweep(&self, now: Moment) {
        if self.count.load(Relaxed) > 0 {
            let mut keys = self.keys();
            keys.retain(|_, debt| now < debt.until);
            self.count.store(keys.len(), Relaxed);
        }
    }
}
