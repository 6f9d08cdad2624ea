//! An answer as it is written: its head, and its body as it comes.
//!
//! # Theory
//!
//! What is there is put onto one sheet and written at once; most answers are one write. While the body is
//! waited for everything before it has been written. While the client does not take what is written, no
//! more of the body is asked for: a sheet is written to its end before the next is begun, so what is held of
//! an answer is bounded however large it is.
//!
//! # Invariant
//!
//! The client can tell where an answer ends: by its length, by its last chunk, or, if the body broke off or
//! was of another length than its head said, by the end of the connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Body;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use hyper::http::response::Parts;
use hyper::{Response, StatusCode};
use tokio::io::AsyncWrite;

use crate::date::today;
use crate::gateway::listen::connection::Counted;
use crate::gateway::listen::life::Life;
use crate::gateway::scratch;

/// No more of a body is asked for when so much is to be written.
const AHEAD_BYTES: usize = 64 * 1024;

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// There is none.
    Without,
    /// So many bytes are left.
    Length(u64),
    Chunks,
}

/// Writes an answer. Does the connection stay?
pub(super) async fn write<S>(
    io: &mut S,
    answer: Response<Counted>,
    is_head: bool,
    life: &Life,
) -> io::Result<bool>
where
    S: AsyncWrite + Unpin,
{
    let (parts, body) = answer.into_parts();
    let closes = life.pulse.is_hurried() || says_close(&parts);
    let mut sheet = scratch::sheet();
    let told = write_head(&parts, &body, is_head, closes, &mut sheet);
    let mut writing = Writing {
        sheet,
        written: 0,
        body,
        told,
        is_over: told == Told::Without,
        is_broken: false,
    };
    let done = poll_fn(|cx| writing.poll(io, cx, life)).await;
    scratch::put_back(writing.sheet);
    done.map(|()| !closes)
}

struct Writing<B> {
    sheet: Vec<u8>,
    /// So much of the sheet.
    written: usize,
    body: B,
    told: Told,
    is_over: bool,
    /// The body is not what its head says.
    is_broken: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Writing<B> {
    fn poll<S: AsyncWrite + Unpin>(
        &mut self,
        io: &mut S,
        cx: &mut Context<'_>,
        life: &Life,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.written == 0 {
                self.gather(cx);
            }
            let left = self.sheet.get(self.written..).unwrap_or_default();
            // Over TLS all is taken at once, and waits for the client only when it is flushed.
            let moved = match left.is_empty() {
                false => Pin::new(&mut *io).poll_write(cx, left),
                true => Pin::new(&mut *io).poll_flush(cx).map_ok(|()| 0),
            };
            let Poll::Ready(moved) = moved else {
                life.stalls();
                return Poll::Pending;
            };
            life.goes_on();
            let moved = moved?;
            if !left.is_empty() {
                if moved == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.written += moved;
                continue;
            }
            let is_begun = self.written > 0;
            self.sheet.clear();
            self.written = 0;
            match (self.is_over, self.is_broken) {
                (true, true) => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                (true, false) => return Poll::Ready(Ok(())),
                // The body has not been asked since the sheet was begun.
                (false, _) if is_begun => {}
                (false, _) => return Poll::Pending,
            }
        }
    }

    /// Puts onto the sheet what there is of the body, up to a bound.
    fn gather(&mut self, cx: &mut Context<'_>) {
        while !self.is_over && self.sheet.len() < AHEAD_BYTES {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(frame))) => {
                    // What stands behind a body is about this hop, and nobody announced it.
                    if let Ok(data) = frame.into_data() {
                        self.put(&data);
                    }
                    if self.body.is_end_stream() {
                        self.end();
                    }
                }
                Poll::Ready(None) => self.end(),
                Poll::Ready(Some(Err(_))) => self.breaks(),
            }
        }
    }

    fn put(&mut self, data: &Bytes) {
        match &mut self.told {
            _ if data.is_empty() => {}
            Told::Without => {}
            Told::Chunks => {
                push_size(&mut self.sheet, data.len());
                self.sheet.extend_from_slice(data);
                self.sheet.extend_from_slice(b"\r\n");
            }
            Told::Length(left) => match left.checked_sub(data.len() as u64) {
                Some(rest) => {
                    *left = rest;
                    self.sheet.extend_from_slice(data);
                }
                None => self.breaks(),
            },
        }
    }

    fn end(&mut self) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        match self.told {
            Told::Chunks => self.sheet.extend_from_slice(b"0\r\n\r\n"),
            Told::Length(1..) => self.is_broken = true,
            _ => {}
        }
    }

    fn breaks(&mut self) {
        self.is_over = true;
        self.is_broken = true;
    }
}

/// Does the answer say that the connection ends?
fn says_close(parts: &Parts) -> bool {
    let said = parts.headers.get(CONNECTION);
    said.is_some_and(|said| said.as_bytes().eq_ignore_ascii_case(b"close"))
}

/// Writes the head of an answer, and says how the end of its body is told.
fn write_head(
    parts: &Parts,
    body: &impl Body,
    is_head: bool,
    closes: bool,
    out: &mut Vec<u8>,
) -> Told {
    let status = parts.status;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    match parts.extensions.get::<ReasonPhrase>() {
        Some(reason) => out.extend_from_slice(reason.as_bytes()),
        None => out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes()),
    }
    out.extend_from_slice(b"\r\n");
    let mut length = None;
    let mut has_date = false;
    for (name, value) in &parts.headers {
        match *name {
            CONNECTION | TRANSFER_ENCODING => continue,
            CONTENT_LENGTH if status == StatusCode::NO_CONTENT => continue,
            CONTENT_LENGTH => {
                let digits = value.to_str().ok().and_then(|digits| digits.parse().ok());
                // Once, and only if it is one.
                if length.is_some() || digits.is_none() {
                    continue;
                }
                length = digits;
            }
            DATE => has_date = true,
            _ => {}
        }
        push_field(out, name.as_str(), value.as_bytes());
    }
    let is_without = is_head
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let told = match length.or_else(|| body.size_hint().exact()) {
        _ if is_without => Told::Without,
        Some(told) => {
            if length.is_none() {
                let mut digits = String::with_capacity(20);
                tollgate_policy::fields::push_number(&mut digits, told);
                push_field(out, "content-length", digits.as_bytes());
            }
            Told::Length(told)
        }
        None => {
            push_field(out, "transfer-encoding", b"chunked");
            Told::Chunks
        }
    };
    if !has_date {
        push_field(out, "date", &today());
    }
    if closes {
        push_field(out, "connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
    told
}

fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The line before a chunk.
fn push_size(out: &mut Vec<u8>, size: usize) {
    use std::io::Write;
    // Writing to memory cannot fail.
    let _ = write!(out, "{size:x}\r\n");
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::body::Frame;
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::gateway::listen::life::tests::life;
    use crate::listen::pulse::Phase;

    /// A body that is there at once, in so many parts.
    struct Parts(usize);

    impl Body for Parts {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let Some(left) = self.0.checked_sub(1) else {
                return Poll::Ready(None);
            };
            self.0 = left;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 8192])))))
        }
    }

    fn writing(parts: usize) -> Writing<Parts> {
        Writing {
            sheet: b"head ".to_vec(),
            written: 0,
            body: Parts(parts),
            told: Told::Length(parts as u64 * 8192),
            is_over: false,
            is_broken: false,
        }
    }

    #[tokio::test]
    async fn an_answer_is_never_held_as_a_whole_however_slowly_it_is_taken() {
        const PARTS: usize = 4096;
        let (mut client, mut server) = duplex(1000);
        let reads = tokio::spawn(async move {
            let (mut all, mut buffer) = (0, [0; 777]);
            loop {
                match client.read(&mut buffer).await.unwrap() {
                    0 => return all,
                    read => all += read,
                }
            }
        });
        let (life, mut writing) = (life(), writing(PARTS));
        let mut most = 0;
        poll_fn(|cx| {
            let done = writing.poll(&mut server, cx, &life);
            most = most.max(writing.sheet.capacity());
            done
        })
        .await
        .unwrap();
        drop(server);
        assert_eq!(reads.await.unwrap(), 5 + PARTS * 8192);
        assert!(most <= 4 * AHEAD_BYTES, "{most}");
    }

    /// Takes everything and passes nothing on, as TLS does before a client that does not read.
    struct Deep;

    impl AsyncWrite for Deep {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn who_does_not_take_what_was_written_stalls_even_if_it_was_buffered() {
        let (life, mut writing) = (life(), writing(1));
        let polled = poll_fn(|cx| Poll::Ready(writing.poll(&mut Deep, cx, &life))).await;
        assert!(polled.is_pending());
        assert!(life.pulse.is_in(Phase::Writing));
    }
}
