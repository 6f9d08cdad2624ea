//! What a fleet asks of its store in fair weather.
//!
//! # Theory
//!
//! An *account* is one key at one node. With `sharing: lease` or `sync` a busy account asks the store so many times a
//! second, however many requests come: a block is as large as the demand of a moment, and news is told by the clock. So the
//! work of the store grows with accounts, which are keys times nodes, and not with requests. With `exact` every request is a
//! question.
//!
//! A [`Series`] varies one thing at a time. Requests are those of the whole fleet: with four times the keys, or a quarter of
//! the nodes, as many requests come as before, and each account has its part of them.
//!
//! Each series is run with a limit that nobody reaches ([`Room::Wide`]), where whoever asks gets what he wants, and with one
//! that all reach ([`Room::Narrow`]), where most are refused and refusals have to be cheap, too.
//!
//! # Invariant
//!
//! Every account is busy at every point: [`REQUESTS_OF_ACCOUNT`] at the least. A key that is asked for now and then is
//! decided by the store on purpose, and would hide what is to be seen.
//!
//! # What it does not know
//!
//! How long anything takes: time is virtual, and a store here is never too slow.

use std::num::NonZeroU64;

use tollgate::{Algorithm, Limit, LimitError, Rate, Span};
use tollgate_policy::{PolicyError, Quota, Sharing};

use super::World;
use super::check::{self, Broken};
use super::clockwork::lock;
use super::link::{Planted, Weather};
use super::plan::{Plan, Troubles};

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
    /// Nobody is refused.
    Wide,
    /// Where the fewest requests come, twice as many as may pass.
    Narrow,
}

impl Room {
    /// Both.
    pub const ALL: [Room; 2] = [Room::Wide, Room::Narrow];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Room::Wide => "wide",
            Room::Narrow => "narrow",
        }
    }

    /// Questions in a second for one account at the most, unless every request is one. A block is for 50 ms; one that is
    /// refused is asked for again, smaller, and then the request asks for itself, as may some of those who waited for it.
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
    /// Where chance begins.
    pub seed: u64,
}

/// One fleet of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// In what it differs.
    pub varies: &'static str,
    /// How many nodes there are.
    pub nodes: u32,
    /// How many keys are asked for, all of them alike.
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

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests that came.
    pub asked: u64,
    /// Those that passed.
    pub passed: u64,
    /// Those that the limit has room for.
    pub may_pass: u64,
    /// What the store was asked and told.
    pub questions: u64,
    /// The promise about what may pass at the most, if it was broken.
    pub broken: Option<Broken>,
}

impl Load {
    /// What must hold of one fleet, and is broken.
    pub fn is_broken(
        &self,
        series: &Series,
        (room, sharing, point): (Room, Sharing, &Point),
    ) -> Option<Broken> {
        let (asked, questions) = (self.asked, self.questions);
        let is_told = match sharing {
            // What has not arrived when time is over is not answered.
            Sharing::Exact => questions <= asked && questions * 100 >= asked * 99,
            Sharing::Lease | Sharing::Sync => {
                let most = u128::from(room.questions_of_account() * point.accounts());
                u128::from(questions) * u128::from(SECOND) <= most * u128::from(series.lasts_ns)
            }
        };
        self.broken.clone().or_else(|| {
            (!is_told).then(|| Broken {
                promise: "the load of the store",
                how: format!("{questions} questions for {asked} requests"),
            })
        })
    }
}

/// The most requests ask the store at most twice as often as the fewest, unless every request is a question. It is not
/// once, because an account that has five requests in the time of a block does not always use it up.
pub fn grows_with_requests(sharing: Sharing, fewest: &Load, most: &Load) -> Option<Broken> {
    let (before, after) = (fewest.questions, most.questions);
    let is_told = match sharing {
        Sharing::Exact => after >= before * (REQUESTS_GROW - 1),
        Sharing::Lease | Sharing::Sync => after <= before * 2,
    };
    (!is_told).then(|| Broken {
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
        let world = World::new(plan.clone(), sharing)?;
        world.open();
        world.clockwork.run(plan.lasts_ns);
        let history = std::mem::take(&mut *lock(&world.history));
        let room = match *limit.algorithm() {
            Algorithm::TokenBucket { rate, burst } => {
                burst.saturating_add(rate.earned_in(Span::from_nanos(plan.lasts_ns)))
            }
            _ => u64::MAX,
        };
        Ok(Load {
            asked: history.asked,
            passed: history.passed.len() as u64,
            // Keys are asked for alike: all of them reach their limit, or none.
            may_pass: history.asked.min(room.saturating_mul(plan.keys)),
            questions: lock(&world.network.depot).answered,
            broken: check::stated_bound(&plan, &Quota::plain(limit.clone()), sharing, &history),
        })
    }

    fn plan(&self, point: &Point, limit: Limit) -> Plan {
        let nodes = u64::from(point.nodes);
        Plan {
            seed: self.seed,
            limit: limit.with_max_keys(64),
            nodes: point.nodes,
            keys: point.keys,
            are_keys_alike: true,
            lasts_ns: self.lasts_ns,
            gap_ns: SECOND * nodes / point.requests.max(1),
            cost_max: 1,
            cancels_one_in: 0,
            holds_ns: MS,
            weather: Weather {
                fast_ns: MS / 20,
                slow_ns: MS / 4,
                lost_one_in: 0,
                twice_one_in: 0,
                deadline_ns: 8 * MS,
            },
            drift: 50,
            troubles: Troubles::default(),
            borrows_ahead: true,
            cancels_within_ns: 0,
            planted: Planted::Nothing,
        }
    }
}
