//! Answers common requests without hyper: HTTP/1.1, no body, on a connection that stays open.
//!
//! # Theory
//!
//! hyper is ready for bodies that arrive during the response, upgrades, expectations and old versions. Most requests need
//! none of it. So a connection begins here: a head is checked by the same rules as everywhere ([`head::check`]), given to
//! the same service, and the response is written. The first head that is malformed or of another kind leaves this path
//! together with its connection. Its bytes go through the framer to hyper, exactly as they arrived.
//!
//! # Invariant
//!
//! A head leaves this path unchanged or is answered on it. Nothing after a head is read before its response is written,
//! except what arrived with it.
//!
//! The reaper bounds the time. The caller watches for the client's end, and drops the future then.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod request;
mod write;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hyper::Method;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Shared, answer};
use crate::net::http1::fast_path::Exit;
use crate::net::http1::framer::end_of_head;
use crate::net::http1::head::{self, BodyKind, HEAD_BYTES};
use crate::net::http1::unread::{Consumed, Unread};

/// What comes next on a connection.
enum Next {
    /// A head for this path.
    Head(Bytes),
    /// Something else.
    Other,
    /// Nothing, or a part of a head.
    Missing,
}

/// Takes the next head.
fn next_head(bytes: &[u8], scanned: &mut usize) -> Consumed<Next> {
    // Some clients end bodies with an empty line. It means nothing.
    let mut rest = bytes;
    while let [b'\r', b'\n', after @ ..] = rest {
        rest = after;
    }
    let skipped = bytes.len() - rest.len();
    *scanned = scanned.saturating_sub(skipped);
    let Some(end) = find_head(rest, scanned) else {
        return (Next::Missing, skipped);
    };
    let head = end.and_then(|end| rest.get(..end));
    match head.filter(|head| is_plain(head)) {
        None => (Next::Other, skipped),
        Some(head) => {
            let next = Next::Head(Bytes::copy_from_slice(head));
            (next, skipped + head.len())
        }
    }
}

/// The end of the head. `None`: more bytes are needed; `Some(None)`: no valid head will come.
fn find_head(bytes: &[u8], scanned: &mut usize) -> Option<Option<usize>> {
    let found = end_of_head(bytes, *scanned);
    if matches!(found, Ok(None)) && bytes.len() < HEAD_BYTES {
        // The last line may have begun already.
        *scanned = bytes.len().saturating_sub(3);
        return None;
    }
    *scanned = 0;
    Some(found.ok().flatten().filter(|end| *end <= HEAD_BYTES))
}

/// Is there a complete head, or enough to know that no valid one will come?
pub(super) fn has_head(bytes: &[u8], scanned: &mut usize) -> bool {
    find_head(bytes, scanned).is_some()
}

fn is_plain(head: &[u8]) -> bool {
    head::check(head).is_ok_and(|checked| checked.is_plain && checked.body == BodyKind::None)
}

/// Serves requests until one is not for this path, the client disconnects or the server stops.
pub(super) async fn serve<S>(io: &mut S, unread: &mut Unread, shared: &Arc<Shared>) -> Exit
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let state = &shared.state;
    let mut next = unread.parse(next_head);
    loop {
        let head = match next {
            Next::Other => return Exit::ToHyper,
            Next::Head(head) => head,
            Next::Missing => {
                match unread.read(io, state, next_head).await {
                    Ok(Some(more)) => next = more,
                    Ok(None) | Err(_) => return Exit::Done,
                }
                continue;
            }
        };
        let Some(request) = request::parse(&head) else {
            // hyper has the same parser and reports the error.
            let mut bytes = BytesMut::from(head);
            bytes.extend_from_slice(&unread.bytes);
            unread.bytes = bytes;
            return Exit::ToHyper;
        };
        drop(head);
        let is_head = request.method() == Method::HEAD;
        let response = answer(shared, request).await;
        match write::write(io, response, is_head, state).await {
            Ok(true) => {}
            Ok(false) => return Exit::Closing,
            Err(_) => return Exit::Done,
        }
        next = unread.parse(next_head);
    }
}

/// The heads that are taken of pieces that arrive one after the other, and the bytes that are left.
#[cfg(any(test, feature = "fuzzing"))]
fn take_heads<'a>(mut pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut unread = Unread::default();
    let mut heads = Vec::new();
    let mut next = Next::Missing;
    loop {
        next = match next {
            Next::Head(head) => {
                heads.push(head.to_vec());
                unread.parse(next_head)
            }
            Next::Missing => match pieces.next() {
                None => break,
                Some([]) => Next::Missing,
                Some(piece) => unread.parse_more(piece, next_head),
            },
            Next::Other => {
                pieces
                    .by_ref()
                    .for_each(|piece| unread.bytes.extend_from_slice(piece));
                break;
            }
        };
    }
    (heads, unread.bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

    /// The heads that are taken if bytes arrive in pieces of this size, and what is left.
    fn taken(text: &str, piece: usize) -> (Vec<String>, String) {
        let (heads, left) = take_heads(text.as_bytes().chunks(piece));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (heads.into_iter().map(text).collect(), text(left))
    }

    #[test]
    fn heads_are_taken_one_by_one_however_they_are_split() {
        let sent = format!("{GET}\r\n{GET}{GET}GET /");
        for piece in 1..sent.len() {
            let (heads, left) = taken(&sent, piece);
            assert_eq!(heads, [GET, GET, GET], "{piece}");
            assert_eq!(left, "GET /", "{piece}");
        }
    }

    #[test]
    fn other_heads_are_left_unchanged() {
        for other in [
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, x-hop\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET /\nHost: a\r\n\r\n",
            "garbage\r\n\r\n",
        ] {
            let sent = format!("{GET}{other}{GET}");
            for piece in 1..sent.len() {
                let (heads, left) = taken(&sent, piece);
                assert_eq!(heads, [GET], "{other:?} by {piece}");
                assert_eq!(left, format!("{other}{GET}"), "{other:?} by {piece}");
            }
        }
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(HEAD_BYTES));
        assert_eq!(taken(&long, 1000), (vec![], long.clone()));
    }
}
