//! A simulated fleet: nodes, their clocks, the network and the store, on virtual time.
//!
//! The nodes run the product's own code: an active policy, its leases, its share and its fallback. Everything around it is
//! simulated. [`plan`] draws a simulation from a seed, [`executor`] advances its time, [`network`] and [`fake_store`] are
//! the network and the store, and [`check`] checks the promises. The same seed is the same simulation, so a failure is
//! reported as its seed. [`load`] counts the store calls of a fleet without faults.

pub mod check;
pub mod executor;
pub mod fake_store;
pub mod load;
pub mod network;
pub mod plan;
mod replicated_log;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use tollgate::{Algorithm, Clock, KeySecret};
use tollgate_policy::shared::SharedStore;
use tollgate_policy::{
    DecisionRequest, Facts, KeyPart, LimitRule, NoHost, Op, Policy, PolicyDecision, PolicyError,
    PolicyGate, PriorState, Quota, Settlement, Sharing, Source, Subject, decide,
};

use self::check::{AdmittedRequest, History, RequestRecord, Violation};
use self::executor::{Executor, NodeClock, lock};
use self::fake_store::FakeStore;
use self::network::{Network, NodeLink};
use self::plan::FleetPlan;
use crate::rng::Rng;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Time between two runs of a node's maintenance: it returns unspent leases and reports usage.
const MAINTAIN_EVERY: u64 = 100 * MS;
/// From the last request to the end of all faults.
const HEALTHY_AFTER: u64 = 3 * SECOND;
/// From the last request to the moment at which every key must be admitted again.
const REST: u64 = 15 * SECOND;
/// From then to the end: answers of the last calls.
const AFTER: u64 = 2 * SECOND;

type Gate = PolicyGate<NodeClock>;

/// A node of the fleet.
struct SimulatedNode {
    number: u32,
    clock: NodeClock,
    gate: Mutex<Arc<Gate>>,
    /// Incremented by a crash: what was in flight is gone.
    life: AtomicU64,
}

struct Simulation {
    plan: FleetPlan,
    sharing: Sharing,
    executor: Executor,
    network: Arc<Network>,
    store_clock: NodeClock,
    nodes: Vec<SimulatedNode>,
    history: Mutex<History>,
    rng: Mutex<Rng>,
    is_over: AtomicBool,
}

/// The result of a seed.
#[derive(Clone, Debug)]
pub struct FleetReport {
    /// The events of the run.
    pub history: History,
    /// Broken promises.
    pub violations: Vec<Violation>,
}

/// Runs the simulation of a plan to its end.
///
/// # Errors
/// A limit that cannot be shared in this way.
pub fn run(plan: &FleetPlan, sharing: Sharing) -> Result<FleetReport, PolicyError> {
    let simulation = Simulation::new(plan.clone(), sharing)?;
    simulation.spawn_nodes();
    simulation
        .executor
        .spawn(inject_faults(Arc::clone(&simulation)));
    simulation
        .executor
        .spawn(check_liveness(Arc::clone(&simulation)));
    simulation
        .executor
        .run(plan.lasts_ns + REST + AFTER + SECOND);
    let mut history = std::mem::take(&mut *lock(&simulation.history));
    history.message_faults = simulation.network.message_faults.load(Relaxed);
    let store = lock(&simulation.network.store);
    history.answered = store.answered;
    for key in 0..plan.keys {
        history.totals.insert(key, store.totals(&key.to_string()));
    }
    drop(store);
    let violations = check::all(plan, sharing, &history);
    Ok(FleetReport {
        history,
        violations,
    })
}

impl Simulation {
    fn new(plan: FleetPlan, sharing: Sharing) -> Result<Arc<Simulation>, PolicyError> {
        let executor = Executor::default();
        let mut rng = Rng::new(plan.seed ^ 0x0066_6c65_6574);
        let mut clock = |ahead_max: u64| {
            let drift = i64::try_from(rng.between(0, 2 * plan.drift)).unwrap_or(0);
            let ahead = i64::try_from(rng.below(ahead_max.max(1))).unwrap_or(0);
            let drift = drift - i64::try_from(plan.drift).unwrap_or(0);
            NodeClock::new(&executor, ahead, drift)
        };
        // The store's clock is simulation time, until a fault sets it.
        let store_clock = NodeClock::new(&executor, 0, 0);
        let clocks: Vec<NodeClock> = (0..plan.nodes).map(|_| clock(10 * SECOND)).collect();
        let network = Arc::new(Network {
            store: FakeStore::new(&executor, store_clock.clone()),
            simulation: executor.clone(),
            network: plan.network,
            rng: Mutex::new(Rng::new(plan.seed.rotate_left(17) ^ 0x006e_6574)),
            alive: AtomicU32::new(plan.nodes),
            is_cut: AtomicBool::new(false),
            is_healthy: AtomicBool::new(false),
            mutant: plan.mutant,
            message_faults: AtomicU64::new(0),
        });
        let mut nodes = Vec::new();
        for (number, clock) in (0..plan.nodes).zip(clocks) {
            nodes.push(SimulatedNode {
                number,
                gate: Mutex::new(Arc::new(gate(&plan, sharing, &clock, &network)?)),
                clock,
                life: AtomicU64::new(0),
            });
        }
        Ok(Arc::new(Simulation {
            rng: Mutex::new(rng),
            plan,
            sharing,
            executor,
            network,
            store_clock,
            nodes,
            history: Mutex::default(),
            is_over: AtomicBool::new(false),
        }))
    }

    /// Spawns the tasks of every node.
    fn spawn_nodes(self: &Arc<Simulation>) {
        for number in 0..self.plan.nodes {
            self.executor.spawn(traffic(Arc::clone(self), number));
            self.executor.spawn(maintain(Arc::clone(self), number));
            self.executor.spawn(prefetch(Arc::clone(self), number));
        }
    }

    fn node(&self, number: u32) -> Option<&SimulatedNode> {
        self.nodes.get(number as usize)
    }
}

fn policy(plan: &FleetPlan, sharing: Sharing) -> Policy {
    let mut rule = LimitRule::new("limit", Quota::plain(plan.limit.clone()));
    rule.key = vec![KeyPart::new(Source::Header("x-key".into()))];
    rule.sharing = sharing;
    Policy {
        limits: vec![rule],
        ..Policy::default()
    }
}

/// A node that has just started.
fn gate(
    plan: &FleetPlan,
    sharing: Sharing,
    clock: &NodeClock,
    network: &Arc<Network>,
) -> Result<Gate, PolicyError> {
    let store = Arc::new(NodeLink(Arc::clone(network))) as Arc<dyn SharedStore>;
    // Tables iterate keys in the order of their hashes.
    let secret = KeySecret::from_seed(plan.seed);
    let prior = PriorState::new().with_secret(secret).with_store(store);
    Gate::with_prior(policy(plan, sharing), Vec::new(), clock.clone(), prior)
}

/// Requests at one node.
async fn traffic(simulation: Arc<Simulation>, number: u32) {
    let plan = &simulation.plan;
    while simulation.executor.now() < plan.lasts_ns {
        let gap = lock(&simulation.rng).below(2 * plan.gap_ns);
        simulation.executor.sleep(gap).await;
        let (key, cost) = {
            let mut rng = lock(&simulation.rng);
            let key = match (plan.is_uniform, rng.below(plan.keys)) {
                (true, key) => key,
                (false, last) => rng.below(last + 1),
            };
            (key, rng.between(1, plan.cost_max))
        };
        lock(&simulation.history).asked += 1;
        simulation
            .executor
            .spawn(request(Arc::clone(&simulation), number, key, cost));
    }
}

async fn ask(gate: &Arc<Gate>, key: u64, cost: u64) -> PolicyDecision {
    let started = {
        let key = key.to_string();
        let headers = [("x-key", key.as_str())];
        let facts = Facts {
            method: "GET",
            path: "/",
            headers: &headers,
            cost: Some(cost),
            ..Facts::default()
        };
        let request = DecisionRequest::new(Subject::Request(&facts), Op::Charge);
        decide(&NoHost::new(), gate, &request)
    };
    started.resolve().await
}

/// One request, to its end.
async fn request(simulation: Arc<Simulation>, number: u32, key: u64, cost: u64) {
    let plan = &simulation.plan;
    let Some(node) = simulation.node(number) else {
        return;
    };
    let (gate, life) = (Arc::clone(&lock(&node.gate)), node.life.load(Relaxed));
    let began = simulation.executor.now();
    let answer = ask(&gate, key, cost).await;
    {
        let mut history = lock(&simulation.history);
        history.slowest = history.slowest.max(simulation.executor.now() - began);
        history.requests.push(RequestRecord {
            at: began,
            key,
            cost,
            is_refused: !answer.is_admitted(),
        });
    }
    if !answer.is_admitted() || node.life.load(Relaxed) != life {
        return;
    }
    let is_place = matches!(plan.limit.algorithm(), Algorithm::Concurrency { .. });
    let cancels = plan.cancels_one_in > 0 && lock(&simulation.rng).one_in(plan.cancels_one_in);
    let holds = match (is_place, cancels) {
        (true, _) => 1 + lock(&simulation.rng).below(plan.holds_ns),
        (false, true) => lock(&simulation.rng).below(plan.cancels_within_ns),
        (false, false) => 0,
    };
    let at = simulation.executor.now();
    let place = {
        let mut history = lock(&simulation.history);
        history.passed.push(AdmittedRequest {
            at,
            at_store: simulation.store_clock.now().as_nanos(),
            node: number,
            key,
            cost,
            origin: answer.origin,
            cancelled: cancels || is_place,
            until: at + holds,
        });
        history.passed.len() - 1
    };
    if holds == 0 && !cancels {
        return;
    }
    simulation.executor.sleep(holds).await;
    if node.life.load(Relaxed) != life {
        // It ends with its node, and its charge stays.
        if let Some(passed) = lock(&simulation.history).passed.get_mut(place) {
            passed.cancelled = false;
        }
        return;
    }
    let how = if is_place {
        Settlement::Done
    } else {
        Settlement::Cancelled
    };
    gate.reserve(&answer).settle_everywhere(how).await;
}

/// The maintenance of a node.
async fn maintain(simulation: Arc<Simulation>, number: u32) {
    while !simulation.is_over.load(Relaxed) {
        simulation.executor.sleep(MAINTAIN_EVERY).await;
        if let Some(node) = simulation.node(number) {
            let gate = Arc::clone(&lock(&node.gate));
            gate.rebalance();
            gate.sync_leases().await;
        }
    }
}

/// Prefetches leases of a node. Some seeds run without it.
async fn prefetch(simulation: Arc<Simulation>, number: u32) {
    let Some(node) = simulation.node(number) else {
        return;
    };
    while simulation.plan.prefetches && !simulation.is_over.load(Relaxed) {
        let gate = Arc::clone(&lock(&node.gate));
        let replaced = async {
            while !simulation.is_over.load(Relaxed) && Arc::ptr_eq(&gate, &lock(&node.gate)) {
                simulation.executor.sleep(MAINTAIN_EVERY).await;
            }
        };
        gate.run_background(replaced).await;
    }
}

/// Injects the faults of the plan.
async fn inject_faults(simulation: Arc<Simulation>) {
    enum FaultEvent {
        Cut(bool),
        FailOver(u64),
        Crash(u32),
        Reload,
        StepStore(i64),
        StepNode(u32, u64),
    }
    let faults = &simulation.plan.faults;
    let mut all: Vec<(u64, FaultEvent)> = Vec::new();
    if let Some((from, to)) = faults.cut {
        all.extend([(from, FaultEvent::Cut(true)), (to, FaultEvent::Cut(false))]);
    }
    all.extend(
        faults
            .failovers
            .iter()
            .map(|(at, by)| (*at, FaultEvent::FailOver(*by))),
    );
    all.extend(
        faults
            .crashes
            .iter()
            .map(|(at, node)| (*at, FaultEvent::Crash(*node))),
    );
    all.extend(faults.reloads.iter().map(|at| (*at, FaultEvent::Reload)));
    all.extend(
        faults
            .store_steps
            .iter()
            .map(|(at, by)| (*at, FaultEvent::StepStore(*by))),
    );
    let steps = faults.node_steps.iter();
    all.extend(steps.map(|(at, node, by)| (*at, FaultEvent::StepNode(*node, *by))));
    all.sort_by_key(|(at, _)| *at);
    for (at, event) in all {
        simulation.executor.until(at).await;
        match event {
            FaultEvent::Cut(is_cut) => simulation.network.is_cut.store(is_cut, Relaxed),
            FaultEvent::FailOver(by) => lock(&simulation.network.store).fail_over(by),
            FaultEvent::Crash(number) => {
                if let Some(node) = simulation.node(number) {
                    node.life.fetch_add(1, Relaxed);
                    lock(&simulation.history).crashes += 1;
                    let new = gate(
                        &simulation.plan,
                        simulation.sharing,
                        &node.clock,
                        &simulation.network,
                    );
                    if let Ok(new) = new {
                        *lock(&node.gate) = Arc::new(new);
                    }
                }
            }
            FaultEvent::Reload => {
                for node in &simulation.nodes {
                    let mut gate = lock(&node.gate);
                    let next =
                        gate.reload(policy(&simulation.plan, simulation.sharing), Vec::new());
                    if let Ok(next) = next {
                        *gate = Arc::new(next);
                    }
                }
            }
            FaultEvent::StepStore(by) => simulation.store_clock.step(by),
            FaultEvent::StepNode(number, by) => {
                if let Some(node) = simulation.node(number) {
                    node.clock.step(i64::try_from(by).unwrap_or(0));
                }
            }
        }
    }
}

/// When everything is earned back, every node gets one more request for every key.
async fn check_liveness(simulation: Arc<Simulation>) {
    // Lost reports are repeated then, and have to be earned back as well.
    simulation
        .executor
        .until(simulation.plan.lasts_ns + HEALTHY_AFTER)
        .await;
    simulation.network.is_cut.store(false, Relaxed);
    simulation.network.is_healthy.store(true, Relaxed);
    simulation
        .executor
        .until(simulation.plan.lasts_ns + REST)
        .await;
    for node in &simulation.nodes {
        for key in 0..simulation.plan.keys {
            let gate = Arc::clone(&lock(&node.gate));
            let mut free = false;
            // A lost message is no refusal of the limit.
            for _ in 0..20 {
                let answer = ask(&gate, key, 1).await;
                let at = simulation.executor.now();
                if answer.is_admitted() {
                    lock(&simulation.history).passed.push(AdmittedRequest {
                        at,
                        at_store: simulation.store_clock.now().as_nanos(),
                        node: node.number,
                        key,
                        cost: 1,
                        origin: answer.origin,
                        cancelled: true,
                        until: at,
                    });
                    gate.reserve(&answer)
                        .settle_everywhere(Settlement::Cancelled)
                        .await;
                    free = true;
                    break;
                }
                simulation.executor.sleep(100 * MS).await;
            }
            if !free {
                lock(&simulation.history)
                    .locked_out
                    .push((node.number, key));
            }
        }
    }
    for node in &simulation.nodes {
        let gate = Arc::clone(&lock(&node.gate));
        gate.release_leases().await;
    }
    simulation.is_over.store(true, Relaxed);
}
