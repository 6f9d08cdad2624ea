//! A fleet in a box: nodes, their clocks, the network and the store, on virtual time.
//!
//! The nodes run the product's own code: a policy in force, its loans, its share and its fallback. What is
//! simulated is everything around it. [`plan`] makes up a world from a seed, [`clockwork`] has its time pass,
//! [`link`] and [`depot`] are the network and the store, and [`check`] says which promises were kept. The same
//! seed is the same world, so a failure is its seed. [`load`] counts what a store is asked when nothing goes wrong.

pub mod check;
pub mod clockwork;
pub mod depot;
pub mod link;
pub mod load;
mod logbook;
pub mod plan;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use tollgate::{Algorithm, Clock, KeySecret};
use tollgate_policy::shared::SharedStore;
use tollgate_policy::{
    Answer, Begun, Facts, KeyPart, LimitRule, Policy, PolicyError, PolicyGate, PriorState, Quota,
    Settlement, Sharing, Source,
};

use self::check::{Broken, History, Passed, Wish};
use self::clockwork::{Clockwork, Watch, lock};
use self::depot::Depot;
use self::link::{Link, Network};
use self::plan::Plan;
use crate::rng::Rng;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// How often a node gives back what it did not spend, and tells what passed.
const TEND_EVERY: u64 = 100 * MS;
/// From the last request to the end of all trouble.
const FINE_AFTER: u64 = 3 * SECOND;
/// From the last request to the moment at which everybody must be free again.
const REST: u64 = 15 * SECOND;
/// From then to the end: answers of the last questions.
const AFTER: u64 = 2 * SECOND;

type Gate = PolicyGate<Watch>;

/// A node of the fleet.
struct Node {
    number: u32,
    watch: Watch,
    gate: Mutex<Arc<Gate>>,
    /// Raised when it dies: what was under way is gone.
    life: AtomicU64,
}

struct World {
    plan: Plan,
    sharing: Sharing,
    clockwork: Clockwork,
    network: Arc<Network>,
    store_clock: Watch,
    nodes: Vec<Node>,
    history: Mutex<History>,
    rng: Mutex<Rng>,
    is_over: AtomicBool,
}

/// What came of a seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// What happened.
    pub history: History,
    /// Promises that were broken; none, if all is well.
    pub broken: Vec<Broken>,
}

/// Runs the world of a plan to its end.
///
/// # Errors
/// A limit that cannot be shared in this way.
pub fn run(plan: &Plan, sharing: Sharing) -> Result<Report, PolicyError> {
    let world = World::new(plan.clone(), sharing)?;
    world.open();
    world.clockwork.spawn(troubles(Arc::clone(&world)));
    world.clockwork.spawn(last_word(Arc::clone(&world)));
    world.clockwork.run(plan.lasts_ns + REST + AFTER + SECOND);
    let mut history = std::mem::take(&mut *lock(&world.history));
    history.mishaps = world.network.mishaps.load(Relaxed);
    let depot = lock(&world.network.depot);
    history.answered = depot.answered;
    for key in 0..plan.keys {
        history.books.insert(key, depot.book(&key.to_string()));
    }
    drop(depot);
    let broken = check::all(plan, sharing, &history);
    Ok(Report { history, broken })
}

impl World {
    fn new(plan: Plan, sharing: Sharing) -> Result<Arc<World>, PolicyError> {
        let clockwork = Clockwork::default();
        let mut rng = Rng::new(plan.seed ^ 0x0066_6c65_6574);
        let mut watch = |ahead_max: u64| {
            let drift = i64::try_from(rng.between(0, 2 * plan.drift)).unwrap_or(0);
            let ahead = i64::try_from(rng.below(ahead_max.max(1))).unwrap_or(0);
            let drift = drift - i64::try_from(plan.drift).unwrap_or(0);
            Watch::new(&clockwork, ahead, drift)
        };
        // The time of the world is that of the store, as long as nobody sets it.
        let store_clock = Watch::new(&clockwork, 0, 0);
        let watches: Vec<Watch> = (0..plan.nodes).map(|_| watch(10 * SECOND)).collect();
        let network = Arc::new(Network {
            depot: Depot::new(&clockwork, store_clock.clone()),
            world: clockwork.clone(),
            weather: plan.weather,
            rng: Mutex::new(Rng::new(plan.seed.rotate_left(17) ^ 0x006e_6574)),
            alive: AtomicU32::new(plan.nodes),
            is_cut: AtomicBool::new(false),
            is_fine: AtomicBool::new(false),
            planted: plan.planted,
            mishaps: AtomicU64::new(0),
        });
        let mut nodes = Vec::new();
        for (number, watch) in (0..plan.nodes).zip(watches) {
            nodes.push(Node {
                number,
                gate: Mutex::new(Arc::new(gate(&plan, sharing, &watch, &network)?)),
                watch,
                life: AtomicU64::new(0),
            });
        }
        Ok(Arc::new(World {
            rng: Mutex::new(rng),
            plan,
            sharing,
            clockwork,
            network,
            store_clock,
            nodes,
            history: Mutex::default(),
            is_over: AtomicBool::new(false),
        }))
    }

    /// Has every node do what it does when all is well.
    fn open(self: &Arc<World>) {
        for number in 0..self.plan.nodes {
            self.clockwork.spawn(traffic(Arc::clone(self), number));
            self.clockwork.spawn(upkeep(Arc::clone(self), number));
            self.clockwork.spawn(borrowing(Arc::clone(self), number));
        }
    }

    fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.get(number as usize)
    }
}

fn policy(plan: &Plan, sharing: Sharing) -> Policy {
    let mut rule = LimitRule::new("limit", Quota::plain(plan.limit.clone()));
    rule.key = vec![KeyPart::of(Source::Header("x-key".into()))];
    rule.sharing = sharing;
    Policy {
        limits: vec![rule],
        ..Policy::default()
    }
}

/// A node that has just started.
fn gate(
    plan: &Plan,
    sharing: Sharing,
    watch: &Watch,
    network: &Arc<Network>,
) -> Result<Gate, PolicyError> {
    let store = Arc::new(Link(Arc::clone(network))) as Arc<dyn SharedStore>;
    // Keys are gone through in the order of their hashes.
    let secret = KeySecret::from_seed(plan.seed);
    let prior = PriorState::nothing().with_secret(secret).with_store(store);
    Gate::with_prior(policy(plan, sharing), Vec::new(), watch.clone(), prior)
}

/// Requests at one node.
async fn traffic(world: Arc<World>, number: u32) {
    let plan = &world.plan;
    while world.clockwork.now() < plan.lasts_ns {
        let gap = lock(&world.rng).below(2 * plan.gap_ns);
        world.clockwork.sleep(gap).await;
        let (key, cost) = {
            let mut rng = lock(&world.rng);
            let key = match (plan.are_keys_alike, rng.below(plan.keys)) {
                (true, key) => key,
                (false, last) => rng.below(last + 1),
            };
            (key, rng.between(1, plan.cost_max))
        };
        lock(&world.history).asked += 1;
        world
            .clockwork
            .spawn(request(Arc::clone(&world), number, key, cost));
    }
}

async fn ask(gate: &Gate, key: u64, cost: u64) -> Answer {
    let begun = {
        let key = key.to_string();
        let headers = [("x-key", key.as_str())];
        gate.begin(
            &Facts {
                method: "GET",
                path: "/",
                headers: &headers,
                cost: Some(cost),
                ..Facts::default()
            },
            true,
        )
    };
    match begun {
        Begun::Decided(answer) => answer,
        Begun::Asks(asking) => gate.finish(asking).await,
    }
}

/// One request, to its end.
async fn request(world: Arc<World>, number: u32, key: u64, cost: u64) {
    let plan = &world.plan;
    let Some(node) = world.node(number) else {
        return;
    };
    let (gate, life) = (Arc::clone(&lock(&node.gate)), node.life.load(Relaxed));
    let began = world.clockwork.now();
    let answer = ask(&gate, key, cost).await;
    {
        let mut history = lock(&world.history);
        history.slowest = history.slowest.max(world.clockwork.now() - began);
        history.wishes.push(Wish {
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
    let cancels = plan.cancels_one_in > 0 && lock(&world.rng).one_in(plan.cancels_one_in);
    let holds = match (is_place, cancels) {
        (true, _) => 1 + lock(&world.rng).below(plan.holds_ns),
        (false, true) => lock(&world.rng).below(plan.cancels_within_ns),
        (false, false) => 0,
    };
    let at = world.clockwork.now();
    let place = {
        let mut history = lock(&world.history);
        history.passed.push(Passed {
            at,
            at_store: world.store_clock.now().as_nanos(),
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
    world.clockwork.sleep(holds).await;
    if node.life.load(Relaxed) != life {
        // It dies with its node, and what it took stays taken.
        if let Some(passed) = lock(&world.history).passed.get_mut(place) {
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

/// What a node does beside answering.
async fn upkeep(world: Arc<World>, number: u32) {
    while !world.is_over.load(Relaxed) {
        world.clockwork.sleep(TEND_EVERY).await;
        if let Some(node) = world.node(number) {
            let gate = Arc::clone(&lock(&node.gate));
            gate.divide();
            gate.tend().await;
        }
    }
}

/// What a node borrows before it is needed. Some seeds have nobody who sees to that.
async fn borrowing(world: Arc<World>, number: u32) {
    let Some(node) = world.node(number) else {
        return;
    };
    while world.plan.borrows_ahead && !world.is_over.load(Relaxed) {
        let gate = Arc::clone(&lock(&node.gate));
        let replaced = async {
            while !world.is_over.load(Relaxed) && Arc::ptr_eq(&gate, &lock(&node.gate)) {
                world.clockwork.sleep(TEND_EVERY).await;
            }
        };
        gate.borrow_ahead(replaced).await;
    }
}

/// What goes wrong.
async fn troubles(world: Arc<World>) {
    enum Trouble {
        Cut(bool),
        FailOver(u64),
        Crash(u32),
        Reload,
        StepStore(i64),
        StepNode(u32, u64),
    }
    let troubles = &world.plan.troubles;
    let mut all: Vec<(u64, Trouble)> = Vec::new();
    if let Some((from, to)) = troubles.cut {
        all.extend([(from, Trouble::Cut(true)), (to, Trouble::Cut(false))]);
    }
    all.extend(
        troubles
            .failovers
            .iter()
            .map(|(at, by)| (*at, Trouble::FailOver(*by))),
    );
    all.extend(
        troubles
            .crashes
            .iter()
            .map(|(at, node)| (*at, Trouble::Crash(*node))),
    );
    all.extend(troubles.reloads.iter().map(|at| (*at, Trouble::Reload)));
    all.extend(
        troubles
            .store_steps
            .iter()
            .map(|(at, by)| (*at, Trouble::StepStore(*by))),
    );
    let steps = troubles.node_steps.iter();
    all.extend(steps.map(|(at, node, by)| (*at, Trouble::StepNode(*node, *by))));
    all.sort_by_key(|(at, _)| *at);
    for (at, trouble) in all {
        world.clockwork.until(at).await;
        match trouble {
            Trouble::Cut(is_cut) => world.network.is_cut.store(is_cut, Relaxed),
            Trouble::FailOver(by) => lock(&world.network.depot).fail_over(by),
            Trouble::Crash(number) => {
                if let Some(node) = world.node(number) {
                    node.life.fetch_add(1, Relaxed);
                    lock(&world.history).crashes += 1;
                    let new = gate(&world.plan, world.sharing, &node.watch, &world.network);
                    if let Ok(new) = new {
                        *lock(&node.gate) = Arc::new(new);
                    }
                }
            }
            Trouble::Reload => {
                for node in &world.nodes {
                    let mut gate = lock(&node.gate);
                    let next = gate.succeed(policy(&world.plan, world.sharing), Vec::new());
                    if let Ok(next) = next {
                        *gate = Arc::new(next);
                    }
                }
            }
            Trouble::StepStore(by) => world.store_clock.step(by),
            Trouble::StepNode(number, by) => {
                if let Some(node) = world.node(number) {
                    node.watch.step(i64::try_from(by).unwrap_or(0));
                }
            }
        }
    }
}

/// When everything is earned back, everybody is asked once more.
async fn last_word(world: Arc<World>) {
    // What was lost meanwhile is told again, and has to be earned back as well.
    world
        .clockwork
        .until(world.plan.lasts_ns + FINE_AFTER)
        .await;
    world.network.is_cut.store(false, Relaxed);
    world.network.is_fine.store(true, Relaxed);
    world.clockwork.until(world.plan.lasts_ns + REST).await;
    for node in &world.nodes {
        for key in 0..world.plan.keys {
            let gate = Arc::clone(&lock(&node.gate));
            let mut free = false;
            // A lost message is no refusal of the limit.
            for _ in 0..20 {
                let answer = ask(&gate, key, 1).await;
                let at = world.clockwork.now();
                if answer.is_admitted() {
                    lock(&world.history).passed.push(Passed {
                        at,
                        at_store: world.store_clock.now().as_nanos(),
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
                world.clockwork.sleep(100 * MS).await;
            }
            if !free {
                lock(&world.history).locked_out.push((node.number, key));
            }
        }
    }
    for node in &world.nodes {
        let gate = Arc::clone(&lock(&node.gate));
        gate.return_loans().await;
    }
    world.is_over.store(true, Relaxed);
}
