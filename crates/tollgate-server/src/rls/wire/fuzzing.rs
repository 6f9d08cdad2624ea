//! The frames of Envoy's door without their socket, for the fuzz targets.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use bytes::{Buf, BytesMut};
use hyper::http;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tonic::body::Body;

use super::calls::Calls;
use super::elsewhere::Teller;
use super::session::Session;
use super::{OUT_BYTES, frame};
use crate::rls::{Calling, Limits, Served};

/// Bytes of answers that wait at the most, besides those to one frame.
pub const KEPT_MOST: usize = OUT_BYTES;
/// Bytes of a frame that are kept until the rest comes.
pub const UNREAD_MOST: usize = frame::HEADER + frame::PAYLOAD;
/// What a client says first.
pub const PREFACE: &[u8] = frame::PREFACE;

/// What came of what a client said.
#[derive(Debug, Default)]
pub struct Spoken {
    /// All that it is answered.
    pub bytes: Vec<u8>,
    /// The most that waited to be written.
    pub kept: usize,
    /// What it said and nobody took.
    pub unread: usize,
    /// Is the connection at its end?
    pub is_over: bool,
    /// Did an answer wait for room? Then who comes first depends on what is read together.
    pub has_waited: bool,
}

/// Services of which none ever answers: nothing depends on when tasks run.
#[derive(Clone)]
struct Silent;

impl Served for Silent {
    fn calls(&mut self, _: http::Request<Body>) -> Calling<http::Response<Body>, Infallible> {
        Box::pin(pending())
    }
}

/// A door whose frames can be tried.
#[derive(Debug)]
pub struct Wire {
    limits: Arc<Limits>,
    runtime: Runtime,
}

impl Wire {
    pub(in crate::rls) fn to(limits: Limits) -> std::io::Result<Wire> {
        Ok(Wire {
            limits: Arc::new(limits),
            runtime: Builder::new_current_thread().enable_time().build()?,
        })
    }

    /// Lets a client say these pieces and read every answer at once.
    pub fn hears(&self, pieces: &mut dyn Iterator<Item = &[u8]>) -> Spoken {
        self.runtime.block_on(async {
            let spoken = self.conversation(pieces).await;
            // Calls that were broken off are cleared away.
            tokio::task::yield_now().await;
            spoken
        })
    }

    async fn conversation(&self, pieces: &mut dyn Iterator<Item = &[u8]>) -> Spoken {
        let (to, mut events) = mpsc::unbounded_channel();
        let limits = Arc::clone(&self.limits);
        let make = move |request, until| {
            let limits = Arc::clone(&limits);
            async move { limits.answer(request, until).await }
        };
        let mut decides = Calls::new(make, to.clone());
        let mut session = Session::new(Silent, Teller { stream: 0, to });
        let mut spoken = Spoken::default();
        let mut unread = BytesMut::new();
        for piece in pieces {
            unread.extend_from_slice(piece);
            loop {
                let taken =
                    poll_fn(|cx| Poll::Ready(session.receive(cx, &mut decides, &unread))).await;
                unread.advance(taken);
                while let Ok((id, event)) = events.try_recv() {
                    session.tell(id, event);
                }
                spoken.has_waited |= session.wants_to_send();
                session.send();
                spoken.kept = spoken.kept.max(session.out.len());
                spoken.bytes.append(&mut session.out);
                if taken == 0 || session.is_over() {
                    break;
                }
            }
            if session.is_over() {
                break;
            }
        }
        spoken.unread = unread.len();
        spoken.is_over = session.is_over();
        spoken
    }
}
