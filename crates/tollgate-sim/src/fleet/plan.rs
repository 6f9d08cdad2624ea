//! The plan of a seed: a limit, a fleet, its traffic and its faults.

use tollgate::{Algorithm, Estimate, Limit, Span};

use super::network::{Mutant, NetworkFaults};
use crate::rng::Rng;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Requests in a second at the most, so that a seed takes some milliseconds.
const REQUESTS_MAX: u64 = 10_000;

/// The most keys in the traffic, and the keys that a node has room for.
const KEYS_ASKED_MAX: u64 = 3;
const KEYS_MAX: usize = 16;

/// Everything that a simulation follows from, except the random decisions during the run.
#[derive(Clone, Debug)]
pub struct FleetPlan {
    /// The seed that all of it came from.
    pub seed: u64,
    /// How much.
    pub limit: Limit,
    /// How many nodes there are.
    pub nodes: u32,
    /// Keys in the traffic.
    pub keys: u64,
    /// Whether all keys get equal load. If not, the first ones get more.
    pub is_uniform: bool,
    /// How long traffic lasts.
    pub lasts_ns: u64,
    /// Time between two requests at one node, on average.
    pub gap_ns: u64,
    /// The greatest cost.
    pub cost_max: u64,
    /// One request in this many is cancelled and refunded; none if 0.
    pub cancels_one_in: u64,
    /// The longest time from admission to cancellation.
    pub cancels_within_ns: u64,
    /// The longest time that a request holds its permit.
    pub holds_ns: u64,
    /// The network.
    pub network: NetworkFaults,
    /// The greatest drift of a clock, in parts per million.
    pub drift: u64,
    /// Faults other than those of the network.
    pub faults: FaultPlan,
    /// Whether nodes prefetch leases.
    pub prefetches: bool,
    /// A promise that is violations on purpose.
    pub mutant: Mutant,
}

/// Faults and their times.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// The store is partitioned from all nodes from, to.
    pub cut: Option<(u64, u64)>,
    /// A replica takes over that lacks the last so long.
    pub failovers: Vec<(u64, u64)>,
    /// Crashes: a node restarts with an empty state.
    pub crashes: Vec<(u64, u32)>,
    /// Every node reloads its policy.
    pub reloads: Vec<u64>,
    /// The clock of the store is set by so much.
    pub store_steps: Vec<(u64, i64)>,
    /// The clock of a node is set forward by so much.
    pub node_steps: Vec<(u64, u32, u64)>,
}

impl FleetPlan {
    /// The plan of this seed.
    ///
    /// # Panics
    /// Never: every drawn limit is valid.
    pub fn from_seed(seed: u64) -> FleetPlan {
        let mut rng = Rng::new(seed);
        let nodes = rng.between(1, 8) as u32;
        let units = rng.magnitude(20_000).max(2);
        let per = rng.pick(&[SECOND, SECOND, 100 * MS, 2 * SECOND]);
        let algorithm = algorithm(&mut rng, units, per.max(MS));
        let lasts_ns = rng.between(SECOND, 3 * SECOND);
        // From a fraction of the limit to five times of it, spread over the nodes.
        let offered = units.saturating_mul(rng.between(1, 20)) / 4;
        let per_node = offered.saturating_mul(SECOND) / per.max(1) / u64::from(nodes);
        let per_node = per_node.clamp(1, REQUESTS_MAX / u64::from(nodes));
        let lost = rng.pick(&[0, 0, 0, 10, 100, 1_000]);
        let twice = rng.pick(&[0, 0, 0, 50]);
        let slow = rng.pick(&[MS / 10, MS, 3 * MS, 12 * MS]);
        FleetPlan {
            seed,
            // A node keeps room for the logs of all its keys, so there are few.
            limit: Limit::new(algorithm)
                .unwrap_or_else(|_| unreachable_limit())
                .with_max_keys(KEYS_MAX),
            nodes,
            keys: rng.between(1, KEYS_ASKED_MAX),
            is_uniform: false,
            lasts_ns,
            gap_ns: SECOND / per_node,
            cost_max: rng.pick(&[1, 1, 1, 5]).max(1),
            cancels_one_in: rng.pick(&[0, 0, 7]),
            holds_ns: rng.between(MS, 80 * MS),
            network: NetworkFaults {
                latency_min_ns: MS / 20,
                latency_max_ns: slow,
                lost_one_in: lost,
                duplicated_one_in: twice,
                deadline_ns: 8 * MS,
            },
            drift: rng.pick(&[0, 50, 500]),
            faults: FaultPlan::from_rng(&mut rng, nodes, lasts_ns),
            prefetches: !rng.one_in(4),
            cancels_within_ns: rng.pick(&[20 * MS, 20 * MS, 3 * SECOND]),
            mutant: Mutant::None,
        }
    }
}

/// A limit of one a second: what a seed falls back to if its numbers make none.
fn unreachable_limit() -> Limit {
    let algorithm = Algorithm::FixedWindow {
        limit: 10,
        window: Span::from_secs(1),
        anchor: Span::ZERO,
    };
    match Limit::new(algorithm) {
        Ok(limit) => limit,
        Err(error) => unreachable!("{error}"),
    }
}

fn algorithm(rng: &mut Rng, units: u64, per: u64) -> Algorithm {
    let per = Span::from_nanos(per);
    let rate = tollgate::Rate::new(units, per);
    match (rng.below(7), rate) {
        (0 | 1, Ok(rate)) => Algorithm::TokenBucket {
            rate,
            burst: rng.pick(&[units, units * 2, units / 4, 10]).max(1),
        },
        (2, Ok(rate)) => Algorithm::Gcra {
            rate,
            tolerance: per,
        },
        (3, _) => Algorithm::SlidingWindow {
            limit: units,
            window: per,
            estimate: Estimate::Span,
        },
        (4, _) => Algorithm::SlidingLog {
            limit: units,
            window: per,
        },
        (5, _) => Algorithm::Concurrency {
            limit: units.min(500),
            ttl: Span::from_secs(8),
        },
        _ => Algorithm::FixedWindow {
            limit: units,
            window: per,
            anchor: Span::ZERO,
        },
    }
}

impl FaultPlan {
    fn from_rng(rng: &mut Rng, nodes: u32, lasts: u64) -> FaultPlan {
        let mut faults = FaultPlan::default();
        match rng.below(8) {
            0 => {
                let from = rng.below(lasts);
                faults.cut = Some((from, from + rng.between(MS, lasts)));
            }
            1 => faults
                .failovers
                .push((rng.below(lasts), rng.between(MS, 200 * MS))),
            2 => {
                for _ in 0..rng.between(1, 3) {
                    let node = rng.below(u64::from(nodes)) as u32;
                    faults.crashes.push((rng.below(lasts), node));
                }
            }
            3 => {
                for _ in 0..rng.between(1, 4) {
                    faults.reloads.push(rng.below(lasts));
                }
            }
            4 => {
                let by = rng.between(MS, 300 * MS) as i64;
                let by = if rng.one_in(2) { by } else { -by };
                faults.store_steps.push((rng.below(lasts), by));
            }
            5 => {
                let node = rng.below(u64::from(nodes)) as u32;
                let by = rng.between(MS, 2 * SECOND);
                faults.node_steps.push((rng.below(lasts), node, by));
            }
            _ => {}
        }
        faults
    }

    /// Whether there is any fault.
    pub fn has_any(&self) -> bool {
        let nodes = self.crashes.len() + self.reloads.len() + self.node_steps.len();
        self.forgets() || self.cut.is_some() || nodes > 0
    }

    /// Whether a fault makes the store count less than it granted.
    pub fn forgets(&self) -> bool {
        !self.failovers.is_empty() || !self.store_steps.is_empty()
    }
}
