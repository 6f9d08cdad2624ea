//! Replays golden timelines and compares the core with the exact oracle; see
//! [`tollgate_sim::command`].

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use tollgate_sim::command;

/// The arguments are invalid, or a file is no timeline.
const EXIT_UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    let done = command::run(&args, &mut out, &mut io::stderr());
    let written = out.flush();
    match (done, written) {
        (Ok(tally), Ok(())) if tally.is_good() => ExitCode::SUCCESS,
        (Ok(_), Ok(())) => ExitCode::FAILURE,
        (Err(command::CommandError::Usage(error)), _) => error.exit(),
        (Err(error), _) => unusable(&error),
        (_, Err(error)) => unusable(&command::CommandError::Output(error)),
    }
}

fn unusable(error: &command::CommandError) -> ExitCode {
    // If even this cannot be written, the exit code is left.
    let _ = writeln!(io::stderr(), "{error}");
    ExitCode::from(EXIT_UNUSABLE)
}
