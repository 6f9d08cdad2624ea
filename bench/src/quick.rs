//! A little of everything, within about twenty seconds: that the harness and all contestants still
//! work, for a machine that watches. The times it prints mean little.

use std::io::{self, Write};
use std::time::Duration;

use crate::args::{
    Comparison, Doors, Fairness, Fleets, Flooding, Gateways, Gating, Layering, Speed, Stores,
    Weighing,
};
use crate::measure::Until;
use crate::workload::Kind;
use crate::{compare, doors, fair, fleet, flood, gate, gateway, layer, memory, speed, store};

/// Runs all commands on a small scale; returns whether every contestant did its work.
pub(crate) fn run(json: bool, out: &mut dyn Write) -> io::Result<bool> {
    let comparison = Comparison {
        keys: vec![1, 1_000],
        rounds: 2,
        until: Until::Checks(20_000),
        json,
        ..Comparison::default()
    };
    let weighing = Weighing {
        keys: vec![100_000],
        kinds: Kind::ALL.into(),
        json,
        ..Weighing::default()
    };
    let gating = Gating {
        keys: vec![1_000],
        rounds: 2,
        until: Until::Checks(20_000),
        json,
    };
    let flooding = Flooding {
        // Not less room: a process grows by some hundred kilobytes for reasons of its own.
        keys: 2_000_000,
        max_keys: 500_000,
        json,
    };
    // Peers would have to be installed.
    let opening = Doors {
        time: Duration::from_millis(200),
        warm_up: Duration::from_millis(50),
        passes: 1,
        only_ours: true,
        json,
        ..Doors::default()
    };
    let passing_on = Gateways {
        time: Duration::from_millis(200),
        warm_up: Duration::from_millis(50),
        passes: 1,
        json,
        ..Gateways::default()
    };
    let speeding = Speed {
        time: Duration::from_millis(100),
        warm_up: Duration::from_millis(20),
        passes: 1,
        keys: 10_000,
        only_ours: true,
        json,
        ..Speed::default()
    };
    let storing = Stores {
        time: Duration::from_millis(100),
        warm_up: Duration::from_millis(20),
        passes: 1,
        json,
    };
    let sharing = Fleets {
        time: Duration::from_millis(200),
        warm_up: Duration::from_millis(100),
        passes: 1,
        json,
        ..Fleets::default()
    };
    let queueing = Fairness {
        flows: 1_000,
        items: 50_000,
        passes: 2,
        json,
    };
    let layering = Layering {
        rounds: 2,
        requests: 10_000,
        json,
    };
    let compared = compare::run(&comparison, out)?;
    let weighed = memory::run(&weighing, out)?;
    let gated = gate::run(&gating, out)?;
    let flooded = flood::run(&flooding, out)?;
    let opened = doors::run(&opening, out)?;
    let passed_on = gateway::run(&passing_on, out)?;
    let sped = speed::run(&speeding, out)?;
    let stored = store::run(&storing, out)?;
    let shared = fleet::run(&sharing, out)?;
    let queued = fair::run(&queueing, out)?;
    let layered = layer::run(&layering, out)?;
    Ok(compared
        && weighed
        && gated
        && flooded
        && opened
        && passed_on
        && sped
        && stored
        && shared
        && queued
        && layered)
}
