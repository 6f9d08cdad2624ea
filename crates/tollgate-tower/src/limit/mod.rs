//! The limit layer: rate and concurrency limits in front of a service.
//!
//! # Theory
//!
//! Each request is decided under the active policy. A refused request is answered here and never reaches the service. An
//! admitted one continues, and its response reports what is left. A request that got a slot of a leaky bucket waits for it.
//! Decisions in memory are made inside `call`; only a shared store is awaited.
//!
//! # What is charged, when, and what is returned
//!
//! | the future is dropped | units | permits of concurrency limits |
//! |---|---|---|
//! | while the shared store decides | refunded when it has decided | likewise |
//! | while the request waits for its slot, or for the service to be ready | refunded | released |
//! | while it waits in an inner queue ([`crate::queue`]), or if that rejects it | refunded | released |
//! | after the service behind the queue was called | stay taken | released at once |
//! | (the service fails) | stay taken | released at once |
//! | (the response's body ends, fails or is dropped) | stay taken | released at once |
//!
//! If nothing has to be awaited, the service is called inside `call`; dropping a future that was never polled then counts as
//! after the call. A refused request takes nothing. Without an inner queue of this crate, or if the policy has none, the call
//! of the inner service counts as served.
//!
//! A slot of a leaky bucket is refunded only if it is the last one; in a shared store only if it also began at once.
//! Otherwise it stays idle, `cost * T` of the output: later slots are promised, and no slot is moved.
//!
//! # When a slot begins
//!
//! The request continues when tokio's timer fires: never early, and late by up to a millisecond (the timer's granularity) plus
//! scheduling. A window of length `w` sees at most `1 + (w + lateness) / T` requests continue. Slots do not drift: each counts
//! from the decision, not from the request before it.
//!
//! A permit of a concurrency limit also ends by the limit's `ttl`, even while the response continues: choose it longer than
//! the longest response.
//!
//! # Readiness
//!
//! `poll_ready` is that of the inner service. Capacity that the inner service has reserved is used only if the request goes
//! on at once. A request that is refused or has to wait releases it by dropping the ready clone.
//!
//! # Header fields
//!
//! The layer's fields replace fields of the same name, because two limits under one name would be read as one. Two
//! exceptions: `Retry-After` and `Cache-Control` of an admitted request are the service's own, and a response that another
//! layer of this crate rejected ([`RejectedByLayer`]) keeps its fields. Numbers are those of the decision, not of the moment
//! when the response is sent.
//!
//! [`RejectedByLayer`]: crate::RejectedByLayer

mod service;

pub use service::LimitService;
pub(crate) use service::unready;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tollgate::{Limit, Span};
use tollgate_policy::{KeyPart, LimitRule, Policy, Quota, Source};
use tower_layer::Layer;

use crate::facts::{self, CostFn, PeerFn};
use crate::policy_source::{ActivationError, PolicyHandle, PolicySource};

/// The longest wait for a slot, unless the layer sets another one.
const MAX_WAIT: Span = Span::from_secs(30);

/// Changes the response to a refused request. Status and header fields are set already.
pub type RefusalFn = fn(Response<Bytes>) -> Response<Bytes>;

/// Finds the key of a request.
type KeyFn = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Puts limits in front of a service.
///
/// With a policy:
///
/// ```
/// use tollgate_policy::{LimitRule, Policy, Quota};
/// use tollgate::Limit;
/// use tollgate_tower::{LimitLayer, PolicyHandle};
///
/// let quota = Quota::plain(Limit::token_bucket("5/s".parse()?, 10)?);
/// let policy = Policy { limits: vec![LimitRule::new("all", quota)], ..Policy::default() };
/// let layer = LimitLayer::new(PolicyHandle::new(policy)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With one limit: [`LimitLayer::per_client`], [`LimitLayer::per_key`].
#[derive(Clone)]
#[must_use = "a layer does nothing until it is applied to a service"]
pub struct LimitLayer<P> {
    source: P,
    key: Option<KeyFn>,
    peer: PeerFn,
    cost: Option<CostFn>,
    refusal: RefusalFn,
    max_wait: Span,
}

impl<P: fmt::Debug> fmt::Debug for LimitLayer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer")
            .field("source", &self.source)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

impl LimitLayer<PolicyHandle> {
    /// One limit, for each client address by itself. An IPv6 client is its network of 64 bits, because one
    /// subscriber usually holds all of them.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use axum::{Router, routing::get};
    /// use tollgate_tower::LimitLayer;
    ///
    /// let app: Router = Router::new()
    ///     .route("/rides", get(async || "none"))
    ///     .layer(LimitLayer::per_client("5/s burst 10".parse()?)?);
    /// // Needed for the client's address, together with the feature `axum`. For other servers: `with_peer`.
    /// let app = app.into_make_service_with_connect_info::<SocketAddr>();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Requests without an address are answered 500, and the cause is logged once: see [`LimitLayer::with_peer`].
    ///
    /// # Errors
    /// An unusable limit.
    pub fn per_client(limit: Limit) -> Result<LimitLayer<PolicyHandle>, ActivationError> {
        let address = Source::Address { v4: 32, v6: 64 };
        Ok(LimitLayer::new(single(limit, address)?))
    }

    /// One limit, for each key by itself. Requests without a key share one allowance, so that leaving it out gains nothing.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use http::request::Parts;
    /// use tollgate::Limit;
    /// use tollgate_tower::LimitLayer;
    ///
    /// let limit = Limit::token_bucket("5/s".parse()?, 10)?.with_name("rides");
    /// let key = |parts: &Parts| Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned());
    /// let app: Router = Router::new()
    ///     .route("/rides", get(async || "none"))
    ///     .layer(LimitLayer::per_key(limit, key)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An unusable limit.
    pub fn per_key(
        limit: Limit,
        key: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Result<LimitLayer<PolicyHandle>, ActivationError> {
        let source = single(limit, Source::Field("key".into()))?;
        let key: Option<KeyFn> = Some(Arc::new(key));
        Ok(LimitLayer {
            key,
            ..LimitLayer::new(source)
        })
    }
}

/// A policy of one limit.
fn single(limit: Limit, key: Source) -> Result<PolicyHandle, ActivationError> {
    let name = match limit.name() {
        "" => "limit".to_owned(),
        name => name.to_owned(),
    };
    let mut rule = LimitRule::new(&name, Quota::plain(limit));
    rule.key = vec![KeyPart::new(key)];
    PolicyHandle::new(Policy {
        limits: vec![rule],
        ..Policy::default()
    })
}

impl<P> LimitLayer<P> {
    /// The limits of the active policy of `source`.
    pub fn new(source: P) -> LimitLayer<P>
    where
        P: PolicySource,
    {
        LimitLayer {
            source,
            key: None,
            peer: facts::peer,
            cost: None,
            refusal: |response| response,
            max_wait: MAX_WAIT,
        }
    }

    /// Finds the address of the connection's peer. By default it is the [`crate::PeerAddr`] in the request's extensions, or
    /// with the feature `axum` the `ConnectInfo<SocketAddr>`.
    ///
    /// If a limit or a list of the policy depends on the client's address and a request carries none, the request is answered
    /// 500 and the cause is logged once. Otherwise all clients would share one bucket. Behind a Unix socket, return a fixed
    /// address and configure the policy's trusted proxies.
    pub fn with_peer(mut self, peer: PeerFn) -> LimitLayer<P> {
        self.peer = peer;
        self
    }

    /// Finds the cost of a request, for limits whose rule does not state one. The default is 1.
    pub fn with_cost(mut self, cost: CostFn) -> LimitLayer<P> {
        self.cost = Some(cost);
        self
    }

    /// Changes the responses to refused requests, which have status, header fields and a text already.
    ///
    /// ```
    /// use tollgate_tower::LimitLayer;
    ///
    /// let layer = LimitLayer::per_client("5/s burst 10".parse()?)?
    ///     .with_refusal(|response| response.map(|_| "slow down".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_refusal(mut self, refusal: RefusalFn) -> LimitLayer<P> {
        self.refusal = refusal;
        self
    }

    /// The longest wait for a slot of a leaky bucket; a request that would wait longer is refused. The default is 30 seconds.
    pub fn with_max_wait(mut self, wait: impl Into<Span>) -> LimitLayer<P> {
        self.max_wait = wait.into();
        self
    }
}

impl<S, P: Clone> Layer<S> for LimitLayer<P> {
    type Service = LimitService<S, P>;

    fn layer(&self, inner: S) -> LimitService<S, P> {
        LimitService::new(inner, self.clone())
    }
}
