//! The command line of `store`.

use std::time::Duration;

use super::doors::seconds;
use super::{Flags, count, unknown};

const PASSES_MAX: usize = 1000;

/// What `store` is to do.
#[derive(Debug)]
pub(crate) struct Stores {
    /// That counts, in each pass of each contestant.
    pub(crate) time: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) passes: usize,
    pub(crate) json: bool,
}

impl Default for Stores {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(2),
            warm_up: Duration::from_millis(300),
            passes: 5,
            json: false,
        }
    }
}

pub(super) fn parse(mut flags: Flags<'_>) -> Result<Stores, String> {
    let mut wanted = Stores::default();
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--seconds" => wanted.time = flags.one(flag, seconds)?,
            "--passes" => wanted.passes = flags.one(flag, |word| count(word, PASSES_MAX))?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, "store")),
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Stores, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(Flags(words.iter()))
    }

    #[test]
    fn every_flag_of_store_is_understood_and_no_other() {
        let wanted = parse_line("--seconds 0.5 --passes 3 --json").unwrap();
        assert_eq!(wanted.time, Duration::from_millis(500));
        assert_eq!((wanted.passes, wanted.json), (3, true));
        let told = parse_line("--tollgate x").unwrap_err();
        assert_eq!(told, "`store` has no flag `--tollgate`");
    }
}
