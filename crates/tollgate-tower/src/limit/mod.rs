//! Limits in front of a service.
//!
//! # Theory
//!
//! Each request is decided under the policy in force. What is refused is answered here and never reaches
//! the service; what passes goes on, and its response tells how much is left; what has a place in a leaky
//! bucket is held until its slot and then goes on. Decisions in memory are made inside of `call` and await
//! nothing; only a store that a fleet shares is awaited.
//!
//! # What is charged, when, and what is given back
//!
//! | the future is dropped | units | places of concurrency limits |
//! |---|---|---|
//! | while the shared store is asked | given back when it has answered | likewise |
//! | while it waits for its slot, or for the service to be ready | given back | given back |
//! | while it waits in a queue further in ([`crate::queue`]), or if that turns it away | given back | given back |
//! | after the service behind the queue was called | stay taken | given back at once |
//! | (the service fails) | stay taken | given back at once |
//! | (the response's body ends, fails or is dropped) | stay taken | given back at once |
//!
//! The service is called inside of our `call` if nothing has to be waited for; so to drop a future that was
//! never polled counts as after the call. What is refused takes nothing. Without a queue of ours further in,
//! or if the policy has none, the call of the inner service is the call.
//!
//! A slot of a leaky bucket is given back only if it is the last one; in a shared store only if it began at once, too.
//! Otherwise it stays idle, `cost * T` of the output: later slots are promised, and no slot is moved.
//!
//! # When a slot begins
//!
//! The request goes on when tokio's timer says so: never early, and late by up to a millisecond (the timer's
//! granularity) and what the scheduler takes. So a window of length `w` sees at most `1 + (w + lateness) / T` requests
//! go on. Slots do not drift: each is counted from the decision, not from the request before it.
//!
//! A place of a concurrency limit also ends by the limit's own time (`ttl`), be the response still under
//! way or not: choose it longer than the longest response.
//!
//! # Readiness
//!
//! `poll_ready` is that of the inner service. Capacity that the inner service has set aside for a caller
//! is used only if the request goes on at once. A request that is refused or has to wait gives it back, by
//! dropping the ready clone: nobody blocks others while waiting here.
//!
//! # Header fields
//!
//! Fields of ours replace fields of the same name that the inner service has set, because two limits told
//! in one name would be read as one. Two exceptions: `Retry-After` and `Cache-Control` of an admitted
//! request are always the service's own, and a response that another layer of ours refused ([`Refused`])
//! keeps its fields. Numbers are those of the decision, not of the moment when the response is sent.
//!
//! [`Refused`]: crate::Refused

mod ask;
mod future;
mod service;

pub use ask::{Ask, ByKey, ByPolicy};
pub use future::LimitFuture;
pub use service::LimitService;
pub(crate) use service::unready;

use http::request::Parts;
use tollgate::{Limit, Span};
use tollgate_policy::{KeyPart, LimitRule, Policy, Quota, Source};
use tower_layer::Layer;

use crate::authority::{Authority, InForce, InForceError};
use crate::facts::{self, CostOf, PeerOf};

/// Nobody is held for longer, unless the layer is told otherwise.
const LONGEST_WAIT: Span = Span::from_secs(30);

/// Puts limits in front of a service.
///
/// With a policy:
///
/// ```
/// use tollgate_policy::{LimitRule, Policy, Quota};
/// use tollgate::Limit;
/// use tollgate_tower::LimitLayer;
///
/// let quota = Quota::plain(Limit::token_bucket("5/s".parse()?, 10)?);
/// let policy = Policy { limits: vec![LimitRule::new("all", quota)], ..Policy::default() };
/// let layer = LimitLayer::of(policy)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With one limit: [`LimitLayer::single`].
#[derive(Clone, Copy, Debug)]
pub struct LimitLayer<A, K = ByPolicy> {
    settings: Settings<A, K>,
}

/// What a layer and its services are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<A, K> {
    pub(crate) authority: A,
    pub(crate) ask: K,
    pub(crate) peer: PeerOf,
    pub(crate) cost: Option<CostOf>,
    pub(crate) longest_wait: Span,
}

impl<A: Authority> LimitLayer<A> {
    /// The limits of whichever policy this authority says is in force.
    pub fn new(authority: A) -> LimitLayer<A> {
        LimitLayer::asking(authority, ByPolicy)
    }
}

impl LimitLayer<InForce> {
    /// The limits of this policy, with nothing used yet.
    ///
    /// # Errors
    /// A limit or a queue that cannot be.
    pub fn of(policy: Policy) -> Result<LimitLayer<InForce>, InForceError> {
        Ok(LimitLayer::new(InForce::new(policy)?))
    }

    /// One limit, for each key by itself: for a single route, or a service without a policy. Requests
    /// without a key share one allowance, so that nobody gains by leaving it out.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use http::request::Parts;
    /// use tollgate::Limit;
    /// use tollgate_tower::LimitLayer;
    ///
    /// let limit = Limit::token_bucket("5/s".parse()?, 10)?.named("rides");
    /// let key = |parts: &Parts| Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned());
    /// let app: Router = Router::new()
    ///     .route("/rides", get(async || "none"))
    ///     .layer(LimitLayer::single(limit, key)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// To limit each client by its address, give [`crate::facts::by_client`] as the key, and see
    /// [`LimitLayer::with_peer`] for where addresses come from.
    ///
    /// # Errors
    /// A limit that cannot be.
    pub fn single<F>(limit: Limit, key: F) -> Result<LimitLayer<InForce, ByKey<F>>, InForceError>
    where
        F: Fn(&Parts) -> Option<String> + Clone + Send + Sync + 'static,
    {
        let mut rule = LimitRule::new("limit", Quota::plain(limit));
        if !rule.quota.limit.name().is_empty() {
            rule.name = rule.quota.limit.name().into();
        }
        rule.key = vec![KeyPart::new(Source::Field("key".into()))];
        let policy = Policy {
            limits: vec![rule],
            ..Policy::default()
        };
        Ok(LimitLayer::asking(InForce::new(policy)?, ByKey::new(key)))
    }
}

impl<A, K> LimitLayer<A, K> {
    fn asking(authority: A, ask: K) -> LimitLayer<A, K> {
        LimitLayer {
            settings: Settings {
                authority,
                ask,
                peer: facts::peer,
                cost: None,
                longest_wait: LONGEST_WAIT,
            },
        }
    }

    /// Finds the address that a connection came from with this function. Without it, it is the
    /// [`crate::Peer`] in the request's extensions.
    ///
    /// ```
    /// # use std::net::SocketAddr;
    /// # use axum::extract::ConnectInfo;
    /// # use tollgate::Limit;
    /// # use tollgate_policy::Policy;
    /// # use tollgate_tower::LimitLayer;
    /// // For axum, served with `into_make_service_with_connect_info::<SocketAddr>()`.
    /// let layer = LimitLayer::of(Policy::default())?
    ///     .with_peer(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_peer(mut self, peer: PeerOf) -> LimitLayer<A, K> {
        self.settings.peer = peer;
        self
    }

    /// Finds what a request costs with this function, for limits that do not say so themselves. Without
    /// it, or if it finds nothing, that is one.
    #[must_use]
    pub fn with_cost(mut self, cost: CostOf) -> LimitLayer<A, K> {
        self.settings.cost = Some(cost);
        self
    }

    /// Holds nobody for longer than this; whoever would wait longer for its slot is refused. 30 seconds
    /// without it.
    #[must_use]
    pub fn with_longest_wait(mut self, wait: Span) -> LimitLayer<A, K> {
        self.settings.longest_wait = wait;
        self
    }
}

impl<S, A: Clone, K: Clone> Layer<S> for LimitLayer<A, K> {
    type Service = LimitService<S, A, K>;

    fn layer(&self, inner: S) -> LimitService<S, A, K> {
        LimitService::new(inner, self.settings.clone())
    }
}
