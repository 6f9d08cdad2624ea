//! Limits and a fair queue in an axum server.
//!
//! ```text
//! cargo run -p tollgate-tower --example axum_limits
//!
//! curl -i localhost:3000/rides -H 'x-rider-id: 42'       # three of these pass at once, then 429
//! curl -i localhost:3000/report -H 'x-rider-id: 42'      # one at a time; send several: they wait
//! curl -i localhost:3000/documents                       # a limit of this route's own, by address
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::Extensions;
use tokio::net::TcpListener;
use tollgate::Limit;
use tollgate_policy::{KeyPart, QueueConcurrency, QueueRule, Source, pattern::PathPattern};
use tollgate_tower::facts::by_client;
use tollgate_tower::{InForce, LimitLayer, QueueLayer};

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
    let in_force = InForce::new(policy)?;

    let documents = Limit::token_bucket("1/min".parse()?, 2)?.named("documents");
    let documents = LimitLayer::single(documents, by_client)?.with_peer(peer);

    // In axum the layer that is added last is the outermost.
    Ok(Router::new()
        .route("/rides", get(async || "no rides\n"))
        .route("/report", get(report))
        .route(
            "/documents",
            get(async || "no documents\n").layer(documents),
        )
        .layer(QueueLayer::new(in_force.clone()).tell_wait(true))
        .layer(LimitLayer::new(in_force).with_peer(peer)))
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

/// Where axum keeps the address that a connection came from.
fn peer(extensions: &Extensions) -> Option<std::net::IpAddr> {
    let info = extensions.get::<ConnectInfo<SocketAddr>>()?;
    Some(info.0.ip())
}

/// Serves until it is stopped.
pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let app = app()?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    serve(TcpListener::bind("127.0.0.1:3000").await?).await
}
