//! The command line of `gateway`.

use std::path::PathBuf;
use std::time::Duration;

use super::doors::seconds;
use super::{Flags, count, unknown};

const PASSES_MAX: usize = 1000;

/// What `gateway` is to do.
#[derive(Debug)]
pub(crate) struct Gateways {
    /// That counts, in each pass of each contestant.
    pub(crate) time: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) passes: usize,
    /// Instead of the one beside this program.
    pub(crate) tollgate: Option<PathBuf>,
    pub(crate) json: bool,
}

impl Default for Gateways {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(4),
            warm_up: Duration::from_millis(500),
            passes: 5,
            tollgate: None,
            json: false,
        }
    }
}

pub(super) fn parse(mut flags: Flags<'_>) -> Result<Gateways, String> {
    let path = |word: &str| Ok(Some(PathBuf::from(word)));
    let mut wanted = Gateways::default();
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--seconds" => wanted.time = flags.one(flag, seconds)?,
            "--passes" => wanted.passes = flags.one(flag, |word| count(word, PASSES_MAX))?,
            "--tollgate" => wanted.tollgate = flags.one(flag, path)?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, "gateway")),
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_gateway_is_understood_and_no_other() {
        let line = "--seconds 0.5 --passes 3 --tollgate a/tollgate --json";
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let wanted = parse(Flags(words.iter())).unwrap();
        assert_eq!(wanted.time, Duration::from_millis(500));
        assert_eq!((wanted.passes, wanted.json), (3, true));
        assert_eq!(wanted.tollgate, Some("a/tollgate".into()));
        let words = ["--keys".to_owned()];
        let told = parse(Flags(words.iter())).unwrap_err();
        assert_eq!(told, "`gateway` has no flag `--keys`");
    }
}
