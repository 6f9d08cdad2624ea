//! Calls that are served elsewhere: everything but the one that matters goes to tonic's services.
//!
//! # Theory
//!
//! Such a call has a task of its own, which makes a request of HTTP of it, gives it to the services, and tells the
//! connection what comes back. Health and reflection are asked a few times in the life of a connection, so a task
//! for each is no cost; and a service that is slow, or panics, is nobody else's trouble.
//!
//! # Invariant
//!
//! A call has one piece of its answer on the way at the most: the task waits until the connection could send it. What
//! the client sends is bounded by the window of its stream, which grows only by what was taken out.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use hyper::http;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tonic::Status;
use tonic::body::Body;

use super::answer;
use super::stream::{Does, Task};
use crate::rls::messages::RateLimitResponse;
use crate::rls::{Served, deadline};

/// What becomes of calls that are not answered at once.
#[derive(Debug)]
pub(super) enum Event {
    /// It is decided, or cannot be.
    Decided(Result<RateLimitResponse, Status>),
    /// The head of an answer, and whether that is all.
    Head(Vec<u8>, bool),
    /// A piece of it.
    Data(Bytes),
    /// The end of it, with its fields, if it has any.
    End(Vec<u8>),
    /// So much of the request was taken out.
    Taken(usize),
    /// Nothing more will come.
    Over,
}

/// Whom to tell about which call. The queue has no bound of its own: a call has one piece in it, and what was taken
/// out of a window.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    pub(super) stream: u32,
    pub(super) to: UnboundedSender<(u32, Event)>,
}

impl Teller {
    pub(super) fn tell(&self, event: Event) {
        // Nobody listens to a connection that is gone.
        let _ = self.to.send((self.stream, event));
    }
}

/// Tells the end, however it comes: a task that panics or is dropped leaves no call open.
pub(super) struct TellsEnd(pub(super) Teller);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        self.0.tell(Event::Over);
    }
}

/// Has a call served.
pub(super) fn begin(
    mut services: impl Served,
    head: http::request::Parts,
    is_all: bool,
    teller: Teller,
) -> Does {
    let feed = Arc::new(Feed::default());
    if is_all {
        feed.end();
    }
    let go_on = Arc::new(Notify::new());
    let body = Inbound {
        feed: Arc::clone(&feed),
        teller: teller.clone(),
    };
    let timeout = head.headers.get("grpc-timeout");
    let timeout = timeout.and_then(|text| deadline::parse(text.to_str().ok()?));
    let request = http::Request::from_parts(head, Body::new(body));
    let goes_on = Arc::clone(&go_on);
    let task = tokio::spawn(async move {
        let end = TellsEnd(teller);
        let serving = services.calls(request);
        let served = match timeout {
            Some(timeout) => tokio::time::timeout(timeout, serving).await,
            None => Ok(serving.await),
        };
        let response = match served {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => Status::cancelled("Timeout expired").into_http(),
        };
        send(response, &end.0, &goes_on).await;
    });
    Does::Elsewhere {
        feed,
        go_on,
        _task: Task(task.abort_handle()),
    }
}

async fn send(response: http::Response<Body>, to: &Teller, go_on: &Notify) {
    let (head, body) = response.into_parts();
    let mut body = pin!(body);
    let is_all = body.is_end_stream();
    to.tell(Event::Head(
        answer::head(head.status, &head.headers),
        is_all,
    ));
    if is_all {
        return;
    }
    loop {
        let frame = match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(frame)) => frame,
            // The end that is told after us resets the call.
            Some(Err(_)) => return,
            None => return to.tell(Event::End(Vec::new())),
        };
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                to.tell(Event::Data(data));
                go_on.notified().await;
            }
            Err(frame) => {
                let fields = frame.into_trailers().unwrap_or_default();
                return to.tell(Event::End(answer::end(&fields)));
            }
        }
    }
}

/// What a client sends, on its way to a service.
#[derive(Debug, Default)]
pub(super) struct Feed(Mutex<Fed>);

#[derive(Debug, Default)]
struct Fed {
    /// Small pieces become one, so a client pays for each byte of its window and for nothing else.
    bytes: BytesMut,
    is_all: bool,
    is_broken: bool,
    waker: Option<Waker>,
}

impl Feed {
    fn fed(&self) -> MutexGuard<'_, Fed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Fed)) {
        let waker = {
            let mut fed = self.fed();
            change(&mut fed);
            fed.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn add(&self, bytes: &[u8]) {
        self.change(|fed| fed.bytes.extend_from_slice(bytes));
    }

    pub(super) fn end(&self) {
        self.change(|fed| fed.is_all = true);
    }

    /// The call is over before its end.
    pub(super) fn break_off(&self) {
        self.change(|fed| fed.is_broken = !fed.is_all);
    }

    #[cfg(test)]
    pub(super) fn is_broken_off(&self) -> bool {
        self.fed().is_broken
    }
}

/// The body of a request.
struct Inbound {
    feed: Arc<Feed>,
    teller: Teller,
}

impl http_body::Body for Inbound {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut fed = self.feed.fed();
        if !fed.bytes.is_empty() {
            let bytes = fed.bytes.split().freeze();
            drop(fed);
            self.teller.tell(Event::Taken(bytes.len()));
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if fed.is_broken {
            fed.is_broken = false;
            fed.is_all = true;
            return Poll::Ready(Some(Err(Status::cancelled("the client ended the call"))));
        }
        if fed.is_all {
            return Poll::Ready(None);
        }
        fed.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let fed = self.feed.fed();
        fed.is_all && fed.bytes.is_empty()
    }
}
