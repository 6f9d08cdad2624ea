//! `threads`: real threads charge the same keys, and exactly what the limits hold is admitted.

use super::{CommandError, Tally, number, number_in, usage};
use crate::threads::{SCENARIOS, Workers};
use clap::Args;
use std::io::Write;
use tollgate::{Clock, MonotonicClock};

/// Charges of each scenario by default: some seconds.
const CHARGES: u64 = 200_000_000;
/// The burst is a tenth, and no window counts further than 2^32.
const MAX_CHARGES: u64 = 40_000_000_000;
/// Enough that each thread charges every key it shares often.
const CHARGES_PER_THREAD_MIN: u64 = 1_000;

const THREADS: u64 = 2;
const THREADS_MAX: u64 = 256;

/// How many charges are made, and by how many threads.
#[derive(Debug, Args)]
pub struct ThreadsArgs {
    /// Charges of each scenario
    #[arg(long, value_name = "N", default_value_t = CHARGES, value_parser = number)]
    pub(super) charges: u64,
    /// Threads that make them
    #[arg(long, value_name = "T", default_value_t = THREADS, value_parser = number_in(1..=THREADS_MAX))]
    pub(super) threads: u64,
}

/// Runs every scenario; each of them passes or fails as one.
///
/// # Errors
///
/// If it is called wrongly, or cannot write.
pub fn run(
    args: &ThreadsArgs,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let &ThreadsArgs { charges, threads } = args;
    let range = threads * CHARGES_PER_THREAD_MIN..=MAX_CHARGES;
    if !range.contains(&charges) {
        let (least, most) = range.into_inner();
        return Err(usage(format!(
            "`--charges` is {charges}, which is not between {least} and {most}"
        )));
    }
    let clock = MonotonicClock::new();
    let mut tally = Tally::default();
    for scenario in &SCENARIOS {
        let name = scenario.name;
        let began = clock.now();
        let mut progress = |made| {
            // A progress line that cannot be written changes no result.
            let _ = writeln!(progress, "{name}: {made} of {charges} charges");
        };
        // At most 256, so it fits.
        let found = scenario.run(&mut Workers::new(charges, threads as usize, &mut progress));
        let took = clock.now().since(began).as_nanos() / 1_000_000;
        let (is_good, text) = match found {
            Ok(outcome) => (outcome.is_good(), outcome.to_string()),
            Err(what) => (false, what),
        };
        if is_good {
            tally.passed += 1;
        } else {
            tally.failed += 1;
            write!(out, "FAILED ")?;
        }
        writeln!(
            out,
            "{name}: {charges} charges by {threads} threads, {text}, {took} ms"
        )?;
        out.flush()?;
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_charges_often_enough_for_every_key() {
        let args = ThreadsArgs {
            charges: 1_999,
            threads: 2,
        };
        let error = run(&args, &mut Vec::new(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("is not between 2000 and"));
    }
}
