//! Outgoing calls that never exceed a limit of their own, nor those that the server states: a client and its server in
//! this program.
//!
//! ```text
//! cargo run -p tollgate-tower --example client_pacing
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::Limiter;
use tollgate_tower::{LimitLayer, PacingLayer};
use tower::{Service, ServiceBuilder, ServiceExt};

/// Serves two calls at once, then ten a second.
pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error + Send + Sync>> {
    let limits = LimitLayer::per_client("10/s burst 2".parse()?)?;
    let app = Router::new()
        .route("/", get(async || "served\n"))
        .layer(limits);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}

/// Calls the server so often, and returns the statuses. A call that would be refused waits before it is sent.
pub(crate) async fn call(
    address: SocketAddr,
    times: usize,
) -> Result<Vec<StatusCode>, Box<dyn Error + Send + Sync>> {
    // A limit of the client, for each host. `PacingLayer::server_hints_only` has none.
    let own = Limiter::new("100/s burst 10".parse()?)?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut client = ServiceBuilder::new()
        .layer(PacingLayer::new(own).with_max_wait(Duration::from_secs(5)))
        .service(client);
    let mut statuses = Vec::new();
    for _ in 0..times {
        let request = Request::get(format!("http://{address}/")).body(Empty::<Bytes>::new())?;
        let response = client.ready().await?.call(request).await?;
        statuses.push(response.status());
    }
    Ok(statuses)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener));
    for status in call(address, 6).await? {
        println!("{status}");
    }
    Ok(())
}
