//! Rate limiters side by side: in one process, the time of a check and the memory of a key; over sockets, the front ends of
//! servers.
//!
//! # Layout
//!
//! - [`args`]: the command line.
//! - [`workload`]: what every contestant in the process does: one *cell* of the comparison.
//! - [`stream`]: the order of keys, drawn before any clock runs.
//! - [`contestants`]: one small file per limiter, and the list of all of them.
//! - [`measure`]: the timed loop, shared by all and compiled once for each.
//! - [`compare`], [`memory`], [`gate`], [`flood`], [`fair`], [`layer`]: comparisons in this process.
//! - [`servers`]: comparisons of servers; its cases are data.
//! - [`store`], [`fleet`]: what a real redis-server costs.
//! - [`quick`]: all of them on a small scale.
//! - [`turns`], [`table`], [`process`]: figures, columns, memory and children of this process.
//!
//! # What the numbers are, and are not
//!
//! They hold for this machine while it was this busy. Compare contestants within one run; do not compare runs.
//! Everything is built by one compiler with one profile, so a profile that pays for overflow checks pays for them in
//! every contestant.

mod args;
mod compare;
mod contestants;
mod fair;
mod fleet;
mod flood;
mod gate;
mod layer;
mod measure;
mod memory;
mod process;
mod quick;
mod servers;
mod store;
mod stream;
mod table;
mod turns;
mod workload;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // `tollgate-bench compare | head` is legitimate.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; returns whether every contestant did what it should.
fn run(command: Command, out: &mut dyn Write) -> io::Result<bool> {
    match command {
        Command::Compare(options) => compare::run(&options, out),
        Command::Memory(options) => memory::run(&options, out),
        Command::Gate(options) => gate::run(&options, out),
        Command::Flood(options) => flood::run(&options, out),
        Command::Servers(options) => servers::run(&options, out),
        Command::Store(options) => store::run(&options, out),
        Command::Fleet(options) => fleet::run(&options, out),
        Command::Fair(options) => fair::run(&options, out),
        Command::Layer(options) => layer::run(&options, out),
        Command::Quick(options) => quick::run(options, out),
        Command::MemoryChild(child) => memory::run_child(child, out).map(|()| true),
        Command::FloodChild(child) => flood::run_child(child, out).map(|()| true),
        Command::Floor(floor) => servers::floor::run(floor).map(|()| true),
    }
}
