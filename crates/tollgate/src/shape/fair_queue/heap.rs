//! A heap of one key per slot, whose keys can be changed or removed by slot.
//!
//! Four children per node: half as deep as a binary heap, and the children of a node lie in one or two cache
//! lines. Positions are in a vector of their own, so that moving an entry does not touch the slot's data.

use super::slab::NONE;

const CHILDREN: usize = 4;

/// A heap of at most one key per slot. Keys of different slots are never equal.
#[derive(Debug)]
pub(super) struct Heap<K> {
    entries: Vec<(K, usize)>,
    /// Where the key of each slot is in `entries`, or [`NONE`].
    places: Vec<usize>,
}

impl<K: Copy + Ord> Heap<K> {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            places: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The least key and its slot.
    pub(super) fn first(&self) -> Option<(K, usize)> {
        self.entries.first().copied()
    }

    /// The slots, in arbitrary order.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().map(|(_, slot)| *slot)
    }

    #[cfg(test)]
    pub(super) fn get(&self, slot: usize) -> Option<K> {
        let at = *self.places.get(slot)?;
        self.entries.get(at).map(|(key, _)| *key)
    }

    /// Sets the key of `slot`.
    pub(super) fn set(&mut self, slot: usize, key: K) {
        if self.places.len() <= slot {
            self.places.resize(slot.saturating_add(1), NONE);
        }
        let at = self.places.get(slot).copied().unwrap_or(NONE);
        match self.entries.get(at) {
            Some((old, _)) if key < *old => self.sift_up(at, key, slot),
            Some(_) => self.sift_down(at, key, slot),
            None => {
                self.entries.push((key, slot));
                self.sift_up(self.entries.len() - 1, key, slot);
            }
        }
    }

    /// Removes the key of `slot`, if it has one.
    pub(super) fn remove(&mut self, slot: usize) {
        let Some(place) = self.places.get_mut(slot) else {
            return;
        };
        let at = std::mem::replace(place, NONE);
        if at >= self.entries.len() {
            return;
        }
        let (removed, _) = self.entries.swap_remove(at);
        // The last entry fills the gap, unless it was the removed one.
        if let Some(&(key, slot)) = self.entries.get(at) {
            if key < removed {
                self.sift_up(at, key, slot);
            } else {
                self.sift_down(at, key, slot);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        for (_, slot) in self.entries.drain(..) {
            if let Some(place) = self.places.get_mut(slot) {
                *place = NONE;
            }
        }
    }

    /// Changes every key by `change`, which must keep their order.
    pub(super) fn map_in_order(&mut self, change: impl Fn(K) -> K) {
        for (key, _) in &mut self.entries {
            *key = change(*key);
        }
    }

    fn sift_up(&mut self, mut at: usize, key: K, slot: usize) {
        while at > 0 {
            let above = (at - 1) / CHILDREN;
            match self.entries.get(above) {
                Some(&(other, of)) if key < other => self.put(at, other, of),
                _ => break,
            }
            at = above;
        }
        self.put(at, key, slot);
    }

    fn sift_down(&mut self, mut at: usize, key: K, slot: usize) {
        loop {
            let below = at * CHILDREN + 1;
            let least = match self.entries.get(below..) {
                // Which of four is the least cannot be guessed, so it is computed: a branch would be
                // mistaken every other time.
                Some([a, b, c, d, ..]) => {
                    let (left, one) = if b.0 < a.0 { (b, 1) } else { (a, 0) };
                    let (right, two) = if d.0 < c.0 { (d, 3) } else { (c, 2) };
                    let is_right = right.0 < left.0;
                    Some((
                        if is_right { right } else { left },
                        if is_right { two } else { one },
                    ))
                }
                Some(few) => few.iter().zip(0..).min_by_key(|(entry, _)| entry.0),
                None => None,
            };
            match least {
                Some((&(other, of), child)) if other < key => {
                    self.put(at, other, of);
                    at = below + child;
                }
                _ => break,
            }
        }
        self.put(at, key, slot);
    }

    fn put(&mut self, at: usize, key: K, slot: usize) {
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = (key, slot);
        }
        if let Some(place) = self.places.get_mut(slot) {
            *place = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_agrees_with_a_sorted_map_under_random_operations() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % bound
        };
        let mut heap = Heap::new();
        let mut model: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
        for round in 0..20_000 {
            let slot = below(90) as usize;
            match below(10) {
                0..6 => {
                    let key = (below(50), slot);
                    heap.set(slot, key);
                    model.insert(slot, key);
                }
                6..9 => {
                    heap.remove(slot);
                    model.remove(&slot);
                }
                _ if round % 100 == 0 => {
                    heap.clear();
                    model.clear();
                }
                _ => heap.map_in_order(|(key, slot)| (key, slot)),
            }
            let least = model.iter().min_by_key(|(_, key)| **key);
            assert_eq!(heap.first(), least.map(|(slot, key)| (*key, *slot)));
            assert_eq!(heap.len(), model.len());
            assert_eq!(heap.get(slot), model.get(&slot).copied());
        }
    }
}
