//! The decision whether a request turns its connection into a tunnel: made by its handler, awaited by the reader of the
//! connection.

use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// The decision about the request for a tunnel that is being handled.
#[derive(Debug, Default)]
pub(crate) struct UpgradeDecision(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    is_tunnel: Option<bool>,
    /// Wakes the reader of the connection, which waits for the decision.
    waker: Option<Waker>,
}

impl UpgradeDecision {
    /// Forgets a decision about an earlier request.
    pub(crate) fn reset(&self) {
        self.with(|pending| pending.is_tunnel = None);
    }

    /// Decides whether the connection becomes a tunnel.
    pub(crate) fn decide(&self, is_tunnel: bool) {
        // Woken outside of the lock: the woken task may take the decision at once.
        let waker = self.with(|pending| {
            pending.is_tunnel = Some(is_tunnel);
            pending.waker.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the decision, or has `waker` woken when there is one.
    pub(crate) fn take(&self, waker: &Waker) -> Option<bool> {
        self.with(|pending| {
            let decision = pending.is_tunnel.take();
            pending.waker = decision.is_none().then(|| waker.clone());
            decision
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Pending) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::task::Wake;

    use super::*;

    /// Records whether the lock was free when it was woken.
    struct LockProbe(Arc<UpgradeDecision>, AtomicBool);

    impl Wake for LockProbe {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.0.try_lock().is_ok(), Relaxed);
        }
    }

    #[test]
    fn the_waiting_reader_is_woken_outside_of_the_lock() {
        let decision = Arc::new(UpgradeDecision::default());
        let probe = Arc::new(LockProbe(Arc::clone(&decision), AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&probe));
        assert_eq!(decision.take(&waker), None);
        decision.decide(true);
        assert!(probe.1.load(Relaxed));
        assert_eq!(decision.take(&waker), Some(true));
    }
}
