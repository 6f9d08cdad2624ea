//! `fleet`: many simulations of a fleet that shares a limit, one for each seed, and the promises that must hold.

use super::{CommandError, Tally, number, number_in};
use crate::fleet::plan::Plan;
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
pub struct Options {
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

impl Options {
    /// The seeds to run.
    fn seeds(&self) -> Range<u64> {
        match (self.seed, self.secs) {
            (Some(seed), _) => seed..seed.saturating_add(1),
            (None, Some(_)) => 1..u64::MAX,
            (None, None) => 1..self.seeds.saturating_add(1),
        }
    }

    /// The sharing modes.
    fn ways(&self) -> Vec<Sharing> {
        let only = self.sharing.as_deref();
        let is_asked = |way: &Sharing| only.is_none_or(|name| name == way.name());
        Sharing::ALL.into_iter().filter(is_asked).collect()
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
    options: &Options,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let Range { start, end } = options.seeds();
    let (ways, threads) = (options.ways(), options.threads);
    let clock = MonotonicClock::new();
    let over = options
        .secs
        .map(|secs| clock.now().plus(Span::from_secs(secs)));
    let is_over = || over.is_some_and(|over| clock.now() >= over);
    let next = AtomicU64::new(start);
    let mut all = SeedResult::default();
    thread::scope(|scope| {
        // A simulation depends on its seed alone, so it does not matter which thread runs it.
        // At most 256, so it fits.
        let (to, told) = mpsc::sync_channel(threads as usize);
        for _ in 0..threads {
            let (to, next, ways) = (to.clone(), &next, &ways);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    // The receiver is gone if the output could not be written.
                    if seed >= end || is_over() || to.send(run_seed(seed, ways)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(to);
        for told in told {
            all.add(&told);
            for line in &told.violations {
                writeln!(out, "{line}")?;
                // A failure in a long run shows at once.
                out.flush()?;
            }
            if told.seed.is_multiple_of(REPORT_EVERY) {
                writeln!(progress, "seed {}: {}", told.seed, all.simulations)?;
            }
        }
        Ok::<_, CommandError>(())
    })?;
    writeln!(
        out,
        "{} requests, {} passed, {} questions to the store",
        all.asked, all.passed, all.answered
    )?;
    Ok(all.simulations)
}

/// Runs the simulations of a seed: one for each way to share.
fn run_seed(seed: u64, ways: &[Sharing]) -> SeedResult {
    let plan = Plan::from_seed(seed);
    let mut told = SeedResult {
        seed,
        ..SeedResult::default()
    };
    for sharing in ways {
        if !Quota::plain(plan.limit.clone()).supports(*sharing) {
            continue;
        }
        let violations = match run_simulation(&plan, *sharing) {
            Ok(report) => {
                told.asked += report.history.asked;
                told.passed += report.history.passed.len() as u64;
                told.answered += report.history.answered;
                report.violations.iter().map(ToString::to_string).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        if violations.is_empty() {
            told.simulations.passed += 1;
        } else {
            told.simulations.failed += 1;
            let name = sharing.name();
            let (limit, nodes, faults) = (&plan.limit, plan.nodes, &plan.faults);
            let violations = violations.join("; ");
            told.violations.push(format!(
                "FAILED seed {seed}, {name}, {limit}, {nodes} nodes, {faults:?}: {violations}"
            ));
        }
    }
    told
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
