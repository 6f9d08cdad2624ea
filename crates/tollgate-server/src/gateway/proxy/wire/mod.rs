//! HTTP/1 with a server, spoken by the request itself.
//!
//! # Theory
//!
//! A client that can do everything has a task for each connection, which a request and its answer are
//! handed to and fro with, because a body may still be on its way out while the answer comes in. A request
//! without a body needs none of that: its head is written, then its answer is read, by whoever waits for
//! it. Most requests are of this kind. Those with a body, and those that may become a tunnel, are for hyper.
//!
//! # Invariant
//!
//! A request is put on another connection only if no byte of it was written. Whoever drops the future or
//! the answer's body closes the connection.
//!
//! # What it does not know
//!
//! Bounds in time: those are of whoever waits.

mod chunks;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod head;
mod links;
mod rest;

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
use super::pool::{HEAD_BYTES, Unsent, in_time};
use super::server::Server;
use super::stream::{Stream, connect};
use crate::gateway::scratch;
use head::{Follows, Head};
use links::Link;
use rest::Ends;

pub(super) use head::is_bare;
pub(super) use links::Links;
pub(super) use rest::Rest;

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Answered {
    /// All of it came with its head.
    Whole(Bytes),
    Rest(Rest),
}

/// Sends a request that [`is_bare`] and waits for the head of the answer.
pub(super) async fn exchange(
    server: &Arc<Server>,
    spec: &UpstreamSpec,
    thread: usize,
    request: &Request<Upload>,
) -> Result<Response<Answered>, Unsent> {
    let mut link = loop {
        let known = links::take(server, thread);
        let is_new = known.is_none();
        let mut link = match known {
            Some(link) => link,
            None => Link::new(in_time(spec, Box::pin(connect(server))).await?),
        };
        match written(&mut link.stream, request).await {
            Ok(()) => break link,
            // It was closed while it rested; nothing of the request was written.
            Err((0, _)) if !is_new => {}
            Err((0, cause)) => return Err(Unsent::Unreachable(cause)),
            Err((_, cause)) => return Err(Unsent::Broken(cause.into())),
        }
    };
    let broken = |cause: io::Error| Unsent::Broken(cause.into());
    let (head, read) = answered(&mut link.stream, request.method())
        .await
        .map_err(broken)?;
    let Head {
        answer,
        follows,
        may_rest,
    } = head;
    let ends = match follows {
        Follows::Nothing => Ends::Over,
        Follows::Length(length) => Ends::After(length),
        Follows::Chunks => Ends::WithChunk(chunks::Chunks::new()),
        Follows::Rest => Ends::WithConnection,
    };
    let is_whole = match follows {
        Follows::Nothing => true,
        Follows::Length(length) => length == read.len() as u64,
        _ => false,
    };
    if is_whole {
        // What stands behind an answer was not asked for.
        let is_clean = follows != Follows::Nothing || read.is_empty();
        if may_rest && is_clean {
            links::rest(server, thread, link);
        }
        let body = match follows {
            Follows::Nothing => Bytes::new(),
            _ => read,
        };
        return Ok(answer.map(|()| Answered::Whole(body)));
    }
    let rest = Rest {
        link: Some(link),
        server: Arc::clone(server),
        thread,
        read,
        ends,
        may_rest,
    };
    Ok(answer.map(|()| Answered::Rest(rest)))
}

/// Writes the head of a request; an error comes with how much was written.
async fn written(stream: &mut Stream, request: &Request<Upload>) -> Result<(), (usize, io::Error)> {
    let mut sheet = scratch::sheet();
    head::write(request, &mut sheet);
    let mut done = 0;
    let result = poll_fn(|cx| {
        let mut stream = Pin::new(&mut *stream);
        while let Some(left) = sheet.get(done..).filter(|left| !left.is_empty()) {
            match ready!(stream.as_mut().poll_write(cx, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => done += written,
            }
        }
        stream.poll_flush(cx)
    })
    .await;
    scratch::put_back(sheet);
    result.map_err(|cause| (done, cause))
}

/// The head of the answer, and what was read behind it.
async fn answered(stream: &mut Stream, method: &Method) -> io::Result<(Head, Bytes)> {
    let mut before = BytesMut::new();
    let mut all = 0;
    loop {
        let (head, read) = whole_head(stream, &mut before).await?;
        all += head.len();
        let head = head::read(&head, method).map_err(io::Error::other)?;
        let status = head.answer.status();
        // What a server switches to without being asked is told by whoever knows of tunnels.
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok((head, read));
        }
        // Others may follow, but not without end.
        if all > HEAD_BYTES {
            return Err(too_large());
        }
        before = BytesMut::from(&read[..]);
    }
}

/// The bytes of a whole head, and what was read behind it.
async fn whole_head(stream: &mut Stream, before: &mut BytesMut) -> io::Result<(Bytes, Bytes)> {
    let mut looked_at = 0;
    loop {
        // Empty lines before a status line mean nothing.
        while before.starts_with(b"\r\n") {
            before.advance(2);
            looked_at = 0;
        }
        if let Some(end) = head::end(before, looked_at) {
            let head = before.split_to(end).freeze();
            return Ok((head, std::mem::take(before).freeze()));
        }
        if before.len() > HEAD_BYTES {
            return Err(too_large());
        }
        // The line that ends the head may have begun before.
        looked_at = before.len().saturating_sub(3);
        let found = poll_fn(|cx| {
            scratch::poll_read(stream, cx, usize::MAX, |read| {
                if read.is_empty() {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                // As most come: the whole head at once, and nothing to keep.
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
    io::Error::other("the head of the answer is larger than 64 KiB")
}
