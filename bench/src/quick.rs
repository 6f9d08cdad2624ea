//! Every comparison on a small scale: a test of the comparisons themselves. The figures mean nothing.

use std::io;

use clap::Parser;

use crate::args::Cli;
use crate::output::Output;

/// Peers are left out, because they may not be installed. `flood` cannot be smaller: a process grows by some hundred kilobytes
/// anyway.
const LINES: &[&str] = &[
    "compare --keys 1,1k --passes 2 --ops 20k",
    "memory --keys 100k --kind str,u64",
    "gate --keys 1k --passes 2 --ops 20k",
    "flood --keys 2m --max-keys 500k",
    "servers --without-peers --seconds 0.1 --passes 1 --keys 10k",
    "store --seconds 0.1 --passes 1",
    "fleet --seconds 0.2 --passes 1",
    "queues --flows 1k --ops 50k --passes 2",
    "layer --passes 2 --ops 10k",
];

/// Runs all comparisons; returns whether every contestant did what it should.
pub(crate) fn run(out: &mut Output<'_>) -> io::Result<bool> {
    let mut all_correct = true;
    for line in LINES {
        let words = ["tollgate-bench"].into_iter().chain(line.split(' '));
        let cli = Cli::try_parse_from(words).map_err(io::Error::other)?;
        all_correct &= crate::run(cli.command, out)?;
    }
    Ok(all_correct)
}
