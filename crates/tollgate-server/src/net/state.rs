//! Activity state of one connection: its phase, and whether that has changed.
//!
//! # Theory
//!
//! A [`ConnectionState`] holds one word: the [`Phase`] in its low bits, and above them a counter of changes. The
//! connection stores a new word at each change. The reaper compares the words of two ticks: the same word means a
//! whole tick in one phase. So a request pays a few relaxed stores and reads no clock.
//!
//! # Invariant
//!
//! Bytes that do not complete a head do not change the word, so a dribbled head gains no time. Bytes that the client
//! takes of a response do change it: a slow client is not a stalled one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::ListenLimits;
use super::http1::upgrade::UpgradeDecision;
use super::limiter::AddressPermit;
use tokio::sync::OwnedSemaphorePermit;

/// What a connection is doing. Each phase but [`Phase::Handling`] has a bound in [`ListenLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A response was written, and nothing of the next request is there.
    Idle = 0,
    /// A head is incomplete, or the connection is new and has sent nothing.
    Head = 1,
    /// A request is handled. Bodies and waits have bounds of their own.
    Handling = 2,
    /// A response waits for the client to read.
    Writing = 3,
    /// All responses are written; the client may still read the last one.
    Closing = 4,
}

const PHASE_BITS: u32 = 3;

/// State of one connection, shared by its task, its requests, its tunnel and the reaper.
///
/// A reader may see a change a little late, so no access needs an order.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    word: AtomicU32,
    is_shutting_down: AtomicBool,
    /// The client takes nothing of what is written.
    is_stalled: AtomicBool,
    /// Requests whose responses have not ended.
    in_flight: AtomicU32,
    /// Wakes the connection's task for a shutdown.
    waker: Mutex<Option<Waker>>,
    /// Whether the request being handled makes the connection a tunnel.
    pub(crate) upgrade: UpgradeDecision,
    /// The connection counts against its bounds for as long as this state is shared.
    _room: Option<OwnedSemaphorePermit>,
    _address: Option<AddressPermit>,
}

impl ConnectionState {
    /// The state of a new connection, which has the time of a head for its first one.
    pub(crate) fn new(
        room: Option<OwnedSemaphorePermit>,
        address: Option<AddressPermit>,
    ) -> ConnectionState {
        ConnectionState {
            word: AtomicU32::new(Phase::Head as u32),
            _room: room,
            _address: address,
            ..ConnectionState::default()
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        let changes = (self.word.load(Relaxed) >> PHASE_BITS).wrapping_add(1);
        self.word
            .store(changes << PHASE_BITS | phase as u32, Relaxed);
    }

    /// Bytes of a head have come. The time of a head begins with its first byte.
    pub(crate) fn enter_head(&self) {
        if self.is_in(Phase::Idle) {
            self.enter(Phase::Head);
        }
    }

    fn phase(&self) -> Phase {
        match self.word.load(Relaxed) & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Handling,
            3 => Phase::Writing,
            _ => Phase::Closing,
        }
    }

    /// Has the connection sent nothing yet?
    pub(crate) fn is_new(&self) -> bool {
        self.word.load(Relaxed) == Phase::Head as u32
    }

    pub(crate) fn is_in(&self, phase: Phase) -> bool {
        self.phase() == phase
    }

    /// Counts a request until the returned guard is dropped.
    pub(crate) fn start_request(self: &Arc<ConnectionState>) -> RequestGuard {
        self.in_flight.fetch_add(1, AcqRel);
        // A client that takes nothing gains no time by sending more requests.
        if !self.is_stalled.load(Relaxed) {
            self.enter(Phase::Handling);
        }
        RequestGuard(Arc::clone(self))
    }

    /// Has a request begun whose response has not ended?
    pub(crate) fn has_requests(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// The client does not take what is written.
    pub(crate) fn stall(&self) {
        if !self.is_stalled.swap(true, Relaxed) {
            self.enter(Phase::Writing);
        }
    }

    /// The client took bytes.
    pub(crate) fn resume(&self) {
        if self.is_stalled.load(Relaxed) {
            self.is_stalled.store(false, Relaxed);
            self.enter(match self.has_requests() {
                true => Phase::Handling,
                false => Phase::Idle,
            });
        }
    }

    /// Asks the connection to end: at once if it is idle, otherwise after its requests.
    pub(crate) fn shut_down(&self) {
        self.is_shutting_down.store(true, Relaxed);
        // The lock orders the store before the wake for a task on another thread.
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = &*waker {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.is_shutting_down.load(Relaxed)
    }

    /// Registers the connection's task, to be woken for a shutdown.
    pub(crate) fn register_waker(&self, waker: &Waker) {
        let mut known = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(waker.clone());
    }
}

/// A request whose response has not ended.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionState>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, AcqRel) == 1 && !self.0.is_stalled.load(Relaxed) {
            self.0.enter(Phase::Idle);
        }
    }
}

/// How long a connection has been in its phase, counted in ticks by the reaper.
#[derive(Debug, Default)]
pub(crate) struct Staleness {
    word: u32,
    ticks: u32,
}

impl Staleness {
    /// Checks once every `tick` whether the connection is longer in its phase than `limits` allow.
    pub(crate) fn is_overdue(
        &mut self,
        state: &ConnectionState,
        tick: Duration,
        limits: &ListenLimits,
    ) -> bool {
        let word = state.word.load(Relaxed);
        if word != self.word {
            self.word = word;
            self.ticks = 0;
            return false;
        }
        self.ticks = self.ticks.saturating_add(1);
        let bound = match state.phase() {
            Phase::Idle => limits.idle,
            Phase::Head => limits.head,
            Phase::Writing => limits.write,
            Phase::Closing => limits.linger,
            Phase::Handling => return false,
        };
        tick.saturating_mul(self.ticks) >= bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overdue_after(phase: Phase) -> Option<u32> {
        let limits = ListenLimits::default();
        let state = ConnectionState::default();
        state.enter(phase);
        let mut staleness = Staleness::default();
        let tick = Duration::from_secs(1);
        (0..100).find(|_| staleness.is_overdue(&state, tick, &limits))
    }

    #[test]
    fn each_phase_has_its_bound_and_handling_has_none() {
        assert_eq!(overdue_after(Phase::Head), Some(5));
        assert_eq!(overdue_after(Phase::Idle), Some(60));
        assert_eq!(overdue_after(Phase::Writing), Some(10));
        assert_eq!(overdue_after(Phase::Closing), Some(1));
        assert_eq!(overdue_after(Phase::Handling), None);
    }

    #[test]
    fn a_connection_that_returns_to_its_phase_is_not_stale() {
        let limits = ListenLimits::default();
        let (state, mut staleness) = (ConnectionState::default(), Staleness::default());
        for _ in 0..100 {
            for phase in [Phase::Head, Phase::Handling, Phase::Writing, Phase::Idle] {
                state.enter(phase);
            }
            assert!(!staleness.is_overdue(&state, Duration::from_secs(30), &limits));
        }
    }
}
