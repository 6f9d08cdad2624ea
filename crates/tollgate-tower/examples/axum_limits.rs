//! Limits and a fair queue in an axum server.
//!
//! ```text
//! cargo run -p tollgate-tower --example axum_limits
//! ```
//!
//! The server prints its address and commands to try. A program of your own enables the feature `axum`.

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_policy::{KeyPart, QueueConcurrency, QueueRule, Source, pattern::PathPattern};
use tollgate_tower::{LimitLayer, PolicyHandle, QueueLayer};

const POLICY: &str = "
version: 1
default: pass
limits:
  - name: rides
    match: { path: /rides/** }
    key: header.x-rider-id
    allow: 1/s
    burst: 3
";

/// The server: limits outside, the queue inside.
pub(crate) fn app() -> Result<Router, Box<dyn Error>> {
    let mut policy = tollgate_config::parse("example", POLICY.as_bytes())?.policy;
    policy.queues.push(reports()?);
    let policy = PolicyHandle::new(policy)?;

    // By the client's address: the feature `axum` finds it in `ConnectInfo`.
    let documents = LimitLayer::per_client("documents: 1/min burst 2".parse()?)?;

    // In axum the layer that is added last is the outermost.
    Ok(Router::new()
        .route("/rides", get(async || "no rides\n"))
        .route("/report", get(report))
        .route(
            "/documents",
            get(async || "no documents\n").layer(documents),
        )
        .layer(QueueLayer::new(policy.clone()).with_wait_header(true))
        .layer(LimitLayer::new(policy)))
}

/// Reports are slow: one at a time, and riders take turns.
fn reports() -> Result<QueueRule, Box<dyn Error>> {
    let mut queue = QueueRule::new("reports", QueueConcurrency::Fixed(1));
    queue.matches.paths = vec![PathPattern::new("/report")?];
    queue.flow = vec![KeyPart::new(Source::Header("x-rider-id".into()))];
    queue.per_flow = 2;
    Ok(queue)
}

async fn report() -> &'static str {
    tokio::time::sleep(Duration::from_millis(200)).await;
    "nothing to report\n"
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let app = app()?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    let address = listener.local_addr()?;
    println!(
        "listening on http://{address}; try:
  curl -i http://{address}/rides -H 'x-rider-id: 42'    # three pass at once, then 429
  curl -i http://{address}/report -H 'x-rider-id: 42'   # one at a time: send several, they wait
  curl -i http://{address}/documents                    # two a minute for each address"
    );
    serve(listener).await
}
