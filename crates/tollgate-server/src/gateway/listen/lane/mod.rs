//! The common request without hyper: HTTP/1.1, no body, on a connection that stays.
//!
//! # Theory
//!
//! What hyper does for every request it must be able to do for any: bodies that come while the answer
//! goes, upgrades, expectations, old versions. Most requests need none of it. So a connection begins in
//! this lane: a head is looked at by the same rules as everywhere ([`super::head`]), given to the same
//! service, and its answer written. The first head that is not of this kind, or wrong, leaves the lane
//! together with its connection: the bytes go through [`super::line`] to hyper, exactly as they came.
//!
//! # Invariant
//!
//! A head leaves the lane untouched or is answered in it. Nothing behind it is read before it is answered,
//! but for what came with it.
//!
//! # What it does not know
//!
//! Time: the connection's pulse is looked at by a warden. That the client is gone: whoever runs the lane
//! watches for that, and drops it.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod request;
mod written;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use hyper::Method;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Shared, answer};
use super::frames::end_of_head;
use super::head::{self, Follows, HEAD_BYTES};
use super::life::Life;
use crate::gateway::scratch;

/// How a connection leaves the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// What was read and not answered is for hyper.
    Open,
    /// The last answer was written; the client may still read it.
    Closing,
    /// The client is gone, or the server stops.
    Done,
}

/// What was read of a connection and not yet answered.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    pub(super) bytes: BytesMut,
    /// So much of it has no end of a head in it.
    looked_at: usize,
}

/// What comes next on a connection.
enum Next {
    /// A head that is for this lane.
    Head(Bytes),
    /// Something else.
    Other,
    /// Nothing, or not all of a head.
    Missing,
}

impl Unanswered {
    /// Is there a whole head, or enough to know that none will come?
    pub(super) fn has_head(&mut self) -> bool {
        let found = end_of_head(&self.bytes, self.looked_at);
        let is_missing = matches!(found, Ok(None)) && self.bytes.len() < HEAD_BYTES;
        // The line that ends the head may have begun already.
        self.looked_at = match is_missing {
            true => self.bytes.len().saturating_sub(3),
            false => 0,
        };
        !is_missing
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next head, if it is for this lane.
    fn next(&mut self) -> Next {
        // Empty lines before a request are of clients that end bodies with one. They mean nothing.
        while self.bytes.starts_with(b"\r\n") {
            self.bytes.advance(2);
            self.looked_at = self.looked_at.saturating_sub(2);
        }
        if self.bytes.is_empty() || !self.has_head() {
            return Next::Missing;
        }
        match lane_head(&self.bytes) {
            None => Next::Other,
            Some(head) => {
                let head = Bytes::copy_from_slice(head);
                self.bytes.advance(head.len());
                if self.bytes.is_empty() {
                    self.bytes = BytesMut::new();
                }
                Next::Head(head)
            }
        }
    }

    /// The same of bytes that were just read; what is not taken is kept.
    fn next_of(&mut self, read: &[u8]) -> Next {
        // As most come: one head, and nothing to keep.
        if self.bytes.is_empty()
            && let Some(head) = lane_head(read)
        {
            let (head, rest) = read.split_at(head.len());
            self.add(rest);
            return Next::Head(Bytes::copy_from_slice(head));
        }
        self.add(read);
        self.next()
    }
}

/// The head that these bytes begin with, if it is whole and for this lane.
fn lane_head(bytes: &[u8]) -> Option<&[u8]> {
    let end = end_of_head(bytes, 0).ok().flatten();
    let head = bytes.get(..end.filter(|end| *end <= HEAD_BYTES)?)?;
    let checked = head::check(head).ok()?;
    (checked.is_plain && checked.follows == Follows::Nothing).then_some(head)
}

/// Answers requests until one is not of this kind, the client is gone or the server stops.
pub(super) async fn lane<S>(io: &mut S, unanswered: &mut Unanswered, shared: &Arc<Shared>) -> Left
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let life = &shared.life;
    let mut next = unanswered.next();
    loop {
        let head = match next {
            Next::Other => return Left::Open,
            Next::Head(head) => head,
            Next::Missing => {
                if !unanswered.bytes.is_empty() {
                    life.head_begins();
                }
                match poll_fn(|cx| poll_next(io, cx, unanswered, life)).await {
                    Ok(Some(more)) => next = more,
                    Ok(None) | Err(_) => return Left::Done,
                }
                continue;
            }
        };
        let Some(request) = request::read(&head) else {
            // The parser does not take it: hyper's, which is the same, tells so.
            let behind = std::mem::take(&mut unanswered.bytes);
            unanswered.add(&head);
            unanswered.add(&behind);
            return Left::Open;
        };
        drop(head);
        let is_head = request.method() == Method::HEAD;
        let answer = answer(shared, request).await;
        match written::write(io, answer, is_head, life).await {
            Ok(true) => {}
            Ok(false) => return Left::Closing,
            Err(_) => return Left::Done,
        }
        next = unanswered.next();
    }
}

/// Reads until there is a head; None at the client's end, or if there is nothing to wait for.
fn poll_next<S: AsyncRead + Unpin>(
    io: &mut S,
    cx: &mut Context<'_>,
    unanswered: &mut Unanswered,
    life: &Life,
) -> Poll<io::Result<Option<Next>>> {
    let is_idle = unanswered.bytes.is_empty();
    // What stands behind a head waits in memory until that is answered: no more than another head.
    let read = scratch::poll_read(io, cx, HEAD_BYTES, |read| {
        (!read.is_empty()).then(|| unanswered.next_of(read))
    });
    // What came before the word to stop is answered; then there is nothing to wait for.
    if read.is_pending() && is_idle && life.pulse.is_hurried() {
        return Poll::Ready(Ok(None));
    }
    let read = ready!(read)?;
    if matches!(read, Some(Next::Missing)) {
        life.head_begins();
    }
    Poll::Ready(Ok(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

    /// The heads that are taken if bytes come in pieces of this size, and what is left.
    fn taken(text: &str, piece: usize) -> (Vec<String>, String) {
        let mut unanswered = Unanswered::default();
        let mut heads = Vec::new();
        let mut pieces = text.as_bytes().chunks(piece);
        let mut next = Next::Missing;
        loop {
            next = match next {
                Next::Head(head) => {
                    heads.push(String::from_utf8_lossy(&head).into_owned());
                    unanswered.next()
                }
                Next::Missing => match pieces.next() {
                    None => break,
                    Some(piece) => unanswered.next_of(piece),
                },
                Next::Other => {
                    pieces.by_ref().for_each(|piece| unanswered.add(piece));
                    break;
                }
            };
        }
        let left = String::from_utf8_lossy(&unanswered.bytes).into_owned();
        (heads, left)
    }

    #[test]
    fn heads_are_taken_one_by_one_however_they_are_cut() {
        let sent = format!("{GET}\r\n{GET}{GET}GET /");
        for piece in 1..sent.len() {
            let (heads, left) = taken(&sent, piece);
            assert_eq!(heads, [GET, GET, GET], "{piece}");
            assert_eq!(left, "GET /", "{piece}");
        }
    }

    #[test]
    fn what_is_not_for_the_lane_stays_as_it_came() {
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
