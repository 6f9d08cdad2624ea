//! Who is there, in the order in which they came: added, struck off and removed in constant time.

/// No place.
const NONE: usize = usize::MAX;

/// Values in places that are used again. Those that are not struck off form a list, the oldest first.
#[derive(Debug)]
pub(super) struct Roll<T> {
    places: Vec<Place<T>>,
    gap: usize,
    oldest: usize,
    newest: usize,
}

#[derive(Debug)]
enum Place<T> {
    Taken(Entry<T>),
    /// The next gap, or [`NONE`].
    Gap(usize),
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    is_listed: bool,
    before: usize,
    after: usize,
}

impl<T> Roll<T> {
    pub(super) fn new() -> Roll<T> {
        Roll {
            places: Vec::new(),
            gap: NONE,
            oldest: NONE,
            newest: NONE,
        }
    }

    /// Adds the newest. Its place stays its own until it is removed.
    pub(super) fn push(&mut self, value: T) -> usize {
        let before = self.newest;
        let entry = Place::Taken(Entry {
            value,
            is_listed: true,
            before,
            after: NONE,
        });
        let at = match self.places.get_mut(self.gap) {
            Some(place) => {
                let at = self.gap;
                if let Place::Gap(next) = *place {
                    self.gap = next;
                }
                *place = entry;
                at
            }
            None => {
                self.places.push(entry);
                self.places.len() - 1
            }
        };
        match self.entry(before) {
            Some(entry) => entry.after = at,
            None => self.oldest = at,
        }
        self.newest = at;
        at
    }

    /// The oldest on the list and its place.
    pub(super) fn oldest(&self) -> Option<(usize, &T)> {
        Some((self.oldest, self.get(self.oldest)?))
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        match self.places.get(at) {
            Some(Place::Taken(entry)) => Some(&entry.value),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.entry(at).map(|entry| &mut entry.value)
    }

    /// Takes it off the list, and leaves it in its place.
    pub(super) fn strike(&mut self, at: usize) {
        let Some(entry) = self.entry(at).filter(|entry| entry.is_listed) else {
            return;
        };
        entry.is_listed = false;
        let (before, after) = (entry.before, entry.after);
        match self.entry(before) {
            Some(entry) => entry.after = after,
            None => self.oldest = after,
        }
        match self.entry(after) {
            Some(entry) => entry.before = before,
            None => self.newest = before,
        }
    }

    /// Puts it on the list as the newest, whether it was on it or not.
    pub(super) fn list(&mut self, at: usize) {
        self.strike(at);
        let before = self.newest;
        let Some(entry) = self.entry(at) else {
            return;
        };
        entry.is_listed = true;
        (entry.before, entry.after) = (before, NONE);
        match self.entry(before) {
            Some(entry) => entry.after = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    pub(super) fn is_listed(&self, at: usize) -> bool {
        matches!(self.places.get(at), Some(Place::Taken(entry)) if entry.is_listed)
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        self.strike(at);
        let place = self.places.get_mut(at)?;
        if let Place::Gap(_) = place {
            return None;
        }
        let Place::Taken(entry) = std::mem::replace(place, Place::Gap(self.gap)) else {
            return None;
        };
        self.gap = at;
        Some(entry.value)
    }

    /// Everybody, on the list or not, in no order.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|place| match place {
            Place::Taken(entry) => Some(&mut entry.value),
            Place::Gap(_) => None,
        })
    }

    fn entry(&mut self, at: usize) -> Option<&mut Entry<T>> {
        match self.places.get_mut(at) {
            Some(Place::Taken(entry)) => Some(entry),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_on_the_list_is_first_whoever_leaves_in_between() {
        let mut roll = Roll::new();
        let [a, b, c, d] = ['a', 'b', 'c', 'd'].map(|name| roll.push(name));
        assert_eq!(roll.oldest(), Some((a, &'a')));
        roll.strike(b);
        roll.strike(b);
        assert_eq!(roll.remove(a), Some('a'));
        assert_eq!(roll.oldest(), Some((c, &'c')));
        assert_eq!(roll.get(b), Some(&'b'), "struck off, but still there");
        assert_eq!(roll.remove(d), Some('d'));
        assert_eq!(roll.remove(d), None);
        let e = roll.push('e');
        assert_eq!(e, d, "its place is used again");
        assert_eq!(roll.remove(c), Some('c'));
        assert_eq!(roll.oldest(), Some((e, &'e')));
        assert_eq!(roll.remove(b), Some('b'));
        assert_eq!(roll.oldest(), Some((e, &'e')));
        assert_eq!(roll.remove(e), Some('e'));
        assert_eq!(roll.oldest(), None);
        assert_eq!(roll.values_mut().count(), 0);
    }

    #[test]
    fn who_is_listed_anew_is_the_newest() {
        let mut roll = Roll::new();
        let [a, b, c] = ['a', 'b', 'c'].map(|name| roll.push(name));
        roll.strike(a);
        assert!(!roll.is_listed(a) && roll.is_listed(b));
        roll.list(a);
        roll.list(b);
        let mut order = Vec::new();
        while let Some((at, name)) = roll.oldest() {
            order.push(*name);
            roll.strike(at);
        }
        assert_eq!(order, ['c', 'a', 'b']);
        roll.list(c);
        assert_eq!(roll.oldest(), Some((c, &'c')));
        assert_eq!(roll.remove(c), Some('c'));
        roll.list(c);
        assert_eq!(roll.oldest(), None, "who is gone is not listed");
    }
}
