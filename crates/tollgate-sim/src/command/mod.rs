//! The commands of the binary.
//!
//! Every command ends with one line, `N passed, M failed`, and with exit code 0 if something ran and nothing
//! failed, 1 if not, and 2 if the call or a file is invalid.

pub mod adaptive;
pub mod fleet;
pub mod load;
pub mod steps;
pub mod threads;
pub mod vectors;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};
use std::iter::once;
use std::ops::RangeInclusive;

/// Checks the limiters without a network: golden timelines, an exact oracle, threads, and fleets on virtual time.
#[derive(Debug, Parser)]
#[command(name = "tollgate-sim")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay golden timelines through the core's steps and the store
    Vectors(vectors::VectorsArgs),
    /// Compare the core with the exact oracle in random histories
    Steps(steps::StepsArgs),
    /// Let threads charge the same keys: exactly what the limits hold is admitted
    Threads(threads::ThreadsArgs),
    /// Put the adaptive limits in front of backends that change
    Adaptive(adaptive::AdaptiveArgs),
    /// Simulate nodes, a network and a store on virtual time, inject faults, and check the promises
    Fleet(fleet::FleetArgs),
    /// Count the calls that fleets make to their store without faults: they do not grow with requests
    Load(load::LoadArgs),
}

/// Why a command could not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum CommandError {
    /// The arguments are invalid, or ask for help.
    Usage(clap::Error),
    /// A file could not be read or is no timeline.
    Input(String),
    /// The output could not be written.
    Output(io::Error),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) => write!(f, "{error}"),
            Self::Input(what) => write!(f, "error: {what}"),
            Self::Output(error) => write!(f, "error: cannot write: {error}"),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<clap::Error> for CommandError {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Steps or scenarios that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many passed.
    pub passed: u64,
    /// How many failed.
    pub failed: u64,
}

impl Tally {
    /// Whether something ran and nothing failed.
    pub fn is_good(self) -> bool {
        self.passed > 0 && self.failed == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Runs the command of `args` (without the program's name); the summary is the last line of `out`.
///
/// # Errors
///
/// If the command cannot run.
pub fn run(
    args: &[String],
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let words = once("tollgate-sim").chain(args.iter().map(String::as_str));
    let tally = match Cli::try_parse_from(words)?.command {
        Command::Vectors(options) => vectors::run(&options, out)?,
        Command::Steps(options) => steps::run(&options, out, progress)?,
        Command::Threads(options) => threads::run(&options, out, progress)?,
        Command::Adaptive(options) => adaptive::run(&options, out, progress)?,
        Command::Fleet(options) => fleet::run(&options, out, progress)?,
        Command::Load(options) => load::run(&options, out, progress)?,
    };
    writeln!(out, "{tally}")?;
    Ok(tally)
}

/// A value that the parser accepts and the command does not.
fn usage(what: impl fmt::Display) -> CommandError {
    CommandError::Usage(Cli::command().error(ErrorKind::ValueValidation, what))
}

/// One object on one line.
fn write_line(out: &mut dyn Write, row: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, row)?;
    writeln!(out)
}

/// A whole number, with `_` between digits if it is long.
fn number(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    digits
        .parse()
        .map_err(|_| "write a whole number".to_owned())
}

/// A whole number of `range`.
fn number_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let value = number(text)?;
        match range.contains(&value) {
            true => Ok(value),
            false => Err(format!("write {} to {}", range.start(), range.end())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Command, String> {
        let words = once("tollgate-sim").chain(words.split_whitespace());
        let cli = Cli::try_parse_from(words);
        cli.map(|cli| cli.command)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_invalid_command_line_is_explained() {
        Cli::command().debug_assert();
        for (words, what) in [
            ("", "Usage: tollgate-sim"),
            ("dance", "unrecognized subcommand 'dance'"),
            ("vectors", "<PATH>..."),
            ("steps --seed 7", "--each <N>"),
            ("steps --each", "a value is required for '--each <N>'"),
            ("steps --each ten", "write a whole number"),
            ("steps --each 1 --fast 2", "unexpected argument '--fast'"),
            ("steps --each 1 --only tokens", "invalid value 'tokens'"),
            ("threads --threads 0", "write 1 to 256"),
            ("adaptive --secs 30", "write 31 to 3600"),
            (
                "fleet --sharing all",
                "[possible values: exact, lease, sync]",
            ),
            ("load --nodes 1", "write 16 to 128"),
            ("load --seconds 0", "write 1 to 10"),
            ("load --seed", "a value is required for '--seed <S>'"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(what), "{words}: {error}");
        }
    }

    #[test]
    fn options_are_read_as_they_are_documented() {
        let Ok(Command::Steps(steps)) =
            read("steps --each 10_000 --seed 7 --only gcra,store_concurrency")
        else {
            panic!("steps");
        };
        assert_eq!((steps.each, steps.seed), (10_000, 7));
        assert_eq!(steps.only, ["gcra", "store_concurrency"]);
        let Ok(Command::Threads(threads)) = read("threads --charges 5_000 --threads 3") else {
            panic!("threads");
        };
        assert_eq!((threads.charges, threads.threads), (5_000, 3));
    }
}
