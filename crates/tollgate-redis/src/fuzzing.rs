//! The parsers of replies, for the fuzz targets. Not part of the public interface: it may change at any time.

use redis::RedisError;
pub use redis::{ServerError, Value};
use tollgate::LimitError;
use tollgate_policy::shared::{SharedLimit, SharedOutcome, SharedRequest};

use crate::error_action;
use crate::limits::LimitSet;
use crate::limits::fleet::read_heartbeat;
use crate::link::connect;
use crate::link::connector::Address;
use crate::topology::{parse_primary, parse_slots};

/// One whole reply, as the client library parses it.
///
/// # Errors
/// It is not a reply, or not whole.
pub fn value(bytes: &[u8]) -> Result<Value, RedisError> {
    redis::parse_redis_value(bytes)
}

/// Reads replies without a server.
#[derive(Debug)]
pub struct ReplyReader(LimitSet);

/// A reply to a request.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedReply {
    /// One for each charge.
    pub outcomes: Vec<SharedOutcome>,
    /// Whether the script took the charges.
    pub took: bool,
    /// Whether the core's arithmetic disagrees.
    pub disagrees: bool,
}

impl ReplyReader {
    /// A reader for these limits.
    ///
    /// # Errors
    /// The place of a limit that cannot be enforced.
    pub fn new(limits: &[SharedLimit<'_>]) -> Result<ReplyReader, (usize, LimitError)> {
        LimitSet::new("tg", limits).map(ReplyReader)
    }

    /// Reads the reply to a request.
    ///
    /// # Errors
    /// It does not match the request.
    pub fn read(&self, request: &SharedRequest, reply: &Value) -> Result<ParsedReply, String> {
        let groups = self.0.groups(request, false);
        let group = groups.first().ok_or("there is no group")?;
        let reply = self.0.read(request, group, std::slice::from_ref(reply));
        let reply = reply.map_err(|error| error.to_string())?;
        // A refund must be possible whatever was read.
        self.0.refunds(request, group, &reply);
        Ok(ParsedReply {
            outcomes: reply.outcomes,
            took: reply.took,
            disagrees: reply.disagrees,
        })
    }

    /// Units without room, by the replies to a settlement.
    ///
    /// # Errors
    /// They do not match it.
    pub fn read_settle(&self, replies: &[Value]) -> Result<u64, String> {
        let unpaid = self.0.read_settle(replies);
        unpaid.map_err(|error| error.to_string())
    }
}

/// Nodes that are alive, by the reply to a heartbeat.
pub fn nodes(reply: &Value) -> Option<u32> {
    read_heartbeat(reply).ok().map(|heartbeat| heartbeat.nodes)
}

/// Ranges of slots and their servers, by `CLUSTER SLOTS`: first, last, address.
pub fn slots(reply: &Value) -> Option<Vec<(u16, u16, String)>> {
    let owners = parse_slots(reply, &Address::new("replied", 1))?;
    let text = |(first, last, address): (u16, u16, Address)| (first, last, address.to_string());
    Some(owners.into_iter().map(text).collect())
}

/// The primary that a sentinel reports.
pub fn primary(reply: &Value) -> Option<String> {
    parse_primary(reply, &Address::new("replied", 1)).map(|address| address.to_string())
}

/// Whether the reply of `ROLE` is that of a primary.
pub fn is_primary(reply: &Value) -> bool {
    connect::check_primary(reply).is_ok()
}

/// The reaction to an error, and its text in logs.
pub fn classify(error: &ServerError) -> (String, String) {
    let action = error_action::classify(error);
    (format!("{action:?}"), error_action::message(error))
}
