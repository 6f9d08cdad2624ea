//! `load`: the calls that fleets make to their store without faults, while one parameter varies at a time.

use super::{CommandError, Tally, number, number_in, usage, write_line};
use crate::fleet::check::Violation;
use crate::fleet::load::{Load, Point, Room, Series, grows_with_requests};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use tollgate_policy::Sharing;

const SECOND: u64 = 1_000_000_000;
/// Nodes at the least: they are divided by sixteen.
const NODES_MIN: u64 = 16;
/// Nodes at the most: a fleet is in memory, with every request that passed.
const NODES_MAX: u64 = 128;
const SECONDS_MAX: u64 = 10;

/// Which fleets are measured.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Nodes of the largest fleet
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number_in(NODES_MIN..=NODES_MAX))]
    nodes: u64,
    /// How long each fleet runs: 3 s, or 1 s if it is to be quick
    #[arg(long, value_name = "N", value_parser = number_in(1..=SECONDS_MAX))]
    seconds: Option<u64>,
    /// Where all randomness comes from
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = number)]
    seed: u64,
    /// One key instead of two
    #[arg(long)]
    quick: bool,
    /// Print one JSON object for each fleet
    #[arg(long)]
    json: bool,
}

impl LoadArgs {
    fn series(&self) -> Series {
        let seconds = self.seconds.unwrap_or(if self.quick { 1 } else { 3 });
        Series {
            nodes: u32::try_from(self.nodes).unwrap_or(u32::MAX),
            keys: if self.quick { 1 } else { 2 },
            lasts_ns: seconds * SECOND,
            seed: self.seed,
        }
    }
}

/// Runs all fleets of the series, with a wide limit and a narrow one, in each sharing mode. A fleet is a step that passes
/// or fails by its store calls; so is a series, by how they grew with requests.
///
/// # Errors
///
/// If it is called wrongly, or cannot write.
pub fn run(
    args: &LoadArgs,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let (series, is_json) = (args.series(), args.json);
    let (points, mut tally) = (series.points(), Tally::default());
    for room in Room::ALL {
        let limit = series.limit(room);
        let limit = limit.map_err(|error| usage(format!("`--nodes`: {error}")))?;
        writeln!(progress, "{} limit: {limit} for each key", room.name())?;
        let mut columns: Vec<Vec<Load>> = Vec::new();
        for sharing in Sharing::ALL {
            let mut column = Vec::new();
            for point in &points {
                let load = series.measure(point, &limit, sharing);
                let load = load.map_err(|error| CommandError::Input(error.to_string()))?;
                let violations = load.violation(&series, (room, sharing, point));
                note(
                    &mut tally,
                    progress,
                    (room, sharing, point.varies),
                    violations,
                )?;
                if is_json {
                    write_json(out, &series, (room, sharing, point), &load)?;
                }
                column.push(load);
            }
            // The first has the fewest requests and the third the most.
            if let [fewest, _, most, ..] = column.as_slice() {
                let grows = grows_with_requests(sharing, fewest, most);
                note(&mut tally, progress, (room, sharing, "requests"), grows)?;
            }
            columns.push(column);
        }
        if !is_json {
            writeln!(out, "A {} limit, {limit} for each key:\n", room.name())?;
            write_table(out, &series, &points, &columns)?;
        }
        out.flush()?;
    }
    Ok(tally)
}

fn note(
    tally: &mut Tally,
    progress: &mut dyn Write,
    (room, sharing, varies): (Room, Sharing, &str),
    violations: Option<Violation>,
) -> std::io::Result<()> {
    match violations {
        None => tally.passed += 1,
        Some(violations) => {
            tally.failed += 1;
            let (room, sharing) = (room.name(), sharing.name());
            writeln!(
                progress,
                "FAILED {room} limit, {sharing}, {varies}: {violations}"
            )?;
        }
    }
    Ok(())
}

/// One row for each fleet.
fn write_table(
    out: &mut dyn Write,
    series: &Series,
    points: &[Point],
    columns: &[Vec<Load>],
) -> std::io::Result<()> {
    write!(out, "| | nodes | keys | requests/s |")?;
    for sharing in Sharing::ALL {
        let name = sharing.name();
        write!(out, " {name}: questions/s | a decision | admitted |")?;
    }
    writeln!(
        out,
        "\n|---|--:|--:|--:|{}",
        "--:|--:|--:|".repeat(columns.len())
    )?;
    for (at, point) in points.iter().enumerate() {
        let Point {
            varies,
            nodes,
            keys,
            requests,
        } = point;
        write!(out, "| {varies} | {nodes} | {keys} | {requests} |")?;
        for load in columns.iter().filter_map(|column| column.get(at)) {
            let a_second = a_second(series, load);
            let (asks, passes) = (asks_per_decision(load), passes_of_what_may(load));
            let (asks, passes) = (100.0 * asks, 100.0 * passes);
            write!(out, " {a_second} | {asks:.2} % | {passes:.1} % |")?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

fn write_json(
    out: &mut dyn Write,
    series: &Series,
    (room, sharing, point): (Room, Sharing, &Point),
    load: &Load,
) -> std::io::Result<()> {
    let row = Row {
        limit: room.name(),
        sharing: sharing.name(),
        varies: point.varies,
        seed: series.seed,
        nodes: point.nodes,
        keys: point.keys,
        requests_per_second: point.requests,
        decisions: load.asked,
        questions: load.questions,
        questions_per_second: a_second(series, load),
        questions_per_decision: asks_per_decision(load),
        admitted: load.passed,
        may_pass: load.may_pass,
        admitted_of_may_pass: passes_of_what_may(load),
    };
    write_line(out, &row)
}

/// One fleet, for programs.
#[derive(Serialize)]
struct Row {
    limit: &'static str,
    sharing: &'static str,
    varies: &'static str,
    seed: u64,
    nodes: u32,
    keys: u64,
    requests_per_second: u64,
    decisions: u64,
    questions: u64,
    questions_per_second: u64,
    questions_per_decision: f64,
    admitted: u64,
    may_pass: u64,
    admitted_of_may_pass: f64,
}

fn a_second(series: &Series, load: &Load) -> u64 {
    load.questions * SECOND / series.lasts_ns.max(1)
}

fn asks_per_decision(load: &Load) -> f64 {
    load.questions as f64 / load.asked.max(1) as f64
}

fn passes_of_what_may(load: &Load) -> f64 {
    load.passed as f64 / load.may_pass.max(1) as f64
}
