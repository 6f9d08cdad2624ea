//! What a proxy counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::faults::Direction;
use crate::resp::Frame;
use crate::wait::now;

/// Bound of the recorded times of connections.
const TIMES: usize = 100_000;

/// What a proxy counted since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed {
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

/// Counters that all connections share. None orders other memory, so all are relaxed.
#[derive(Debug)]
pub(super) struct Counters {
    start: Instant,
    times: Mutex<Vec<Duration>>,
    connections: AtomicU64,
    open: AtomicU64,
    commands: AtomicU64,
    replies: AtomicU64,
    pushes: AtomicU64,
    bytes_to_server: AtomicU64,
    bytes_to_client: AtomicU64,
    injected: AtomicU64,
}

impl Counters {
    pub(super) fn new() -> Counters {
        Counters {
            start: now(),
            times: Mutex::default(),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            replies: AtomicU64::new(0),
            pushes: AtomicU64::new(0),
            bytes_to_server: AtomicU64::new(0),
            bytes_to_client: AtomicU64::new(0),
            injected: AtomicU64::new(0),
        }
    }

    pub(super) fn opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.len() < TIMES {
            times.push(self.start.elapsed());
        }
    }

    pub(super) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn message(&self, direction: Direction, frame: Frame) {
        let counter = match (direction, frame) {
            (Direction::ToServer, _) => &self.commands,
            (Direction::ToClient, Frame::Message) => &self.replies,
            (Direction::ToClient, Frame::Push) => &self.pushes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn passed(&self, direction: Direction, bytes: usize) {
        let counter = match direction {
            Direction::ToServer => &self.bytes_to_server,
            Direction::ToClient => &self.bytes_to_client,
        };
        counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn injected(&self) {
        self.injected.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn observed(&self) -> Observed {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        Observed {
            connections: read(&self.connections),
            connected_at: times.clone(),
            open: read(&self.open),
            commands: read(&self.commands),
            replies: read(&self.replies),
            pushes: read(&self.pushes),
            bytes_to_server: read(&self.bytes_to_server),
            bytes_to_client: read(&self.bytes_to_client),
            injected: read(&self.injected),
        }
    }
}
