//! Calls of other methods: each becomes an HTTP request to a [`Fallback`] service.
//!
//! # Theory
//!
//! Each such call runs in a task of its own, which reports the response to the session. Health and reflection are
//! called a few times per connection, so a task for each is cheap, and a service that is slow or panics affects no
//! other call.
//!
//! # Invariant
//!
//! A call has at most one chunk of its response queued: the task waits until the session has sent it. The request body
//! is bounded by the stream's receive window, which grows only by what the service consumed.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::response;
use crate::streams::{StreamState, Task};
use crate::timeout::parse_timeout;

/// A boxed call of a [`Fallback`].
pub type FallbackFuture =
    Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// Serves all methods but the session's own. Every clonable tower service of tonic's body type is one.
pub trait Fallback: Clone + Send + 'static {
    /// Serves one call.
    fn serve(&mut self, request: http::Request<Body>) -> FallbackFuture;
}

impl<S> Fallback for S
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    fn serve(&mut self, request: http::Request<Body>) -> FallbackFuture {
        Box::pin(self.call(request))
    }
}

/// What happened to a call that was pending.
#[derive(Debug)]
pub enum Event<R> {
    /// The handler's response or error.
    Response(Result<R, Status>),
    /// The encoded headers of a fallback response; true if nothing follows.
    Headers(Vec<u8>, bool),
    /// A chunk of its body.
    Data(Bytes),
    /// Its end, with encoded trailers unless empty.
    Trailers(Vec<u8>),
    /// The service consumed this many bytes of the request body.
    Consumed(usize),
    /// The task ended.
    Closed,
}

/// Reports events of one stream. The queue needs no bound: a call has one chunk in it, and what was consumed of a
/// window.
#[derive(Debug)]
pub(crate) struct StreamSender<R> {
    pub(crate) stream: u32,
    pub(crate) to: EventSender<R>,
}

/// Where the session's owner receives events.
pub(crate) type EventSender<R> = UnboundedSender<(u32, Event<R>)>;

impl<R> Clone for StreamSender<R> {
    fn clone(&self) -> StreamSender<R> {
        StreamSender {
            stream: self.stream,
            to: self.to.clone(),
        }
    }
}

impl<R> StreamSender<R> {
    /// Reports an event. Ignored if the connection is closed.
    pub(crate) fn send(&self, event: Event<R>) {
        let _ = self.to.send((self.stream, event));
    }
}

/// Reports [`Event::Closed`] on drop: a task that panics or is aborted leaves no call open.
pub(crate) struct EndGuard<R>(pub(crate) StreamSender<R>);

impl<R> Drop for EndGuard<R> {
    fn drop(&mut self) {
        self.0.send(Event::Closed);
    }
}

/// Starts a call of the fallback.
pub(crate) fn start<R: Send + 'static>(
    mut service: impl Fallback,
    head: http::request::Parts,
    end_stream: bool,
    sender: StreamSender<R>,
) -> StreamState {
    let body = Arc::new(BodyChannel::default());
    if end_stream {
        body.end();
    }
    let sent = Arc::new(Notify::new());
    let request_body = RequestBody {
        channel: Arc::clone(&body),
        sender: sender.clone(),
    };
    let timeout = head.headers.get("grpc-timeout");
    let timeout = timeout.and_then(|text| parse_timeout(text.to_str().ok()?));
    let request = http::Request::from_parts(head, Body::new(request_body));
    let on_sent = Arc::clone(&sent);
    let task = tokio::spawn(async move {
        let guard = EndGuard(sender);
        let serving = service.serve(request);
        let served = match timeout {
            Some(timeout) => tokio::time::timeout(timeout, serving).await,
            None => Ok(serving.await),
        };
        let response = match served {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => Status::cancelled("Timeout expired").into_http(),
        };
        send_response(response, &guard.0, &on_sent).await;
    });
    StreamState::Fallback {
        body,
        sent,
        _task: Task(task.abort_handle()),
    }
}

async fn send_response<R>(response: http::Response<Body>, to: &StreamSender<R>, sent: &Notify) {
    let (head, body) = response.into_parts();
    let mut body = pin!(body);
    let end_stream = body.is_end_stream();
    to.send(Event::Headers(
        response::encode_head(head.status, &head.headers),
        end_stream,
    ));
    if end_stream {
        return;
    }
    loop {
        let frame = match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(frame)) => frame,
            // The guard's event resets the stream.
            Some(Err(_)) => return,
            None => return to.send(Event::Trailers(Vec::new())),
        };
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                to.send(Event::Data(data));
                sent.notified().await;
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                return to.send(Event::Trailers(response::encode_trailers(&trailers)));
            }
        }
    }
}

/// A request body on its way to a service.
#[derive(Debug, Default)]
pub(crate) struct BodyChannel(Mutex<BodyState>);

#[derive(Debug, Default)]
struct BodyState {
    /// Small chunks are joined, so memory is bounded by the window alone.
    bytes: BytesMut,
    end_stream: bool,
    is_aborted: bool,
    waker: Option<Waker>,
}

impl BodyChannel {
    fn lock(&self) -> MutexGuard<'_, BodyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BodyState)) {
        let waker = {
            let mut state = self.lock();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn push(&self, bytes: &[u8]) {
        self.change(|state| state.bytes.extend_from_slice(bytes));
    }

    pub(crate) fn end(&self) {
        self.change(|state| state.end_stream = true);
    }

    /// The stream closed before its body ended.
    pub(crate) fn abort(&self) {
        self.change(|state| state.is_aborted = !state.end_stream);
    }

    #[cfg(test)]
    pub(crate) fn is_aborted(&self) -> bool {
        self.lock().is_aborted
    }
}

struct RequestBody<R> {
    channel: Arc<BodyChannel>,
    sender: StreamSender<R>,
}

impl<R> http_body::Body for RequestBody<R> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut state = self.channel.lock();
        if !state.bytes.is_empty() {
            let bytes = state.bytes.split().freeze();
            drop(state);
            self.sender.send(Event::Consumed(bytes.len()));
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if state.is_aborted {
            state.is_aborted = false;
            state.end_stream = true;
            return Poll::Ready(Some(Err(Status::cancelled("the client reset the stream"))));
        }
        if state.end_stream {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let state = self.channel.lock();
        state.end_stream && state.bytes.is_empty()
    }
}
