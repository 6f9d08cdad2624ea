//! What a network does to a connection, as data.

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

/// Everything that holds until the next weather. The default is a clear sky: bytes pass as they come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// The way of the commands.
    pub to_server: Lane,
    /// The way of the replies.
    pub to_client: Lane,
    /// Nobody listens: a new connection is refused. Those that are open stay.
    pub refuse: bool,
    /// What happens once, in this order as far as they wait for the same thing. Those of the last weather that did
    /// not happen yet are forgotten.
    pub strikes: Vec<Strike>,
}

/// What one direction is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// How long everything is on its way.
    pub latency: Duration,
    /// Up to how much longer, drawn for each piece. Nothing overtakes.
    pub jitter: Duration,
    /// How much passes; none for no limit.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Everything comes in tiny pieces.
    pub slices: Option<Slices>,
    /// Nothing passes, not even a close. It is kept, as a network's ends keep and repeat what is not confirmed, and
    /// comes late when the hole closes.
    pub black_hole: bool,
    /// How much later than everything else a close is passed on.
    pub slow_close: Duration,
}

/// Tiny pieces with pauses between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    /// The length of a piece.
    pub bytes: NonZeroUsize,
    /// How long after a piece the next one comes.
    pub pause: Duration,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// That of the commands.
    ToServer,
    /// That of the replies.
    ToClient,
}

/// What happens once.
///
/// A reply is a whole one that has not begun yet; a push is none. The first connection with such a reply is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// Every open connection is reset at once, to both sides.
    Reset,
    /// A connection is reset when so many more bytes of replies went to the client.
    ResetAfter {
        /// How many.
        bytes: u64,
    },
    /// Every open connection ends in this direction: its reader sees the end, and can still write.
    HalfClose(Way),
    /// The next reply never comes, and later ones do.
    DropReply,
    /// The next reply comes twice.
    DuplicateReply,
    /// The next reply ends in the middle.
    TruncateReply {
        /// How much of it comes.
        bytes: u64,
        /// And then.
        then: Then,
    },
    /// One byte of the next reply that is long enough is another one.
    GarbleReply {
        /// Which byte, from 0.
        at: u64,
    },
}

/// What follows after a truncated reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The connection is closed.
    Close,
    /// Nothing ever comes again on this connection, and it stays open.
    Stall,
}

impl Weather {
    /// Bytes pass as they come.
    pub fn clear() -> Weather {
        Weather::default()
    }

    /// Both directions are like this.
    pub fn both(lane: Lane) -> Weather {
        Weather {
            to_server: lane,
            to_client: lane,
            ..Weather::default()
        }
    }

    /// Nothing passes in either direction, and nothing is closed.
    pub fn black_hole() -> Weather {
        Weather::both(Lane::black_hole())
    }

    /// The same, and this happens once.
    #[must_use]
    pub fn and(mut self, strike: Strike) -> Weather {
        self.strikes.push(strike);
        self
    }
}

impl Lane {
    /// Nothing passes.
    pub fn black_hole() -> Lane {
        Lane {
            black_hole: true,
            ..Lane::default()
        }
    }

    /// Everything is on its way for so long.
    pub fn latency(latency: Duration) -> Lane {
        Lane {
            latency,
            ..Lane::default()
        }
    }
}

impl From<Strike> for Weather {
    fn from(strike: Strike) -> Weather {
        Weather::clear().and(strike)
    }
}
