//! What can be typed: commands, flags and their help.

use clap::{Args, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  tollgate try \"5/s burst 10\"                        twice the burst at once, then one at a time
  tollgate try \"5/s burst 10\" '0s*11' 200ms          eleven at once, one more 200 ms later
  tollgate try \"fixed-window 10/min\" 1s-20s/1s       one every second
  tollgate limits                                    every algorithm, its bound and its use

`tollgate try --help` says how limits and arrivals are written.";

const TRY_EXAMPLES: &str = "\
LIMIT is one argument, so put it in quotes:
  5/s burst 10                               token bucket; the burst defaults to the 5
  token-bucket 5/s burst 10                  the same with its name
  gcra 10/s tolerance 250ms
  leaky-bucket 3000/s queue 5000 max-wait 2s
  fixed-window 10/min
  sliding-log 100/min
  sliding-window 50/min                      or: estimate classic parts 3, estimate strict parts 3
  burst-credits 10/s times 10 for 30s
  concurrency 20 ttl 30s                     nobody gives a permit back: each one expires

ARRIVALS are words, run in the order of their times:
  0s   100ms   1m30s                         one, at that time
  0s*11                                      eleven at once
  1s-20s/1s                                  one every second, from 1 s to 20 s inclusive
  0s*3,cost=5,key=alice                      three for the key alice, each taking 5
  -                                          read them from standard input, one on each line;
                                             empty lines and lines that start with # are skipped

Examples:
  tollgate try \"5/s burst 10\" '0s*11' 200ms
  tollgate try \"leaky-bucket 3000/s queue 5000\" '0s*6000'
  tollgate try \"fixed-window 10/min\" '59s*10' '60s*10'
  tollgate try \"100/min burst 20\" 0s,cost=15,key=alice 0s,cost=15,key=bob --json
  tollgate try \"sliding-log 100/min\" - < arrivals.txt

In the table, `… 8 more pass` stands for 8 further arrivals of the same word with the same verdict;
the numbers beside it are those after the last of them.";

/// Rate limits: try them before they meet a real request.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What `tollgate` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a limit would do to these arrivals, on a virtual clock
    Try(Try),
    /// List the algorithms: how each is written, what it promises, when to use it
    Limits {
        /// Print one JSON object for each algorithm
        #[arg(long)]
        json: bool,
    },
}

/// What `tollgate try` was asked.
#[derive(Debug, Args)]
#[command(after_help = TRY_EXAMPLES)]
pub(crate) struct Try {
    /// The limit, such as "5/s burst 10"
    pub(crate) limit: String,
    /// When requests come, such as 0s*11 200ms 1s-20s/1s; a demonstration if left out
    pub(crate) arrivals: Vec<String>,
    /// Print one JSON object for each arrival
    #[arg(long)]
    pub(crate) json: bool,
}
