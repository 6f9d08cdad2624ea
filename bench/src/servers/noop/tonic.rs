//! A unary service of tonic on one thread: the no-op rate limit service, and the server for the library of a peer.
//!
//! Everything is left as tonic has it by default. Messages go through prost, by a codec of a few lines, because that of tonic
//! comes with more crates. A function computes the answer.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io;
use std::marker::PhantomData;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::task::{Context, Poll};

use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Service, http, tokio_stream};
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};

use super::messages::{RateLimitRequest, RateLimitResponse};

/// Decides a request.
pub(crate) trait Decide: Clone + Send + 'static {
    /// Envoy's code for the decision.
    fn decide(&self, request: RateLimitRequest) -> Result<i32, Status>;
}

/// Serves on this port of the loopback until the process ends.
pub(crate) fn serve(port: u16, decide: impl Decide) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let served = tonic::transport::Server::builder()
            .serve_with_incoming(Unary(decide), Connections(listener))
            .await;
        served.map_err(io::Error::other)
    })
}

/// Connections as they come.
struct Connections(TcpListener);

impl tokio_stream::Stream for Connections {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = self.0.poll_accept(cx);
        accepted.map(|accepted| {
            Some(accepted.and_then(|(stream, _)| {
                stream.set_nodelay(true)?;
                Ok(stream)
            }))
        })
    }
}

/// Answers every path: there is one method.
#[derive(Clone)]
struct Unary<D>(D);

impl<D: Decide> Service<http::Request<Body>> for Unary<D> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let call = Call(self.0.clone());
        Box::pin(async move {
            let mut grpc = Grpc::new(Messages::<RateLimitResponse, RateLimitRequest>(PhantomData));
            Ok(grpc.unary(call, request).await)
        })
    }
}

struct Call<D>(D);

impl<D: Decide> UnaryService<RateLimitRequest> for Call<D> {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let code = self.0.decide(request.into_inner());
        ready(code.map(|overall_code| Response::new(RateLimitResponse { overall_code })))
    }
}

/// Sends `T`, reads `U`.
struct Messages<T, U>(PhantomData<(T, U)>);

struct One<T>(PhantomData<T>);

impl<T: Message + 'static, U: Message + Default + 'static> Codec for Messages<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = One<T>;
    type Decoder = One<U>;

    fn encoder(&mut self) -> One<T> {
        One(PhantomData)
    }

    fn decoder(&mut self) -> One<U> {
        One(PhantomData)
    }
}

impl<T: Message> Encoder for One<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let failed = |error: prost::EncodeError| Status::internal(error.to_string());
        item.encode(to).map_err(failed)
    }
}

impl<U: Message + Default> Decoder for One<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let failed = |error: prost::DecodeError| Status::invalid_argument(error.to_string());
        U::decode(from).map(Some).map_err(failed)
    }
}
