//! `adaptive`: the adaptive limits in front of backends that change, and what they held of their promises.

use super::{CommandError, Tally, number, number_in, write_line};
use crate::adaptive::control::ESTIMATORS;
use crate::adaptive::measure::{Report, Worst, best_at, best_of, report};
use crate::adaptive::plot::{Line, Panel, chart};
use crate::adaptive::scenario::{Scenario, all};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Unless told otherwise, the seeds are 1 up to this.
const SEEDS: u64 = 5;

/// Which runs are made.
#[derive(Debug, Args)]
pub struct Options {
    /// How long each state of a backend lasts; what is promised holds from 30 s on
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = number_in(31..=3600))]
    secs: u64,
    /// Only this seed, instead of 1 to 5
    #[arg(long, value_name = "S", value_parser = number)]
    seed: Option<u64>,
    /// Only this backend
    #[arg(long, value_name = "BACKEND")]
    only: Option<String>,
    /// Print one JSON object for each phase
    #[arg(long)]
    json: bool,
    /// Draw the limits of the first seed here
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
}

/// Runs every estimator, with and without its guard, through every scenario, with each seed; a promise of
/// a guarded one is a step that passes or fails.
///
/// # Errors
///
/// If it is called wrongly, or cannot write.
pub fn run(
    options: &Options,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let (first_seed, last_seed) = options.seed.map_or((1, SEEDS), |seed| (seed, seed));
    let mut tally = Tally::default();
    if !options.json {
        writeln!(
            out,
            "| backend | estimator | near the best within | goodput after 30 s | of the whole phase | limit |\n\
             |---|---|--:|--:|--:|--:|"
        )?;
    }
    let mut scenarios = all(options.secs);
    scenarios.retain(|one| options.only.as_deref().is_none_or(|only| only == one.name));
    for scenario in scenarios {
        writeln!(progress, "{}", scenario.name)?;
        let mut by_seed = Vec::new();
        for seed in first_seed..=last_seed {
            let (best, reports) = reports_of(&scenario, seed)?;
            for report in &reports {
                if options.json {
                    write_json(out, &scenario, seed, report)?;
                }
                if report.is_guarded {
                    check(&scenario, seed, report, &mut tally, progress)?;
                }
            }
            if let Some(folder) = &options.plots
                && seed == first_seed
            {
                write_plot(folder, &scenario, &best, &reports)?;
            }
            by_seed.push(reports);
        }
        if !options.json {
            write_rows(out, &scenario, &by_seed)?;
        }
        out.flush()?;
    }
    Ok(tally)
}

/// The best fixed limits of each phase, from the least to the most.
type Best = Vec<(u32, u32)>;

/// The best fixed limits of a scenario, and what each estimator did: first all with their guard.
fn reports_of(scenario: &Scenario, seed: u64) -> Result<(Best, Vec<Report>), CommandError> {
    let broken = |error: Box<dyn std::error::Error>| CommandError::Input(error.to_string());
    let best = best_of(scenario, seed).map_err(broken)?;
    let mut reports = Vec::new();
    for is_guarded in [true, false] {
        for by in ESTIMATORS {
            reports.push(report(scenario, &best, by, is_guarded, seed).map_err(broken)?);
        }
    }
    Ok((best, reports))
}

fn check(
    scenario: &Scenario,
    seed: u64,
    report: &Report,
    tally: &mut Tally,
    progress: &mut dyn Write,
) -> std::io::Result<()> {
    for finding in &report.findings {
        if finding.is_kept() {
            tally.passed += 1;
        } else {
            tally.failed += 1;
            let (backend, name) = (scenario.name, report.name());
            writeln!(
                progress,
                "FAILED {backend} {name}, seed {seed}: {finding:?}"
            )?;
        }
    }
    Ok(())
}

/// One row for each estimator: the worst of all seeds.
fn write_rows(
    out: &mut dyn Write,
    scenario: &Scenario,
    by_seed: &[Vec<Report>],
) -> std::io::Result<()> {
    for (at, first) in by_seed
        .iter()
        .take(1)
        .flat_map(|one| one.iter().enumerate())
    {
        let worst = Worst::of(by_seed.iter().filter_map(|one| one.get(at)));
        let settled = worst.settled_secs;
        let settled = settled.map_or("never".to_owned(), |secs| format!("{secs:.1} s"));
        let (low, high) = worst.range;
        writeln!(
            out,
            "| {} | {} | {settled} | {:.1} % | {:.1} % | {low}–{high} |",
            scenario.name,
            first.name(),
            worst.goodput * 100.0,
            worst.goodput_whole * 100.0,
        )?;
    }
    Ok(())
}

fn write_json(
    out: &mut dyn Write,
    scenario: &Scenario,
    seed: u64,
    report: &Report,
) -> std::io::Result<()> {
    for finding in &report.findings {
        let row = Row {
            backend: scenario.name,
            seed,
            phase: finding.phase,
            estimator: crate::adaptive::control::name(report.by),
            guarded: report.is_guarded,
            judged: finding.is_judged,
            overloaded: finding.is_overloaded,
            best_from: finding.best.0,
            best_to: finding.best.1,
            settled_secs: finding.settled_secs,
            goodput: finding.goodput,
            goodput_whole: finding.goodput_whole,
            limit_min: finding.range.0,
            limit_max: finding.range.1,
            kept: finding.is_kept(),
        };
        write_line(out, &row)?;
    }
    Ok(())
}

/// One phase, for programs.
#[derive(Serialize)]
struct Row {
    backend: &'static str,
    seed: u64,
    phase: &'static str,
    estimator: &'static str,
    guarded: bool,
    judged: bool,
    overloaded: bool,
    best_from: u32,
    best_to: u32,
    settled_secs: Option<f64>,
    goodput: f64,
    goodput_whole: f64,
    limit_min: u32,
    limit_max: u32,
    kept: bool,
}

/// The limits over time against the best fixed one, and goodput over time; without the guard thin below.
fn write_plot(
    folder: &Path,
    scenario: &Scenario,
    best: &[(u32, u32)],
    reports: &[Report],
) -> Result<(), CommandError> {
    let guarded = || {
        reports
            .iter()
            .filter(|report| report.is_guarded)
            .zip(COLOURS)
    };
    let alone = || {
        reports
            .iter()
            .filter(|report| !report.is_guarded)
            .zip(COLOURS)
    };
    let line =
        |report: &Report, colour, value: &dyn Fn(&crate::adaptive::world::Tick) -> f64| Line {
            name: report.name(),
            colour,
            is_dashed: false,
            points: report
                .ticks
                .iter()
                .map(|tick| (tick.at_ns as f64 / 1e9, value(tick)))
                .collect(),
        };
    let mut target = Line {
        name: "best fixed".to_owned(),
        colour: "black",
        is_dashed: true,
        points: Vec::new(),
    };
    let mut began = 0.0;
    let mut highest: f64 = 0.0;
    for (phase, &best) in scenario.phases.iter().zip(best) {
        let ends = began + phase.secs as f64;
        if phase.is_judged {
            target.points.push((began, best_at(best, 0.0)));
            target.points.push((ends, best_at(best, 1.0)));
            highest = highest.max(best_at(best, 0.0)).max(best_at(best, 1.0));
        }
        began = ends;
    }
    let limits = |lines: Vec<Line>, label| Panel {
        label,
        high: highest * 2.5,
        lines: lines.into_iter().chain([target.clone()]).collect(),
    };
    let share = |lines| Panel {
        label: "goodput / capacity",
        high: 1.1,
        lines,
    };
    let limit = |(report, colour)| line(report, colour, &|tick| f64::from(tick.limit));
    let panels = [
        limits(guarded().map(limit).collect(), "limit"),
        share(
            guarded()
                .map(|(report, colour)| seconds(report, colour))
                .collect(),
        ),
        limits(alone().map(limit).collect(), "limit, no guard"),
        share(
            alone()
                .map(|(report, colour)| seconds(report, colour))
                .collect(),
        ),
    ];
    let svg = chart(
        &format!("{}: {}", scenario.name, scenario.about),
        began,
        &panels,
    );
    let path = folder.join(format!("adaptive-{}.svg", scenario.name));
    std::fs::write(&path, svg).map_err(|error| {
        CommandError::Input(format!("{}: cannot be written: {error}", path.display()))
    })
}

const COLOURS: [&str; 3] = ["#1f77b4", "#2ca02c", "#d62728"];

/// Goodput second by second: a tick has too few answers to be smooth.
fn seconds(report: &Report, colour: &'static str) -> Line {
    let points = report.ticks.chunks(10).filter_map(|ticks| {
        let good: u64 = ticks.iter().map(|tick| tick.good).sum();
        let came: u64 = ticks.iter().map(|tick| tick.came).sum();
        let could: f64 = ticks.iter().map(|tick| tick.capacity).sum();
        let could = could.min(came as f64);
        let share = if could > 0.0 {
            good as f64 / could
        } else {
            0.0
        };
        ticks.last().map(|tick| (tick.at_ns as f64 / 1e9, share))
    });
    Line {
        name: report.name(),
        colour,
        is_dashed: false,
        points: points.collect(),
    }
}
