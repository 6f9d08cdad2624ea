//! The faults of a network, as data.

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

/// Faults that last until they are replaced, and one-time faults. The default is none: bytes pass as they come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The direction of the commands.
    pub to_server: Link,
    /// The direction of the replies.
    pub to_client: Link,
    /// New connections are refused. Open ones stay.
    pub refuse: bool,
    /// One-time faults, in this order as far as they wait for the same event. Pending ones of the replaced faults are
    /// dropped.
    pub once: Vec<Fault>,
}

/// Lasting faults of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Delay of everything.
    pub latency: Duration,
    /// Upper bound of an additional random delay of each piece. Pieces stay in order.
    pub jitter: Duration,
    /// Bandwidth; `None` for no limit.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Everything is cut into small pieces.
    pub slices: Option<Slices>,
    /// Nothing passes, not even a close. It is kept, as the ends of a network repeat what is not confirmed, and passes
    /// when the black hole ends.
    pub black_hole: bool,
    /// Additional delay of a close.
    pub slow_close: Duration,
}

/// Small pieces with pauses between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    /// Length of a piece.
    pub bytes: NonZeroUsize,
    /// Pause between two pieces.
    pub pause: Duration,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: commands.
    ToServer,
    /// From the server to the client: replies.
    ToClient,
}

/// A one-time fault.
///
/// It concerns a whole reply that has not begun yet; a push is no reply. It applies to the first connection with such a
/// reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Resets every open connection at once, on both sides.
    Reset,
    /// Resets a connection after this many more bytes of replies.
    ResetAfter {
        /// Number of bytes.
        bytes: u64,
    },
    /// Closes this direction of every open connection: its reader sees the end, and can still write.
    HalfClose(Direction),
    /// Drops the next reply; later ones arrive.
    DropReply,
    /// Sends the next reply twice.
    DuplicateReply,
    /// Cuts the next reply.
    TruncateReply {
        /// Bytes of it that pass.
        bytes: u64,
        /// What follows.
        then: Then,
    },
    /// Changes one byte of the next reply that is long enough.
    GarbleReply {
        /// Which byte, from 0.
        at: u64,
    },
}

/// What follows a truncated reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The connection is closed.
    Close,
    /// The connection stays open, and nothing passes any more.
    Stall,
}

impl Faults {
    /// No faults.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// The same in both directions.
    pub fn both(link: Link) -> Faults {
        Faults {
            to_server: link,
            to_client: link,
            ..Faults::default()
        }
    }

    /// Nothing passes in either direction, and nothing is closed.
    pub fn black_hole() -> Faults {
        Faults::both(Link::black_hole())
    }

    /// The same with this one-time fault.
    #[must_use]
    pub fn and(mut self, fault: Fault) -> Faults {
        self.once.push(fault);
        self
    }
}

impl Link {
    /// Nothing passes.
    pub fn black_hole() -> Link {
        Link {
            black_hole: true,
            ..Link::default()
        }
    }

    /// Everything is delayed by this.
    pub fn latency(latency: Duration) -> Link {
        Link {
            latency,
            ..Link::default()
        }
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Faults {
        Faults::none().and(fault)
    }
}
