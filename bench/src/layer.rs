//! Measures what a tower layer costs: an axum handler with it and without it.
//!
//! # Method
//!
//! Each service is a router with one route whose handler returns a fixed text, called as a server calls it: made ready, called,
//! its future polled to the end, its response dropped. Each request is made before its clock runs, and is over before the next
//! is made, as on a connection. With a thousand of them at hand, the allocator would have the parts of a thousand to tidy up,
//! at the cost of the next large allocation. Reading the clock costs all of them the same. Services are interleaved; reported
//! are the median of each, and its difference to the bare router, which is the price of its layers. Every request has one of
//! 1000 keys and passes.
//!
//! The concurrency limit of tower stands beside them for scale: it counts to one number for all requests together.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Request, Response};
use axum::routing::get;
use tollgate::Limit;
use tollgate_policy::{
    KeyPart, LimitRule, Policy, QueueConcurrency, QueueRule, Quota, Source, XRateLimit,
};
use tollgate_tower::{LimitLayer, PolicyHandle, QueueLayer};
use tower::Service;
use tower::limit::ConcurrencyLimitLayer;

use crate::args::Layer;
use crate::figures::{Figures, interleave};
use crate::output::{Output, Row};

const KEYS: usize = 1000;
/// Requests in each turn without `--ops`.
const REQUESTS: usize = 100_000;

type BoxError = Box<dyn std::error::Error>;

/// A name, and a router with layers in front of its handler.
type NamedRouter = (&'static str, Router);

/// Measures all services; returns whether all requests were answered.
pub(crate) fn run(args: &Layer, out: &mut Output<'_>) -> io::Result<bool> {
    let mut all = contestants().map_err(|error| io::Error::other(error.to_string()))?;
    // Queues need a timer.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build()?;
    let _inside = runtime.enter();
    let (passes, requests) = (args.repeats.passes, args.repeats.ops.unwrap_or(REQUESTS));
    let turns = interleave(passes, &mut all, |(_, router), _| {
        Ok(turn(router, requests))
    })?;
    let ns = |turns: &[(Duration, bool)]| {
        Figures::collect(turns, |(took, _)| {
            Some(took.as_nanos() as f64 / requests as f64)
        })
    };
    let bare = turns.first().and_then(|turns| ns(turns).median());
    let mut all_correct = true;
    let mut rows = Vec::new();
    for ((name, _), turns) in all.iter().zip(&turns) {
        let is_correct = turns.iter().all(|(_, answered)| *answered);
        all_correct &= is_correct;
        let median = ns(turns).median();
        let added = median.zip(bare).map(|(ns, bare)| ns - bare);
        let row = Row::new("layer", name)
            .figure("ns", "ns", median, 0)
            .figure("added_ns", "added ns", added, 0)
            .column("", if is_correct { "" } else { "!" })
            .json("passes", passes)
            .json("requests", requests)
            .json("answered_as_expected", is_correct);
        rows.push(row);
    }
    out.rows(
        &format!("one route of axum, {KEYS} keys, 1 thread: ns per request"),
        &rows,
    )?;
    Ok(all_correct)
}

/// The time of this many requests, and whether all were answered.
fn turn(router: &mut Router, requests: usize) -> (Duration, bool) {
    let mut elapsed = Duration::ZERO;
    let mut all_answered = true;
    for number in 0..requests {
        let request = request(number);
        let begin = Instant::now();
        all_answered &= is_answered(router, request);
        elapsed += begin.elapsed();
    }
    (elapsed, all_answered)
}

fn request(number: usize) -> Request<Body> {
    let key = format!("rider-{}", number % KEYS);
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = axum::http::Uri::from_static("/rides/nearby?limit=10");
    let headers = request.headers_mut();
    if let Ok(key) = key.parse() {
        headers.insert("x-rider-id", key);
    }
    headers.insert("host", axum::http::HeaderValue::from_static("api.example"));
    request
}

/// Calls the router as a server does. No future here ever waits.
fn is_answered(router: &mut Router, request: Request<Body>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let ready: Poll<Result<(), Infallible>> =
        <Router as Service<Request<Body>>>::poll_ready(router, &mut context);
    if ready.is_pending() {
        return false;
    }
    let mut response = pin!(router.call(request));
    let answered: Poll<Result<Response<Body>, Infallible>> = response.as_mut().poll(&mut context);
    matches!(answered, Poll::Ready(Ok(response)) if response.status() == 200)
}

fn contestants() -> Result<Vec<NamedRouter>, BoxError> {
    let route = || Router::new().route("/rides/nearby", get(async || "none"));
    let plain = PolicyHandle::new(policy(1)?)?;
    let three = PolicyHandle::new(policy(3)?)?;
    let mut silent = policy(1)?;
    silent.answers.x_ratelimit = XRateLimit::Off;
    silent.answers.ratelimit = false;
    let silent = PolicyHandle::new(silent)?;
    let mut queued = policy(1)?;
    let mut queue = QueueRule::new("all", QueueConcurrency::Fixed(64));
    queue.flow = vec![rider()];
    queued.queues = vec![queue];
    let queued = PolicyHandle::new(queued)?;
    let single = LimitLayer::per_key(limit()?, |parts: &Parts| {
        Some(parts.headers.get("x-rider-id")?.to_str().ok()?.to_owned())
    })?;
    Ok(vec![
        ("bare", route()),
        (
            "tower: concurrency limit",
            route().layer(ConcurrencyLimitLayer::new(64)),
        ),
        ("limit", route().layer(LimitLayer::new(plain))),
        ("limit, no headers", route().layer(LimitLayer::new(silent))),
        ("three limits", route().layer(LimitLayer::new(three))),
        ("limit on the route", route().layer(single)),
        ("queue", route().layer(QueueLayer::new(queued.clone()))),
        (
            "limit and queue",
            route()
                .layer(QueueLayer::new(queued.clone()))
                .layer(LimitLayer::new(queued)),
        ),
    ])
}

fn limit() -> Result<Limit, BoxError> {
    Ok(Limit::token_bucket("1000000/s".parse()?, 1_000_000)?)
}

fn rider() -> KeyPart {
    KeyPart::new(Source::Header("x-rider-id".into()))
}

fn policy(limits: usize) -> Result<Policy, BoxError> {
    let mut policy = Policy::default();
    for number in 0..limits {
        let quota = Quota::plain(limit()?);
        let mut rule = LimitRule::new(&format!("rides-{number}"), quota);
        rule.key = vec![rider()];
        policy.limits.push(rule);
    }
    Ok(policy)
}
