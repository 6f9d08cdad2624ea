//! The price of a layer: an axum handler with it and without it.
//!
//! # Method
//!
//! Each service is a router with one route whose handler answers a fixed text, called as a server calls
//! it: made ready, called, its future polled to the end, its response dropped. Each request is made before
//! its clock runs, and is over before the next is made, as on a connection: with a thousand of them at hand,
//! the allocator has the parts of a thousand to tidy up, and does so at the cost of whoever next asks it for
//! more than a kilobyte. Reading the clock costs all of them the same. All services take turns; the median of each one's turns is told, and what it takes more
//! than the bare router, which is the price of its layers. Every request has one of 1000 keys and passes.
//!
//! The layer of tower that limits concurrency stands beside them as a measure: it counts to a number, for
//! everybody together.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, Write};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

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
use crate::table::Table;

const KEYS: usize = 1000;

type BoxError = Box<dyn std::error::Error>;

/// A router and what stands in front of its handler.
struct Contestant {
    name: &'static str,
    router: Router,
    ns: Vec<f64>,
    is_well: bool,
}

/// Measures all services; returns whether all requests were answered.
pub(crate) fn run(wanted: &Layer, out: &mut dyn Write) -> io::Result<bool> {
    let mut all = contestants().map_err(|error| io::Error::other(error.to_string()))?;
    // An admission queue needs a timer.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build()?;
    let _inside = runtime.enter();
    for _ in 0..wanted.rounds {
        for contestant in &mut all {
            contestant.turn(wanted.requests);
        }
    }
    let bare = all.first().map_or(0.0, Contestant::median);
    let mut table = Table::new(["service", "ns", "added ns"]);
    for contestant in &all {
        let (ns, added) = (contestant.median(), contestant.median() - bare);
        let Contestant { name, is_well, .. } = contestant;
        if wanted.json {
            writeln!(
                out,
                "{{\"command\":\"layer\",\"service\":\"{name}\",\"ns\":{ns:.1},\"added_ns\":{added:.1},\
                 \"rounds\":{},\"requests\":{},\"answered_as_expected\":{is_well}}}",
                wanted.rounds, wanted.requests
            )?;
        }
        let mark = if *is_well { "" } else { " !" };
        table.row([
            (*name).to_owned(),
            format!("{ns:.0}"),
            format!("{added:.0}{mark}"),
        ]);
    }
    if !wanted.json {
        writeln!(
            out,
            "\none route of axum, {KEYS} keys, 1 thread: ns per request"
        )?;
        table.print(out)?;
    }
    Ok(all.iter().all(|contestant| contestant.is_well))
}

impl Contestant {
    fn new(name: &'static str, router: Router) -> Contestant {
        Contestant {
            name,
            router,
            ns: Vec::new(),
            is_well: true,
        }
    }

    fn median(&self) -> f64 {
        let mut ns = self.ns.clone();
        ns.sort_by(f64::total_cmp);
        ns.get(ns.len() / 2).copied().unwrap_or(0.0)
    }

    fn turn(&mut self, requests: usize) {
        let mut elapsed = std::time::Duration::ZERO;
        let mut done = 0;
        while done < requests {
            let request = made(done);
            done += 1;
            let begin = Instant::now();
            let is_answered = is_answered(&mut self.router, request);
            elapsed += begin.elapsed();
            self.is_well &= is_answered;
        }
        // Below a day of nanoseconds: exact enough.
        self.ns.push(elapsed.as_nanos() as f64 / done as f64);
    }
}

fn made(number: usize) -> Request<Body> {
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

/// Calls the router as a server does. Nothing here ever waits.
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

fn contestants() -> Result<Vec<Contestant>, BoxError> {
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
        Contestant::new("bare", route()),
        Contestant::new(
            "tower: concurrency limit",
            route().layer(ConcurrencyLimitLayer::new(64)),
        ),
        Contestant::new("limit", route().layer(LimitLayer::new(plain))),
        Contestant::new("limit, no headers", route().layer(LimitLayer::new(silent))),
        Contestant::new("three limits", route().layer(LimitLayer::new(three))),
        Contestant::new("limit on the route", route().layer(single)),
        Contestant::new("queue", route().layer(QueueLayer::new(queued.clone()))),
        Contestant::new(
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
