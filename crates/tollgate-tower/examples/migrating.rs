//! The Tollgate lines of `docs/migrating.md`, in the same order. A test compares the two.
//!
//! ```text
//! cargo run -p tollgate-tower --example migrating
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use http::request::Parts;
use tokio::net::TcpListener;
use tokio::sync::mpsc::Receiver;
use tollgate::{Gate, Limit, Limiter, ManualClock, Rate, UnkeyedLimiter};
use tollgate_tower::{LimitLayer, PolicyHandle};

struct Service {
    limiter: Limiter,
}

fn limits(period: Duration, burst: u64) -> Result<Service, Box<dyn Error>> {
    let limiter = Limiter::new("5/s burst 10".parse()?)?;
    let service = Service { limiter };
    let limiter = UnkeyedLimiter::new("100/min".parse()?)?;
    println!("one limit for all: {}", limiter.limiter().limit());
    let limit: Limit = "1/3s burst 4".parse()?;
    println!("from text: {limit}");
    let limit = Limit::token_bucket(Rate::new(1, period)?, burst)?;
    println!("from numbers: {limit}");
    Ok(service)
}

fn decisions(limiter: &Limiter, user: &str) -> Result<(), Box<dyn Error>> {
    let passes = limiter.check(user).is_admitted();
    println!("passes: {passes}");
    limiter.check(user).into_result()?;
    let wait = limiter
        .check(user)
        .into_result()
        .err()
        .and_then(|error| error.retry_after);
    println!("wait: {wait:?}");
    let passes = limiter.check_n(user, 5).is_admitted();
    println!("a cost of five passes: {passes}");
    let left = limiter.charge(user, 1).remaining();
    println!("left: {left}");
    Ok(())
}

async fn waits(limiter: &Limiter, user: &str) -> Result<(), Box<dyn Error>> {
    limiter.until_ready(user).await?;
    limiter
        .until_ready(user)
        .with_jitter(Duration::from_millis(10))
        .await?;
    limiter
        .until_ready(user)
        .with_cost(5)
        .with_max_wait(Duration::from_secs(1))
        .await?;
    Ok(())
}

async fn stream(
    mut items: Receiver<u8>,
    limiter: &UnkeyedLimiter,
    send: impl Fn(u8),
) -> Result<(), Box<dyn Error>> {
    while let Some(item) = items.recv().await {
        limiter.until_ready().await?;
        send(item);
    }
    Ok(())
}

fn test_with_a_clock() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("5/s".parse()?, clock.clone())?;
    clock.advance(Duration::from_secs(1));
    let keys = limiter.live_keys();
    println!("keys in use: {keys}");
    Ok(())
}

fn two_limits(gate: &Gate, user: &str) {
    let passes = gate.check(user).is_admitted();
    println!("two limits pass: {passes}");
}

async fn order() -> &'static str {
    "ordered\n"
}

/// Routers with one layer each.
pub(crate) fn apps() -> Result<Vec<Router>, Box<dyn Error>> {
    let route = || Router::new().route("/", get(async || "hello\n"));
    let mut apps = Vec::new();

    let app = route();
    let app = app.layer(LimitLayer::per_client("1/2s burst 5".parse()?)?);
    apps.push(app);

    let app = route();
    let key = |parts: &Parts| Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned());
    let app = app.layer(LimitLayer::per_key("5/s burst 10".parse()?, key)?);
    apps.push(app);

    let app = route();
    let app = app.layer(LimitLayer::per_key("100/s".parse()?, |_| None)?);
    apps.push(app);

    let app = route();
    let policy =
        "{ trusted_proxies: [10.0.0.0/8], limits: [{ name: ip, key: ip, allow: 5/s, burst: 10 }] }";
    let app = app.layer(LimitLayer::new(PolicyHandle::new(
        tollgate_config::parse("policy", policy.as_bytes())?.policy,
    )?));
    apps.push(app);

    let app = route();
    let app = app.route(
        "/orders",
        post(order).layer(LimitLayer::per_client("5/s".parse()?)?),
    );
    apps.push(app);

    let layer = LimitLayer::per_client("1/min".parse()?)?;
    let layer = layer.with_refusal(|response| response.map(|_| "slow down".into()));
    apps.push(route().layer(layer));
    Ok(apps)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let service = limits(Duration::from_secs(3), 4)?;
    decisions(&service.limiter, "ada")?;
    waits(&service.limiter, "ada").await?;
    let (sender, items) = tokio::sync::mpsc::channel(3);
    for item in 0..3 {
        sender.send(item).await?;
    }
    drop(sender);
    let limiter = UnkeyedLimiter::new("100/s burst 1".parse()?)?;
    stream(items, &limiter, |item| println!("item {item}")).await?;
    test_with_a_clock()?;
    two_limits(
        &Gate::with_limits(["5/s".parse()?, "1000/day".parse()?])?,
        "ada",
    );

    let app = apps()?.remove(0);
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
