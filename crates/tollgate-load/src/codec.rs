//! What every protocol is to the connection that speaks it: requests into bytes, bytes into answers.

use std::fmt;

use crate::rule::Rule;

/// One way to ask and to be answered. A codec belongs to one connection at a time.
pub(crate) trait Codec {
    /// A new connection begins: forget the old one, and write what comes before any request.
    fn greet(&mut self, _out: &mut Vec<u8>) {}

    /// May one more be asked, with so many under way?
    fn may_ask(&self, _under_way: usize) -> bool {
        true
    }

    /// The server has said that it answers only requests with lower numbers, and then leaves.
    fn ends_before(&self) -> Option<u64> {
        None
    }

    /// Writes a request for this key. Requests of a connection are numbered from 0.
    fn ask(&mut self, key: u64, out: &mut Vec<u8>);

    /// Looks at what has come; may write what the protocol itself has to answer.
    ///
    /// # Errors
    /// Bytes that will never be an answer.
    fn read<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<u8>) -> Result<Step<'a>, Gibberish>;
}

/// What stands at the beginning of what has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// Not yet a whole thing.
    More,
    /// So many bytes that answer no request.
    Passed(usize),
    /// An answer.
    Answer(Answer<'a>),
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    /// Bytes up to its end.
    pub(crate) len: usize,
    /// Which request it answers; the oldest one if the protocol keeps the order.
    pub(crate) to: Option<u64>,
    /// What it says.
    pub(crate) verdict: Verdict<'a>,
    /// The server answers nothing more on this connection.
    pub(crate) last: bool,
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    Admitted,
    Refused,
    /// Something that is no error; nobody has said how it would say yes.
    Answered,
    Failed(Failure<'a>),
}

/// Why an answer is neither yes nor no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure<'a> {
    /// An error of Redis, in its words.
    Said(&'a [u8]),
    /// A reply that the rule of judgement does not fit.
    Unjudged(Rule),
    /// A status of HTTP that is neither.
    Http(u16),
    /// A status of gRPC.
    Grpc(u32),
    /// Envoy's code that is neither.
    Code(u64),
    /// The stream was reset, with this code of HTTP/2.
    Reset(u32),
    /// The answer on a stream is no message.
    NoMessage,
}

/// Longer texts of servers are cut.
const TEXT_MAX: usize = 80;

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Said(text) => f.write_str(&shown(kind(text))),
            Failure::Unjudged(Rule::Verdict) => {
                f.write_str("a reply that cannot be judged: it has no `verdict` that is known")
            }
            Failure::Unjudged(_) => f.write_str(
                "a reply that `--admitted` cannot judge: it does not begin with a number",
            ),
            Failure::Http(status) => write!(f, "status {status}"),
            Failure::Grpc(code) => match grpc_name(*code) {
                Some(name) => write!(f, "grpc status {code} {name}"),
                None => write!(f, "grpc status {code}"),
            },
            Failure::Code(0) => f.write_str("overall code UNKNOWN"),
            Failure::Code(code) => write!(f, "overall code {code}"),
            Failure::Reset(code) => write!(f, "stream reset with code {code}"),
            Failure::NoMessage => f.write_str("a stream that ended without a message"),
        }
    }
}

/// What comes before a list of arguments: the same for all requests of a kind.
fn kind(text: &[u8]) -> &[u8] {
    let cut = text.windows(2).position(|pair| pair == b", ");
    text.get(..cut.unwrap_or(text.len())).unwrap_or(text)
}

/// What a server wrote, safe for a terminal and not too long.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text
        .chars()
        .take(TEXT_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(TEXT_MAX).is_some() {
        shown.push('…');
    }
    shown
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

/// Why the bytes will never be an answer, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gibberish {
    pub(crate) what: String,
    pub(crate) hint: &'static str,
}

impl Gibberish {
    pub(crate) fn new(what: impl Into<String>, hint: &'static str) -> Gibberish {
        Gibberish {
            what: what.into(),
            hint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_one_kind_are_one_whatever_their_arguments() {
        let said = |text: &'static str| Failure::Said(text.as_bytes()).to_string();
        let one = said("ERR unknown command 'X', with args beginning with: 'a'");
        assert_eq!(one, "ERR unknown command 'X'");
        assert_eq!(said("NOAUTH no"), "NOAUTH no");
        assert_eq!(
            Failure::Grpc(12).to_string(),
            "grpc status 12 UNIMPLEMENTED"
        );
        assert_eq!(Failure::Grpc(99).to_string(), "grpc status 99");
    }

    #[test]
    fn what_a_server_says_cannot_steer_a_terminal_or_fill_it() {
        assert_eq!(shown(b"\x1b[2J\xff"), "\u{fffd}[2J\u{fffd}");
        assert_eq!(shown(&[b'x'; 1000]).chars().count(), TEXT_MAX + 1);
    }
}
