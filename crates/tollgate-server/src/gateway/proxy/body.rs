//! Bodies on their way through: part by part, never gathered.
//!
//! Each has a bound in time between two parts, with a timer only while it waits for one: most bodies come
//! with their heads and never make one. A body from a client has a bound in size as well, which holds for
//! chunks as for a length.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tollgate_tower::ServiceTimer;

use super::pool::Lent;
use super::server::WithServer;
use super::wire::{self, Rest};

/// Why a body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Broken {
    /// It did not, as far as is known.
    Not = 0,
    /// It is larger than it may be.
    TooLarge = 1,
    /// Its next part did not come in time.
    TooSlow = 2,
    /// Whoever sends it broke off.
    Off = 3,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::TooLarge => "the body is larger than it may be",
            Broken::TooSlow => "the body's next part did not come in time",
            Broken::Not | Broken::Off => "the body broke off",
        })
    }
}

impl Error for Broken {}

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// A timer that is there only while somebody waits.
#[derive(Debug)]
struct Patience {
    idle: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    fn new(idle: Duration) -> Patience {
        Patience { idle, timer: None }
    }

    /// Something came: what is waited for next has its whole time.
    fn renew(&mut self) {
        if let Some(timer) = &mut self.timer {
            timer.as_mut().reset(Instant::now() + self.idle);
        }
    }

    /// Nothing is there yet. Is it over?
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.idle)));
        timer.as_mut().poll(cx).is_ready()
    }
}

/// The body of a request as it comes in.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// The request has none.
    None,
    Read(Incoming),
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Inbound::None => Poll::Ready(None),
            Inbound::Read(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Inbound::None => true,
            Inbound::Read(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Inbound::None => SizeHint::with_exact(0),
            Inbound::Read(body) => body.size_hint(),
        }
    }
}

/// The body of a request on its way out.
#[derive(Debug)]
pub(super) struct Upload {
    body: Inbound,
    bounds: Option<Box<Bounds>>,
}

/// What a body from a client is held to; a request without a body has none.
#[derive(Debug)]
struct Bounds {
    left: u64,
    patience: Patience,
    progress: Arc<Progress>,
    /// Tells the queue that the time is the client's until all of it has come.
    service_timer: Option<ServiceTimer>,
}

impl Bounds {
    /// Tells the queue whose time it is. A body that came with its head is never waited for, and then there
    /// is nothing to tell.
    fn tell(&mut self, waits: bool, is_whole: bool) {
        if let Some(service_timer) = self.service_timer.as_mut().filter(|_| waits) {
            service_timer.pause();
        }
        let is_due = |service_timer: &mut ServiceTimer| is_whole && service_timer.is_paused();
        if let Some(service_timer) = self.service_timer.take_if(is_due) {
            service_timer.restart();
        }
    }
}

/// Is nothing more to come?
fn is_end<T>(polled: &Poll<Option<T>>) -> bool {
    matches!(polled, Poll::Ready(None))
}

/// How far a body came, for whoever waits for the answer meanwhile.
#[derive(Debug)]
pub(super) struct Progress {
    began: Instant,
    parts: AtomicU64,
    /// Nanoseconds from the beginning to the last part.
    last_ns: AtomicU64,
    is_whole: AtomicBool,
    broken: AtomicU8,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            began: Instant::now(),
            parts: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            is_whole: AtomicBool::new(false),
            broken: AtomicU8::new(0),
        }
    }

    /// A part is handed on; the last one?
    fn part(&self, is_last: bool) {
        let at = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_ns.store(at, Relaxed);
        self.parts.fetch_add(1, Relaxed);
        if is_last {
            self.is_whole.store(true, Relaxed);
        }
    }

    /// Was the last part handed on?
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole.load(Relaxed)
    }

    /// How long ago a part was handed on, or the body began if none was yet.
    pub(super) fn since_last(&self) -> Duration {
        let last = Duration::from_nanos(self.last_ns.load(Relaxed));
        self.began.elapsed().saturating_sub(last)
    }

    /// Changes with every part.
    pub(super) fn parts(&self) -> u64 {
        self.parts.load(Relaxed)
    }

    /// Why it broke off, if it did.
    pub(super) fn broken(&self) -> Broken {
        match self.broken.load(Relaxed) {
            1 => Broken::TooLarge,
            2 => Broken::TooSlow,
            3 => Broken::Off,
            _ => Broken::Not,
        }
    }
}

impl Upload {
    /// A body of at most so many bytes, and how to see how far it came.
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
            patience: Patience::new(idle),
            progress: Arc::clone(&progress),
            service_timer: None,
        };
        let bounds = Some(Box::new(bounds));
        (Upload { body, bounds }, Some(progress))
    }

    /// Tells a queue how much of the time is the client's, if there is something to wait for.
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
            return polled.map_err(Into::into);
        };
        bounds.tell(polled.is_pending(), body.is_end_stream() || is_end(&polled));
        let fails = |why: Broken| {
            bounds.progress.broken.store(why as u8, Relaxed);
            Poll::Ready(Some(Err(why.into())))
        };
        match polled {
            Poll::Pending if bounds.patience.is_over(cx) => fails(Broken::TooSlow),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Err(_))) => fails(Broken::Off),
            Poll::Ready(frame) => {
                bounds
                    .progress
                    .part(frame.is_none() || body.is_end_stream());
                bounds.patience.renew();
                if let Some(data) = frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref()) {
                    match bounds.left.checked_sub(data.len() as u64) {
                        Some(left) => bounds.left = left,
                        None => return fails(Broken::TooLarge),
                    }
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
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

/// The body of an answer as a server sends it.
#[derive(Debug)]
pub(super) enum Passes {
    /// All of it is there, and the server is done with it.
    Whole(Bytes),
    Rest(Rest),
    /// With the connection that it comes over.
    Http1(Incoming, Option<Lent>),
    Http2(Incoming),
}

impl From<wire::Answered> for Passes {
    fn from(body: wire::Answered) -> Passes {
        match body {
            wire::Answered::Whole(body) => Passes::Whole(body),
            wire::Answered::Rest(rest) => Passes::Rest(rest),
        }
    }
}

impl Passes {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Passes::Whole(body) if body.is_empty() => Poll::Ready(None),
            Passes::Whole(body) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(body))))),
            Passes::Rest(rest) => Pin::new(rest).poll_frame(cx).map_err(Into::into),
            Passes::Http1(body, _) | Passes::Http2(body) => {
                Pin::new(body).poll_frame(cx).map_err(Into::into)
            }
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Passes::Whole(body) => body.is_empty(),
            Passes::Rest(rest) => rest.is_end_stream(),
            Passes::Http1(body, _) | Passes::Http2(body) => body.is_end_stream(),
        }
    }

    fn size(&self) -> SizeHint {
        match self {
            Passes::Whole(body) => SizeHint::with_exact(body.len() as u64),
            Passes::Rest(rest) => rest.size_hint(),
            Passes::Http1(body, _) | Passes::Http2(body) => body.size_hint(),
        }
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Download(Kind);

#[derive(Debug)]
enum Kind {
    /// All of it is there.
    Whole(Full<Bytes>),
    /// It comes from an upstream.
    Passed(Box<Passed>),
}

#[derive(Debug)]
struct Passed {
    body: Passes,
    patience: Patience,
    with: Option<WithServer>,
}

impl Download {
    pub(crate) fn own(body: Full<Bytes>) -> Download {
        Download(Kind::Whole(body))
    }

    pub(super) fn passed(body: Passes, idle: Duration, with: WithServer) -> Download {
        let body = match body {
            Passes::Whole(body) => return Download(Kind::Whole(Full::new(body))),
            body => body,
        };
        let mut passed = Passed {
            body,
            patience: Patience::new(idle),
            with: Some(with),
        };
        if passed.body.is_end() {
            passed.end();
        }
        Download(Kind::Passed(Box::new(passed)))
    }
}

impl Default for Download {
    fn default() -> Download {
        Download::own(Full::default())
    }
}

impl Passed {
    /// All of it was read.
    fn end(&mut self) {
        self.with = None;
        if let Passes::Http1(_, lent) = &mut self.body
            && let Some(lent) = lent.take()
        {
            lent.give_back();
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
        let passed = match &mut self.get_mut().0 {
            Kind::Whole(body) => return Pin::new(body).poll_frame(cx).map_err(Into::into),
            Kind::Passed(passed) => passed,
        };
        match passed.body.poll(cx) {
            Poll::Pending if passed.patience.is_over(cx) => {
                Poll::Ready(Some(Err(Broken::TooSlow.into())))
            }
            Poll::Ready(None) => {
                passed.end();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(frame))) => {
                passed.patience.renew();
                // Whoever knows that it is the last does not ask for another.
                if passed.body.is_end() {
                    passed.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(body) => body.is_end_stream(),
            Kind::Passed(passed) => passed.body.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(body) => body.size_hint(),
            Kind::Passed(passed) => passed.body.size(),
        }
    }
}
