//! `fleet`: many worlds in which a fleet shares a limit, each of its seed, and what was promised of them.

use super::{CommandError, Tally, number, number_in};
use crate::fleet::plan::Plan;
use crate::fleet::run as run_world;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use tollgate::{Clock, MonotonicClock, Span};
use tollgate_policy::{Quota, Sharing};

/// Seeds unless told otherwise.
const SEEDS: u64 = 1_000;
/// How often it is told how far it is.
const TELL_EVERY: u64 = 1_000;
/// Threads at the most.
const THREADS_MAX: u64 = 256;

/// Which worlds are run.
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
    /// Threads that run worlds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number_in(1..=THREADS_MAX))]
    threads: u64,
    /// Only this way to share a limit
    #[arg(long, value_name = "WAY", value_parser = PossibleValuesParser::new(Sharing::ALL.map(Sharing::name)))]
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

    /// The ways to share.
    fn ways(&self) -> Vec<Sharing> {
        let only = self.sharing.as_deref();
        let is_asked = |way: &Sharing| only.is_none_or(|name| name == way.name());
        Sharing::ALL.into_iter().filter(is_asked).collect()
    }
}

/// What became of the worlds of one seed.
#[derive(Debug, Default)]
struct Told {
    seed: u64,
    worlds: Tally,
    asked: u64,
    passed: u64,
    answered: u64,
    /// A line for each world that broke a promise.
    broken: Vec<String>,
}

/// Runs the worlds; each of them passes or fails as one. One that fails prints its seed.
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
    let mut all = Told::default();
    thread::scope(|scope| {
        // A world is of its seed alone, so it does not matter who runs it, nor beside which others.
        // At most 256, so it fits.
        let (to, told) = mpsc::sync_channel(threads as usize);
        for _ in 0..threads {
            let (to, next, ways) = (to.clone(), &next, &ways);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    // Nobody listens any more if what was told could not be written.
                    if seed >= end || is_over() || to.send(worlds_of(seed, ways)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(to);
        for told in told {
            all.add(&told);
            for line in &told.broken {
                writeln!(out, "{line}")?;
                // Whoever watches a long run wants to know now.
                out.flush()?;
            }
            if told.seed.is_multiple_of(TELL_EVERY) {
                writeln!(progress, "seed {}: {}", told.seed, all.worlds)?;
            }
        }
        Ok::<_, CommandError>(())
    })?;
    writeln!(
        out,
        "{} requests, {} passed, {} questions to the store",
        all.asked, all.passed, all.answered
    )?;
    Ok(all.worlds)
}

/// Runs the worlds of a seed: one for each way to share.
fn worlds_of(seed: u64, ways: &[Sharing]) -> Told {
    let plan = Plan::of(seed);
    let mut told = Told {
        seed,
        ..Told::default()
    };
    for sharing in ways {
        if !Quota::plain(plan.limit.clone()).can_be(*sharing) {
            continue;
        }
        let broken = match run_world(&plan, *sharing) {
            Ok(report) => {
                told.asked += report.history.asked;
                told.passed += report.history.passed.len() as u64;
                told.answered += report.history.answered;
                report.broken.iter().map(ToString::to_string).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        if broken.is_empty() {
            told.worlds.passed += 1;
        } else {
            told.worlds.failed += 1;
            let name = sharing.name();
            let (limit, nodes, troubles) = (&plan.limit, plan.nodes, &plan.troubles);
            let broken = broken.join("; ");
            told.broken.push(format!(
                "FAILED seed {seed}, {name}, {limit}, {nodes} nodes, {troubles:?}: {broken}"
            ));
        }
    }
    told
}

impl Told {
    /// What became of other worlds, too.
    fn add(&mut self, other: &Told) {
        self.worlds.passed += other.worlds.passed;
        self.worlds.failed += other.worlds.failed;
        self.asked += other.asked;
        self.passed += other.passed;
        self.answered += other.answered;
    }
}
