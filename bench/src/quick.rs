//! Every command on a small scale: the harness and all contestants still work. The times mean little.

use std::io::{self, Write};

use clap::Parser;

use crate::args::{Cli, Quick};

/// Peers would have to be installed. `flood` has no smaller room: a process grows by some hundred kilobytes anyhow.
const LINES: &[&str] = &[
    "compare --keys 1,1k --rounds 2 --ops 20k",
    "memory --keys 100k --kind str,u64",
    "gate --keys 1k --rounds 2 --ops 20k",
    "flood --keys 2m --max-keys 500k",
    "servers --without-peers --seconds 0.1 --passes 1 --keys 10k",
    "store --seconds 0.1 --passes 1",
    "fleet --seconds 0.2 --passes 1",
    "fair --flows 1k --items 50k --passes 2",
    "layer --rounds 2 --ops 10k",
];

/// Runs all commands; returns whether every contestant did its work.
pub(crate) fn run(options: Quick, out: &mut dyn Write) -> io::Result<bool> {
    let mut all_well = true;
    for line in LINES {
        let json = options.json.then_some("--json");
        let words = ["tollgate-bench"]
            .into_iter()
            .chain(line.split(' '))
            .chain(json);
        let cli = Cli::try_parse_from(words).map_err(io::Error::other)?;
        all_well &= crate::run(cli.command, out)?;
    }
    Ok(all_well)
}
