//! HTTP/1 with a server, without hyper, for requests without a body.
//!
//! # Theory
//!
//! A general client has a task for each connection, because a body may still be sent while the response arrives. Request
//! and response are passed between the tasks. A request without a body needs no such task: its own task writes its head and
//! reads the response. Most requests are of this kind. Requests with a body, or for a tunnel, are for hyper.
//!
//! # Invariant
//!
//! A request is put on another connection only if no byte of it was written. Dropping the future or the body of the
//! response closes the connection. The caller bounds the time.

mod body_reader;
mod chunks;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod head;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use hyper::{Method, Request, Response, StatusCode};
use tokio::io::AsyncWrite;
use tollgate_config::UpstreamSpec;

use super::body::Upload;
use super::idle_pool;
use super::pool::{HEAD_BYTES, SendError, in_time};
use super::server::Server;
use super::stream::{Stream, connect};
use crate::net::buffers;
use body_reader::BodyFraming;
use head::{ResponseBodyKind, ResponseHead};

pub(super) use body_reader::BodyReader;
pub(super) use head::is_bare;

/// The body of a response.
#[derive(Debug)]
pub(super) enum ReceivedBody {
    /// All of it arrived with its head.
    Whole(Bytes),
    Reader(BodyReader),
}

/// Sends a request that [`is_bare`] and waits for the head of the response.
pub(super) async fn exchange(
    server: &Arc<Server>,
    spec: &UpstreamSpec,
    thread: usize,
    request: &Request<Upload>,
) -> Result<Response<ReceivedBody>, SendError> {
    let mut connection = loop {
        let idle = idle_pool::take::<Stream>(server, thread);
        let is_new = idle.is_none();
        let mut connection = match idle {
            Some(connection) => connection,
            None => in_time(spec, Box::pin(connect(server))).await?,
        };
        match write_head(&mut connection, request).await {
            Ok(()) => break connection,
            // It was closed while it was idle; nothing of the request was written.
            Err((0, _)) if !is_new => {}
            Err((0, cause)) => return Err(SendError::Unreachable(cause)),
            Err((_, cause)) => return Err(SendError::Broken(cause.into())),
        }
    };
    let broken = |cause: io::Error| SendError::Broken(cause.into());
    let (head, read) = read_head(&mut connection, request.method())
        .await
        .map_err(broken)?;
    let ResponseHead {
        response,
        body,
        is_reusable,
    } = head;
    let framing = match body {
        // Bytes after a response belong to no request.
        ResponseBodyKind::None => {
            if is_reusable && read.is_empty() {
                idle_pool::put_back(server, thread, connection);
            }
            return Ok(response.map(|()| ReceivedBody::Whole(Bytes::new())));
        }
        ResponseBodyKind::Length(length) if length == read.len() as u64 => {
            if is_reusable {
                idle_pool::put_back(server, thread, connection);
            }
            return Ok(response.map(|()| ReceivedBody::Whole(read)));
        }
        ResponseBodyKind::Length(length) => BodyFraming::Length(length),
        ResponseBodyKind::Chunks => BodyFraming::Chunked(chunks::ChunkReader::new()),
        ResponseBodyKind::UntilClose => BodyFraming::UntilClose,
    };
    let reader = BodyReader {
        connection: Some(connection),
        server: Arc::clone(server),
        thread,
        read,
        framing,
        is_reusable,
    };
    Ok(response.map(|()| ReceivedBody::Reader(reader)))
}

/// Writes the head of a request. An error comes with the number of written bytes.
async fn write_head(
    stream: &mut Stream,
    request: &Request<Upload>,
) -> Result<(), (usize, io::Error)> {
    let mut buffer = buffers::take_write_buffer();
    head::write(request, &mut buffer);
    let mut done = 0;
    let result = poll_fn(|cx| {
        let mut stream = Pin::new(&mut *stream);
        while let Some(left) = buffer.get(done..).filter(|left| !left.is_empty()) {
            match ready!(stream.as_mut().poll_write(cx, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => done += written,
            }
        }
        stream.poll_flush(cx)
    })
    .await;
    buffers::put_back(buffer);
    result.map_err(|cause| (done, cause))
}

/// Reads the head of the response. Returns it with the bytes that were read after it.
async fn read_head(stream: &mut Stream, method: &Method) -> io::Result<(ResponseHead, Bytes)> {
    let mut before = BytesMut::new();
    let mut all = 0;
    loop {
        let (head, read) = read_head_bytes(stream, &mut before).await?;
        all += head.len();
        let head = head::parse(&head, method).map_err(io::Error::other)?;
        let status = head.response.status();
        // A switch of protocols is for the caller, which knows about tunnels.
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok((head, read));
        }
        // Further ones may follow, within the same bound.
        if all > HEAD_BYTES {
            return Err(too_large());
        }
        before = BytesMut::from(&read[..]);
    }
}

/// Reads the bytes of a head. Returns them with the bytes that were read after them.
async fn read_head_bytes(stream: &mut Stream, before: &mut BytesMut) -> io::Result<(Bytes, Bytes)> {
    let mut scanned = 0;
    loop {
        // Empty lines before a status line mean nothing.
        while before.starts_with(b"\r\n") {
            before.advance(2);
            scanned = 0;
        }
        if let Some(end) = head::end(before, scanned) {
            let head = before.split_to(end).freeze();
            return Ok((head, std::mem::take(before).freeze()));
        }
        if before.len() > HEAD_BYTES {
            return Err(too_large());
        }
        // The last line may have begun before.
        scanned = before.len().saturating_sub(3);
        let found = poll_fn(|cx| {
            buffers::poll_read(stream, cx, usize::MAX, |read| {
                if read.is_empty() {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                // The common case: the whole head at once, and nothing to keep.
                if before.is_empty()
                    && !read.starts_with(b"\r")
                    && let Some(end) = head::end(read, 0)
                {
                    let (head, body) = read.split_at(end.min(read.len()));
                    return Ok(Some((
                        Bytes::copy_from_slice(head),
                        Bytes::copy_from_slice(body),
                    )));
                }
                before.extend_from_slice(read);
                Ok(None)
            })
        });
        if let Some(found) = found.await?? {
            return Ok(found);
        }
    }
}

fn too_large() -> io::Error {
    io::Error::other("the head of the response is larger than 64 KiB")
}
