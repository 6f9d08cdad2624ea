//! `adaptive`: runs adaptive limits in front of backends that change, and checks their promises.

use super::{CommandError, Tally, number, number_in, write_line};
use crate::adaptive::control::ESTIMATORS;
use crate::adaptive::measure::{AdaptiveReport, Worst, best_of, report};
use crate::adaptive::scenario::{BackendScenario, all};
use clap::Args;
use serde::Serialize;
use std::io::Write;

/// By default, the seeds are 1 up to this.
const SEEDS: u64 = 5;

/// Which runs are made.
#[derive(Debug, Args)]
pub struct AdaptiveArgs {
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
}

/// Runs every estimator, with and without its guard, through every scenario, with each seed; a promise of
/// a guarded one is a step that passes or fails.
///
/// # Errors
///
/// If it is called wrongly, or cannot write.
pub fn run(
    args: &AdaptiveArgs,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let (first_seed, last_seed) = args.seed.map_or((1, SEEDS), |seed| (seed, seed));
    let mut tally = Tally::default();
    if !args.json {
        writeln!(
            out,
            "| backend | estimator | near the best within | goodput after 30 s | of the whole phase | limit |\n\
             |---|---|--:|--:|--:|--:|"
        )?;
    }
    let mut scenarios = all(args.secs);
    scenarios.retain(|one| args.only.as_deref().is_none_or(|only| only == one.name));
    for scenario in scenarios {
        writeln!(progress, "{}: {}", scenario.name, scenario.about)?;
        let mut by_seed = Vec::new();
        for seed in first_seed..=last_seed {
            let reports = reports_of(&scenario, seed)?;
            for report in &reports {
                if args.json {
                    write_json(out, &scenario, seed, report)?;
                }
                if report.is_guarded {
                    check(&scenario, seed, report, &mut tally, progress)?;
                }
            }
            by_seed.push(reports);
        }
        if !args.json {
            write_rows(out, &scenario, &by_seed)?;
        }
        out.flush()?;
    }
    Ok(tally)
}

/// What each estimator did in a scenario: first all with their guard.
fn reports_of(scenario: &BackendScenario, seed: u64) -> Result<Vec<AdaptiveReport>, CommandError> {
    let broken = |error: Box<dyn std::error::Error>| CommandError::Input(error.to_string());
    let best = best_of(scenario, seed).map_err(broken)?;
    let mut reports = Vec::new();
    for is_guarded in [true, false] {
        for by in ESTIMATORS {
            reports.push(report(scenario, &best, by, is_guarded, seed).map_err(broken)?);
        }
    }
    Ok(reports)
}

fn check(
    scenario: &BackendScenario,
    seed: u64,
    report: &AdaptiveReport,
    tally: &mut Tally,
    progress: &mut dyn Write,
) -> std::io::Result<()> {
    for phase in &report.phases {
        if phase.is_kept() {
            tally.passed += 1;
        } else {
            tally.failed += 1;
            let (backend, name) = (scenario.name, report.name());
            writeln!(progress, "FAILED {backend} {name}, seed {seed}: {phase:?}")?;
        }
    }
    Ok(())
}

/// One row for each estimator: the worst of all seeds.
fn write_rows(
    out: &mut dyn Write,
    scenario: &BackendScenario,
    by_seed: &[Vec<AdaptiveReport>],
) -> std::io::Result<()> {
    for (at, first) in by_seed
        .iter()
        .take(1)
        .flat_map(|one| one.iter().enumerate())
    {
        let worst = Worst::from_reports(by_seed.iter().filter_map(|one| one.get(at)));
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
    scenario: &BackendScenario,
    seed: u64,
    report: &AdaptiveReport,
) -> std::io::Result<()> {
    for phase in &report.phases {
        let row = Row {
            backend: scenario.name,
            seed,
            phase: phase.phase,
            estimator: crate::adaptive::control::name(report.by),
            guarded: report.is_guarded,
            judged: phase.is_judged,
            overloaded: phase.is_overloaded,
            best_from: phase.best.0,
            best_to: phase.best.1,
            settled_secs: phase.settled_secs,
            goodput: phase.goodput,
            goodput_whole: phase.goodput_whole,
            limit_min: phase.range.0,
            limit_max: phase.range.1,
            kept: phase.is_kept(),
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
