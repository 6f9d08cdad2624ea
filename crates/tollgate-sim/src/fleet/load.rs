//! The store calls of a fleet without faults.
//!
//! # Theory
//!
//! An *account* is one key at one node. With `sharing: lease` or `sync` a busy account makes a bounded number of store calls
//! a second, however many requests come: a block covers the demand of a moment, and a copy is pushed by the clock. So the
//! work of the store grows with accounts, which are keys times nodes, and not with requests. With `exact` every request is
//! a store call.
//!
//! A [`Series`] varies one thing at a time. Requests are those of the whole fleet: with four times the keys, or a quarter of
//! the nodes, as many requests come as before, and each account has its part of them.
//!
//! Each series is run with a limit that no key reaches ([`Room::Wide`]), where every request passes, and with one
//! that all keys reach ([`Room::Narrow`]), where most requests are refused and refusals have to be cheap, too.
//!
//! # Invariant
//!
//! Every account is busy at every point: [`REQUESTS_OF_ACCOUNT`] at the least. A key with few requests is
//! decided by the store on purpose, and would hide the effect.
//!
//! # What it does not know
//!
//! How long anything takes: time is virtual, and a store here is never too slow.

use std::num::NonZeroU64;

use tollgate::{Algorithm, Limit, LimitError, Rate, Span};
use tollgate_policy::{PolicyError, Quota, Sharing};

use super::Simulation;
use super::check::{self, Violation};
use super::executor::lock;
use super::network::{Mutant, NetworkFaults};
use super::plan::{FaultPlan, FleetPlan};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Requests in a second of one account, where there are fewest: five in the 50 ms that a block is for.
pub const REQUESTS_OF_ACCOUNT: u64 = 100;
/// From the fewest requests to the most.
pub const REQUESTS_GROW: u64 = 16;
/// From the fewest nodes to the most.
pub const NODES_GROW: u32 = 16;
/// From the fewest keys to the most.
pub const KEYS_GROW: u64 = 4;

/// How much room a limit leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// No request is refused.
    Wide,
    /// Where the fewest requests come, twice as many as may pass.
    Narrow,
}

impl Room {
    /// Both.
    pub const ALL: [Room; 2] = [Room::Wide, Room::Narrow];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Room::Wide => "wide",
            Room::Narrow => "narrow",
        }
    }

    /// Questions in a second for one account at the most, unless every request is one. A block is for 50 ms; one that is
    /// refused is requested again, smaller, and then the request is charged alone, as may be some of those that wait for it.
    pub const fn questions_of_account(self) -> u64 {
        match self {
            Room::Wide => 40,
            Room::Narrow => 80,
        }
    }
}

/// Fleets of which each differs from the busiest in one thing.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// Nodes, where there are most.
    pub nodes: u32,
    /// Keys, where there are fewest.
    pub keys: u64,
    /// How long requests come.
    pub lasts_ns: u64,
    /// The seed.
    pub seed: u64,
}

/// One fleet of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The parameter that varies.
    pub varies: &'static str,
    /// How many nodes there are.
    pub nodes: u32,
    /// How many keys there are, all with equal load.
    pub keys: u64,
    /// Requests in a second, at all nodes together.
    pub requests: u64,
}

impl Point {
    /// Keys times nodes.
    pub fn accounts(&self) -> u64 {
        self.keys * u64::from(self.nodes)
    }
}

/// The result of one fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests that came.
    pub asked: u64,
    /// Those that passed.
    pub passed: u64,
    /// Those that the limit has room for.
    pub may_pass: u64,
    /// Calls that the store answered.
    pub questions: u64,
    /// The stated bound, if it was broken.
    pub violations: Option<Violation>,
}

impl Load {
    /// The broken promise of one fleet.
    pub fn violation(
        &self,
        series: &Series,
        (room, sharing, point): (Room, Sharing, &Point),
    ) -> Option<Violation> {
        let (asked, questions) = (self.asked, self.questions);
        let is_kept = match sharing {
            // What has not arrived when time is over is not answered.
            Sharing::Exact => questions <= asked && questions * 100 >= asked * 99,
            Sharing::Lease | Sharing::Sync => {
                let most = u128::from(room.questions_of_account() * point.accounts());
                u128::from(questions) * u128::from(SECOND) <= most * u128::from(series.lasts_ns)
            }
        };
        self.violations.clone().or_else(|| {
            (!is_kept).then(|| Violation {
                promise: "the load of the store",
                how: format!("{questions} questions for {asked} requests"),
            })
        })
    }
}

/// The most requests cause at most twice the store calls of the fewest, unless every request is a call. It is not
/// once, because an account that has five requests in the time of a block does not always use it up.
pub fn grows_with_requests(sharing: Sharing, fewest: &Load, most: &Load) -> Option<Violation> {
    let (before, after) = (fewest.questions, most.questions);
    let is_kept = match sharing {
        Sharing::Exact => after >= before * (REQUESTS_GROW - 1),
        Sharing::Lease | Sharing::Sync => after <= before * 2,
    };
    (!is_kept).then(|| Violation {
        promise: "the load of the store",
        how: format!("{before} questions grew to {after} with {REQUESTS_GROW} times the requests"),
    })
}

impl Series {
    /// All fleets: first the one with the fewest requests, third the one with the most, from which the rest differs.
    pub fn points(&self) -> [Point; 6] {
        let (nodes, keys) = (self.nodes, self.keys);
        let least = REQUESTS_OF_ACCOUNT * keys * u64::from(nodes);
        let point = |varies, nodes, keys, requests| Point {
            varies,
            nodes,
            keys,
            requests,
        };
        let most = least * REQUESTS_GROW;
        [
            point("requests x1", nodes, keys, least),
            point("requests x4", nodes, keys, least * 4),
            point("requests x16", nodes, keys, most),
            point("keys x4", nodes, keys * KEYS_GROW, most),
            point("nodes / 4", nodes / 4, keys, most),
            point("nodes / 16", nodes / NODES_GROW, keys, most),
        ]
    }

    /// The limit of each key: the same at all points.
    ///
    /// # Errors
    /// More nodes than a bucket has units for, or none.
    pub fn limit(&self, room: Room) -> Result<Limit, LimitError> {
        let of_key = REQUESTS_OF_ACCOUNT * u64::from(self.nodes);
        let (units, burst) = match room {
            // A block is at most a 4n-th of it, and should never be cut short.
            Room::Wide => (of_key * 1_000, of_key * 1_000),
            // What there is at first is gone in half a second.
            Room::Narrow => (of_key / 2, of_key / 4),
        };
        let units = NonZeroU64::new(units).unwrap_or(NonZeroU64::MIN);
        Limit::token_bucket(Rate::per_second(units), burst)
    }

    /// Runs one fleet.
    ///
    /// # Errors
    /// A limit that cannot be shared in this way.
    pub fn measure(
        &self,
        point: &Point,
        limit: &Limit,
        sharing: Sharing,
    ) -> Result<Load, PolicyError> {
        let plan = self.plan(point, limit.clone());
        let simulation = Simulation::new(plan.clone(), sharing)?;
        simulation.spawn_nodes();
        simulation.executor.run(plan.lasts_ns);
        let history = std::mem::take(&mut *lock(&simulation.history));
        let room = match *limit.algorithm() {
            Algorithm::TokenBucket { rate, burst } => {
                burst.saturating_add(rate.earned_in(Span::from_nanos(plan.lasts_ns)))
            }
            _ => u64::MAX,
        };
        Ok(Load {
            asked: history.asked,
            passed: history.passed.len() as u64,
            // Keys get equal load: all of them reach their limit, or none.
            may_pass: history.asked.min(room.saturating_mul(plan.keys)),
            questions: lock(&simulation.network.store).answered,
            violations: check::stated_bound(&plan, &Quota::plain(limit.clone()), sharing, &history),
        })
    }

    fn plan(&self, point: &Point, limit: Limit) -> FleetPlan {
        let nodes = u64::from(point.nodes);
        FleetPlan {
            seed: self.seed,
            limit: limit.with_max_keys(64),
            nodes: point.nodes,
            keys: point.keys,
            is_uniform: true,
            lasts_ns: self.lasts_ns,
            gap_ns: SECOND * nodes / point.requests.max(1),
            cost_max: 1,
            cancels_one_in: 0,
            holds_ns: MS,
            network: NetworkFaults {
                latency_min_ns: MS / 20,
                latency_max_ns: MS / 4,
                lost_one_in: 0,
                duplicated_one_in: 0,
                deadline_ns: 8 * MS,
            },
            drift: 50,
            faults: FaultPlan::default(),
            prefetches: true,
            cancels_within_ns: 0,
            mutant: Mutant::None,
        }
    }
}
