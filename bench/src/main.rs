//! Rate limiters side by side. In one process: how long a check takes, and how much memory a key
//! holds, whatever comes. Over sockets: what the doors of a server take.
//!
//! # Layout
//!
//! - [`args`]: what was typed, or a message that says what is wrong with it.
//! - [`workload`]: what every contestant is asked to do: one *cell* of the comparison.
//! - [`stream`]: the order in which keys come, drawn before any clock runs.
//! - [`contestants`]: one small file per limiter, and the list of all of them.
//! - [`measure`]: the timed loop, shared by all and compiled once for each.
//! - [`compare`], [`memory`], [`gate`], [`flood`], [`doors`], [`gateway`], [`speed`], [`store`], [`fleet`], [`fair`],
//!   [`layer`], [`quick`]: the commands.
//! - [`process`]: this process, its memory and its children.
//! - [`table`]: columns for people.
//!
//! # What the numbers are, and are not
//!
//! They are the price of one check in this process on this machine while it was this busy. Compare
//! contestants within one run; do not compare runs. Everything is built by one compiler with one
//! profile, so a profile that pays for overflow checks pays for them in every contestant.

mod args;
mod compare;
mod contestants;
mod doors;
mod fair;
mod fleet;
mod flood;
mod gate;
mod gateway;
mod layer;
mod measure;
mod memory;
mod process;
mod quick;
mod speed;
mod store;
mod stream;
mod table;
mod turns;
mod workload;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use args::Command;

/// The exit code for a command line that makes no sense, as most Unix tools have it.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let command = match args::parse(std::env::args_os().skip(1)) {
        Ok(command) => command,
        Err(message) => {
            // If even stderr is gone, the exit code still tells.
            let _ = writeln!(
                io::stderr(),
                "error: {message}\nhint: run with `help` for the usage"
            );
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let mut out = io::stdout().lock();
    let done = match command {
        Command::Help => write!(out, "{}", args::USAGE).map(|()| true),
        Command::Compare(wanted) => compare::run(&wanted, &mut out),
        Command::Memory(wanted) => memory::run(&wanted, &mut out),
        Command::MemoryChild(probe) => memory::run_child(probe, &mut out).map(|()| true),
        Command::Gate(wanted) => gate::run(&wanted, &mut out),
        Command::Flood(wanted) => flood::run(&wanted, &mut out),
        Command::FloodChild(whom, wanted) => {
            flood::run_child(whom, &wanted, &mut out).map(|()| true)
        }
        Command::Doors(wanted) => doors::run(&wanted, &mut out),
        Command::Gateway(wanted) => gateway::run(&wanted, &mut out),
        Command::BareChild(port) => doors::bare::run(port).map(|()| true),
        Command::BareRespChild(port) => speed::floor::resp::run(port).map(|()| true),
        Command::BareRlsChild(port) => speed::floor::run_tonic(port).map(|()| true),
        Command::Speed(wanted) => speed::run(&wanted, &mut out),
        Command::Store(wanted) => store::run(&wanted, &mut out),
        Command::Fleet(wanted) => fleet::run(&wanted, &mut out),
        Command::Fair(wanted) => fair::run(&wanted, &mut out),
        Command::Layer(wanted) => layer::run(&wanted, &mut out),
        Command::Quick { json } => quick::run(json, &mut out),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // `tollgate-bench compare | head` is a fine thing to do.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
