//! What one connection is doing, as those know it who take part: its bytes, its requests, its tunnel.
//!
//! # Theory
//!
//! A connection is idle, or a head has begun, or requests are under way, or the client does not take what is
//! written. Each has its own bound in time (none for requests under way: their parts have bounds of their
//! own). The [`Pulse`] says which it is; here is decided when that changes. A client that takes a byte now
//! and then is slow, not stuck: every byte taken is a change.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use super::accept::Admitted;
use crate::listen::pulse::{Phase, Pulse};

/// What one connection is doing.
#[derive(Debug)]
pub(crate) struct Life {
    pub(super) pulse: Arc<Pulse>,
    /// Requests whose answers have not ended.
    under_way: AtomicU32,
    is_stalled: AtomicBool,
    /// What was decided about a tunnel: see [`Decision`].
    decision: AtomicU8,
    /// Who waits for the decision.
    waker: Mutex<Option<Waker>>,
    /// The connection counts as long as anybody has a part in it.
    _admitted: Admitted,
}

/// What was decided about a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Decision {
    None = 0,
    Refused = 1,
    Tunnel = 2,
}

impl Life {
    pub(super) fn new(admitted: Admitted) -> Arc<Life> {
        Arc::new(Life {
            pulse: Arc::new(Pulse::beginning(true)),
            under_way: AtomicU32::new(0),
            is_stalled: AtomicBool::new(false),
            decision: AtomicU8::new(0),
            waker: Mutex::default(),
            _admitted: admitted,
        })
    }

    /// A request has begun. It is under way until what this returns is dropped.
    pub(super) fn begin(self: &Arc<Life>) -> UnderWay {
        self.under_way.fetch_add(1, AcqRel);
        // A client that takes nothing gains no time by asking for more.
        if !self.is_stalled.load(Relaxed) {
            self.pulse.enter(Phase::Handling);
        }
        UnderWay(Arc::clone(self))
    }

    /// Has a request begun whose answer has not ended?
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.load(Relaxed) > 0
    }

    /// The first bytes of something have come.
    pub(super) fn head_begins(&self) {
        if self.pulse.is_in(Phase::Idle) {
            self.pulse.enter(Phase::Head);
        }
    }

    /// The client does not take what is written.
    pub(super) fn stalls(&self) {
        if !self.is_stalled.swap(true, Relaxed) {
            self.pulse.enter(Phase::Writing);
        }
    }

    /// The client took something.
    pub(super) fn goes_on(&self) {
        if self.is_stalled.load(Relaxed) {
            self.is_stalled.store(false, Relaxed);
            let phase = match self.under_way.load(Relaxed) {
                0 => Phase::Idle,
                _ => Phase::Handling,
            };
            self.pulse.enter(phase);
        }
    }

    /// Decides whether the connection becomes a tunnel.
    pub(super) fn decide(&self, is_tunnel: bool) {
        let decision = if is_tunnel {
            Decision::Tunnel
        } else {
            Decision::Refused
        };
        // The lock puts the decision before the waking, which may run what takes it: so not inside.
        let waker = {
            let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
            self.decision.store(decision as u8, Relaxed);
            waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Another request asks for a tunnel: what was decided before was not about it.
    pub(super) fn ask(&self) {
        self.decision.store(Decision::None as u8, Relaxed);
    }

    /// Takes the decision, or is woken when there is one.
    pub(super) fn take_decision(&self, by: &Waker) -> Decision {
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        let decision = match self.decision.swap(0, Relaxed) {
            1 => Decision::Refused,
            2 => Decision::Tunnel,
            _ => Decision::None,
        };
        *waker = (decision == Decision::None).then(|| by.clone());
        decision
    }
}

/// A request whose answer has not ended.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Life>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, AcqRel) == 1 && !self.0.is_stalled.load(Relaxed) {
            self.0.pulse.enter(Phase::Idle);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::gateway::listen::accept::Doorkeeper;
    use std::task::Wake;
    use tokio::sync::Semaphore;
    use tollgate_config::AcceptSpec;
    use tollgate_policy::address::CidrSet;

    pub(in crate::gateway::listen) fn life() -> Arc<Life> {
        let keeper = Doorkeeper::new(&AcceptSpec::default(), CidrSet::default());
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Life::new(keeper.admit([127, 0, 0, 1].into(), room).unwrap())
    }

    /// Notes whether the lock was free when it was woken.
    struct Looks(Arc<Life>, AtomicBool);

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.waker.try_lock().is_ok(), Relaxed);
        }
    }

    #[test]
    fn whoever_waits_for_the_decision_is_woken_outside_of_the_lock() {
        let life = life();
        let looks = Arc::new(Looks(Arc::clone(&life), AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&looks));
        assert_eq!(life.take_decision(&waker), Decision::None);
        life.decide(true);
        assert!(looks.1.load(Relaxed));
        assert_eq!(life.take_decision(&waker), Decision::Tunnel);
    }
}
