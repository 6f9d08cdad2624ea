//! One node: a gate with a store of its own, and requests that ask it one after the other.

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
use tollgate_redis::{Settings, Store};

use super::NODES;
use super::busy::Threads;
use crate::servers::cores::pin_this_thread;
use crate::stream::SplitMix;

/// Requests in flight at each node.
const IN_FLIGHT: u64 = 64;
/// Decisions after which a request lets others have their turn, and adds what it counted to the rest.
const TURN: u64 = 32;
/// How often a node settles with the store, as the service does.
const TEND_EVERY: Duration = Duration::from_millis(100);
/// How long the store may take to be there.
const UP_WITHIN: Duration = Duration::from_secs(5);
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(5);

type Gate = PolicyGate<MonotonicClock>;

/// What a node decided.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) decided: AtomicU64,
    pub(super) admitted: AtomicU64,
    /// Without the store.
    pub(super) alone: AtomicU64,
}

/// What all nodes of a pass have in common.
#[derive(Debug)]
pub(super) struct Plan {
    /// None if each counts for itself.
    pub(super) sharing: Option<Sharing>,
    pub(super) port: u16,
    /// Of keys in the store: no pass finds what another one left.
    pub(super) prefix: String,
    pub(super) keys: Vec<String>,
    pub(super) limit: u64,
    pub(super) core: Option<usize>,
    pub(super) threads: Threads,
    /// Where nodes, and whoever measures, wait for each other.
    pub(super) ready: Barrier,
    pub(super) stop: AtomicBool,
}

/// Runs a node until it is told to stop.
pub(super) fn run(plan: &Arc<Plan>, tally: &Arc<Tally>, seed: u64) -> io::Result<()> {
    let pinned = plan.core.map_or(Ok(()), pin_this_thread);
    let events = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    events.block_on(async {
        let gate = match pinned.and_then(|()| plan.threads.join()) {
            Ok(()) => open(plan).await,
            Err(error) => Err(error),
        };
        // Whoever fails must be here too, or the others would wait for ever.
        plan.ready.wait();
        let gate = gate?;
        let tending = [
            tokio::spawn(tend(Arc::clone(&gate))),
            tokio::spawn(borrow(Arc::clone(&gate))),
        ];
        let asking: Vec<_> = (0..IN_FLIGHT)
            .map(|number| {
                let seed = seed * IN_FLIGHT + number;
                let (gate, plan) = (Arc::clone(&gate), Arc::clone(plan));
                tokio::spawn(ask(gate, plan, Arc::clone(tally), seed))
            })
            .collect();
        for task in asking {
            task.await.map_err(io::Error::other)?;
        }
        for task in tending {
            task.abort();
        }
        Ok(())
    })
}

/// Asks one after the other until all are told to stop.
async fn ask(gate: Arc<Gate>, plan: Arc<Plan>, tally: Arc<Tally>, seed: u64) {
    let mut dice = SplitMix(seed);
    let many = plan.keys.len() as u64;
    while !plan.stop.load(Relaxed) {
        let (mut decided, mut admitted, mut alone) = (0, 0, 0);
        let mut is_asked = false;
        // What the store was asked for is added at once: many requests wait for it together, and would add together.
        while decided < TURN && !is_asked {
            let key = usize::try_from(dice.below(many)).unwrap_or_default();
            let key = plan.keys.get(key).map_or("", String::as_str);
            decided += 1;
            let (answer, asked) = decide(&gate, key, Op::Charge).await;
            is_asked = asked;
            admitted += u64::from(answer.is_admitted());
            alone += u64::from(answer.origin == Origin::Degraded);
        }
        tally.decided.fetch_add(decided, Relaxed);
        tally.admitted.fetch_add(admitted, Relaxed);
        tally.alone.fetch_add(alone, Relaxed);
        if !is_asked {
            tokio::task::yield_now().await;
        }
    }
}

/// The answer, and whether it was waited for.
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
        Decide::Ready(answer) => (answer, false),
        Decide::Pending(pending) => (pending.await, true),
    }
}

async fn borrow(gate: Arc<Gate>) {
    gate.run_background(std::future::pending()).await;
}

async fn tend(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(TEND_EVERY);
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
        // The rate is asked for here, not the answer in time.
        settings.deadline = Duration::from_secs(1);
        settings.prefix.clone_from(&plan.prefix);
        settings.nodes = Some(NODES);
        let store = Store::open(settings, &tokio::runtime::Handle::current())
            .map_err(|error| io::Error::other(error.to_string()))?;
        prior = prior.with_store(Arc::new(store) as Arc<dyn SharedStore>);
    }
    let gate = Gate::with_prior(policy(plan)?, Vec::new(), MonotonicClock::new(), prior)
        .map(Arc::new)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let is_up = async {
        loop {
            let (answer, _) = decide(&gate, "probe", Op::Peek).await;
            if answer.origin != Origin::Degraded {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
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
