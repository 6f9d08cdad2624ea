//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tollgate_tower::{Held, Peer};
use tower_service::Service;

use super::frames::WRONG;
use super::head::{FIELDS, Fault, HEAD_BYTES};
use super::life::{Life, UnderWay};
use super::line::Line;
use super::socket::{Ending, Socket, watched};
use super::streams::{self, Mark, PIECE_BYTES, Streams};
use super::{Door, GRACE, tunnel};
use crate::gateway::answers::{problem, refused};
use crate::gateway::check::{asks_for_tunnel, check};
use crate::gateway::proxy::body::Download;
use crate::gateway::proxy::{Ends, Over};
use crate::gateway::{Stack, StackBody};
use crate::listen::pulse::Phase;
use crate::listen::{ListenLimits, TICK, attended, stopped};

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

/// A connection that was made.
pub(super) struct Made {
    pub(super) stream: TcpStream,
    pub(super) peer: IpAddr,
    pub(super) life: Arc<Life>,
    pub(super) limits: ListenLimits,
    pub(super) stop: watch::Receiver<bool>,
}

/// What a connection's requests have in common.
struct Shared {
    door: Arc<Door>,
    stack: Stack,
    life: Arc<Life>,
    peer: IpAddr,
    is_tls: bool,
    stop: watch::Receiver<bool>,
}

impl Made {
    pub(super) async fn serve(self, door: Arc<Door>, stack: Stack, protocols: Arc<Protocols>) {
        let Made {
            stream,
            peer,
            life,
            limits,
            mut stop,
        } = self;
        let _ = stream.set_nodelay(true);
        let tls = door.tls.load_full();
        let shared = Arc::new(Shared {
            door,
            stack,
            life: Arc::clone(&life),
            peer,
            is_tls: tls.is_some(),
            stop: stop.clone(),
        });
        let (socket, ending) = watched(stream);
        let ways = (limits, &mut stop, &*protocols);
        let Some(tls) = tls else {
            return sniffed(socket, ending, shared, ways).await;
        };
        let shaken = timeout(limits.head, TlsAcceptor::from(tls).accept(socket)).await;
        // Whoever cannot agree on TLS has been told so by it.
        let Ok(Ok(stream)) = shaken else { return };
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => {
                let line = Line::new(stream, BytesMut::new(), false, life);
                Box::pin(serve_http2(line, shared, ways)).await;
            }
            _ => {
                let line = Line::new(stream, BytesMut::new(), true, life);
                begin_http1(line, ending, shared, ways).await;
            }
        }
    }
}

type Ways<'a> = (ListenLimits, &'a mut watch::Receiver<bool>, &'a Protocols);

/// Sees from the first bytes which HTTP is spoken.
async fn sniffed(mut socket: Socket, ending: Ending, shared: Arc<Shared>, ways: Ways<'_>) {
    let mut read = BytesMut::new();
    let looking = async {
        while read.len() < PREFACE.len() && PREFACE.starts_with(&read) {
            if socket.read_buf(&mut read).await? == 0 {
                break;
            }
            shared.life.head_begins();
        }
        Ok(())
    };
    if awaited(looking, &shared.life, &ways).await.is_none() || read.is_empty() {
        return;
    }
    let is_http1 = !read.starts_with(PREFACE);
    let line = Line::new(socket, read, is_http1, Arc::clone(&shared.life));
    if is_http1 {
        begin_http1(line, ending, shared, ways).await;
    } else {
        Box::pin(serve_http2(line, shared, ways)).await;
    }
}

/// What a connection begins with; None if it does not come in time, or not before the server stops.
async fn awaited<T>(
    beginning: impl Future<Output = io::Result<T>>,
    life: &Life,
    (limits, stop, _): &Ways<'_>,
) -> Option<T> {
    let (mut stop, mut until) = ((**stop).clone(), (**stop).clone());
    let ended = async {
        stopped(&mut stop).await;
        // What it was made for may be on its way.
        sleep(GRACE).await;
    };
    let beginning = pin!(beginning);
    tokio::select! {
        biased;
        begun = attended(beginning, &life.pulse, limits, &mut until, |_| ()) => begun?.ok(),
        () = ended => None,
    }
}

/// Speaks HTTP/1 from the first whole head on. The parser and all that goes with it is made only then.
async fn begin_http1<S>(mut line: Line<S>, ending: Ending, shared: Arc<Shared>, ways: Ways<'_>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = poll_fn(|cx| line.poll_begun(cx));
    if awaited(begun, &shared.life, &ways).await == Some(true) {
        Box::pin(serve_http1(line, ending, shared, ways)).await;
    }
}

async fn serve_http1<S>(
    line: Line<S>,
    ending: Ending,
    shared: Arc<Shared>,
    (limits, stop, protocols): Ways<'_>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let life = Arc::clone(&shared.life);
    let service = service_fn(move |request| answer(Arc::clone(&shared), request));
    let served = protocols.http1.serve_connection(line, service);
    let served = pin!(served.with_upgrades());
    let attended = attended(served, &life.pulse, &limits, stop, |served| {
        served.graceful_shutdown();
    });
    tokio::select! {
        biased;
        // Its errors are those of the client: gone, too slow, not HTTP.
        _ = attended => {}
        () = ending.gone(&life) => {}
    }
}

async fn serve_http2<S>(line: Line<S>, shared: Arc<Shared>, (limits, stop, _): Ways<'_>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let life = Arc::clone(&shared.life);
    let service = service_fn(move |request| answer(Arc::clone(&shared), request));
    // What it begins with is no head: the first request may come as late as any other.
    life.pulse.enter(Phase::Idle);
    let http2 = Protocols::http2(limits.write);
    let mut served = pin!(http2.serve_connection(line, service));
    let done = attended(served.as_mut(), &life.pulse, &limits, stop, |served| {
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
async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Counted>, Infallible> {
    let under_way = shared.life.begin();
    let (mut parts, body) = request.into_parts();
    let refusal = if parts.method.as_str() == WRONG {
        let number = parts.uri.path().trim_start_matches('/').parse();
        let fault = number.ok().and_then(Fault::numbered);
        Some(fault.unwrap_or(Fault::RequestLine).told())
    } else {
        check(&parts, shared.door.way.load().max_body).err()
    };
    if let Some(refusal) = refusal {
        if asks_for_tunnel(&parts) {
            shared.life.decide(false);
        }
        let mut answer = refused(refusal);
        if parts.version == Version::HTTP_2 {
            answer.headers_mut().remove(hyper::header::CONNECTION);
        }
        let is_http2 = parts.version == Version::HTTP_2;
        return Ok(answer.map(|body| Counted::new(Either::Own(body), is_http2, under_way)));
    }
    let may_switch = asks_for_tunnel(&parts);
    let is_http2 = parts.version == Version::HTTP_2;
    parts.extensions.insert(Peer(shared.peer));
    parts.extensions.insert(Over {
        is_tls: shared.is_tls,
    });
    let mut stack = shared.stack.clone();
    let called = async move { stack.call(Request::from_parts(parts, body)).await };
    let mut answer = match contained(called).await {
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
            let held = answer.extensions_mut().remove::<Held>();
            let held = held.map(|held| held.take());
            tunnel::open(ends, held, Arc::clone(&shared.life), shared.stop.clone());
        }
    }
    Ok(answer)
}

/// What it comes to; None if it panics.
async fn contained<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        // What a request shares with others is atomic or behind a lock that survives a panic.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        match polled {
            Ok(polled) => polled.map(Some),
            Err(_) => {
                tracing::error!("a request made the gateway panic; it was answered with 500");
                Poll::Ready(None)
            }
        }
    })
    .await
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
        assert_eq!(contained(async { 1 }).await, Some(1));
        let at_once = contained(async { std::hint::black_box(None::<u8>).unwrap() });
        assert_eq!(at_once.await, None);
        let later = contained(async {
            tokio::task::yield_now().await;
            std::hint::black_box(None::<u8>).unwrap()
        });
        assert_eq!(later.await, None);
    }
}
