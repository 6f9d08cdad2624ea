//! A limit in front of a gRPC service, and what a client reads of it: both in this program.
//!
//! ```text
//! cargo run -p tollgate-tower --example tonic_limits
//! ```
//!
//! The service is written by hand, so that nothing but cargo is needed; with `tonic-build` only the part
//! below "The service" would be generated.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tollgate_policy::Policy;
use tollgate_tower::{LimitLayer, PolicyHandle};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

const POLICY: &str = "
version: 1
default: pass
limits:
  - name: greetings
    match: { path: /example.Greeter/** }
    key: header.x-caller
    allow: 1/min
    burst: 2
";

fn policy() -> Result<Policy, tollgate_config::Problems> {
    Ok(tollgate_config::parse("example", POLICY.as_bytes())?.policy)
}

/// Serves until it is stopped.
pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error + Send + Sync>> {
    let limits = LimitLayer::new(PolicyHandle::new(policy()?)?);
    let server = Server::builder().layer(limits).add_service(Greeter);
    let incoming = TcpIncoming::from(listener);
    Ok(server.serve_with_incoming(incoming).await?)
}

/// Greets once.
pub(crate) async fn greet(channel: Channel, caller: &str) -> Result<Response<Greeting>, Status> {
    let mut client = Grpc::new(channel);
    let is_ready = client.ready().await;
    is_ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut request = Request::new(Name {
        name: caller.to_owned(),
    });
    let caller = caller.parse();
    let caller = caller.map_err(|_| Status::invalid_argument("a caller is plain ASCII"))?;
    request.metadata_mut().insert("x-caller", caller);
    let path = PathAndQuery::from_static(GREET);
    client.unary(request, path, ProstCodec::default()).await
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "an example prints")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener));
    let channel = Channel::from_shared(format!("http://{address}"))?
        .connect()
        .await?;
    for _ in 0..3 {
        match greet(channel.clone(), "alice").await {
            Ok(greeting) => println!("{}", greeting.into_inner().text),
            Err(status) => println!("{:?}: {}", status.code(), status.message()),
        }
    }
    Ok(())
}

// The service.

const GREET: &str = "/example.Greeter/Greet";

/// Who is greeted.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Name {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

/// What is said.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Greeting {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
struct Greeter;

type PolicyDecision<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl UnaryService<Name> for Greeter {
    type Response = Greeting;
    type Future = PolicyDecision<Response<Greeting>, Status>;

    fn call(&mut self, request: Request<Name>) -> Self::Future {
        let text = format!("hello, {}", request.into_inner().name);
        Box::pin(async { Ok(Response::new(Greeting { text })) })
    }
}

impl NamedService for Greeter {
    const NAME: &'static str = "example.Greeter";
}

impl tower_service::Service<http::Request<Body>> for Greeter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = PolicyDecision<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() != GREET {
                return Ok(Status::unimplemented("there is only Greet").into_http());
            }
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok(grpc.unary(Greeter, request).await)
        })
    }
}
