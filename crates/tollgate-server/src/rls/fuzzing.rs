//! Envoy's rate limit service without its sockets, for the fuzz targets.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BytesMut};
use tokio::runtime::{Builder, Runtime};
use tollgate_grpc::Session;

use super::connection::METHOD;
use super::messages::{RateLimitRequest, RateLimitResponse};
use super::*;

pub use tollgate_grpc::fuzzing::*;

/// Largest message.
pub const MAX_MESSAGE_BYTES: usize = request::MESSAGE_BYTES;

/// The service without a listener.
#[derive(Debug)]
pub struct FrontEnd(Limits);

impl FrontEnd {
    /// A service with this policy.
    pub fn new(policy: &str) -> FrontEnd {
        let engine = crate::engine::for_tests(policy);
        let source = EngineSource::new(engine, Protocol::Rls);
        FrontEnd(Limits { source })
    }

    /// The HTTP/2 sessions in front of it.
    ///
    /// # Errors
    /// If there can be no runtime.
    pub fn wire(self) -> std::io::Result<Wire> {
        Wire::new(self.0)
    }

    /// Decides. `None` if the decision is pending, which only a shared store may cause.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub fn answer(&self, request: RateLimitRequest) -> Result<Option<RateLimitResponse>, Status> {
        request::validate(&request)?;
        let decided = pin!(self.0.decide(request, None));
        let polled = decided.poll(&mut Context::from_waker(Waker::noop()));
        Ok(match polled {
            Poll::Ready(response) => Some(response),
            Poll::Pending => None,
        })
    }
}

/// What a session did with a client's bytes.
#[derive(Debug, Default)]
pub struct Exchange {
    /// All output.
    pub bytes: Vec<u8>,
    /// The most output that waited.
    pub max_output: usize,
    /// Bytes that were not consumed.
    pub unread: usize,
    /// The session closed the connection.
    pub is_closed: bool,
    /// A response waited for a window: then the order depends on what is read together.
    pub has_waited: bool,
}

/// A fallback that never answers, so nothing depends on when tasks run.
#[derive(Clone)]
struct Silent;

impl Fallback for Silent {
    fn serve(&mut self, _: http::Request<Body>) -> FallbackFuture {
        Box::pin(pending())
    }
}

/// Sessions without sockets.
#[derive(Debug)]
pub struct Wire {
    limits: Arc<Limits>,
    runtime: Runtime,
}

impl Wire {
    fn new(limits: Limits) -> std::io::Result<Wire> {
        Ok(Wire {
            limits: Arc::new(limits),
            runtime: Builder::new_current_thread().enable_time().build()?,
        })
    }

    /// Lets a client send these chunks and read every response at once.
    pub fn exchange(&self, chunks: &mut dyn Iterator<Item = &[u8]>) -> Exchange {
        self.runtime.block_on(async {
            let exchange = self.run(chunks).await;
            // Lets aborted tasks end.
            tokio::task::yield_now().await;
            exchange
        })
    }

    async fn run(&self, chunks: &mut dyn Iterator<Item = &[u8]>) -> Exchange {
        let limits = Arc::clone(&self.limits);
        let respond = move |request, deadline| {
            let limits = Arc::clone(&limits);
            async move { limits.respond(request, deadline).await }
        };
        let (mut session, mut events) = Session::new(METHOD, respond, Silent);
        let mut exchange = Exchange::default();
        let mut unread = BytesMut::new();
        for chunk in chunks {
            unread.extend_from_slice(chunk);
            loop {
                let consumed = poll_fn(|cx| Poll::Ready(session.receive(cx, &unread))).await;
                unread.advance(consumed);
                while let Ok((id, event)) = events.try_recv() {
                    session.on_event(id, event);
                }
                exchange.has_waited |= session.has_sendable();
                session.send();
                exchange.max_output = exchange.max_output.max(session.output().len());
                exchange.bytes.append(session.output());
                if consumed == 0 || session.is_closed() {
                    break;
                }
            }
            if session.is_closed() {
                break;
            }
        }
        exchange.unread = unread.len();
        exchange.is_closed = session.is_closed();
        exchange
    }
}
