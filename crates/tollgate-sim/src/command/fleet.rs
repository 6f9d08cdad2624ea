//! `fleet`: many simulations of a fleet that shares a limit, one for each seed, and the promises that must hold.

use super::{CommandError, Tally, number, number_in};
use crate::fleet::plan::FleetPlan;
use crate::fleet::run as run_simulation;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use tollgate::{Clock, MonotonicClock, Span};
use tollgate_policy::{Quota, Sharing};

/// Seeds by default.
const SEEDS: u64 = 1_000;
/// Seeds between two progress lines.
const REPORT_EVERY: u64 = 1_000;
/// Threads at the most.
const THREADS_MAX: u64 = 256;

/// Which simulations are run.
#[derive(Debug, Args)]
pub struct FleetArgs {
    /// Seeds, from 1
    #[arg(long, value_name = "N", default_value_t = SEEDS, value_parser = number, conflicts_with_all = ["secs", "seed"])]
    seeds: u64,
    /// As many seeds as these seconds allow
    #[arg(long, value_name = "N", value_parser = number)]
    secs: Option<u64>,
    /// Only this seed
    #[arg(long, value_name = "S", value_parser = number, conflicts_with = "secs")]
    seed: Option<u64>,
    /// Threads that run simulations
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number_in(1..=THREADS_MAX))]
    threads: u64,
    /// Only this sharing mode
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(Sharing::ALL.map(Sharing::name)))]
    sharing: Option<String>,
}

impl FleetArgs {
    /// The seeds to run.
    fn seeds(&self) -> Range<u64> {
        match (self.seed, self.secs) {
            (Some(seed), _) => seed..seed.saturating_add(1),
            (None, Some(_)) => 1..u64::MAX,
            (None, None) => 1..self.seeds.saturating_add(1),
        }
    }

    /// The sharing modes.
    fn sharing_modes(&self) -> Vec<Sharing> {
        let only = self.sharing.as_deref();
        let is_selected = |mode: &Sharing| only.is_none_or(|name| name == mode.name());
        Sharing::ALL.into_iter().filter(is_selected).collect()
    }
}

/// The results of one seed.
#[derive(Debug, Default)]
struct SeedResult {
    seed: u64,
    simulations: Tally,
    asked: u64,
    passed: u64,
    answered: u64,
    /// A line for each simulation with a violation.
    violations: Vec<String>,
}

/// Runs the simulations; each passes or fails as one. A failure prints its seed.
///
/// # Errors
///
/// If it is called wrongly, or cannot write.
pub fn run(
    args: &FleetArgs,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let Range { start, end } = args.seeds();
    let (modes, threads) = (args.sharing_modes(), args.threads);
    let clock = MonotonicClock::new();
    let over = args
        .secs
        .map(|secs| clock.now().plus(Span::from_secs(secs)));
    let is_over = || over.is_some_and(|over| clock.now() >= over);
    let next = AtomicU64::new(start);
    let mut all = SeedResult::default();
    thread::scope(|scope| {
        // A simulation depends on its seed alone, so it does not matter which thread runs it.
        // At most 256, so it fits.
        let (to, results) = mpsc::sync_channel(threads as usize);
        for _ in 0..threads {
            let (to, next, modes) = (to.clone(), &next, &modes);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    // The receiver is gone if the output could not be written.
                    if seed >= end || is_over() || to.send(run_seed(seed, modes)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(to);
        for result in results {
            all.add(&result);
            for line in &result.violations {
                writeln!(out, "{line}")?;
                // A failure in a long run shows at once.
                out.flush()?;
            }
            if result.seed.is_multiple_of(REPORT_EVERY) {
                writeln!(progress, "seed {}: {}", result.seed, all.simulations)?;
            }
        }
        Ok::<_, CommandError>(())
    })?;
    writeln!(
        out,
        "{} requests, {} passed, {} calls of the store",
        all.asked, all.passed, all.answered
    )?;
    Ok(all.simulations)
}

/// Runs the simulations of a seed: one for each sharing mode.
fn run_seed(seed: u64, modes: &[Sharing]) -> SeedResult {
    let plan = FleetPlan::from_seed(seed);
    let mut result = SeedResult {
        seed,
        ..SeedResult::default()
    };
    for sharing in modes {
        if !Quota::plain(plan.limit.clone()).supports(*sharing) {
            continue;
        }
        let violations = match run_simulation(&plan, *sharing) {
            Ok(report) => {
                result.asked += report.history.asked;
                result.passed += report.history.passed.len() as u64;
                result.answered += report.history.answered;
                report.violations.iter().map(ToString::to_string).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        if violations.is_empty() {
            result.simulations.passed += 1;
        } else {
            result.simulations.failed += 1;
            let name = sharing.name();
            let (limit, nodes, faults) = (&plan.limit, plan.nodes, &plan.faults);
            let violations = violations.join("; ");
            result.violations.push(format!(
                "FAILED seed {seed}, {name}, {limit}, {nodes} nodes, {faults:?}: {violations}"
            ));
        }
    }
    result
}

impl SeedResult {
    /// Adds the results of another seed.
    fn add(&mut self, other: &SeedResult) {
        self.simulations.passed += other.simulations.passed;
        self.simulations.failed += other.simulations.failed;
        self.asked += other.asked;
        self.passed += other.passed;
        self.answered += other.answered;
    }
}
