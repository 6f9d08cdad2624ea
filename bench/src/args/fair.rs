//! The command line of `fair`.

use super::{Flags, count, unknown};

const FLOWS_MAX: usize = 10_000_000;
const ITEMS_MAX: usize = 1_000_000_000;
const PASSES_MAX: usize = 1000;

/// What `fair` is to do.
#[derive(Debug)]
pub(crate) struct Fairness {
    /// That items belong to.
    pub(crate) flows: usize,
    /// That pass through in each pass of each contestant.
    pub(crate) items: usize,
    pub(crate) passes: usize,
    pub(crate) json: bool,
}

impl Default for Fairness {
    fn default() -> Self {
        Self {
            flows: 10_000,
            items: 1_000_000,
            passes: 5,
            json: false,
        }
    }
}

pub(super) fn parse(mut flags: Flags<'_>) -> Result<Fairness, String> {
    let mut wanted = Fairness::default();
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--flows" => wanted.flows = flags.one(flag, |word| count(word, FLOWS_MAX))?,
            "--items" => wanted.items = flags.one(flag, |word| count(word, ITEMS_MAX))?,
            "--passes" => wanted.passes = flags.one(flag, |word| count(word, PASSES_MAX))?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, "fair")),
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Fairness, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(Flags(words.iter()))
    }

    #[test]
    fn every_flag_of_fair_is_understood_and_no_other() {
        let wanted = parse_line("--flows 2k --items 3m --passes 7 --json").unwrap();
        assert_eq!((wanted.flows, wanted.items), (2000, 3_000_000));
        assert_eq!((wanted.passes, wanted.json), (7, true));
        let told = parse_line("--keys 1").unwrap_err();
        assert_eq!(told, "`fair` has no flag `--keys`");
    }
}
