//! The binary `tollgate`: reads flags and calls the modules below.
//!
//! # Layout
//!
//! `cli` has commands and flags, `arrivals` parses arrivals, `trial` runs them. `table`, `json` and `span_text`
//! print, `color` adds colours. `catalogue` lists the algorithms, `check` reports errors of a policy file, `bound` has
//! the overshoot bounds of a fleet, `init` writes a starter policy, `convert` converts files of other limiters,
//! `explain` explains one request, `reset` resets one key of a server, `doctor` checks the store, `policy_test` runs the cases of a policy. `serve` runs
//! the service, `gateway` the reverse proxy, `bench` a load. `manual` prints completions and manual pages. `wiring`
//! opens the store that a policy names.
//! `input` reads values of flags and files; `fault` has the errors in arguments.

mod arrivals;
mod bench;
mod bound;
mod catalogue;
mod check;
mod cli;
mod color;
mod convert;
mod doctor;
mod explain;
mod fault;
mod gateway;
mod init;
mod input;
mod json;
mod manual;
mod policy_test;
mod reset;
mod serve;
mod span_text;
mod table;
mod trial;
mod wiring;

use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::color::Painted;
use crate::fault::Stop;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    color::set_choice(std::env::args().skip(1));
    let is_colored = color::is_on(&io::stdout());
    let mut out = Painted::new(BufWriter::new(io::stdout().lock()), is_colored);
    let done = run(&Cli::parse(), &mut out);
    match done.and_then(|code| out.flush().map_err(Stop::Write).map(|()| code)) {
        Ok(code) => code,
        // The reader of the output has closed it, as `head` does.
        Err(Stop::Write(e)) if e.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(stop) => {
            // Even standard error may be closed: then only the exit code remains.
            let mut err = Painted::new(io::stderr().lock(), color::is_on(&io::stderr()));
            let _ = write!(err, "{stop}").and_then(|()| err.flush());
            stop.exit_code()
        }
    }
}

fn run(cli: &Cli, out: &mut impl Write) -> Result<ExitCode, Stop> {
    match &cli.command {
        Command::Try(asked) => trial::run(asked, &mut io::stdin().lock(), out)?,
        Command::Limits { json } => catalogue::print(*json, out).map_err(Stop::Write)?,
        Command::Init(asked) => return init::run(asked, out),
        Command::Check(asked) => return check::run(asked, out),
        Command::Serve(asked) => return serve::run(asked, out),
        Command::Gateway(asked) => return gateway::run(asked, out),
        Command::Explain(asked) => return explain::run(asked, out),
        Command::Convert(asked) => return convert::run(asked, out),
        Command::Doctor(asked) => return doctor::run(asked, out),
        Command::Bench(asked) => return bench::run(asked, out),
        Command::Reset(asked) => return reset::run(asked, out),
        Command::Test(asked) => return policy_test::run(asked, out),
        Command::Completions(asked) => manual::completions(asked, out)?,
        Command::Man(asked) => manual::man(asked, out)?,
        Command::Schema => write!(out, "{}", tollgate_config::schema()).map_err(Stop::Write)?,
    }
    Ok(ExitCode::SUCCESS)
}
