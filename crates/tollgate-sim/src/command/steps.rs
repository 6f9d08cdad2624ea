//! `steps`: compares the core with the oracle in random histories.

use super::{CommandError, Tally, number};
use crate::property::{ALGORITHMS, history};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::io::Write;
use tollgate::{Clock, MonotonicClock, Span};

/// Time between two progress lines.
const REPORT_EVERY: Span = Span::from_secs(1);

/// Which histories are run.
#[derive(Debug, Args)]
pub struct StepsArgs {
    /// Steps for each algorithm
    #[arg(long, value_name = "N", value_parser = number)]
    pub(super) each: u64,
    /// The seed of the first history
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = number)]
    pub(super) seed: u64,
    /// Only these algorithms
    #[arg(long, value_name = "ALGORITHM", value_delimiter = ',', value_parser = PossibleValuesParser::new(ALGORITHMS))]
    pub(super) only: Vec<String>,
}

/// Runs histories of each algorithm until it has made its steps; one that fails stops there.
///
/// # Errors
///
/// If it is called wrongly, or cannot write.
pub fn run(
    args: &StepsArgs,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let clock = MonotonicClock::new();
    let mut reported = clock.now();
    let mut tally = Tally::default();
    let is_asked = |name: &&str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    for algorithm in ALGORITHMS.into_iter().filter(is_asked) {
        let began = clock.now();
        let (mut made, mut seed, mut failed) = (0, args.seed, 0);
        while made < args.each && failed == 0 {
            match history(algorithm, seed, args.each - made) {
                Ok(steps) => made += steps,
                Err(failure) => {
                    made += failure.steps.saturating_sub(1);
                    failed = 1;
                    writeln!(out, "FAILED {failure}")?;
                }
            }
            seed = seed.wrapping_add(1);
            if clock.now().since(reported) >= REPORT_EVERY {
                reported = clock.now();
                writeln!(progress, "{algorithm}: {made} of {} steps", args.each)?;
            }
        }
        let took = clock.now().since(began).as_nanos() / 1_000_000;
        writeln!(
            out,
            "{algorithm}: {made} steps passed, {failed} failed, {took} ms"
        )?;
        out.flush()?;
        tally.passed += made;
        tally.failed += failed;
    }
    Ok(tally)
}
