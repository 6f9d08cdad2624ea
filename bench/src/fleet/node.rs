//! One node: a gate with a store of its own, and requests that it decides one after the other.

use std::io;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate::{Limit, MonotonicClock, Origin, Rate, Span};
use tollgate_policy::shared::SharedStore;
use tollgate_policy::{
    Decide, DecisionRequest, KeyPart, LimitRule, NoHost, Op, Policy, PolicyDecision, PolicyGate,
    PriorState, Quota, Sharing, Source, Subject,
};
use tollgate_redis::{RedisStore, Settings};

use super::NODES;
use crate::system::pin_this_thread;

/// Requests in flight at each node.
const IN_FLIGHT: u64 = 64;
/// Decisions after which a request yields, and adds its counts to the others.
const BATCH: u64 = 32;
/// How often a node syncs with the store, as the service does.
const SYNC_EVERY: Duration = Duration::from_millis(100);
/// How long the store may take to be there.
const UP_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two probes of the store.
const PROBE_EVERY: Duration = Duration::from_millis(5);

type Gate = PolicyGate<MonotonicClock>;

/// Counts of decisions of all nodes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) decided: AtomicU64,
    pub(super) admitted: AtomicU64,
    /// Without the store, though it was needed.
    pub(super) fallback: AtomicU64,
}

/// What all nodes of a turn have in common.
#[derive(Debug)]
pub(super) struct Plan {
    /// `None` without a store.
    pub(super) sharing: Option<Sharing>,
    pub(super) port: u16,
    /// Of keys in the store: no turn sees the keys of another.
    pub(super) prefix: String,
    pub(super) keys: Vec<String>,
    pub(super) limit: u64,
    pub(super) core: Option<usize>,
    /// Where nodes and the observer wait for each other.
    pub(super) ready: Barrier,
    pub(super) stop: AtomicBool,
    pub(super) tally: Tally,
}

/// Runs a node until the plan stops.
pub(super) fn run(plan: &Arc<Plan>, seed: u64) -> io::Result<()> {
    let pinned = plan.core.map_or(Ok(()), pin_this_thread);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let gate = match pinned {
            Ok(()) => open(plan).await,
            Err(error) => Err(error),
        };
        // A node that failed must get here too, or the others would wait for ever.
        plan.ready.wait();
        let gate = gate?;
        let background = [
            tokio::spawn(sync(Arc::clone(&gate))),
            tokio::spawn(prefetch(Arc::clone(&gate))),
        ];
        let requests: Vec<_> = (0..IN_FLIGHT)
            .map(|number| {
                let seed = seed * IN_FLIGHT + number;
                tokio::spawn(request(Arc::clone(&gate), Arc::clone(plan), seed))
            })
            .collect();
        for task in requests {
            task.await.map_err(io::Error::other)?;
        }
        for task in background {
            task.abort();
        }
        Ok(())
    })
}

/// Decides one request after the other until the plan stops.
async fn request(gate: Arc<Gate>, plan: Arc<Plan>, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    while !plan.stop.load(Relaxed) {
        let (mut decided, mut admitted, mut fallback) = (0, 0, 0);
        let mut pending = false;
        // A decision of the store is added at once: many requests wait for it together, and would add together.
        while decided < BATCH && !pending {
            let key = plan.keys.get(rng.usize(..plan.keys.len()));
            decided += 1;
            let key = key.map_or("", String::as_str);
            let (decision, waited) = decide(&gate, key, Op::Charge).await;
            pending = waited;
            admitted += u64::from(decision.is_admitted());
            fallback += u64::from(decision.origin == Origin::Degraded);
        }
        plan.tally.decided.fetch_add(decided, Relaxed);
        plan.tally.admitted.fetch_add(admitted, Relaxed);
        plan.tally.fallback.fetch_add(fallback, Relaxed);
        if !pending {
            tokio::task::yield_now().await;
        }
    }
}

/// The decision, and whether it had to wait for the store.
async fn decide(gate: &Arc<Gate>, key: &str, op: Op) -> (PolicyDecision, bool) {
    let started = {
        let key = &[key];
        let subject = Subject::Rule {
            rule: 0,
            key,
            cost: 1,
        };
        let request = DecisionRequest::new(subject, op);
        tollgate_policy::decide(&NoHost::new(), gate, &request)
    };
    match started {
        Decide::Ready(decision) => (decision, false),
        Decide::Pending(pending) => (pending.await, true),
    }
}

async fn prefetch(gate: Arc<Gate>) {
    gate.run_background(std::future::pending()).await;
}

async fn sync(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(SYNC_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        gate.sync_leases().await;
    }
}

/// A gate whose store answers.
async fn open(plan: &Plan) -> io::Result<Arc<Gate>> {
    let mut prior = PriorState::new();
    if plan.sharing.is_some() {
        let mut settings = Settings::standalone("127.0.0.1", plan.port);
        // The figure is the rate, not the latency.
        settings.deadline = Duration::from_secs(1);
        settings.prefix.clone_from(&plan.prefix);
        settings.nodes = Some(NODES);
        let store = RedisStore::open(settings, &tokio::runtime::Handle::current())
            .map_err(io::Error::other)?;
        prior = prior.with_store(Arc::new(store) as Arc<dyn SharedStore>);
    }
    let gate = Gate::with_prior(policy(plan)?, Vec::new(), MonotonicClock::new(), prior)
        .map(Arc::new)
        .map_err(io::Error::other)?;
    let is_up = async {
        loop {
            let (decision, _) = decide(&gate, "probe", Op::Peek).await;
            if decision.origin != Origin::Degraded {
                return;
            }
            tokio::time::sleep(PROBE_EVERY).await;
        }
    };
    match tokio::time::timeout(UP_WITHIN, is_up).await {
        Ok(()) => Ok(gate),
        Err(_) => Err(io::Error::other("redis-server does not answer")),
    }
}

fn policy(plan: &Plan) -> io::Result<Policy> {
    let rate = Rate::new(plan.limit, Span::from_secs(1)).map_err(io::Error::other)?;
    let limit = Limit::token_bucket(rate, plan.limit).map_err(io::Error::other)?;
    let rule = LimitRule {
        key: vec![KeyPart::new(Source::Header("x-org".into()))],
        sharing: plan.sharing.unwrap_or_default(),
        ..LimitRule::new("org", Quota::plain(limit))
    };
    Ok(Policy {
        limits: vec![rule],
        ..Policy::default()
    })
}
