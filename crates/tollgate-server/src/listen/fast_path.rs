//! HTTP/1.1 without hyper for the common request: a short head, a body of a stated length, an answer in one write.
//!
//! # Theory
//!
//! What hyper does for every request it must be able to do for any: chunks, upgrades, streams, a map of headers in
//! each direction. A decision needs none of it. So a connection begins on this path: requests are read where they lie
//! and offered to the handler, and the responses are written behind each other. A request that has to wait (for a
//! store, for its slot) is awaited here, too, while the socket is watched for the end of the client.
//!
//! The first request that is not of this kind leaves the path together with its connection: hyper goes on with
//! exactly the bytes that were not answered, and decides what is wrong with them. The handler is the same, and the
//! parser is the one that hyper uses.
//!
//! # Invariant
//!
//! Of framing only one thing is understood: no body, or one whose length is stated once, in digits. Whatever could be
//! read in another way (`Transfer-Encoding`, two lengths, an upgrade, an expectation, HTTP/1.0, a `Connection` that is
//! not `keep-alive`) is not understood here. So nothing is answered twice and nothing is taken for a request that is
//! a body.
//!
//! What is not answered yet is bounded: by one head and one body of requests, and by [`ANSWERS`] of answers before
//! they are written.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;

use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::hangup::unless_hung_up;
use super::pulse::{Phase, Pulse};
use super::response::ResponseBuffer;
use super::{ListenLimits, contained};

/// Header fields of a request on this path; more than proxies send, fewer than fit the stack.
const FIELDS: usize = 48;
/// Answers are written when they are so long: who sends and does not read must wait.
const ANSWERS: usize = 64 * 1024;
/// Room for reading, which most requests fit in.
const ROOM: usize = 4 * 1024;

/// The answer if the handler panics.
const FAILED: &[u8] =
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A request whose bytes are all there.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Path and query, as sent.
    pub(crate) target: &'a str,
    pub(crate) headers: &'a [httparse::Header<'a>],
    pub(crate) body: &'a [u8],
}

/// A response that has to be waited for. It owns everything it needs; dropping it gives back what it took.
pub(crate) type PendingResponse = Pin<Box<dyn Future<Output = ResponseBuffer> + Send>>;

/// What a handler made of a request.
pub(crate) enum Respond {
    /// The buffer has the response.
    Ready,
    /// The response has to be waited for.
    Pending(PendingResponse),
    /// It is for hyper; nothing has happened.
    Declined,
}

/// How a connection leaves the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// What was read and not answered is for hyper.
    Open,
    /// There is nothing more to do.
    Done,
}

/// Answers requests until one is not of this kind, the client is gone or the server stops.
pub(super) async fn serve(
    stream: &mut TcpStream,
    read: &mut BytesMut,
    pulse: &Pulse,
    limits: &ListenLimits,
    respond: impl Fn(&Request<'_>, &mut ResponseBuffer) -> Respond,
) -> Exit {
    let (mut out, mut response) = (Vec::new(), ResponseBuffer::default());
    poll_fn(|cx| {
        pulse.wakes_by(cx.waker());
        Poll::Ready(())
    })
    .await;
    loop {
        let step = answer_all(read, limits, &respond, &mut response, &mut out);
        // What was asked before need not wait for what is pending.
        if write(stream, pulse, &mut out).await.is_err() {
            return Exit::Done;
        }
        match step {
            Step::Other => return Exit::Open,
            Step::Broken => return Exit::Done,
            Step::Full => continue,
            Step::Pending(pending, is_head) => {
                pulse.enter(Phase::Handling);
                let most = limits.head_bytes.saturating_add(limits.body.bytes);
                match unless_hung_up(stream, read, most, contained(pending)).await {
                    None => return Exit::Done,
                    Some(Some(response)) => response.append_to(&mut out, is_head),
                    Some(None) => {
                        out.extend_from_slice(FAILED);
                        let _ = write(stream, pulse, &mut out).await;
                        return Exit::Done;
                    }
                }
            }
            Step::NeedsHead => {
                // A head that dribbles must not look alive: it is entered once.
                match read.is_empty() {
                    true => pulse.enter(Phase::Idle),
                    false if !pulse.is_in(Phase::Head) => pulse.enter(Phase::Head),
                    false => {}
                }
                read.reserve(ROOM);
                let is_idle = read.is_empty();
                let mut reading = pin!(stream.read_buf(read));
                let read = poll_fn(|cx| match reading.as_mut().poll(cx) {
                    // What came before the word to stop is answered; then there is nothing to wait for.
                    Poll::Pending if is_idle && pulse.is_hurried() => Poll::Ready(Ok(0)),
                    read => read,
                });
                match read.await {
                    Ok(0) | Err(_) => return Exit::Done,
                    Ok(_) => {}
                }
            }
            // Many clients send head and body apart, right behind each other. One that takes longer is
            // waited for, and told so, by hyper.
            Step::NeedsBody(missing) => {
                pulse.enter(Phase::Handling);
                read.reserve(missing);
                let wanted = read.len().saturating_add(missing);
                let rest = async {
                    while read.len() < wanted {
                        if stream.read_buf(read).await? == 0 {
                            return Err(std::io::ErrorKind::UnexpectedEof.into());
                        }
                    }
                    Ok::<_, std::io::Error>(())
                };
                match timeout(limits.body.time / 100, rest).await {
                    Err(_) => return Exit::Open,
                    Ok(Err(_)) => return Exit::Done,
                    Ok(Ok(())) => {}
                }
            }
        }
    }
}

async fn write(stream: &mut TcpStream, pulse: &Pulse, out: &mut Vec<u8>) -> std::io::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    pulse.enter(Phase::Writing);
    stream.write_all(out).await?;
    out.clear();
    Ok(())
}

/// Why no more requests were answered.
enum Step {
    /// All that came are; of the next one there is nothing, or a part of its head.
    NeedsHead,
    /// So much of a body is missing.
    NeedsBody(usize),
    /// There are enough answers to write.
    Full,
    /// The next one is not of this kind.
    Other,
    /// The handler failed; what it had done cannot be known, so it is not asked again.
    Broken,
    /// The response to the last one has to be waited for; and whether it was asked with `HEAD`.
    Pending(PendingResponse, bool),
}

fn answer_all(
    read: &mut BytesMut,
    limits: &ListenLimits,
    respond: &impl Fn(&Request<'_>, &mut ResponseBuffer) -> Respond,
    response: &mut ResponseBuffer,
    out: &mut Vec<u8>,
) -> Step {
    while !read.is_empty() {
        if out.len() >= ANSWERS {
            return Step::Full;
        }
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
        let (request, size) = match whole(read, &mut fields, limits) {
            Whole::Request(request, size) => (request, size),
            Whole::Part => return Step::NeedsHead,
            Whole::Head(missing) => return Step::NeedsBody(missing),
            Whole::Other => return Step::Other,
        };
        let is_head = request.method == "HEAD";
        response.reset();
        // What a handler shares with others is atomic or behind a lock that survives a panic.
        let responded = catch_unwind(AssertUnwindSafe(|| respond(&request, response)));
        match responded {
            Ok(Respond::Ready) => response.append_to(out, is_head),
            Ok(Respond::Pending(pending)) => {
                read.advance(size);
                return Step::Pending(pending, is_head);
            }
            Ok(Respond::Declined) => return Step::Other,
            Err(_) => {
                tracing::error!("a request made its handler panic; it was answered with 500");
                out.extend_from_slice(FAILED);
                return Step::Broken;
            }
        }
        read.advance(size);
    }
    Step::NeedsHead
}

enum Whole<'a> {
    /// A request, and how long it is.
    Request(Request<'a>, usize),
    /// A part of a head.
    Part,
    /// A whole head, and so much of its body is missing.
    Head(usize),
    /// Not for this path.
    Other,
}

fn whole<'a>(
    bytes: &'a [u8],
    fields: &'a mut [MaybeUninit<httparse::Header<'a>>; FIELDS],
    limits: &ListenLimits,
) -> Whole<'a> {
    let mut parsed = httparse::Request::new(&mut []);
    let head = match parsed.parse_with_uninit_headers(bytes, fields) {
        Ok(httparse::Status::Complete(head)) if head <= limits.head_bytes => head,
        Ok(httparse::Status::Partial) if bytes.len() < limits.head_bytes => return Whole::Part,
        _ => return Whole::Other,
    };
    let (Some(method), Some(target), Some(1)) = (parsed.method, parsed.path, parsed.version) else {
        return Whole::Other;
    };
    let headers: &'a [httparse::Header<'a>] = parsed.headers;
    let Some(length) = body_length(headers).filter(|length| *length <= limits.body.bytes) else {
        return Whole::Other;
    };
    match bytes.get(head..head.saturating_add(length)) {
        None => Whole::Head(head.saturating_add(length) - bytes.len()),
        Some(body) => {
            let request = Request {
                method,
                target,
                headers,
                body,
            };
            Whole::Request(request, head + length)
        }
    }
}

/// How long the body is; none if that is not said in the one way that is understood here.
fn body_length(headers: &[httparse::Header<'_>]) -> Option<usize> {
    let mut length = None;
    for header in headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        // By the length of the name first: most are none of these.
        match header.name.len() {
            14 if is("content-length") => {
                if length.is_some() {
                    return None;
                }
                length = Some(digits(header.value)?);
            }
            10 if is("connection") && !header.value.eq_ignore_ascii_case(b"keep-alive") => {
                return None;
            }
            17 if is("transfer-encoding") => return None,
            6 if is("expect") => return None,
            7 if is("upgrade") || is("trailer") => return None,
            _ => {}
        }
    }
    Some(length.unwrap_or(0))
}

/// A number in digits and nothing else, below a thousand million.
fn digits(text: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    let add = |sum: usize, digit: &u8| sum * 10 + usize::from(digit - b'0');
    is_number.then(|| text.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, usize)> {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
        match whole(text.as_bytes(), &mut fields, &ListenLimits::default()) {
            Whole::Request(plain, size) => {
                let body = String::from_utf8_lossy(plain.body);
                Some((format!("{} {} {body}", plain.method, plain.target), size))
            }
            Whole::Part => Some((String::from("part"), 0)),
            Whole::Head(missing) => Some((String::from("head"), missing)),
            Whole::Other => None,
        }
    }

    #[test]
    fn a_request_with_a_stated_length_is_read_whole_or_not_at_all() {
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
    fn whatever_could_be_read_in_another_way_is_left_to_others() {
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
        bytes: &mut BytesMut,
        respond: &impl Fn(&Request<'_>, &mut ResponseBuffer) -> Respond,
    ) -> (Step, String) {
        let (mut response, mut out) = (ResponseBuffer::default(), Vec::new());
        let limits = ListenLimits::default();
        let step = answer_all(bytes, &limits, respond, &mut response, &mut out);
        (step, String::from_utf8(out).unwrap())
    }

    #[test]
    fn requests_behind_each_other_are_answered_in_order_up_to_the_first_that_is_not() {
        let mut bytes = BytesMut::from(
            "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /no HTTP/1.1\r\n\r\nGET /4 HTTP/1.1\r\n\r\n",
        );
        let (step, out) = answer(&mut bytes, &|request, response| {
            response.write_text(|text| text.push_str(request.target));
            match request.target {
                "/no" => Respond::Declined,
                _ => Respond::Ready,
            }
        });
        assert!(matches!(step, Step::Other));
        let bodies: Vec<_> = out.split("\r\n\r\n").skip(1).collect();
        assert!(bodies[0].starts_with("/1"), "{out}");
        assert_eq!(
            bodies[1..],
            ["/2"],
            "what was begun of the declined one is gone"
        );
        assert!(bytes.starts_with(b"GET /no"));
    }

    #[test]
    fn a_request_that_has_to_wait_is_taken_out_and_those_behind_it_stay() {
        let mut bytes = BytesMut::from(
            "GET /1 HTTP/1.1\r\n\r\nHEAD /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n",
        );
        let (step, out) = answer(&mut bytes, &|request, _| match request.target {
            "/2" => Respond::Pending(Box::pin(std::future::pending())),
            _ => Respond::Ready,
        });
        assert!(matches!(step, Step::Pending(_, true)));
        assert_eq!(out.matches("HTTP/1.1 200 OK").count(), 1);
        assert!(bytes.starts_with(b"GET /3"));
    }

    #[test]
    fn a_panic_is_answered_and_the_request_is_not_asked_again() {
        let mut bytes = BytesMut::from("GET /1 HTTP/1.1\r\n\r\n");
        let (step, out) = answer(&mut bytes, &|_, _| panic!("on purpose"));
        assert!(matches!(step, Step::Broken));
        assert_eq!(out.as_bytes(), FAILED);
    }
}
