//! HTTP/1.1 without hyper for common requests: a short head, a body of a stated length, a response in one write.
//!
//! # Theory
//!
//! hyper is ready for everything: chunks, upgrades, streamed bodies, a map of headers in each direction. A decision needs
//! none of it. So a connection begins here: requests are parsed where they were read and offered to the handler, and the
//! responses are written behind each other. A request that has to wait, for a store or for its slot, is awaited here too,
//! while [`unless_hung_up`] watches its client.
//!
//! The first request of another kind leaves this path together with its connection. hyper continues with exactly the bytes
//! that were not answered. The handler is the same, and so is the parser.
//!
//! # Invariant
//!
//! This path understands one kind of framing: no body, or one whose length is stated once, in digits. It declines whatever
//! could be read in another way: `Transfer-Encoding`, two lengths, an upgrade, an expectation, HTTP/1.0, a `Connection`
//! that is not `keep-alive`. So no request is answered twice, and no body is taken for a request.
//!
//! | what waits | bound |
//! |---|---|
//! | requests that are not answered | one head and one body, or one read |
//! | responses that are not written | [`UNWRITTEN_BYTES`] and one response |

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;

use std::future::Future;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::head::FramingFields;
use super::response::ResponseBuffer;
use super::unread::{Consumed, Unread};
use crate::net::hangup::unless_hung_up;
use crate::net::state::{ConnectionState, Phase};
use crate::net::{ListenLimits, contain_panic};

/// Header fields of a request on this path: more than proxies send, and few enough for the stack.
const FIELDS: usize = 48;
/// Responses are written when they are this long, so a client that does not read has to wait.
const UNWRITTEN_BYTES: usize = 64 * 1024;

/// The response after a panic of the handler.
const PANICKED: &[u8] =
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A request whose bytes are all there.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Path and query, as sent.
    pub(crate) target: &'a str,
    pub(crate) headers: &'a [httparse::Header<'a>],
    pub(crate) body: &'a [u8],
}

/// A response that is not ready. It owns everything it needs; dropping it gives back what it took.
pub(crate) type PendingResponse = Pin<Box<dyn Future<Output = ResponseBuffer> + Send>>;

/// How a handler responds to a request.
pub(crate) enum Respond {
    /// The buffer has the response.
    Ready,
    /// The response is not ready.
    Pending(PendingResponse),
    /// The request is for hyper. The handler has done nothing.
    Declined,
}

/// How a connection leaves the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// hyper continues with the unread bytes.
    ToHyper,
    /// The last response was written; the client may still read it.
    Closing,
    /// The client has disconnected, or the server stops.
    Done,
}

/// Serves requests until one is not for this path, the client disconnects or the server stops.
pub(crate) async fn serve(
    stream: &mut TcpStream,
    unread: &mut Unread,
    state: &ConnectionState,
    limits: &ListenLimits,
    respond: impl Fn(&Request<'_>, &mut ResponseBuffer) -> Respond,
) -> Exit {
    let mut path = FastPath {
        limits,
        respond,
        response: ResponseBuffer::default(),
        unwritten: Vec::new(),
    };
    let mut step = NextAction::NeedsHead;
    loop {
        // Earlier requests need not wait for a pending one.
        if path.write(stream, state).await.is_err() {
            return Exit::Done;
        }
        match step {
            NextAction::Declined => return Exit::ToHyper,
            NextAction::Panicked => return Exit::Done,
            NextAction::Full => {}
            NextAction::Pending(pending, is_head) => {
                state.enter(Phase::Handling);
                match unless_hung_up(stream, contain_panic(pending)).await {
                    None => return Exit::Done,
                    Some(Some(response)) => response.append_to(&mut path.unwritten, is_head),
                    Some(None) => {
                        path.unwritten.extend_from_slice(PANICKED);
                        let _ = path.write(stream, state).await;
                        return Exit::Done;
                    }
                }
            }
            NextAction::NeedsHead => {
                match unread
                    .read(stream, state, |bytes, _| path.answer(bytes))
                    .await
                {
                    Ok(Some(next)) => step = next,
                    Ok(None) | Err(_) => return Exit::Done,
                }
                continue;
            }
            // Many clients send head and body in two segments, right behind each other. A body that takes longer is
            // for hyper, which reports it.
            NextAction::NeedsBody(missing) => {
                state.enter(Phase::Handling);
                let max = limits.body.time / 100;
                match unread.fill(stream, missing, max).await {
                    Ok(true) => {}
                    Ok(false) => return Exit::ToHyper,
                    Err(_) => return Exit::Done,
                }
            }
        }
        step = unread.parse(|bytes, _| path.answer(bytes));
    }
}

/// Why no further request was answered.
enum NextAction {
    /// Of the next request there is nothing, or a part of its head.
    NeedsHead,
    /// This many bytes of its body are missing.
    NeedsBody(usize),
    /// Responses have to be written first.
    Full,
    /// It is for hyper.
    Declined,
    /// The handler panicked. What it had done is not known, so it is not called again.
    Panicked,
    /// The response to the last request is not ready; true for `HEAD`.
    Pending(PendingResponse, bool),
}

/// One connection on this path.
struct FastPath<'l, R> {
    limits: &'l ListenLimits,
    respond: R,
    response: ResponseBuffer,
    unwritten: Vec<u8>,
}

impl<R: Fn(&Request<'_>, &mut ResponseBuffer) -> Respond> FastPath<'_, R> {
    /// Writes all responses.
    async fn write(
        &mut self,
        stream: &mut TcpStream,
        state: &ConnectionState,
    ) -> std::io::Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        state.enter(Phase::Writing);
        stream.write_all(&self.unwritten).await?;
        self.unwritten.clear();
        state.enter(Phase::Idle);
        Ok(())
    }

    /// Answers the requests in `bytes`, as far as they are complete.
    fn answer(&mut self, bytes: &[u8]) -> Consumed<NextAction> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if self.unwritten.len() >= UNWRITTEN_BYTES {
                return (NextAction::Full, at);
            }
            let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
            let (request, size) = match parse(rest, &mut fields, self.limits) {
                Parsed::Request(request, size) => (request, size),
                Parsed::PartialHead => break,
                Parsed::PartialBody(missing) => return (NextAction::NeedsBody(missing), at),
                Parsed::Other => return (NextAction::Declined, at),
            };
            let is_head = request.method == "HEAD";
            let FastPath {
                respond, response, ..
            } = self;
            response.reset();
            // What a handler shares is atomic or behind a lock that survives a panic.
            let responded = catch_unwind(AssertUnwindSafe(|| respond(&request, response)));
            match responded {
                Ok(Respond::Ready) => self.response.append_to(&mut self.unwritten, is_head),
                Ok(Respond::Pending(pending)) => {
                    return (NextAction::Pending(pending, is_head), at + size);
                }
                Ok(Respond::Declined) => return (NextAction::Declined, at),
                Err(_) => {
                    tracing::error!("a request handler panicked; the response is 500");
                    self.unwritten.extend_from_slice(PANICKED);
                    return (NextAction::Panicked, at);
                }
            }
            at += size;
        }
        (NextAction::NeedsHead, at)
    }
}

/// What bytes begin with.
enum Parsed<'a> {
    /// A request, and its length.
    Request(Request<'a>, usize),
    PartialHead,
    /// A complete head, and this many bytes of its body are missing.
    PartialBody(usize),
    /// Something that is not for this path.
    Other,
}

fn parse<'a>(
    bytes: &'a [u8],
    fields: &'a mut [MaybeUninit<httparse::Header<'a>>; FIELDS],
    limits: &ListenLimits,
) -> Parsed<'a> {
    let mut parsed = httparse::Request::new(&mut []);
    let head = match parsed.parse_with_uninit_headers(bytes, fields) {
        Ok(httparse::Status::Complete(head)) if head <= limits.head_bytes => head,
        Ok(httparse::Status::Partial) if bytes.len() < limits.head_bytes => {
            return Parsed::PartialHead;
        }
        _ => return Parsed::Other,
    };
    let (Some(method), Some(target), Some(1)) = (parsed.method, parsed.path, parsed.version) else {
        return Parsed::Other;
    };
    let headers: &'a [httparse::Header<'a>] = parsed.headers;
    let Some(length) = body_length(headers).filter(|length| *length <= limits.body.bytes) else {
        return Parsed::Other;
    };
    match bytes.get(head..head.saturating_add(length)) {
        None => Parsed::PartialBody(head.saturating_add(length) - bytes.len()),
        Some(body) => {
            let request = Request {
                method,
                target,
                headers,
                body,
            };
            Parsed::Request(request, head + length)
        }
    }
}

/// The length of the body, if it is stated in the one way that this path understands.
fn body_length(headers: &[httparse::Header<'_>]) -> Option<usize> {
    let mut framing = FramingFields::default();
    for header in headers {
        framing.add(header.name.as_bytes(), header.value).ok()?;
    }
    usize::try_from(framing.plain_length()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, usize)> {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
        match parse(text.as_bytes(), &mut fields, &ListenLimits::default()) {
            Parsed::Request(request, size) => {
                let body = String::from_utf8_lossy(request.body);
                Some((
                    format!("{} {} {body}", request.method, request.target),
                    size,
                ))
            }
            Parsed::PartialHead => Some((String::from("part"), 0)),
            Parsed::PartialBody(missing) => Some((String::from("head"), missing)),
            Parsed::Other => None,
        }
    }

    #[test]
    fn a_request_with_a_stated_length_is_parsed_whole_or_not_at_all() {
        let text = "POST /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET";
        let size = text.len() - 3;
        assert_eq!(read(text), Some(("POST /x?y abc".into(), size)));
        for cut in 1..size - 3 {
            assert_eq!(read(&text[..cut]), Some(("part".into(), 0)), "{cut}");
        }
        for missing in 1..=3 {
            let cut = &text[..size - missing];
            assert_eq!(read(cut), Some(("head".into(), missing)));
        }
        let get = "GET / HTTP/1.1\r\nConnection: Keep-Alive\r\n\r\n";
        assert_eq!(read(get), Some(("GET / ".into(), get.len())));
    }

    #[test]
    fn ambiguous_framing_is_left_to_hyper() {
        for head in [
            "Content-Length: 3\r\nContent-Length: 3",
            "Content-Length: 3\r\ncontent-length: 4",
            "Content-Length: 3, 3",
            "Content-Length: +3",
            "Content-Length: -3",
            "Content-Length: 0x3",
            "Content-Length: ",
            "Content-Length: 3 3",
            "Content-Length: 99999999999999999999",
            "Content-Length: 70000",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: identity",
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "transfer-encoding : chunked",
            "Connection: close",
            "Connection: upgrade",
            "Connection: keep-alive, x",
            "Upgrade: h2c",
            "Expect: 100-continue",
            "Trailer: x",
            " folded: x",
            "no colon",
        ] {
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\nabc");
            assert_eq!(read(&text), None, "{head}");
        }
        assert_eq!(read("GET / HTTP/1.0\r\n\r\n"), None);
        assert_eq!(read("GET / HTTP/2.0\r\n\r\n"), None);
        assert_eq!(read("garbage\r\n\r\n"), None);
        let many = "a: b\r\n".repeat(FIELDS + 1);
        assert_eq!(read(&format!("GET / HTTP/1.1\r\n{many}\r\n")), None);
        let long = "x".repeat(20_000);
        assert_eq!(read(&format!("GET /{long} HTTP/1.1\r\n\r\n")), None);
        assert_eq!(read(&format!("GET /{long}")), None, "nor is it waited for");
    }

    fn answer(
        bytes: &[u8],
        respond: impl Fn(&Request<'_>, &mut ResponseBuffer) -> Respond,
    ) -> (NextAction, String, &[u8]) {
        let mut path = FastPath {
            limits: &ListenLimits::default(),
            respond,
            response: ResponseBuffer::default(),
            unwritten: Vec::new(),
        };
        let (step, consumed) = path.answer(bytes);
        let written = String::from_utf8(path.unwritten).unwrap();
        (step, written, &bytes[consumed..])
    }

    #[test]
    fn pipelined_requests_are_answered_in_order_up_to_a_declined_one() {
        let bytes = "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /no HTTP/1.1\r\n\r\nGET /4 HTTP/1.1\r\n\r\n";
        let (step, out, rest) = answer(bytes.as_bytes(), |request, response| {
            response.write_text(|text| text.push_str(request.target));
            match request.target {
                "/no" => Respond::Declined,
                _ => Respond::Ready,
            }
        });
        assert!(matches!(step, NextAction::Declined));
        let bodies: Vec<_> = out.split("\r\n\r\n").skip(1).collect();
        assert!(bodies[0].starts_with("/1"), "{out}");
        assert_eq!(
            bodies[1..],
            ["/2"],
            "the partial response to the declined request is removed"
        );
        assert!(rest.starts_with(b"GET /no"));
    }

    #[test]
    fn a_pending_request_is_consumed_and_later_ones_stay() {
        let bytes = "GET /1 HTTP/1.1\r\n\r\nHEAD /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n";
        let (step, out, rest) = answer(bytes.as_bytes(), |request, _| match request.target {
            "/2" => Respond::Pending(Box::pin(std::future::pending())),
            _ => Respond::Ready,
        });
        assert!(matches!(step, NextAction::Pending(_, true)));
        assert_eq!(out.matches("HTTP/1.1 200 OK").count(), 1);
        assert!(rest.starts_with(b"GET /3"));
    }

    #[test]
    fn a_panic_is_answered_and_the_handler_not_called_again() {
        let bytes = "GET /1 HTTP/1.1\r\n\r\n";
        let (step, out, _) = answer(bytes.as_bytes(), |_, _| panic!("on purpose"));
        assert!(matches!(step, NextAction::Panicked));
        assert_eq!(out.as_bytes(), PANICKED);
    }
}
