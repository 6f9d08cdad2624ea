//! The command line of `doors`.

use std::path::PathBuf;
use std::time::Duration;

use super::{Flags, count, unknown};

/// The name by which `doors` starts its bare server.
pub(crate) const BARE_CHILD: &str = "bare-child";

const PASSES_DEFAULT: usize = 5;
const PASSES_MAX: usize = 1000;
const SECONDS_DEFAULT: u64 = 4;
const SECONDS_MAX: f64 = 600.0;
/// Shorter than this, ticks of the clock are all that is measured.
const SECONDS_MIN: f64 = 0.1;
const WARM_UP: Duration = Duration::from_millis(500);

/// What `doors` is to do.
#[derive(Debug)]
pub(crate) struct Doors {
    /// That counts, in each pass of each contestant.
    pub(crate) time: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) passes: usize,
    /// Instead of the one beside this program.
    pub(crate) tollgate: Option<PathBuf>,
    /// Instead of the one on `PATH`.
    pub(crate) throttlecrab: Option<PathBuf>,
    /// Leave out peers; what remains may not be missing.
    pub(crate) only_ours: bool,
    pub(crate) json: bool,
}

impl Default for Doors {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(SECONDS_DEFAULT),
            warm_up: WARM_UP,
            passes: PASSES_DEFAULT,
            tollgate: None,
            throttlecrab: None,
            only_ours: false,
            json: false,
        }
    }
}

pub(super) fn parse(mut flags: Flags<'_>) -> Result<Doors, String> {
    let path = |word: &str| Ok(Some(PathBuf::from(word)));
    let mut wanted = Doors::default();
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--seconds" => wanted.time = flags.one(flag, seconds)?,
            "--passes" => wanted.passes = flags.one(flag, |word| count(word, PASSES_MAX))?,
            "--tollgate" => wanted.tollgate = flags.one(flag, path)?,
            "--throttlecrab" => wanted.throttlecrab = flags.one(flag, path)?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, "doors")),
        }
    }
    Ok(wanted)
}

/// The port of the bare server.
pub(super) fn parse_bare_child(words: &[String]) -> Result<u16, String> {
    let [port] = words else {
        return Err(format!("`{BARE_CHILD}` takes a port"));
    };
    port.parse().map_err(|_| format!("`{port}` is not a port"))
}

pub(super) fn seconds(word: &str) -> Result<Duration, String> {
    let is_plain = word
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = word.parse::<f64>().ok().filter(|_| is_plain);
    let seconds = seconds.ok_or_else(|| format!("`{word}` is not seconds such as `4` or `0.5`"))?;
    if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!(
            "`{word}` is not between {SECONDS_MIN} and {SECONDS_MAX}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Doors, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(Flags(words.iter()))
    }

    #[test]
    fn every_flag_of_doors_is_understood() {
        let line = "--seconds 0.5 --passes 3 --tollgate a/tollgate --throttlecrab crab --json";
        let wanted = parse_line(line).unwrap();
        assert_eq!(wanted.time, Duration::from_millis(500));
        assert_eq!((wanted.passes, wanted.json), (3, true));
        assert_eq!(wanted.tollgate, Some("a/tollgate".into()));
        assert_eq!(wanted.throttlecrab, Some("crab".into()));
        assert!(!wanted.only_ours);
    }

    #[test]
    fn without_flags_there_are_five_passes_of_four_seconds() {
        let wanted = parse_line("").unwrap();
        assert_eq!((wanted.time, wanted.passes), (Duration::from_secs(4), 5));
    }

    #[test]
    fn what_makes_no_sense_to_doors_is_told_and_not_guessed() {
        for (line, expected) in [
            ("--keys 9", "`doors` has no flag `--keys`"),
            ("--seconds", "`--seconds` needs a value after it"),
            (
                "--seconds inf",
                "`--seconds`: `inf` is not seconds such as `4` or `0.5`",
            ),
            (
                "--seconds -1",
                "`--seconds`: `-1` is not seconds such as `4` or `0.5`",
            ),
            ("--seconds 0", "`--seconds`: `0` is not between 0.1 and 600"),
            ("--passes 0", "`--passes`: `0` is not between 1 and 1000"),
        ] {
            assert_eq!(parse_line(line).unwrap_err(), expected, "for `{line}`");
        }
        let words = ["99999".to_owned()];
        assert_eq!(
            parse_bare_child(&words),
            Err("`99999` is not a port".to_owned())
        );
    }
}
