//! Compares rate limiters: in one process, the time of a check and the memory of a key; over sockets, the front ends of
//! servers.
//!
//! # Layout
//!
//! - [`args`]: the command line. [`quick`]: all comparisons on a small scale.
//! - [`figures`]: interleaved passes, medians and ratios. [`output`]: tables and JSON lines from one description of a row.
//! - [`system`]: memory, processor time and cores of processes.
//! - [`compare`], [`gate`], [`memory`], [`flood`]: keyed limiters in this process. [`contestants`] has one small file for each
//!   limiter; [`workload`] is the work, [`keys`] draws keys before any clock runs, [`measure`] is the timed loop.
//! - [`queues`], [`layer`]: queues and middleware in this process.
//! - [`servers`]: servers as processes; its cases are data.
//! - [`store`], [`fleet`]: a real redis-server, alone and under a fleet.
//!
//! # What the numbers are, and are not
//!
//! They hold for this machine while it was this busy. Compare contestants within one run; do not compare runs.
//! Everything is built by one compiler with one profile, so a profile that pays for overflow checks pays for them in
//! every contestant.

mod args;
mod compare;
mod contestants;
mod figures;
mod fleet;
mod flood;
mod gate;
mod keys;
mod layer;
mod measure;
mod memory;
mod output;
mod queues;
mod quick;
mod servers;
mod store;
mod system;
mod workload;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use output::Output;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = Output {
        json: cli.json,
        writer: &mut io::stdout().lock(),
    };
    match run(cli.command, &mut out) {
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
fn run(command: Command, out: &mut Output<'_>) -> io::Result<bool> {
    match command {
        Command::Compare(args) => compare::run(&args, out),
        Command::Memory(args) => memory::run(&args, out),
        Command::Gate(args) => gate::run(&args, out),
        Command::Flood(args) => flood::run(&args, out),
        Command::Servers(args) => servers::run(&args, out),
        Command::Store(args) => store::run(&args, out),
        Command::Fleet(args) => fleet::run(&args, out),
        Command::Queues(args) => queues::run(&args, out),
        Command::Layer(args) => layer::run(&args, out),
        Command::Quick => quick::run(out),
        Command::MemoryChild(child) => memory::run_child_process(child, out.writer).map(|()| true),
        Command::FloodChild(child) => flood::run_child_process(child, out.writer).map(|()| true),
        Command::Noop(noop) => servers::noop::run(noop).map(|()| true),
    }
}
