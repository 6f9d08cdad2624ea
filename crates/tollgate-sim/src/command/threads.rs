//! `threads`: real threads on the same keys, and exactly what the limits allow comes of it.

use super::{CommandError, Tally, number, usage};
use crate::threads::{Crew, SCENARIOS};
use std::io::Write;
use tollgate::{Clock, MonotonicClock};

/// Charges of each scenario unless told otherwise: some seconds.
const CHARGES: u64 = 200_000_000;
/// The burst is a tenth, and no window counts further than 2^32.
const CHARGES_MAX: u64 = 40_000_000_000;
/// So that each thread asks often enough for every key it shares.
const CHARGES_PER_THREAD_MIN: u64 = 1_000;

const THREADS: u64 = 2;
const THREADS_MAX: u64 = 256;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    charges: u64,
    threads: u64,
}

/// Runs every scenario; each of them passes or fails as one.
///
/// # Errors
///
/// If it is called wrongly, or cannot write.
pub fn run(
    options: &[String],
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let Options { charges, threads } = Options::read(options)?;
    let clock = MonotonicClock::new();
    let mut tally = Tally::default();
    for scenario in &SCENARIOS {
        let name = scenario.name;
        let began = clock.now();
        let mut tell = |made| {
            // Whoever does not want to hear how far it is still gets the result.
            let _ = writeln!(progress, "{name}: {made} of {charges} charges");
        };
        // At most 256, so it fits.
        let found = scenario.run(&mut Crew::new(charges, threads as usize, &mut tell));
        let took = clock.now().since(began).as_nanos() / 1_000_000;
        let (is_good, told) = match found {
            Ok(finding) => (finding.is_good(), finding.to_string()),
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
            "{name}: {charges} charges by {threads} threads, {told}, {took} ms"
        )?;
        out.flush()?;
    }
    Ok(tally)
}

impl Options {
    fn read(options: &[String]) -> Result<Self, CommandError> {
        let (mut charges, mut threads) = (CHARGES, THREADS);
        let mut words = options.iter();
        while let Some(option) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| usage(format!("`{option}` needs a value")))?;
            match option.as_str() {
                "--charges" => charges = number(option, value)?,
                "--threads" => threads = number(option, value)?,
                _ => return Err(usage(format!("no option `{option}`"))),
            }
        }
        within("--threads", threads, 1, THREADS_MAX)?;
        let least = threads * CHARGES_PER_THREAD_MIN;
        within("--charges", charges, least, CHARGES_MAX)?;
        Ok(Self { charges, threads })
    }
}

fn within(option: &str, value: u64, least: u64, most: u64) -> Result<(), CommandError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(usage(format!(
        "`{option}` is {value}, which is not between {least} and {most}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &str) -> Result<Options, String> {
        let words: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
        Options::read(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_as_they_are_documented() {
        let (charges, threads) = (CHARGES, THREADS);
        assert_eq!(read("").unwrap(), Options { charges, threads });
        let options = read("--charges 5_000 --threads 3").unwrap();
        assert_eq!((options.charges, options.threads), (5_000, 3));
    }

    #[test]
    fn a_wrong_call_says_what_is_wrong() {
        for (options, what) in [
            ("--charges", "`--charges` needs a value"),
            (
                "--charges x",
                "`--charges` is `x`, which is no whole number",
            ),
            (
                "--threads 0",
                "`--threads` is 0, which is not between 1 and 256",
            ),
            ("--charges 999 --threads 1", "is not between 1000 and"),
            ("--fast 1", "no option `--fast`"),
        ] {
            let error = read(options).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
