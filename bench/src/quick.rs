//! A little of everything, within about ten seconds: that the harness and all contestants still
//! work, for a machine that watches. The times it prints mean little.

use std::io::{self, Write};

use crate::args::{Comparison, Flooding, Gating, Weighing};
use crate::measure::Until;
use crate::workload::Kind;
use crate::{compare, flood, gate, memory};

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
    let compared = compare::run(&comparison, out)?;
    let weighed = memory::run(&weighing, out)?;
    let gated = gate::run(&gating, out)?;
    let flooded = flood::run(&flooding, out)?;
    Ok(compared && weighed && gated && flooded)
}
