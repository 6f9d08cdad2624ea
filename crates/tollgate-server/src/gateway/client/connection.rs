//! One client connection, from its first byte to its last.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::Either;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::Write;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioTimer;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tollgate_tower::{PeerAddr, TunnelGuard};
use tower_service::Service;

use super::access_log::AccessEntry;
use super::fast_path::{self, has_head};
use super::socket::{HangupWatch, Socket, split};
use super::stream_timeouts::{self, BodyEvent, PIECE_BYTES, StreamExecutor};
use super::{ListenerState, limits, tunnel};
use crate::gateway::check::{asks_for_tunnel, check};
use crate::gateway::proxy::body::{Download, Inbound};
use crate::gateway::proxy::{OverTls, TunnelEnds};
use crate::gateway::responses::{problem, refused};
use crate::gateway::{Stack, StackBody};
use crate::net::http1::fast_path::Exit;
use crate::net::http1::framer::{BAD_REQUEST_METHOD, RequestFramer};
use crate::net::http1::head::{FIELDS, HEAD_BYTES, HeadError};
use crate::net::http1::unread::Unread;
use crate::net::io::{Framing, TrackedIo};
use crate::net::state::{ConnectionState, Phase, RequestGuard};
use crate::net::{Accepted, contain_panic, drive, register_task};

/// What an HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What all connections of a thread share.
pub(super) struct ConnectionContext {
    listening: Arc<ListenerState>,
    stack: Stack,
    http1: http1::Builder,
    stop: watch::Receiver<bool>,
}

impl ConnectionContext {
    pub(super) fn new(
        listening: Arc<ListenerState>,
        stack: Stack,
        stop: watch::Receiver<bool>,
    ) -> ConnectionContext {
        let mut http1 = http1::Builder::new();
        // Heads are checked and bounded before; the reaper bounds the time.
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_headers(FIELDS + 1)
            .max_buf_size(4 * HEAD_BYTES)
            .keep_alive(true);
        ConnectionContext {
            listening,
            stack,
            http1,
            stop,
        }
    }
}

/// HTTP/2 with `write` as the time that a client has to take a piece of a response.
fn http2_builder(write: Duration) -> http2::Builder<StreamExecutor> {
    let mut http2 = http2::Builder::new(StreamExecutor { write });
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

/// What the requests of a connection share.
pub(super) struct Shared {
    pub(super) state: Arc<ConnectionState>,
    context: Arc<ConnectionContext>,
    peer: IpAddr,
    is_tls: bool,
}

/// Serves a connection to its end.
///
/// The future that waits for the first head is small, because a client that connects and sends nothing should cost little.
/// The larger ones behind it are boxed when there is something to answer.
pub(super) async fn serve(accepted: Accepted, context: Arc<ConnectionContext>) {
    let Accepted {
        stream,
        peer,
        state,
    } = accepted;
    register_task(&state).await;
    let (mut socket, watch) = split(stream);
    let tls = context.listening.tls.load_full();
    let is_tls = tls.is_some();
    let shared = || {
        Arc::new(Shared {
            state: Arc::clone(&state),
            context: Arc::clone(&context),
            peer,
            is_tls,
        })
    };
    if let Some(tls) = tls {
        return Box::pin(serve_tls(tls, socket, watch, shared())).await;
    }
    let mut unread = Unread::default();
    let version = loop {
        let seen = unread.read(&mut socket, &state, |bytes, scanned| {
            (version(bytes, scanned), 0)
        });
        match seen.await {
            Ok(Some(None)) => {}
            Ok(Some(Some(version))) => break version,
            Ok(None) | Err(_) => return,
        }
    };
    if version == Version::HTTP_2 {
        let io = TrackedIo::new(socket, unread.bytes, Framing::Http2, Arc::clone(&state));
        Box::pin(serve_http2(io, shared())).await;
    } else {
        Box::pin(serve_http1(socket, unread, watch, shared())).await;
    }
}

/// The version that the first bytes show; for HTTP/1 there is a complete head then. `None`: too few bytes.
fn version(bytes: &[u8], scanned: &mut usize) -> Option<Version> {
    if bytes.starts_with(PREFACE) {
        return Some(Version::HTTP_2);
    }
    let is_http1 = !PREFACE.starts_with(bytes) && has_head(bytes, scanned);
    is_http1.then_some(Version::HTTP_11)
}

/// Negotiates TLS, and with it the version of HTTP.
async fn serve_tls(
    tls: Arc<ServerConfig>,
    socket: Socket,
    watch: HangupWatch,
    shared: Arc<Shared>,
) {
    // The handshake has the time of a head.
    let max = limits(&shared.context.listening.timeouts.load()).head;
    let handshake = timeout(max, TlsAcceptor::from(tls).accept(socket)).await;
    // TLS itself reports errors to the client.
    let Ok(Ok(stream)) = handshake else { return };
    // The first head has a time of its own.
    shared.state.enter(Phase::Head);
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => {
            let state = Arc::clone(&shared.state);
            let io = TrackedIo::new(stream, BytesMut::new(), Framing::Http2, state);
            serve_http2(io, shared).await;
        }
        _ => serve_http1(stream, Unread::default(), watch, shared).await,
    }
}

/// Serves HTTP/1: on the fast path while its requests are for it, with hyper from the first other one on.
async fn serve_http1<S>(mut io: S, mut unread: Unread, watch: HangupWatch, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let state = Arc::clone(&shared.state);
    let mut gone = pin!(watch.gone(&state));
    let exit = {
        let mut served = pin!(fast_path::serve(&mut io, &mut unread, &shared));
        poll_fn(|cx| match served.as_mut().poll(cx) {
            Poll::Pending => gone.as_mut().poll(cx).map(|()| Exit::Done),
            exit => exit,
        })
        .await
    };
    let framing = Framing::Checked(RequestFramer::new());
    let mut io = TrackedIo::new(io, unread.bytes, framing, Arc::clone(&state));
    match exit {
        Exit::Done => return,
        Exit::Closing => {
            let _ = poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)).await;
            return;
        }
        Exit::ToHyper => state.enter_head(),
    }
    let context = Arc::clone(&shared.context);
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request.map(Inbound::Right)).await) }
    });
    let served = context.http1.serve_connection(io, service);
    let served = pin!(served.with_upgrades());
    tokio::select! {
        biased;
        // Its errors are those of the client: gone, too slow, not HTTP.
        _ = drive(served, &state, |served| served.graceful_shutdown()) => {}
        () = gone => {}
    }
}

async fn serve_http2<S>(io: TrackedIo<S>, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let state = Arc::clone(&shared.state);
    let limits = limits(&shared.context.listening.timeouts.load());
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request.map(Inbound::Right)).await) }
    });
    // The preface is no head: the first request may come as late as any other.
    state.enter(Phase::Idle);
    let http2 = http2_builder(limits.write);
    let served = pin!(http2.serve_connection(io, service));
    // A GOAWAY has the client send a request that is on its way elsewhere.
    let _ = drive(served, &state, |served| served.graceful_shutdown()).await;
}

/// Responds to one request.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    mut request: Request<Inbound>,
) -> Response<ResponseBody> {
    let Shared { state, context, .. } = &**shared;
    let guard = state.start_request();
    let entry = AccessEntry::new(&context.listening, &request, shared.peer);
    let is_http2 = request.version() == Version::HTTP_2;
    let may_switch = asks_for_tunnel(&request);
    let refusal = if request.method().as_str() == BAD_REQUEST_METHOD {
        let number = request.uri().path().trim_start_matches('/').parse();
        let error = number.ok().and_then(HeadError::from_number);
        Some(error.unwrap_or(HeadError::RequestLine).refusal())
    } else {
        check(&request, context.listening.routes.load().max_body).err()
    };
    let mut response = if let Some(refusal) = refusal {
        refused(refusal).map(Source::Left)
    } else {
        let extensions = request.extensions_mut();
        extensions.insert(PeerAddr(shared.peer));
        if shared.is_tls {
            extensions.insert(OverTls);
        }
        let mut stack = context.stack.clone();
        match contain_call(|| stack.call(request)).await {
            Some(Ok(response)) => response.map(Source::Right),
            None => {
                let detail = "the gateway failed on this request; see its log";
                problem(StatusCode::INTERNAL_SERVER_ERROR, detail).map(Source::Left)
            }
        }
    };
    if is_http2 {
        response.headers_mut().remove(hyper::header::CONNECTION);
    }
    if may_switch {
        let ends = response.extensions_mut().remove::<TunnelEnds>();
        state.upgrade.decide(ends.is_some());
        if let Some(ends) = ends {
            let held = response.extensions_mut().remove::<TunnelGuard>();
            tunnel::open(ends, held, Arc::clone(state), context.stop.clone());
        }
    }
    if let Some(entry) = entry {
        entry.log(response.status());
    }
    response.map(|body| ResponseBody::new(body, is_http2, guard))
}

/// The output of the future that `call` returns; `None` if either panics.
async fn contain_call<F: Future>(call: impl FnOnce() -> F) -> Option<F::Output> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(work) => contain_panic(work).await,
        Err(_) => {
            tracing::error!("a request handler panicked; the response is 500");
            None
        }
    }
}

/// A response body. Its request is in flight until this is dropped.
pub(super) struct ResponseBody {
    body: Source,
    /// What is left of a frame that is larger than a piece. Only HTTP/2 has pieces.
    rest: Bytes,
    is_http2: bool,
    _guard: RequestGuard,
}

/// A response of the gateway itself, or of the layers.
type Source = Either<Download, StackBody>;

impl ResponseBody {
    fn new(body: Source, is_http2: bool, guard: RequestGuard) -> ResponseBody {
        ResponseBody {
            body,
            rest: Bytes::new(),
            is_http2,
            _guard: guard,
        }
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, <ResponseBody as Body>::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    /// The same in pieces, recorded for the timeout of the stream.
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, <ResponseBody as Body>::Error>>> {
        if self.rest.is_empty() {
            let frame = match self.poll_source(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => {
                    stream_timeouts::record(BodyEvent::Waits);
                    return other;
                }
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        stream_timeouts::record(BodyEvent::GavePiece);
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.is_http2 {
            true => self.poll_piece(cx),
            false => self.poll_source(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_contained_before_and_inside_the_future() {
        assert_eq!(contain_call(|| async { 1 }).await, Some(1));
        let before = contain_call(|| std::future::ready(std::hint::black_box(None::<u8>).unwrap()));
        assert_eq!(before.await, None);
        let at_once = contain_call(|| async { std::hint::black_box(None::<u8>).unwrap() });
        assert_eq!(at_once.await, None);
        let later = contain_call(|| async {
            tokio::task::yield_now().await;
            std::hint::black_box(None::<u8>).unwrap()
        });
        assert_eq!(later.await, None);
    }
}
