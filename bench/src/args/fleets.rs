//! The command line of `fleet`.

use std::time::Duration;

use super::doors::seconds;
use super::{Flags, count, key_count, unknown};

const PASSES_MAX: usize = 1000;
const LIMIT_MAX: usize = 1_000_000_000;

/// What `fleet` is to do.
#[derive(Debug)]
pub(crate) struct Fleets {
    /// Hot keys.
    pub(crate) keys: usize,
    /// What each may in a second, and at once.
    pub(crate) limit: usize,
    /// That counts, in each pass of each way to share.
    pub(crate) time: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) passes: usize,
    pub(crate) json: bool,
}

impl Default for Fleets {
    fn default() -> Self {
        Self {
            keys: 200,
            limit: 10_000,
            time: Duration::from_secs(2),
            // More than a term of a loan.
            warm_up: Duration::from_millis(1200),
            passes: 5,
            json: false,
        }
    }
}

pub(super) fn parse(mut flags: Flags<'_>) -> Result<Fleets, String> {
    let mut wanted = Fleets::default();
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--keys" => wanted.keys = flags.one(flag, key_count)?,
            "--limit" => wanted.limit = flags.one(flag, |word| count(word, LIMIT_MAX))?,
            "--seconds" => wanted.time = flags.one(flag, seconds)?,
            "--passes" => wanted.passes = flags.one(flag, |word| count(word, PASSES_MAX))?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, "fleet")),
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_fleet_is_understood_and_no_other() {
        let parse_line = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(Flags(words.iter()))
        };
        let wanted = parse_line("--keys 1k --limit 50 --seconds 0.5 --passes 3 --json").unwrap();
        assert_eq!((wanted.keys, wanted.limit), (1000, 50));
        assert_eq!(wanted.time, Duration::from_millis(500));
        assert_eq!((wanted.passes, wanted.json), (3, true));
        let told = parse_line("--tollgate x").unwrap_err();
        assert_eq!(told, "`fleet` has no flag `--tollgate`");
    }
}
