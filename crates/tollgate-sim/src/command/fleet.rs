//! `fleet`: many worlds in which a fleet shares a limit, each of its seed, and what was promised of them.

use super::{CommandError, Tally, number, usage};
use crate::fleet::plan::Plan;
use crate::fleet::run as run_world;
use std::io::Write;
use tollgate::policy::{Quota, Sharing};
use tollgate::{Clock, MonotonicClock, Span};

/// Seeds unless told otherwise.
const SEEDS: u64 = 1_000;
/// How often it is told how far it is.
const TELL_EVERY: u64 = 1_000;

/// What was asked for.
#[derive(Debug)]
struct Options {
    first: u64,
    seeds: u64,
    secs: Option<u64>,
    sharing: Vec<Sharing>,
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
    let mut tally = Tally::default();
    let (mut asked, mut passed, mut answered) = (0_u64, 0_u64, 0_u64);
    for seed in options.first..options.first.saturating_add(options.seeds) {
        if over.is_some_and(|over| clock.now() >= over) {
            break;
        }
        let plan = Plan::of(seed);
        for sharing in &options.sharing {
            if !Quota::plain(plan.limit.clone()).can_be(*sharing) {
                continue;
            }
            let broken = match run_world(&plan, *sharing) {
                Ok(report) => {
                    asked += report.history.asked;
                    passed += report.history.passed.len() as u64;
                    answered += report.history.answered;
                    report.broken.iter().map(ToString::to_string).collect()
                }
                Err(error) => vec![error.to_string()],
            };
            if broken.is_empty() {
                tally.passed += 1;
            } else {
                tally.failed += 1;
                let name = sharing.name();
                let (limit, nodes, troubles) = (&plan.limit, plan.nodes, &plan.troubles);
                let broken = broken.join("; ");
                writeln!(
                    out,
                    "FAILED seed {seed}, {name}, {limit}, {nodes} nodes, {troubles:?}: {broken}"
                )?;
                // Whoever watches a long run wants to know now.
                out.flush()?;
            }
        }
        if seed % TELL_EVERY == 0 {
            writeln!(progress, "seed {seed}: {tally}")?;
        }
    }
    writeln!(
        out,
        "{asked} requests, {passed} passed, {answered} questions to the store"
    )?;
    Ok(tally)
}

impl Options {
    fn read(options: &[String]) -> Result<Self, CommandError> {
        let mut read = Self {
            first: 1,
            seeds: SEEDS,
            secs: None,
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
