//! What is read of replies, for the fuzz targets. No part of the interface: it may change at any time.

use redis::RedisError;
pub use redis::{ServerError, Value};
use tollgate::algorithm::LimitError;
use tollgate_policy::shared::{SharedLimit, SharedOutcome, SharedRequest};

use crate::fault;
use crate::limits::{Limits, read_beat};
use crate::link::access::Address;
use crate::link::rise;
use crate::topology::{primary_named, slots_told};

/// One whole reply, as the client that we use reads it.
///
/// # Errors
/// It is none, or not whole.
pub fn value(bytes: &[u8]) -> Result<Value, RedisError> {
    redis::parse_redis_value(bytes)
}

/// Limits whose replies can be read, without a server.
#[derive(Debug)]
pub struct Reader(Limits);

/// What a reply came to.
#[derive(Debug, PartialEq, Eq)]
pub struct Ruled {
    /// One for each charge.
    pub outcomes: Vec<SharedOutcome>,
    /// Did the script take them?
    pub took: bool,
    /// Does the core's arithmetic come to something else?
    pub disagrees: bool,
}

impl Reader {
    /// A reader for these limits.
    ///
    /// # Errors
    /// The place of a limit that cannot be enforced.
    pub fn new(limits: &[SharedLimit<'_>]) -> Result<Reader, (usize, LimitError)> {
        Limits::new("tg", limits).map(Reader)
    }

    /// Reads the reply to a request.
    ///
    /// # Errors
    /// It is none to this request.
    pub fn ruled(&self, request: &SharedRequest, reply: &Value) -> Result<Ruled, String> {
        let groups = self.0.groups(request, false);
        let group = groups.first().ok_or("there is no group")?;
        let ruling = self.0.read(request, group, std::slice::from_ref(reply));
        let ruling = ruling.map_err(|garbled| garbled.to_string())?;
        // What is given back must be possible whatever was read.
        self.0.undo(request, group, &ruling);
        Ok(Ruled {
            outcomes: ruling.outcomes,
            took: ruling.took,
            disagrees: ruling.disagrees,
        })
    }

    /// Units that could not be taken, by the replies to a correction.
    ///
    /// # Errors
    /// They are none to it.
    pub fn settled(&self, replies: &[Value]) -> Result<u64, String> {
        let read = self.0.read_settle(replies);
        read.map_err(|garbled| garbled.to_string())
    }
}

/// Nodes that are alive, if the reply tells them.
pub fn nodes(reply: &Value) -> Option<u32> {
    read_beat(reply).ok()
}

/// Which slots are served from where, by `CLUSTER SLOTS`: first, last, address.
pub fn slots(reply: &Value) -> Option<Vec<(u16, u16, String)>> {
    let owners = slots_told(reply, &Address::new("asked", 1))?;
    let told = |(first, last, address): (u16, u16, Address)| (first, last, address.to_string());
    Some(owners.into_iter().map(told).collect())
}

/// The primary that a sentinel names.
pub fn primary(reply: &Value) -> Option<String> {
    primary_named(reply, &Address::new("asked", 1)).map(|address| address.to_string())
}

/// Does `ROLE` say that it is a primary?
pub fn is_primary(reply: &Value) -> bool {
    rise::is_primary(reply).is_ok()
}

/// What an error means, and in which words it is told.
pub fn meant(error: &ServerError) -> (String, String) {
    (format!("{:?}", fault::meaning(error)), fault::words(error))
}
