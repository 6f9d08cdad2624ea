//! The body of an answer, read from the connection as it is asked for.
//!
//! # Invariant
//!
//! The connection rests again only if the answer was read to its end and nothing stands behind it. Whoever
//! drops the body before closes the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::chunks::{Chunks, Part};
use super::links::{self, Link};
use crate::gateway::proxy::server::Server;
use crate::gateway::scratch;

/// The body of an answer.
#[derive(Debug)]
pub(in crate::gateway::proxy) struct Rest {
    pub(super) link: Option<Link>,
    pub(super) server: Arc<Server>,
    pub(super) thread: usize,
    /// What was read and not given out.
    pub(super) read: Bytes,
    pub(super) ends: Ends,
    pub(super) may_rest: bool,
}

/// How a body ends.
#[derive(Debug)]
pub(super) enum Ends {
    /// After so many bytes.
    After(u64),
    WithChunk(Chunks),
    WithConnection,
    /// It has.
    Over,
}

impl Rest {
    fn over(&mut self) {
        self.ends = Ends::Over;
        let link = self.link.take();
        // What stands behind an answer was not asked for.
        if let Some(link) = link.filter(|_| self.may_rest && self.read.is_empty()) {
            links::rest(&self.server, self.thread, link);
        }
    }

    /// Reads more. False at the end of the connection.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some(link) = &mut self.link else {
            return Poll::Ready(Ok(false));
        };
        let take = Bytes::copy_from_slice;
        self.read = ready!(scratch::poll_read(&mut link.stream, cx, usize::MAX, take))?;
        Poll::Ready(Ok(!self.read.is_empty()))
    }

    /// The next part of what was read.
    fn next(&mut self) -> Result<Part, &'static str> {
        match &mut self.ends {
            Ends::Over => Ok(Part::End),
            Ends::WithChunk(chunks) => chunks.next(&mut self.read),
            _ if self.read.is_empty() => Ok(Part::Missing),
            Ends::WithConnection => Ok(Part::Data(std::mem::take(&mut self.read))),
            Ends::After(left) => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let data = self.read.split_to(most.min(self.read.len()));
                *left -= data.len() as u64;
                Ok(Part::Data(data))
            }
        }
    }
}

impl Body for Rest {
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
                    self.link = None;
                    return Poll::Ready(Some(Err(io::Error::other(why))));
                }
            };
            let frame = match part {
                Part::Data(data) => Frame::data(data),
                Part::Trailers(trailers) => Frame::trailers(trailers),
                Part::End => {
                    self.over();
                    return Poll::Ready(None);
                }
                Part::Missing => {
                    if !ready!(self.poll_more(cx))? {
                        if matches!(self.ends, Ends::WithConnection) {
                            self.over();
                            return Poll::Ready(None);
                        }
                        self.link = None;
                        return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                    }
                    continue;
                }
            };
            if frame.is_trailers() || matches!(self.ends, Ends::After(0)) {
                self.over();
            }
            return Poll::Ready(Some(Ok(frame)));
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.ends, Ends::Over)
    }

    fn size_hint(&self) -> SizeHint {
        match self.ends {
            Ends::After(left) => SizeHint::with_exact(left),
            Ends::Over => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }
}
