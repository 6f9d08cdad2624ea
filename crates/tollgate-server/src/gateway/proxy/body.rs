//! Bodies that pass through, frame by frame.
//!
//! Each has a timeout between two frames, with a timer only while it waits: most bodies arrive with their heads and never
//! need one. A request body is bounded in size, too, for chunks as for a length.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Empty, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tollgate_tower::ServiceTimer;

use super::pool::Checkout;
use super::server::InFlight;
use super::wire::{self, BodyReader};

/// Why a body failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum BodyFailure {
    /// It did not, as far as is known.
    None = 0,
    /// It exceeds its bound.
    TooLarge = 1,
    /// Its next frame did not arrive in time.
    TooSlow = 2,
    /// Its sender disconnected, or its chunks are malformed.
    Incomplete = 3,
}

impl fmt::Display for BodyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BodyFailure::TooLarge => "the body exceeds its bound",
            BodyFailure::TooSlow => "the next part of the body did not arrive in time",
            BodyFailure::None | BodyFailure::Incomplete => "the body is incomplete",
        })
    }
}

impl Error for BodyFailure {}

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// A timeout whose timer exists only while something waits.
#[derive(Debug)]
struct IdleTimer {
    idle: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    fn new(idle: Duration) -> IdleTimer {
        IdleTimer { idle, timer: None }
    }

    /// A frame arrived: the next one has the whole time.
    fn restart(&mut self) {
        if let Some(timer) = &mut self.timer {
            timer.as_mut().reset(Instant::now() + self.idle);
        }
    }

    /// Nothing has arrived yet. Has the time passed?
    fn poll_passed(&mut self, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.idle)));
        timer.as_mut().poll(cx).is_ready()
    }
}

/// The body of a received request, if it has one.
pub(crate) type Inbound = Either<Empty<Bytes>, Incoming>;

/// The body of a request that is passed on.
#[derive(Debug)]
pub(super) struct Upload {
    body: Inbound,
    bounds: Option<Box<Bounds>>,
}

/// Bounds of a request body; a request without one has none.
#[derive(Debug)]
struct Bounds {
    left: u64,
    idle_timer: IdleTimer,
    progress: Arc<Progress>,
    /// Reports to the queue how much of the time is the client's.
    service_timer: Option<ServiceTimer>,
}

impl Bounds {
    /// Reports to the queue whether the client is waited for. A body that arrived with its head is never waited for.
    fn report(&mut self, waits: bool, is_whole: bool) {
        if let Some(service_timer) = self.service_timer.as_mut().filter(|_| waits) {
            service_timer.pause();
        }
        let is_due = |service_timer: &mut ServiceTimer| is_whole && service_timer.is_paused();
        if let Some(service_timer) = self.service_timer.take_if(is_due) {
            service_timer.restart();
        }
    }
}

/// Has the body ended?
fn is_end<T>(polled: &Poll<Option<T>>) -> bool {
    matches!(polled, Poll::Ready(None))
}

/// Progress of a request body, for the wait for its response.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
    frames: AtomicU64,
    /// Nanoseconds from the start to the last frame.
    last_ns: AtomicU64,
    is_whole: AtomicBool,
    failure: AtomicU8,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            start: Instant::now(),
            frames: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            is_whole: AtomicBool::new(false),
            failure: AtomicU8::new(0),
        }
    }

    /// A frame is handed over; is it the last one?
    fn record(&self, is_last: bool) {
        let at = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_ns.store(at, Relaxed);
        self.frames.fetch_add(1, Relaxed);
        if is_last {
            self.is_whole.store(true, Relaxed);
        }
    }

    /// Was the last frame handed over?
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole.load(Relaxed)
    }

    /// Time since the last frame, or since the start.
    pub(super) fn since_last(&self) -> Duration {
        let last = Duration::from_nanos(self.last_ns.load(Relaxed));
        self.start.elapsed().saturating_sub(last)
    }

    /// Changes with every frame.
    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Relaxed)
    }

    /// Why it failed, if it did.
    pub(super) fn failure(&self) -> BodyFailure {
        match self.failure.load(Relaxed) {
            1 => BodyFailure::TooLarge,
            2 => BodyFailure::TooSlow,
            3 => BodyFailure::Incomplete,
            _ => BodyFailure::None,
        }
    }
}

impl Upload {
    /// A body of at most `max` bytes, and its progress.
    pub(super) fn new(
        body: Inbound,
        max: Option<u64>,
        idle: Duration,
    ) -> (Upload, Option<Arc<Progress>>) {
        if body.is_end_stream() {
            return (Upload { body, bounds: None }, None);
        }
        let progress = Arc::new(Progress::new());
        let bounds = Bounds {
            left: max.unwrap_or(u64::MAX),
            idle_timer: IdleTimer::new(idle),
            progress: Arc::clone(&progress),
            service_timer: None,
        };
        let bounds = Some(Box::new(bounds));
        (Upload { body, bounds }, Some(progress))
    }

    /// Reports the time that the client takes to a queue.
    pub(super) fn timed_by(mut self, service_timer: Option<ServiceTimer>) -> Upload {
        if let Some(bounds) = &mut self.bounds {
            bounds.service_timer = service_timer;
        }
        self
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Upload { body, bounds } = self.get_mut();
        let polled = Pin::new(&mut *body).poll_frame(cx);
        let Some(bounds) = bounds else {
            return polled;
        };
        bounds.report(polled.is_pending(), body.is_end_stream() || is_end(&polled));
        let fails = |why: BodyFailure| {
            bounds.progress.failure.store(why as u8, Relaxed);
            Poll::Ready(Some(Err(why.into())))
        };
        match polled {
            Poll::Pending if bounds.idle_timer.poll_passed(cx) => fails(BodyFailure::TooSlow),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Err(_))) => fails(BodyFailure::Incomplete),
            Poll::Ready(frame) => {
                bounds
                    .progress
                    .record(frame.is_none() || body.is_end_stream());
                bounds.idle_timer.restart();
                if let Some(data) = frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref()) {
                    match bounds.left.checked_sub(data.len() as u64) {
                        Some(left) => bounds.left = left,
                        None => return fails(BodyFailure::TooLarge),
                    }
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an upstream response.
#[derive(Debug)]
pub(super) enum UpstreamBody {
    /// All of it has arrived.
    Whole(Bytes),
    Reader(BodyReader),
    /// From hyper, with its connection for HTTP/1.
    Hyper(Incoming, Option<Checkout>),
}

impl From<wire::ReceivedBody> for UpstreamBody {
    fn from(body: wire::ReceivedBody) -> UpstreamBody {
        match body {
            wire::ReceivedBody::Whole(body) => UpstreamBody::Whole(body),
            wire::ReceivedBody::Reader(reader) => UpstreamBody::Reader(reader),
        }
    }
}

impl UpstreamBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            UpstreamBody::Whole(body) if body.is_empty() => Poll::Ready(None),
            UpstreamBody::Whole(body) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(body))))),
            UpstreamBody::Reader(reader) => Pin::new(reader).poll_frame(cx).map_err(Into::into),
            UpstreamBody::Hyper(body, _) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            UpstreamBody::Whole(body) => body.is_empty(),
            UpstreamBody::Reader(reader) => reader.is_end_stream(),
            UpstreamBody::Hyper(body, _) => body.is_end_stream(),
        }
    }

    fn size(&self) -> SizeHint {
        match self {
            UpstreamBody::Whole(body) => SizeHint::with_exact(body.len() as u64),
            UpstreamBody::Reader(reader) => reader.size_hint(),
            UpstreamBody::Hyper(body, _) => body.size_hint(),
        }
    }
}

/// The body of a response.
#[derive(Debug)]
pub(crate) struct Download(Source);

#[derive(Debug)]
enum Source {
    Whole(Full<Bytes>),
    Upstream(Box<Streamed>),
}

#[derive(Debug)]
struct Streamed {
    body: UpstreamBody,
    idle_timer: IdleTimer,
    in_flight: Option<InFlight>,
}

impl Download {
    pub(crate) fn own(body: Full<Bytes>) -> Download {
        Download(Source::Whole(body))
    }

    pub(super) fn streamed(body: UpstreamBody, idle: Duration, in_flight: InFlight) -> Download {
        let body = match body {
            UpstreamBody::Whole(body) => return Download(Source::Whole(Full::new(body))),
            body => body,
        };
        let mut streamed = Streamed {
            body,
            idle_timer: IdleTimer::new(idle),
            in_flight: Some(in_flight),
        };
        if streamed.body.is_end() {
            streamed.end();
        }
        Download(Source::Upstream(Box::new(streamed)))
    }
}

impl Default for Download {
    fn default() -> Download {
        Download::own(Full::default())
    }
}

impl Streamed {
    /// The whole body was read.
    fn end(&mut self) {
        self.in_flight = None;
        if let UpstreamBody::Hyper(_, checkout) = &mut self.body
            && let Some(checkout) = checkout.take()
        {
            checkout.put_back();
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let streamed = match &mut self.get_mut().0 {
            Source::Whole(body) => return Pin::new(body).poll_frame(cx).map_err(Into::into),
            Source::Upstream(streamed) => streamed,
        };
        match streamed.body.poll(cx) {
            Poll::Pending if streamed.idle_timer.poll_passed(cx) => {
                Poll::Ready(Some(Err(BodyFailure::TooSlow.into())))
            }
            Poll::Ready(None) => {
                streamed.end();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(frame))) => {
                streamed.idle_timer.restart();
                // A reader that knows the end does not poll again.
                if streamed.body.is_end() {
                    streamed.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Whole(body) => body.is_end_stream(),
            Source::Upstream(streamed) => streamed.body.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Whole(body) => body.size_hint(),
            Source::Upstream(streamed) => streamed.body.size(),
        }
    }
}
