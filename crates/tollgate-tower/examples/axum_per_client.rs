//! One limit for each client address, in an axum server.
//!
//! ```text
//! cargo run -p tollgate-tower --features axum --example axum_per_client
//! ```
//!
//! ```text
//! for i in 1 2 3 4; do curl -i http://127.0.0.1:3000/; done    # three pass at once, then 429
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_tower::LimitLayer;

pub(crate) fn app() -> Result<Router, Box<dyn Error>> {
    let limit = LimitLayer::per_client("1/s burst 3".parse()?)?;
    Ok(Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limit))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    // The layer finds the client's address because of `with_connect_info`.
    let app = app()?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
