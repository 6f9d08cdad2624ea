//! The active faults, shared by all connections.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::faults::{Direction, Fault, Faults, Link};

/// Bound of pending one-time faults. More are dropped.
const PENDING: usize = 10_000;

/// What is read by every connection whenever it changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ActiveFaults {
    pub(super) to_server: Link,
    pub(super) to_client: Link,
    pub(super) refuse: bool,
    /// How often the faults were replaced.
    pub(super) number: u64,
    /// How often all connections were reset. A connection compares it with the number at its start.
    pub(super) resets: u64,
    /// How often each direction was closed, likewise.
    pub(super) closes_to_server: u64,
    pub(super) closes_to_client: u64,
}

impl ActiveFaults {
    pub(super) fn link(&self, direction: Direction) -> Link {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    /// Applies a fault that concerns every open connection.
    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Reset => self.resets += 1,
            Fault::HalfClose(Direction::ToServer) => self.closes_to_server += 1,
            Fault::HalfClose(Direction::ToClient) => self.closes_to_client += 1,
            _ => {}
        }
    }

    pub(super) fn closes(&self, direction: Direction) -> u64 {
        match direction {
            Direction::ToServer => self.closes_to_server,
            Direction::ToClient => self.closes_to_client,
        }
    }
}

#[derive(Debug)]
pub(super) struct FaultState {
    active: watch::Sender<ActiveFaults>,
    /// One-time faults that wait for a reply or for bytes, oldest first.
    armed: Mutex<VecDeque<Fault>>,
}

impl FaultState {
    pub(super) fn clear() -> FaultState {
        FaultState {
            active: watch::Sender::new(ActiveFaults::default()),
            armed: Mutex::default(),
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<ActiveFaults> {
        self.active.subscribe()
    }

    /// Replaces the faults and returns their number. One-time faults are armed first, so that no connection sees the
    /// others without them.
    pub(super) fn set(&self, faults: &Faults) -> u64 {
        let now = |fault: &Fault| matches!(fault, Fault::Reset | Fault::HalfClose(_));
        let (at_once, waiting): (Vec<Fault>, Vec<Fault>) = faults.once.iter().partition(|s| now(s));
        *self.armed() = waiting.into_iter().take(PENDING).collect();
        let mut number = 0;
        self.active.send_modify(|active| {
            active.number += 1;
            number = active.number;
            active.to_server = faults.to_server;
            active.to_client = faults.to_client;
            active.refuse = faults.refuse;
            for fault in at_once {
                active.inject(fault);
            }
        });
        number
    }

    /// Injects a one-time fault; the lasting ones stay.
    pub(super) fn inject(&self, fault: Fault) {
        if let Fault::Reset | Fault::HalfClose(_) = fault {
            self.active.send_modify(|active| active.inject(fault));
            return;
        }
        let mut armed = self.armed();
        if armed.len() < PENDING {
            armed.push_back(fault);
        }
    }

    /// The fault for a reply that begins now.
    pub(super) fn for_reply(&self) -> Option<Fault> {
        self.take(|fault| !matches!(fault, Fault::ResetAfter { .. }))
    }

    /// The number of bytes after which the calling connection is reset.
    pub(super) fn for_bytes(&self) -> Option<u64> {
        match self.take(|fault| matches!(fault, Fault::ResetAfter { .. })) {
            Some(Fault::ResetAfter { bytes }) => Some(bytes),
            _ => None,
        }
    }

    /// Returns a fault that found no reply to apply to, before all others.
    pub(super) fn return_fault(&self, fault: Fault) {
        self.armed().push_front(fault);
    }

    fn take(&self, fits: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let mut armed = self.armed();
        let place = armed.iter().position(fits)?;
        armed.remove(place)
    }

    fn armed(&self) -> MutexGuard<'_, VecDeque<Fault>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
