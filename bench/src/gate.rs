//! The price of all or none: one request under two, three and four limits.
//!
//! # Method
//!
//! As in [`compare`], with the same turns, keys and limits: a request is charged to all limits, once
//! through a gate and once by one `Limiter::charge` after the other, which promises less. The ratio of
//! their medians is what the promise costs; 1 would be nothing.

use std::io::{self, Write};

use serde_json::json;

use crate::args::Gate;
use crate::compare::{self, Line, TOGETHER_MAX};
use crate::contestants::Entry;
use crate::contestants::gates::GATES;
use crate::table::{Table, short_count};
use crate::workload::{Cell, Kind, Mode, Spread};

/// Measures in all cells; returns whether everything was admitted that should be.
pub(crate) fn run(options: &Gate, out: &mut dyn Write) -> io::Result<bool> {
    let json = options.json;
    let mut all_well = true;
    for &keys in &options.keys {
        let cell = Cell {
            keys,
            spread: Spread::Uniform,
            kind: Kind::U64,
            threads: 1,
            mode: Mode::Pass,
        };
        let mut table = Table::new(["limits", "one by one ns", "gate ns", "gate / one by one"]);
        for (limits, entries) in &GATES {
            let lines = {
                let entries: Vec<&Entry> = entries.iter().collect();
                compare::measure(&cell, &entries, options.rounds, is_interleaved(keys))
            };
            let [one_by_one, gate] = lines.as_slice() else {
                continue;
            };
            let is_well = lines.iter().all(|line| line.does_its_work(&cell));
            all_well &= is_well;
            let ratio = gate.median_ns() / one_by_one.median_ns();
            if json {
                print_json(keys, *limits, [one_by_one, gate], is_well, out)?;
            } else {
                let mark = if is_well { "" } else { " !" };
                table.row([
                    limits.to_string(),
                    format!("{:.1}", one_by_one.median_ns()),
                    format!("{:.1}", gate.median_ns()),
                    format!("{ratio:.2}{mark}"),
                ]);
            }
        }
        if !json {
            writeln!(
                out,
                "\n{} keys, uniform, u64, 1 thread, pass: ns per request under all limits",
                short_count(keys)
            )?;
            if !is_interleaved(keys) {
                writeln!(
                    out,
                    "  (not interleaved: too many keys to build both at once)"
                )?;
            }
            table.print(out)?;
            if !all_well {
                writeln!(
                    out,
                    "  ! not everything was admitted: the time is of other work"
                )?;
            }
        }
        out.flush()?;
    }
    Ok(all_well)
}

fn is_interleaved(keys: usize) -> bool {
    keys <= TOGETHER_MAX
}

fn print_json(
    keys: usize,
    limits: usize,
    [one_by_one, gate]: [&Line; 2],
    is_well: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (singles_ns, gate_ns) = (one_by_one.median_ns(), gate.median_ns());
    let object = json!({
        "command": "gate",
        "keys": keys,
        "limits": limits,
        "one_by_one_ns": singles_ns,
        "gate_ns": gate_ns,
        "ratio": gate_ns / singles_ns,
        "rounds": gate.rounds(),
        "interleaved": is_interleaved(keys),
        "admitted_as_expected": is_well,
    });
    writeln!(out, "{object}")
}
