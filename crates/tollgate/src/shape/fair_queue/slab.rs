//! Values in reusable slots: no allocation once the slab has grown to its peak size.

/// No slot.
pub(super) const NONE: usize = usize::MAX;

/// A vector whose gaps form a list.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// The first gap, or [`NONE`].
    gap: usize,
    len: usize,
}

#[derive(Debug)]
enum Slot<T> {
    Full(T),
    /// The next gap, or [`NONE`].
    Gap(usize),
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            gap: NONE,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Every slot that is taken is below this; some of those below may be gaps.
    pub(super) fn end(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn insert(&mut self, value: T) -> usize {
        self.len += 1;
        match self.slots.get_mut(self.gap) {
            Some(slot) => {
                let at = self.gap;
                if let Slot::Gap(next) = *slot {
                    self.gap = next;
                }
                *slot = Slot::Full(value);
                at
            }
            None => {
                self.slots.push(Slot::Full(value));
                self.slots.len() - 1
            }
        }
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        match self.slots.get(at) {
            Some(Slot::Full(value)) => Some(value),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        match self.slots.get_mut(at) {
            Some(Slot::Full(value)) => Some(value),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        let slot = self.slots.get_mut(at)?;
        if let Slot::Gap(_) = slot {
            return None;
        }
        let Slot::Full(value) = std::mem::replace(slot, Slot::Gap(self.gap)) else {
            return None;
        };
        self.gap = at;
        self.len -= 1;
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(at, slot)| match slot {
                Slot::Full(value) => Some((at, value)),
                Slot::Gap(_) => None,
            })
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Full(value) => Some(value),
            Slot::Gap(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_used_again_and_an_empty_one_gives_nothing() {
        let mut slab = Slab::new();
        let (a, b, c) = (slab.insert('a'), slab.insert('b'), slab.insert('c'));
        assert_eq!(slab.remove(b), Some('b'));
        assert_eq!(slab.remove(b), None);
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(
            (slab.get(a), slab.get(c), slab.len()),
            (None, Some(&'c'), 1)
        );
        assert_eq!([slab.insert('d'), slab.insert('e')], [a, b]);
        assert_eq!(slab.insert('f'), 3);
        assert_eq!(slab.remove(NONE), None);
        let all: String = slab.iter().map(|(_, value)| *value).collect();
        assert_eq!((all.as_str(), slab.len()), ("decf", 4));
    }
}
