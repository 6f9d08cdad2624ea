//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::Write;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioTimer;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tollgate_tower::{PeerAddr, TunnelGuard};
use tower_service::Service;

use super::frames::WRONG;
use super::head::{FIELDS, Fault, HEAD_BYTES};
use super::lane::{Left, Unanswered, lane};
use super::life::{Life, UnderWay};
use super::line::Line;
use super::socket::{Ending, Socket, watched};
use super::streams::{self, Mark, PIECE_BYTES, Streams};
use super::{Door, limits, tunnel};
use crate::gateway::answers::{problem, refused};
use crate::gateway::check::{asks_for_tunnel, check};
use crate::gateway::proxy::body::{Download, Inbound};
use crate::gateway::proxy::{Ends, OverTls};
use crate::gateway::{Stack, StackBody, scratch};
use crate::listen::pulse::Phase;
use crate::listen::{TICK, attended};

/// How both versions of HTTP are spoken.
pub(super) struct Protocols {
    http1: http1::Builder,
}

impl Protocols {
    pub(super) fn new() -> Protocols {
        let mut http1 = http1::Builder::new();
        // Heads were bounded and looked at before; a bound in time is held by the pulse.
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_headers(FIELDS + 1)
            .max_buf_size(4 * HEAD_BYTES)
            .keep_alive(true);
        Protocols { http1 }
    }

    /// HTTP/2, with a client that has so long to take a part of an answer.
    fn http2(write: Duration) -> http2::Builder<Streams> {
        let mut http2 = http2::Builder::new(Streams { write });
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(100)
            .max_header_list_size(16 * 1024)
            .initial_stream_window_size(64 * 1024)
            .initial_connection_window_size(1024 * 1024)
            .max_send_buf_size(64 * 1024)
            // A client that resets more than this has its connection ended.
            .max_pending_accept_reset_streams(20)
            .max_local_error_reset_streams(100)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10));
        http2
    }
}

/// What HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What all connections of a thread have in common.
pub(super) struct Common {
    pub(super) door: Arc<Door>,
    pub(super) stack: Stack,
    pub(super) protocols: Protocols,
    pub(super) stop: watch::Receiver<bool>,
}

/// A connection that was made.
pub(super) struct Made {
    pub(super) stream: TcpStream,
    pub(super) peer: IpAddr,
    pub(super) life: Arc<Life>,
    pub(super) common: Arc<Common>,
}

/// What a connection's requests have in common.
pub(super) struct Shared {
    pub(super) life: Arc<Life>,
    common: Arc<Common>,
    peer: IpAddr,
    is_tls: bool,
}

impl Made {
    /// Serves a connection to its end.
    ///
    /// What waits for its first head is small, because whoever makes connections and says nothing should
    /// cost little. All else is made when there is something to answer.
    pub(super) async fn serve(self) {
        let Made {
            stream,
            peer,
            life,
            common,
        } = self;
        let _ = stream.set_nodelay(true);
        poll_fn(|cx| {
            life.pulse.wakes_by(cx.waker());
            Poll::Ready(())
        })
        .await;
        let (mut socket, ending) = watched(stream);
        let tls = common.door.tls.load_full();
        let shared = |is_tls| {
            Arc::new(Shared {
                life: Arc::clone(&life),
                common: Arc::clone(&common),
                peer,
                is_tls,
            })
        };
        if let Some(tls) = tls {
            return Box::pin(secured(tls, socket, ending, shared(true))).await;
        }
        let mut unanswered = Unanswered::default();
        let spoken = poll_fn(|cx| poll_begun(&mut socket, cx, &mut unanswered, &life)).await;
        match spoken {
            None => {}
            Some(Spoken::Http1) => {
                Box::pin(serve_http1(socket, unanswered, ending, shared(false))).await;
            }
            Some(Spoken::Http2) => {
                let line = Line::new(socket, unanswered.bytes, false, Arc::clone(&life));
                Box::pin(serve_http2(line, shared(false))).await;
            }
        }
    }
}

/// Which HTTP is spoken.
enum Spoken {
    Http1,
    Http2,
}

/// Sees from the first bytes which HTTP is spoken; in HTTP/1 there is a head to be answered then. None if
/// the client ends before, or if the server stops and nothing has come.
fn poll_begun(
    socket: &mut Socket,
    cx: &mut Context<'_>,
    unanswered: &mut Unanswered,
    life: &Life,
) -> Poll<Option<Spoken>> {
    loop {
        let read = scratch::poll_read(socket, cx, HEAD_BYTES, |read| {
            unanswered.add(read);
            !read.is_empty()
        });
        match read {
            Poll::Pending if life.pulse.is_hurried() && unanswered.bytes.is_empty() => {
                return Poll::Ready(None);
            }
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(true)) => life.head_begins(),
            Poll::Ready(_) => return Poll::Ready(None),
        }
        if unanswered.bytes.starts_with(PREFACE) {
            return Poll::Ready(Some(Spoken::Http2));
        }
        if !PREFACE.starts_with(&unanswered.bytes) && unanswered.has_head() {
            return Poll::Ready(Some(Spoken::Http1));
        }
    }
}

/// Agrees on TLS, and in it on which HTTP is spoken.
async fn secured(tls: Arc<ServerConfig>, socket: Socket, ending: Ending, shared: Arc<Shared>) {
    let life = Arc::clone(&shared.life);
    // It must not take longer than a head.
    let most = limits(&shared.common.door.timeouts.load()).head;
    let shaken = timeout(most, TlsAcceptor::from(tls).accept(socket)).await;
    // Whoever cannot agree on TLS has been told so by it.
    let Ok(Ok(stream)) = shaken else { return };
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => {
            let line = Line::new(stream, BytesMut::new(), false, life);
            serve_http2(line, shared).await;
        }
        _ => serve_http1(stream, Unanswered::default(), ending, shared).await,
    }
}

/// Speaks HTTP/1: in the lane for as long as requests are for it, with hyper from the first other one on.
async fn serve_http1<S>(mut io: S, mut unanswered: Unanswered, ending: Ending, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let life = Arc::clone(&shared.life);
    let mut gone = pin!(ending.gone(&life));
    let left = {
        let mut lane = pin!(lane(&mut io, &mut unanswered, &shared));
        poll_fn(|cx| match lane.as_mut().poll(cx) {
            Poll::Pending => gone.as_mut().poll(cx).map(|()| Left::Done),
            left => left,
        })
        .await
    };
    if left == Left::Done {
        return;
    }
    let limits = limits(&shared.common.door.timeouts.load());
    let mut stop = shared.common.stop.clone();
    let mut line = Line::new(io, unanswered.bytes, true, Arc::clone(&life));
    life.pulse.leave_lane();
    if left == Left::Closing {
        let closing = pin!(poll_fn(|cx| Pin::new(&mut line).poll_shutdown(cx)));
        attended(closing, &life.pulse, &limits, &mut stop, |_| ()).await;
        return;
    }
    life.head_begins();
    let common = Arc::clone(&shared.common);
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request.map(Inbound::Read)).await) }
    });
    let served = common.protocols.http1.serve_connection(line, service);
    let served = pin!(served.with_upgrades());
    let attended = attended(served, &life.pulse, &limits, &mut stop, |served| {
        served.graceful_shutdown();
    });
    tokio::select! {
        biased;
        // Its errors are those of the client: gone, too slow, not HTTP.
        _ = attended => {}
        () = gone => {}
    }
}

async fn serve_http2<S>(line: Line<S>, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let life = Arc::clone(&shared.life);
    let limits = limits(&shared.common.door.timeouts.load());
    let mut stop = shared.common.stop.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request.map(Inbound::Read)).await) }
    });
    life.pulse.leave_lane();
    // What it begins with is no head: the first request may come as late as any other.
    life.pulse.enter(Phase::Idle);
    let http2 = Protocols::http2(limits.write);
    let mut served = pin!(http2.serve_connection(line, service));
    let done = attended(served.as_mut(), &life.pulse, &limits, &mut stop, |served| {
        served.graceful_shutdown();
    })
    .await;
    if done.is_none() && life.pulse.is_in(Phase::Idle) {
        // It is told, so that a request that is on its way now can be sent again elsewhere.
        served.as_mut().graceful_shutdown();
        let _ = timeout(TICK, served).await;
    }
}

/// Answers one request.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    mut request: Request<Inbound>,
) -> Response<Counted> {
    let under_way = shared.life.begin();
    let is_http2 = request.version() == Version::HTTP_2;
    let may_switch = asks_for_tunnel(&request);
    let refusal = if request.method().as_str() == WRONG {
        let number = request.uri().path().trim_start_matches('/').parse();
        let fault = number.ok().and_then(Fault::numbered);
        Some(fault.unwrap_or(Fault::RequestLine).told())
    } else {
        check(&request, shared.common.door.way.load().max_body).err()
    };
    if let Some(refusal) = refusal {
        if may_switch {
            shared.life.decide(false);
        }
        let mut answer = refused(refusal);
        if is_http2 {
            answer.headers_mut().remove(hyper::header::CONNECTION);
        }
        return answer.map(|body| Counted::new(Either::Own(body), is_http2, under_way));
    }
    let extensions = request.extensions_mut();
    extensions.insert(PeerAddr(shared.peer));
    if shared.is_tls {
        extensions.insert(OverTls);
    }
    let mut stack = shared.common.stack.clone();
    let called = contained(|| stack.call(request));
    let mut answer = match called.await {
        Some(Ok(answer)) => {
            answer.map(|body| Counted::new(Either::Passed(body), is_http2, under_way))
        }
        None => {
            let told = "the gateway failed on this request; see its log";
            problem(StatusCode::INTERNAL_SERVER_ERROR, told)
                .map(|body| Counted::new(Either::Own(body), is_http2, under_way))
        }
    };
    if is_http2 {
        answer.headers_mut().remove(hyper::header::CONNECTION);
    }
    if may_switch {
        let ends = answer.extensions_mut().remove::<Ends>();
        shared.life.decide(ends.is_some());
        if let Some(ends) = ends {
            let held = answer.extensions_mut().remove::<TunnelGuard>();
            let stop = shared.common.stop.clone();
            tunnel::open(ends, held, Arc::clone(&shared.life), stop);
        }
    }
    answer
}

/// What the work comes to that this begins; None if either panics.
async fn contained<F: Future>(begins: impl FnOnce() -> F) -> Option<F::Output> {
    // What a request shares with others is atomic or behind a lock that survives a panic.
    let mut work = pin!(catch_unwind(AssertUnwindSafe(begins)).ok());
    let done = poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            work.as_mut().as_pin_mut().map(|work| work.poll(cx))
        }));
        match polled {
            Ok(Some(polled)) => polled.map(Some),
            Ok(None) | Err(_) => Poll::Ready(None),
        }
    })
    .await;
    if done.is_none() {
        tracing::error!("a request made the gateway panic; it was answered with 500");
    }
    done
}

/// The body of an answer; the request is under way until it ends or is dropped.
pub(super) struct Counted {
    body: Either,
    /// What is left of a part that was larger than a piece; HTTP/2 alone has pieces.
    rest: Bytes,
    is_http2: bool,
    _under_way: UnderWay,
}

enum Either {
    Own(Download),
    Passed(StackBody),
}

impl Counted {
    fn new(body: Either, is_http2: bool, under_way: UnderWay) -> Counted {
        Counted {
            body,
            rest: Bytes::new(),
            is_http2,
            _under_way: under_way,
        }
    }

    fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, <Counted as Body>::Error>>> {
        match &mut self.body {
            Either::Own(body) => Pin::new(body).poll_frame(cx),
            Either::Passed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    /// The same in pieces, and with a note of who waits for whom.
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, <Counted as Body>::Error>>> {
        if self.rest.is_empty() {
            let part = match self.poll_part(cx) {
                Poll::Ready(Some(Ok(part))) => part,
                other => {
                    streams::mark(Mark::Waits);
                    return other;
                }
            };
            match part.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        streams::mark(Mark::Gave);
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.is_http2 {
            true => self.poll_piece(cx),
            false => self.poll_part(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        if !self.rest.is_empty() {
            return false;
        }
        match &self.body {
            Either::Own(body) => body.is_end_stream(),
            Either::Passed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Either::Own(body) => body.size_hint(),
            Either::Passed(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_contained_whenever_it_comes() {
        assert_eq!(contained(|| async { 1 }).await, Some(1));
        let before = contained(|| std::future::ready(std::hint::black_box(None::<u8>).unwrap()));
        assert_eq!(before.await, None);
        let at_once = contained(|| async { std::hint::black_box(None::<u8>).unwrap() });
        assert_eq!(at_once.await, None);
        let later = contained(|| async {
            tokio::task::yield_now().await;
            std::hint::black_box(None::<u8>).unwrap()
        });
        assert_eq!(later.await, None);
    }
}
