//! `steps`: compares the core with the oracle in made-up histories.

use super::{CommandError, Tally, number, usage};
use crate::property::{ALGORITHMS, history};
use std::io::Write;
use tollgate::{Clock, MonotonicClock, Span};

/// How often it tells how far it is, at the most.
const TELL_EVERY: Span = Span::from_secs(1);

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    each: u64,
    seed: u64,
    only: Vec<&'static str>,
}

/// Runs histories of each algorithm until it has made its steps; one that fails stops there.
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
    let mut told = clock.now();
    let mut tally = Tally::default();
    for algorithm in options.only {
        let began = clock.now();
        let (mut made, mut seed, mut failed) = (0, options.seed, 0);
        while made < options.each && failed == 0 {
            match history(algorithm, seed, options.each - made) {
                Ok(steps) => made += steps,
                Err(failure) => {
                    made += failure.steps.saturating_sub(1);
                    failed = 1;
                    writeln!(out, "FAILED {failure}")?;
                }
            }
            seed = seed.wrapping_add(1);
            if clock.now().since(told) >= TELL_EVERY {
                told = clock.now();
                writeln!(progress, "{algorithm}: {made} of {} steps", options.each)?;
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

impl Options {
    fn read(options: &[String]) -> Result<Self, CommandError> {
        let (mut each, mut seed, mut only) = (None, 1, ALGORITHMS.to_vec());
        let mut words = options.iter();
        while let Some(option) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| usage(format!("`{option}` needs a value")))?;
            match option.as_str() {
                "--each" => each = Some(number(option, value)?),
                "--seed" => seed = number(option, value)?,
                "--only" => only = value.split(',').map(named).collect::<Result<_, _>>()?,
                _ => return Err(usage(format!("no option `{option}`"))),
            }
        }
        let each = each.ok_or_else(|| usage("`--each` is missing".to_owned()))?;
        Ok(Self { each, seed, only })
    }
}

fn named(name: &str) -> Result<&'static str, CommandError> {
    let known = ALGORITHMS.into_iter().find(|known| *known == name);
    known.ok_or_else(|| {
        usage(format!(
            "no algorithm `{name}`, there are: {}",
            ALGORITHMS.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &str) -> Result<Options, String> {
        let words: Vec<String> = options.split(' ').map(str::to_owned).collect();
        Options::read(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_as_they_are_documented() {
        let options = read("--each 10_000 --seed 7 --only gcra,sliding_log").unwrap();
        assert_eq!((options.each, options.seed), (10_000, 7));
        assert_eq!(options.only, ["gcra", "sliding_log"]);
        assert_eq!(read("--each 1").unwrap().only, ALGORITHMS);
    }

    #[test]
    fn a_wrong_call_says_what_is_wrong() {
        for (options, what) in [
            ("--seed 7", "`--each` is missing"),
            ("--each", "`--each` needs a value"),
            ("--each ten", "`--each` is `ten`, which is no whole number"),
            ("--each 1 --fast 2", "no option `--fast`"),
            ("--each 1 --only tokens", "no algorithm `tokens`"),
        ] {
            let error = read(options).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
