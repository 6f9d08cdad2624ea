//! `fleet`: many worlds in which a fleet shares a limit, each of its seed, and what was promised of them.

use super::{CommandError, Tally, number, usage};
use crate::fleet::plan::Plan;
use crate::fleet::run as run_world;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use tollgate::policy::{Quota, Sharing};
use tollgate::{Clock, MonotonicClock, Span};

/// Seeds unless told otherwise.
const SEEDS: u64 = 1_000;
/// How often it is told how far it is.
const TELL_EVERY: u64 = 1_000;
/// Threads at the most.
const THREADS_MAX: u64 = 256;

/// What was asked for.
#[derive(Debug)]
struct Options {
    first: u64,
    seeds: u64,
    secs: Option<u64>,
    threads: usize,
    sharing: Vec<Sharing>,
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
    options: &[String],
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let options = Options::read(options)?;
    let clock = MonotonicClock::new();
    let over = options
        .secs
        .map(|secs| clock.now().plus(Span::from_secs(secs)));
    let is_over = || over.is_some_and(|over| clock.now() >= over);
    let next = AtomicU64::new(options.first);
    let end = options.first.saturating_add(options.seeds);
    let mut all = Told::default();
    thread::scope(|scope| {
        // A world is of its seed alone, so it does not matter who runs it, nor beside which others.
        let (to, told) = mpsc::sync_channel(options.threads);
        for _ in 0..options.threads {
            let (to, next, sharing) = (to.clone(), &next, &options.sharing);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    // Nobody listens any more if what was told could not be written.
                    if seed >= end || is_over() || to.send(worlds_of(seed, sharing)).is_err() {
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

impl Options {
    fn read(options: &[String]) -> Result<Self, CommandError> {
        let mut read = Self {
            first: 1,
            seeds: SEEDS,
            secs: None,
            threads: 1,
            sharing: Sharing::ALL.to_vec(),
        };
        let mut words = options.iter();
        while let Some(option) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| usage(format!("`{option}` needs a value")))?;
            match option.as_str() {
                "--seeds" => read.seeds = number(option, value)?,
                "--secs" => {
                    read.secs = Some(number(option, value)?);
                    read.seeds = u64::MAX;
                }
                "--seed" => {
                    read.first = number(option, value)?;
                    read.seeds = 1;
                }
                "--threads" => {
                    let threads = number(option, value)?.clamp(1, THREADS_MAX);
                    read.threads = usize::try_from(threads).unwrap_or(1);
                }
                "--sharing" => {
                    let known = Sharing::ALL
                        .into_iter()
                        .find(|sharing| sharing.name() == value);
                    let known = known.ok_or_else(|| {
                        usage(format!(
                            "`--sharing` is `{value}`; write `exact`, `lease` or `sync`"
                        ))
                    })?;
                    read.sharing = vec![known];
                }
                _ => return Err(usage(format!("no option `{option}`"))),
            }
        }
        Ok(read)
    }
}
