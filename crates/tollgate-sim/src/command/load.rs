//! `load`: what fleets ask of their store in fair weather, while one thing varies at a time.

use super::{CommandError, Tally, number, usage};
use crate::fleet::check::Broken;
use crate::fleet::load::{Load, Point, Room, Series, grows_with_requests};
use std::io::Write;
use tollgate::policy::Sharing;

const SECOND: u64 = 1_000_000_000;
/// Nodes at the least: they are divided by sixteen.
const NODES_MIN: u64 = 16;
/// Nodes at the most: a fleet is in memory, with every request that passed.
const NODES_MAX: u64 = 128;
const SECONDS_MAX: u64 = 10;

/// What was asked for.
#[derive(Debug)]
struct Options {
    series: Series,
    is_json: bool,
}

/// Runs all fleets of the series, with a wide limit and a narrow one, in each way to share. A fleet is a step that passes
/// or fails by what the store was asked; so is a series, by how that grew with requests.
///
/// # Errors
///
/// If it is called wrongly, or cannot write.
pub fn run(
    options: &[String],
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let Options { series, is_json } = Options::read(options)?;
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
                let broken = load.is_broken(&series, (room, sharing, point));
                note(&mut tally, progress, (room, sharing, point.varies), broken)?;
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
    broken: Option<Broken>,
) -> std::io::Result<()> {
    match broken {
        None => tally.passed += 1,
        Some(broken) => {
            tally.failed += 1;
            let (room, sharing) = (room.name(), sharing.name());
            writeln!(
                progress,
                "FAILED {room} limit, {sharing}, {varies}: {broken}"
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
    writeln!(
        out,
        "{{\"limit\":\"{}\",\"sharing\":\"{}\",\"varies\":\"{}\",\"seed\":{},\"nodes\":{},\"keys\":{},\
         \"requests_per_second\":{},\"decisions\":{},\"questions\":{},\"questions_per_second\":{},\
         \"questions_per_decision\":{:.6},\"admitted\":{},\"may_pass\":{},\"admitted_of_may_pass\":{:.4}}}",
        room.name(),
        sharing.name(),
        point.varies,
        series.seed,
        point.nodes,
        point.keys,
        point.requests,
        load.asked,
        load.questions,
        a_second(series, load),
        asks_per_decision(load),
        load.passed,
        load.may_pass,
        passes_of_what_may(load),
    )
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

impl Options {
    fn read(options: &[String]) -> Result<Self, CommandError> {
        let (mut nodes, mut seconds, mut seed) = (64, None, 1);
        let (mut is_quick, mut is_json) = (false, false);
        let mut words = options.iter();
        while let Some(option) = words.next() {
            match option.as_str() {
                "--json" => is_json = true,
                "--quick" => is_quick = true,
                "--nodes" | "--seconds" | "--seed" => {
                    let value = words.next();
                    let value = value.ok_or_else(|| usage(format!("`{option}` needs a value")))?;
                    let value = number(option, value)?;
                    match option.as_str() {
                        "--nodes" => nodes = value,
                        "--seconds" => seconds = Some(value),
                        _ => seed = value,
                    }
                }
                _ => return Err(usage(format!("no option `{option}`"))),
            }
        }
        let within = |option, value: u64, least: u64, most: u64| {
            let is_within = (least..=most).contains(&value);
            is_within
                .then_some(value)
                .ok_or_else(|| usage(format!("`{option}` is {value}; write {least} to {most}")))
        };
        let nodes = within("--nodes", nodes, NODES_MIN, NODES_MAX)?;
        let seconds = seconds.unwrap_or(if is_quick { 1 } else { 3 });
        let seconds = within("--seconds", seconds, 1, SECONDS_MAX)?;
        Ok(Self {
            series: Series {
                nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
                keys: if is_quick { 1 } else { 2 },
                lasts_ns: seconds * SECOND,
                seed,
            },
            is_json,
        })
    }
}
