//! Counters of a proxy.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::faults::Direction;
use crate::resp::MessageKind;
use crate::wait::now;

/// Bound of the recorded times of connections.
const TIMES: usize = 100_000;

/// Counts since the start of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyCounts {
    /// Connections that were accepted.
    pub connections: u64,
    /// How long after the start each of the first hundred thousand was.
    pub connected_at: Vec<Duration>,
    /// Connections that are open now.
    pub open: u64,
    /// Whole commands that came from clients.
    pub commands: u64,
    /// Whole replies that came from the server, also those that were then lost.
    pub replies: u64,
    /// Whole pushes that came from the server.
    pub pushes: u64,
    /// Bytes that were passed on to the server. The last ones are counted a moment after they went.
    pub bytes_to_server: u64,
    /// Bytes that were passed on to clients, likewise.
    pub bytes_to_client: u64,
    /// One-time faults of replies and bytes that were applied.
    pub injected: u64,
}

/// The counters, shared by all connections.
#[derive(Debug)]
pub(super) struct Counters {
    start: Instant,
    counts: Mutex<ProxyCounts>,
}

impl Counters {
    pub(super) fn new() -> Counters {
        Counters {
            start: now(),
            counts: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProxyCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn opened(&self) {
        let mut counts = self.lock();
        counts.connections += 1;
        counts.open += 1;
        if counts.connected_at.len() < TIMES {
            counts.connected_at.push(self.start.elapsed());
        }
    }

    pub(super) fn closed(&self) {
        self.lock().open -= 1;
    }

    pub(super) fn open(&self) -> u64 {
        self.lock().open
    }

    pub(super) fn message(&self, direction: Direction, frame: MessageKind) {
        let mut counts = self.lock();
        match (direction, frame) {
            (Direction::ToServer, _) => counts.commands += 1,
            (Direction::ToClient, MessageKind::Message) => counts.replies += 1,
            (Direction::ToClient, MessageKind::Push) => counts.pushes += 1,
        }
    }

    pub(super) fn passed(&self, direction: Direction, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        match direction {
            Direction::ToServer => self.lock().bytes_to_server += bytes,
            Direction::ToClient => self.lock().bytes_to_client += bytes,
        }
    }

    pub(super) fn injected(&self) {
        self.lock().injected += 1;
    }

    pub(super) fn counts(&self) -> ProxyCounts {
        self.lock().clone()
    }
}
