//! What the binary does.
//!
//! ```text
//! tollgate-sim vectors PATH...
//! tollgate-sim steps --each N [--seed S] [--only algorithm,...]
//! tollgate-sim threads [--charges N] [--threads T]
//! tollgate-sim adaptive [--secs N] [--seed S] [--only backend] [--json] [--plots FOLDER]
//! tollgate-sim fleet [--seeds N] [--secs N] [--seed S] [--threads N] [--sharing exact|lease|sync]
//! tollgate-sim load [--nodes N] [--seconds N] [--seed S] [--quick] [--json]
//! ```
//!
//! All close with one line, `N passed, M failed`, and with exit code 0 if something ran and nothing
//! failed, 1 if not, and 2 if they could not do as they were told.

pub mod adaptive;
pub mod fleet;
pub mod load;
pub mod steps;
pub mod threads;
pub mod vectors;

use std::fmt;
use std::io::{self, Write};

/// How to call it.
pub const USAGE: &str = "\
usage: tollgate-sim vectors PATH...
       tollgate-sim steps --each N [--seed S] [--only algorithm,...]
       tollgate-sim threads [--charges N] [--threads T]
       tollgate-sim adaptive [--secs N] [--seed S] [--only backend] [--json] [--plots FOLDER]
       tollgate-sim fleet [--seeds N] [--secs N] [--seed S] [--threads N] [--sharing exact|lease|sync]
       tollgate-sim load [--nodes N] [--seconds N] [--seed S] [--quick] [--json]

vectors   replays golden timelines (files, or folders of *.csv) through the core's steps and the store
steps     compares the core with the exact oracle, N random steps for each algorithm
threads   lets T threads make N charges on the same keys: exactly what the limits hold is admitted
adaptive  puts the adaptive limits in front of backends that change, N seconds in each state; with seeds 1 to 5
          unless S is given, and the table shows the worst
fleet     puts nodes, a network and a store on virtual time, breaks them, and checks what is promised: N seeds, or as
          many as N seconds allow, or only seed S; on N threads
load      counts what fleets of up to N nodes ask of their store in N seconds of fair weather, with more requests, more
          keys and fewer nodes, and checks that it does not grow with requests";

/// Why a command could not be done.
#[derive(Debug)]
#[non_exhaustive]
pub enum CommandError {
    /// It was called wrongly.
    Usage(String),
    /// A file could not be read or is no timeline.
    Input(String),
    /// What there was to say could not be written.
    Output(io::Error),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => write!(f, "error: {what}\n{USAGE}"),
            Self::Input(what) => write!(f, "error: {what}"),
            Self::Output(error) => write!(f, "error: cannot write: {error}"),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// How many steps, or scenarios, went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As they should.
    pub passed: u64,
    /// Otherwise.
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

/// Does what `args` (without the program's name) say; the closing line is the last of `out`.
///
/// # Errors
///
/// If it cannot be done at all.
pub fn run(
    args: &[String],
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<Tally, CommandError> {
    let tally = match args.split_first() {
        Some((command, paths)) if command == "vectors" => vectors::run(paths, out)?,
        Some((command, options)) if command == "steps" => steps::run(options, out, progress)?,
        Some((command, options)) if command == "threads" => threads::run(options, out, progress)?,
        Some((command, options)) if command == "adaptive" => adaptive::run(options, out, progress)?,
        Some((command, options)) if command == "fleet" => fleet::run(options, out, progress)?,
        Some((command, options)) if command == "load" => load::run(options, out, progress)?,
        Some((other, _)) => return Err(CommandError::Usage(format!("no command `{other}`"))),
        None => return Err(CommandError::Usage("a command is missing".to_owned())),
    };
    writeln!(out, "{tally}")?;
    Ok(tally)
}

fn usage(what: String) -> CommandError {
    CommandError::Usage(what)
}

fn number(option: &str, value: &str) -> Result<u64, CommandError> {
    value
        .replace('_', "")
        .parse()
        .map_err(|_| usage(format!("`{option}` is `{value}`, which is no whole number")))
}
