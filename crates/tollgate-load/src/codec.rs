//! The client side of a protocol: requests into bytes, bytes into responses.

use std::fmt;

use crate::admit_rule::AdmitRule;
use crate::error::LoadError;

/// One connection's side of a protocol. It owns no socket and no clock.
///
/// [`run()`](crate::run()) drives codecs on many connections and threads. A benchmark that needs a loop of its own drives them
/// itself: [`LoadPlan::codec`](crate::LoadPlan::codec).
pub trait Codec {
    /// Starts a new connection: forgets the old one, and writes what precedes the first request.
    fn start(&mut self, _out: &mut Vec<u8>) {}

    /// Whether another request may be sent, with this many in flight.
    fn can_send(&self, _in_flight: usize) -> bool {
        true
    }

    /// The server only responds to requests with lower numbers, and then closes.
    fn request_limit(&self) -> Option<u64> {
        None
    }

    /// Writes a request for the key with this number. The requests of a connection are numbered from 0.
    fn write_request(&mut self, key: u64, out: &mut Vec<u8>);

    /// Reads received bytes; may write what the protocol itself responds.
    ///
    /// # Errors
    /// Bytes that violate the protocol.
    fn read<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<u8>) -> Result<Event<'a>, LoadError>;
}

/// What received bytes start with.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An incomplete message.
    Incomplete,
    /// This many bytes belong to no request.
    Skip(usize),
    /// A response.
    Response(Response<'a>),
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// Bytes up to its end.
    pub len: usize,
    /// The number of its request; `None`: the oldest one in flight.
    pub request: Option<u64>,
    /// What it means.
    pub judgement: Judgement<'a>,
    /// The server sends no further response on this connection.
    pub is_last: bool,
}

/// What a response means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement<'a> {
    /// The request was admitted.
    Admitted,
    /// The request was refused.
    Refused,
    /// No error, and no rule judges it.
    Unjudged,
    /// An error.
    Failed(Failure<'a>),
}

/// Why a response neither admits nor refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<'a> {
    /// An error reply of the Redis protocol.
    ServerError(&'a [u8]),
    /// A reply that the rule does not fit.
    Unjudged(AdmitRule),
    /// Another status of HTTP.
    Http(u16),
    /// A status of gRPC.
    Grpc(u32),
    /// Another overall code of Envoy.
    EnvoyCode(u64),
    /// A stream reset with this HTTP/2 error code.
    Reset(u32),
    /// A stream that ended without a message.
    NoMessage,
}

/// Longer texts of servers are truncated.
const MAX_TEXT: usize = 80;

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::ServerError(text) => f.write_str(&sanitized(kind(text))),
            Failure::Unjudged(AdmitRule::VerdictField) => {
                f.write_str("a reply without a known `verdict`")
            }
            Failure::Unjudged(_) => f.write_str(
                "a reply that `--admitted` cannot classify: it does not begin with a number",
            ),
            Failure::Http(status) => write!(f, "status {status}"),
            Failure::Grpc(code) => match grpc_name(*code) {
                Some(name) => write!(f, "grpc status {code} {name}"),
                None => write!(f, "grpc status {code}"),
            },
            Failure::EnvoyCode(0) => f.write_str("overall code UNKNOWN"),
            Failure::EnvoyCode(code) => write!(f, "overall code {code}"),
            Failure::Reset(code) => write!(f, "stream reset with code {code}"),
            Failure::NoMessage => f.write_str("a stream that ended without a message"),
        }
    }
}

/// The text before a list of arguments: the same for all requests of a kind.
fn kind(text: &[u8]) -> &[u8] {
    let cut = text.windows(2).position(|pair| pair == b", ");
    text.get(..cut.unwrap_or(text.len())).unwrap_or(text)
}

/// A text of a server, truncated and safe for a terminal.
pub(crate) fn sanitized(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut sanitized: String = text
        .chars()
        .take(MAX_TEXT)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(MAX_TEXT).is_some() {
        sanitized.push('…');
    }
    sanitized
}

fn grpc_name(code: u32) -> Option<&'static str> {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    NAMES.get(usize::try_from(code).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_one_kind_count_as_one_with_any_arguments() {
        let message = |text: &'static str| Failure::ServerError(text.as_bytes()).to_string();
        let one = message("ERR unknown command 'X', with args beginning with: 'a'");
        assert_eq!(one, "ERR unknown command 'X'");
        assert_eq!(message("NOAUTH no"), "NOAUTH no");
        assert_eq!(
            Failure::Grpc(12).to_string(),
            "grpc status 12 UNIMPLEMENTED"
        );
        assert_eq!(Failure::Grpc(99).to_string(), "grpc status 99");
    }

    #[test]
    fn a_text_of_a_server_neither_controls_nor_floods_a_terminal() {
        assert_eq!(sanitized(b"\x1b[2J\xff"), "\u{fffd}[2J\u{fffd}");
        assert_eq!(sanitized(&[b'x'; 1000]).chars().count(), MAX_TEXT + 1);
    }
}
