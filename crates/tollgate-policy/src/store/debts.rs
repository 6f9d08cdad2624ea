//! Debts: units that passed without the store, until they are reported to it.
//!
//! # Bound
//!
//! [`DEBTS_MAX`] keys; a debt beyond them is not reported. While there is none, no request takes the lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::Moment;

/// Most keys with a debt.
const DEBTS_MAX: usize = 1 << 16;

/// A limit by its stable id, and a key by its hash: the same under the next policy.
pub(super) type DebtKey = (u64, u64);

/// Debts by key.
#[derive(Debug, Default)]
pub(crate) struct Debts {
    keys: Mutex<HashMap<DebtKey, Debt>>,
    /// The number of debts.
    count: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct Debt {
    units: u64,
    /// From then on nothing of it counts.
    until: Moment,
}

impl Debts {
    fn keys(&self) -> MutexGuard<'_, HashMap<DebtKey, Debt>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    pub(super) fn record(&self, key: DebtKey, units: u64, until: Moment) {
        if units == 0 {
            return;
        }
        let mut keys = self.keys();
        let is_room = keys.len() < DEBTS_MAX;
        match keys.entry(key) {
            Entry::Occupied(mut debt) => {
                let debt = debt.get_mut();
                debt.units = debt.units.saturating_add(units);
                debt.until = debt.until.max(until);
            }
            Entry::Vacant(place) if is_room => {
                place.insert(Debt { units, until });
            }
            Entry::Vacant(_) => {}
        }
        self.count.store(keys.len(), Relaxed);
    }

    fn take(&self, key: DebtKey) -> u64 {
        let mut keys = self.keys();
        let debt = keys.remove(&key);
        self.count.store(keys.len(), Relaxed);
        debt.map_or(0, |debt| debt.units)
    }

    /// Reduces a debt by units that were refunded before it was reported.
    pub(super) fn reduce(&self, key: DebtKey, units: u64) {
        if self.is_empty() {
            return;
        }
        let mut keys = self.keys();
        if let Entry::Occupied(mut debt) = keys.entry(key) {
            match debt.get().units.saturating_sub(units) {
                0 => {
                    debt.remove();
                }
                left => debt.get_mut().units = left,
            }
        }
        self.count.store(keys.len(), Relaxed);
    }

    /// Drops debts that no longer count.
    pub(super) fn sweep(&self, now: Moment) {
        if !self.is_empty() {
            let mut keys = self.keys();
            keys.retain(|_, debt| now < debt.until);
            self.count.store(keys.len(), Relaxed);
        }
    }
}

/// Debts that are being reported. They are recorded again on drop, unless the store has answered.
#[derive(Debug)]
pub(super) struct Reporting {
    debts: Arc<Debts>,
    reported: Vec<(DebtKey, u64, Moment)>,
}

impl Reporting {
    pub(super) fn new(debts: &Arc<Debts>) -> Reporting {
        Reporting {
            debts: Arc::clone(debts),
            reported: Vec::new(),
        }
    }

    /// Takes the debt of a key, at most `most` of it.
    pub(super) fn add(&mut self, key: DebtKey, until: Moment, most: impl FnOnce() -> u64) -> u64 {
        let units = match self.debts.take(key) {
            0 => 0,
            units => units.min(most()),
        };
        if units > 0 {
            self.reported.push((key, units, until));
        }
        units
    }

    /// The store has answered.
    pub(super) fn finish(mut self) {
        self.reported.clear();
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        for (key, units, until) in self.reported.drain(..) {
            self.debts.record(key, units, until);
        }
    }
}
