//! A response body, read from its connection as it is polled.
//!
//! # Invariant
//!
//! The connection becomes idle again only if the response was read to its end and nothing follows it. A body that is
//! dropped before closes the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::chunks::{ChunkReader, Part};
use crate::gateway::proxy::idle_pool;
use crate::gateway::proxy::server::Server;
use crate::gateway::proxy::stream::Stream;
use crate::net::buffers;

/// A response body.
#[derive(Debug)]
pub(in crate::gateway::proxy) struct BodyReader {
    pub(super) connection: Option<Stream>,
    pub(super) server: Arc<Server>,
    pub(super) thread: usize,
    /// What was read and not returned.
    pub(super) read: Bytes,
    pub(super) framing: BodyFraming,
    pub(super) is_reusable: bool,
}

/// Where a body ends.
#[derive(Debug)]
pub(super) enum BodyFraming {
    /// After this many bytes.
    Length(u64),
    Chunked(ChunkReader),
    UntilClose,
    /// It has ended.
    Ended,
}

impl BodyReader {
    fn end(&mut self) {
        self.framing = BodyFraming::Ended;
        let connection = self.connection.take();
        // Bytes after a response belong to no request.
        if let Some(connection) = connection.filter(|_| self.is_reusable && self.read.is_empty()) {
            idle_pool::put_back(&self.server, self.thread, connection);
        }
    }

    /// Reads once. False at the end of the connection.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Ok(false));
        };
        let take = Bytes::copy_from_slice;
        self.read = ready!(buffers::poll_read(connection, cx, usize::MAX, take))?;
        Poll::Ready(Ok(!self.read.is_empty()))
    }

    /// The next part of the body in what was read.
    fn next(&mut self) -> Result<Part, &'static str> {
        match &mut self.framing {
            BodyFraming::Ended => Ok(Part::End),
            BodyFraming::Chunked(chunks) => chunks.next(&mut self.read),
            _ if self.read.is_empty() => Ok(Part::Missing),
            BodyFraming::UntilClose => Ok(Part::Data(std::mem::take(&mut self.read))),
            BodyFraming::Length(left) => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let data = self.read.split_to(most.min(self.read.len()));
                *left -= data.len() as u64;
                Ok(Part::Data(data))
            }
        }
    }
}

impl Body for BodyReader {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            let part = match self.next() {
                Ok(part) => part,
                Err(why) => {
                    self.connection = None;
                    return Poll::Ready(Some(Err(io::Error::other(why))));
                }
            };
            let frame = match part {
                Part::Data(data) => Frame::data(data),
                Part::Trailers(trailers) => Frame::trailers(trailers),
                Part::End => {
                    self.end();
                    return Poll::Ready(None);
                }
                Part::Missing => {
                    if !ready!(self.poll_more(cx))? {
                        if matches!(self.framing, BodyFraming::UntilClose) {
                            self.end();
                            return Poll::Ready(None);
                        }
                        self.connection = None;
                        return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                    }
                    continue;
                }
            };
            if frame.is_trailers() || matches!(self.framing, BodyFraming::Length(0)) {
                self.end();
            }
            return Poll::Ready(Some(Ok(frame)));
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.framing, BodyFraming::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            BodyFraming::Length(left) => SizeHint::with_exact(left),
            BodyFraming::Ended => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }
}
