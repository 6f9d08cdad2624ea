//! A slab whose entries form a list in order of arrival. Every operation takes constant time.

use slab::Slab;

/// No entry.
const NONE: usize = usize::MAX;

/// Values by slot. A value may be taken off the list and keep its slot; slots of removed values are reused.
#[derive(Debug)]
pub(super) struct WaiterList<T> {
    entries: Slab<Entry<T>>,
    oldest: usize,
    newest: usize,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    is_listed: bool,
    older: usize,
    newer: usize,
}

impl<T> WaiterList<T> {
    pub(super) fn new() -> WaiterList<T> {
        WaiterList {
            entries: Slab::new(),
            oldest: NONE,
            newest: NONE,
        }
    }

    /// Adds a value as the newest and returns its slot.
    pub(super) fn push(&mut self, value: T) -> usize {
        let slot = self.entries.insert(Entry {
            value,
            is_listed: false,
            older: NONE,
            newer: NONE,
        });
        self.relist(slot);
        slot
    }

    /// The oldest listed value and its slot.
    pub(super) fn oldest(&self) -> Option<(usize, &T)> {
        Some((self.oldest, self.get(self.oldest)?))
    }

    pub(super) fn get(&self, slot: usize) -> Option<&T> {
        self.entries.get(slot).map(|entry| &entry.value)
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut T> {
        self.entries.get_mut(slot).map(|entry| &mut entry.value)
    }

    /// Takes a value off the list. It keeps its slot.
    pub(super) fn unlist(&mut self, slot: usize) {
        let Some(entry) = self.entries.get_mut(slot).filter(|entry| entry.is_listed) else {
            return;
        };
        entry.is_listed = false;
        let (older, newer) = (entry.older, entry.newer);
        match self.entries.get_mut(older) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }

    /// Lists a value as the newest, whether it was listed or not.
    pub(super) fn relist(&mut self, slot: usize) {
        self.unlist(slot);
        let older = self.newest;
        let Some(entry) = self.entries.get_mut(slot) else {
            return;
        };
        entry.is_listed = true;
        (entry.older, entry.newer) = (older, NONE);
        match self.entries.get_mut(older) {
            Some(entry) => entry.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }

    pub(super) fn is_listed(&self, slot: usize) -> bool {
        self.entries.get(slot).is_some_and(|entry| entry.is_listed)
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<T> {
        self.unlist(slot);
        Some(self.entries.try_remove(slot)?.value)
    }

    /// All values, listed or not, in no order.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, entry)| &mut entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_listed_value_is_first_after_any_removal() {
        let mut list = WaiterList::new();
        let [a, b, c, d] = ['a', 'b', 'c', 'd'].map(|name| list.push(name));
        assert_eq!(list.oldest(), Some((a, &'a')));
        list.unlist(b);
        list.unlist(b);
        assert_eq!(list.remove(a), Some('a'));
        assert_eq!(list.oldest(), Some((c, &'c')));
        assert_eq!(list.get(b), Some(&'b'), "unlisted, but still stored");
        assert_eq!(list.remove(d), Some('d'));
        assert_eq!(list.remove(d), None);
        let e = list.push('e');
        assert_eq!(e, d, "the slot is reused");
        assert_eq!(list.remove(c), Some('c'));
        assert_eq!(list.oldest(), Some((e, &'e')));
        assert_eq!(list.remove(b), Some('b'));
        assert_eq!(list.oldest(), Some((e, &'e')));
        assert_eq!(list.remove(e), Some('e'));
        assert_eq!(list.oldest(), None);
        assert_eq!(list.values_mut().count(), 0);
    }

    #[test]
    fn a_relisted_value_is_the_newest() {
        let mut list = WaiterList::new();
        let [a, b, c] = ['a', 'b', 'c'].map(|name| list.push(name));
        list.unlist(a);
        assert!(!list.is_listed(a) && list.is_listed(b));
        list.relist(a);
        list.relist(b);
        let mut order = Vec::new();
        while let Some((slot, name)) = list.oldest() {
            order.push(*name);
            list.unlist(slot);
        }
        assert_eq!(order, ['c', 'a', 'b']);
        list.relist(c);
        assert_eq!(list.oldest(), Some((c, &'c')));
        assert_eq!(list.remove(c), Some('c'));
        list.relist(c);
        assert_eq!(list.oldest(), None, "a removed value is not listed");
    }
}
