//! Whom to wake once the lock is let go.

use std::task::Waker;

/// Wakers gathered under the lock. Usually there is one, and then nothing is allocated.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakes {
    pub(super) fn add(&mut self, waker: Option<Waker>) {
        if self.first.is_none() {
            self.first = waker;
        } else {
            self.more.extend(waker);
        }
    }

    /// Wakes them. Never under the lock: a waker may run the task at once, or drop it.
    pub(super) fn wake(self) {
        self.first
            .into_iter()
            .chain(self.more)
            .for_each(Waker::wake);
    }
}
