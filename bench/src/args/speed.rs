//! The command line of `resp`, `rls`, `envoy`, `unloaded`, `footprint`, and of all of them together.

use std::path::PathBuf;
use std::time::Duration;

use super::doors::seconds;
use super::{Flags, count, unknown};
use crate::speed::Part;

/// The names by which the floors are started.
pub(crate) const BARE_RESP_CHILD: &str = "bare-resp-child";
pub(crate) const BARE_RLS_CHILD: &str = "bare-rls-child";

const PASSES_MAX: usize = 1000;
/// Servers that have bounds are given room for as many.
const KEYS_MAX: usize = 1_000_000;

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Speed {
    pub(crate) parts: Vec<Part>,
    /// That counts, in each pass of each contestant.
    pub(crate) time: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) passes: usize,
    /// Keys that are live.
    pub(crate) keys: u64,
    /// Instead of the one beside this program.
    pub(crate) tollgate: Option<PathBuf>,
    /// Instead of what `tools/peers.sh` and `make setup` installed.
    pub(crate) throttlecrab: Option<PathBuf>,
    pub(crate) cell: Option<PathBuf>,
    pub(crate) limitador: Option<PathBuf>,
    pub(crate) envoy: Option<PathBuf>,
    /// Leave out peers; what remains may not be missing.
    pub(crate) only_ours: bool,
    pub(crate) json: bool,
}

impl Default for Speed {
    fn default() -> Self {
        Self {
            parts: Part::ALL.into(),
            time: Duration::from_secs(4),
            warm_up: Duration::from_millis(500),
            passes: 5,
            keys: 1_000_000,
            tollgate: None,
            throttlecrab: None,
            cell: None,
            limitador: None,
            envoy: None,
            only_ours: false,
            json: false,
        }
    }
}

/// What a command measures; `None` if it is not one of these.
pub(super) fn parts(command: &str) -> Option<Vec<Part>> {
    if command == "speed" {
        return Some(Part::ALL.into());
    }
    let part = Part::ALL.into_iter().find(|part| part.name() == command);
    part.map(|part| vec![part])
}

pub(super) fn parse(command: &str, mut flags: Flags<'_>) -> Result<Speed, String> {
    let path = |word: &str| Ok(Some(PathBuf::from(word)));
    let mut wanted = Speed {
        parts: parts(command).unwrap_or_default(),
        ..Speed::default()
    };
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--seconds" => wanted.time = flags.one(flag, seconds)?,
            "--passes" => wanted.passes = flags.one(flag, |word| count(word, PASSES_MAX))?,
            "--keys" => wanted.keys = flags.one(flag, |word| count(word, KEYS_MAX))? as u64,
            "--tollgate" => wanted.tollgate = flags.one(flag, path)?,
            "--throttlecrab" => wanted.throttlecrab = flags.one(flag, path)?,
            "--cell" => wanted.cell = flags.one(flag, path)?,
            "--limitador" => wanted.limitador = flags.one(flag, path)?,
            "--envoy" => wanted.envoy = flags.one(flag, path)?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, command)),
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(command: &str, line: &str) -> Result<Speed, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(command, Flags(words.iter()))
    }

    #[test]
    fn every_flag_is_understood_and_no_other() {
        let line = "--seconds 0.5 --passes 3 --keys 10k --tollgate t --throttlecrab c --cell m --limitador l --envoy e --json";
        let wanted = parse_line("resp", line).unwrap();
        assert_eq!(wanted.time, Duration::from_millis(500));
        assert_eq!((wanted.passes, wanted.keys, wanted.json), (3, 10_000, true));
        assert_eq!(wanted.parts, [Part::Resp]);
        let paths = [wanted.tollgate, wanted.throttlecrab, wanted.cell];
        assert_eq!(
            paths.map(Option::unwrap),
            ["t", "c", "m"].map(PathBuf::from)
        );
        let paths = [wanted.limitador, wanted.envoy];
        assert_eq!(paths.map(Option::unwrap), ["l", "e"].map(PathBuf::from));
        let told = parse_line("rls", "--speed 9").unwrap_err();
        assert_eq!(told, "`rls` has no flag `--speed`");
        assert!(parse_line("rls", "--keys 2m").is_err());
    }

    #[test]
    fn every_part_is_a_command_and_speed_is_all_of_them() {
        for part in Part::ALL {
            assert_eq!(parts(part.name()), Some(vec![part]));
        }
        assert_eq!(parts("speed"), Some(Part::ALL.into()));
        assert_eq!(parts("store"), None);
    }
}
