//! Writes a response: its head, and its body as it arrives.
//!
//! # Theory
//!
//! Everything that is there goes into one buffer and is written at once; most responses are one write. Before it waits for
//! the body, everything is written. While the client does not take the buffer, no more of the body is polled. So the
//! memory of a response is bounded whatever its size.
//!
//! # Invariant
//!
//! The client can see where a response ends: by its length, by its last chunk, or by the end of the connection if the
//! body broke off or had another length than its head stated.

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

use crate::date::http_date_now;
use crate::gateway::client::connection::ResponseBody;
use crate::net::buffers;
use crate::net::http1::response::push_field;
use crate::net::state::ConnectionState;

/// The body is polled until this much is unwritten.
const AHEAD_BYTES: usize = 64 * 1024;

/// How the client finds the end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyEnd {
    /// There is no body.
    NoBody,
    /// This many bytes are left.
    Length(u64),
    Chunks,
}

/// Writes a response. Returns true if the connection stays open.
pub(super) async fn write<S>(
    io: &mut S,
    response: Response<ResponseBody>,
    is_head: bool,
    state: &ConnectionState,
) -> io::Result<bool>
where
    S: AsyncWrite + Unpin,
{
    let (parts, body) = response.into_parts();
    let closes = state.is_shutting_down() || has_close(&parts);
    let mut buffer = buffers::take_write_buffer();
    let end = write_head(&parts, &body, is_head, closes, &mut buffer);
    let mut writer = ResponseWriter {
        buffer,
        written: 0,
        body,
        end,
        is_over: end == BodyEnd::NoBody,
        is_broken: false,
    };
    let done = poll_fn(|cx| writer.poll(io, cx, state)).await;
    buffers::put_back(writer.buffer);
    done.map(|()| !closes)
}

struct ResponseWriter<B> {
    buffer: Vec<u8>,
    /// Bytes of the buffer that are written.
    written: usize,
    body: B,
    end: BodyEnd,
    is_over: bool,
    /// The body is not what its head stated.
    is_broken: bool,
}

impl<B: Body<Data = Bytes> + Unpin> ResponseWriter<B> {
    fn poll<S: AsyncWrite + Unpin>(
        &mut self,
        io: &mut S,
        cx: &mut Context<'_>,
        state: &ConnectionState,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.written == 0 {
                self.gather(cx);
            }
            let left = self.buffer.get(self.written..).unwrap_or_default();
            // TLS takes everything at once and waits for the client only when it is flushed.
            let moved = match left.is_empty() {
                false => Pin::new(&mut *io).poll_write(cx, left),
                true => Pin::new(&mut *io).poll_flush(cx).map_ok(|()| 0),
            };
            let Poll::Ready(moved) = moved else {
                state.stall();
                return Poll::Pending;
            };
            state.resume();
            let moved = moved?;
            if !left.is_empty() {
                if moved == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.written += moved;
                continue;
            }
            let is_begun = self.written > 0;
            self.buffer.clear();
            self.written = 0;
            match (self.is_over, self.is_broken) {
                (true, true) => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                (true, false) => return Poll::Ready(Ok(())),
                // The body was not polled since the buffer was begun.
                (false, _) if is_begun => {}
                (false, _) => return Poll::Pending,
            }
        }
    }

    /// Polls the body into the buffer, up to a bound.
    fn gather(&mut self, cx: &mut Context<'_>) {
        while !self.is_over && self.buffer.len() < AHEAD_BYTES {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers are dropped: no `Trailer` field announced them to the client.
                    if let Ok(data) = frame.into_data() {
                        self.put(&data);
                    }
                    if self.body.is_end_stream() {
                        self.finish();
                    }
                }
                Poll::Ready(None) => self.finish(),
                Poll::Ready(Some(Err(_))) => self.fail(),
            }
        }
    }

    fn put(&mut self, data: &Bytes) {
        match &mut self.end {
            _ if data.is_empty() => {}
            BodyEnd::NoBody => {}
            BodyEnd::Chunks => {
                push_size(&mut self.buffer, data.len());
                self.buffer.extend_from_slice(data);
                self.buffer.extend_from_slice(b"\r\n");
            }
            BodyEnd::Length(left) => match left.checked_sub(data.len() as u64) {
                Some(rest) => {
                    *left = rest;
                    self.buffer.extend_from_slice(data);
                }
                None => self.fail(),
            },
        }
    }

    fn finish(&mut self) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        match self.end {
            BodyEnd::Chunks => self.buffer.extend_from_slice(b"0\r\n\r\n"),
            BodyEnd::Length(1..) => self.is_broken = true,
            _ => {}
        }
    }

    fn fail(&mut self) {
        self.is_over = true;
        self.is_broken = true;
    }
}

/// Does the response end the connection?
fn has_close(parts: &Parts) -> bool {
    let connection = parts.headers.get(CONNECTION);
    connection.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

/// Writes the head of a response.
fn write_head(
    parts: &Parts,
    body: &impl Body,
    is_head: bool,
    closes: bool,
    out: &mut Vec<u8>,
) -> BodyEnd {
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
                // Once, and only if it is a number.
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
    let has_no_body = is_head
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let end = match length.or_else(|| body.size_hint().exact()) {
        _ if has_no_body => BodyEnd::NoBody,
        Some(length_of_body) => {
            if length.is_none() {
                let mut digits = String::with_capacity(20);
                tollgate_policy::fields::push_number(&mut digits, length_of_body);
                push_field(out, "content-length", digits.as_bytes());
            }
            BodyEnd::Length(length_of_body)
        }
        None => {
            push_field(out, "transfer-encoding", b"chunked");
            BodyEnd::Chunks
        }
    };
    if !has_date {
        push_field(out, "date", &http_date_now());
    }
    if closes {
        push_field(out, "connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
    end
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
    use crate::net::state::Phase;

    /// A body of this many frames that are ready at once.
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

    fn writer(parts: usize) -> ResponseWriter<Parts> {
        ResponseWriter {
            buffer: b"head ".to_vec(),
            written: 0,
            body: Parts(parts),
            end: BodyEnd::Length(parts as u64 * 8192),
            is_over: false,
            is_broken: false,
        }
    }

    #[tokio::test]
    async fn memory_of_a_response_is_bounded_however_slowly_it_is_read() {
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
        let (state, mut writer) = (ConnectionState::default(), writer(PARTS));
        let mut most = 0;
        poll_fn(|cx| {
            let done = writer.poll(&mut server, cx, &state);
            most = most.max(writer.buffer.capacity());
            done
        })
        .await
        .unwrap();
        drop(server);
        assert_eq!(reads.await.unwrap(), 5 + PARTS * 8192);
        assert!(most <= 4 * AHEAD_BYTES, "{most}");
    }

    /// Takes everything and flushes nothing, as TLS does before a client that does not read.
    struct Buffering;

    impl AsyncWrite for Buffering {
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
    async fn a_client_that_takes_nothing_stalls_even_if_the_response_is_buffered() {
        let (state, mut writer) = (ConnectionState::default(), writer(1));
        let polled = poll_fn(|cx| Poll::Ready(writer.poll(&mut Buffering, cx, &state))).await;
        assert!(polled.is_pending());
        assert!(state.is_in(Phase::Writing));
    }
}
