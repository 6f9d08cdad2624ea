//! Command-line arguments of the benchmark program.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::contestants::{self, Entry};
use crate::measure::Until;
use crate::servers::Suite;
use crate::workload::{Distribution, KEYS_MAX, KeyKind, Mode};

/// Keyed rate limiters side by side.
///
/// Exit code 0: every contestant did what it should. 1: a contestant admitted what it should refuse, or the
/// other way round, or Tollgate exceeded its stated memory. 2: the command line is wrong.
#[derive(Debug, Parser)]
#[command(name = "tollgate-bench", disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Print one JSON object per line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The time of one check: every combination of the lists.
    Compare(Compare),
    /// Resident bytes per live key, each contestant in a process of its own.
    Memory(Memory),
    /// The time of all-or-none over 2, 3 and 4 limits, against one charge after the other.
    Gate(Gate),
    /// Memory under distinct keys that never come back, and whether a throttled key gains by it.
    Flood(Flood),
    /// Front ends of real servers, ours and peers, each a process pinned to one core. `tools/peers.sh` installs the peers.
    Servers(Servers),
    /// What a decision costs a real redis-server, how fast one client is, and the memory of a key.
    Store(Store),
    /// Four nodes on one redis-server: exact, lease, sync, and without the store.
    Fleet(Fleet),
    /// The fair queue beside tokio's channel, and the admission queue beside its semaphore.
    Queues(QueueArgs),
    /// What limits and queues add to a request of an axum server.
    Layer(Layer),
    /// All comparisons on a small scale, to see that they still work. The figures mean nothing.
    Quick,
    #[command(hide = true)]
    MemoryChild(MemoryChild),
    #[command(hide = true)]
    FloodChild(FloodChild),
    #[command(hide = true)]
    Noop(Noop),
}

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// How many distinct keys; `k` and `m` are thousands and millions.
    #[arg(long, value_delimiter = ',', default_value = "1,10k,1m,10m", value_parser = keys)]
    pub(crate) keys: Vec<usize>,
    /// How often each key comes; one key has no distribution.
    #[arg(long = "dist", value_enum, value_delimiter = ',', default_values_t = Distribution::ALL)]
    pub(crate) distributions: Vec<Distribution>,
    /// `user:00001234`, or a number.
    #[arg(long = "kind", value_enum, value_delimiter = ',', default_values_t = KeyKind::ALL)]
    pub(crate) kinds: Vec<KeyKind>,
    /// Each thread checks its own share of the keys; a single key is shared by all.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Vec<u16>,
    /// Nothing is refused, or everything is.
    #[arg(long = "mode", value_enum, value_delimiter = ',', default_values_t = Mode::ALL)]
    pub(crate) modes: Vec<Mode>,
    /// Only these contestants.
    #[arg(long, value_delimiter = ',', value_parser = contestant)]
    pub(crate) only: Vec<&'static Entry>,
    #[command(flatten)]
    pub(crate) repeats: Repeats,
}

#[derive(Debug, Args)]
pub(crate) struct Memory {
    #[arg(long, value_delimiter = ',', default_value = "10m", value_parser = keys)]
    pub(crate) keys: Vec<usize>,
    #[arg(
        long = "kind",
        value_enum,
        value_delimiter = ',',
        default_value = "str"
    )]
    pub(crate) kinds: Vec<KeyKind>,
    /// Only these contestants.
    #[arg(long, value_delimiter = ',', value_parser = contestant)]
    pub(crate) only: Vec<&'static Entry>,
}

#[derive(Debug, Args)]
pub(crate) struct Gate {
    #[arg(long, value_delimiter = ',', default_value = "10k,1m", value_parser = keys)]
    pub(crate) keys: Vec<usize>,
    #[command(flatten)]
    pub(crate) repeats: Repeats,
}

/// How long contestants in this process are measured.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Repeats {
    /// Passes over all contestants, interleaved; the median is reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) passes: u16,
    /// Operations of each turn (and thread), instead of the usual number or 0.3 seconds.
    #[arg(long, value_parser = operations)]
    pub(crate) ops: Option<usize>,
}

impl Repeats {
    /// The end of a turn of checks.
    pub(crate) fn until(self) -> Until {
        let checks = |checks| Until::Checks(checks as u64);
        self.ops
            .map_or(Until::Elapsed(Duration::from_millis(300)), checks)
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Flood {
    /// Distinct keys that are checked.
    #[arg(long, default_value = "100m", value_parser = keys)]
    pub(crate) keys: usize,
    /// Keys that Tollgate has room for.
    #[arg(long, default_value = "1m", value_parser = keys)]
    pub(crate) max_keys: usize,
}

/// How long servers are measured.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PassArgs {
    /// Counted seconds of each turn, after a warm-up.
    #[arg(long = "seconds", default_value = "4", value_parser = seconds)]
    pub(crate) time: Duration,
    /// Passes over all servers, interleaved; the median is reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) passes: u16,
}

impl PassArgs {
    /// The warm-up of each turn: as long as one that counts, at most `longest`.
    pub(crate) fn warm_up(self, longest: Duration) -> Duration {
        self.time.min(longest)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Servers {
    /// Which comparisons; all of them without this.
    #[arg(value_enum, value_name = "SUITE")]
    pub(crate) suites: Vec<Suite>,
    #[command(flatten)]
    pub(crate) passes: PassArgs,
    /// Live keys.
    #[arg(long, default_value = "1m", value_parser = live_keys)]
    pub(crate) keys: u64,
    /// The program, instead of the one beside this one.
    #[arg(long)]
    pub(crate) tollgate: Option<PathBuf>,
    /// throttlecrab-server, instead of the installed one.
    #[arg(long)]
    pub(crate) throttlecrab: Option<PathBuf>,
    /// The module of redis-cell, instead of the installed one.
    #[arg(long)]
    pub(crate) cell: Option<PathBuf>,
    /// limitador's library behind tonic, instead of the installed one.
    #[arg(long)]
    pub(crate) limitador: Option<PathBuf>,
    /// Envoy, instead of the installed one.
    #[arg(long)]
    pub(crate) envoy: Option<PathBuf>,
    /// Leave out what `tools/peers.sh` installs; nothing else may be missing.
    #[arg(long)]
    pub(crate) without_peers: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Store {
    #[command(flatten)]
    pub(crate) passes: PassArgs,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Fleet {
    /// Hot keys.
    #[arg(long, default_value = "200", value_parser = keys)]
    pub(crate) keys: usize,
    /// Rate of each key per second, and its burst.
    #[arg(long, default_value = "10k", value_parser = operations)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) passes: PassArgs,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct QueueArgs {
    /// Flows of the items.
    #[arg(long, default_value = "10k", value_parser = flows)]
    pub(crate) flows: usize,
    #[command(flatten)]
    pub(crate) repeats: Repeats,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Layer {
    #[command(flatten)]
    pub(crate) repeats: Repeats,
}

/// The child process of `memory` for one contestant.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MemoryChild {
    #[arg(value_parser = contestant)]
    pub(crate) entry: &'static Entry,
    pub(crate) keys: usize,
    #[arg(value_enum)]
    pub(crate) kind: KeyKind,
}

/// The child process of `flood` for one limiter.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FloodChild {
    #[arg(value_enum)]
    pub(crate) limiter: Flooded,
    pub(crate) keys: usize,
    pub(crate) max_keys: usize,
}

/// A limiter under flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Flooded {
    Tollgate,
    Governor,
}

impl Flooded {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tollgate => "tollgate",
            Self::Governor => "governor",
        }
    }
}

/// A no-op server of `servers`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Noop {
    #[arg(value_enum)]
    pub(crate) protocol: NoopProtocol,
    pub(crate) port: u16,
}

/// Protocol of a no-op server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NoopProtocol {
    Http,
    Resp,
    Rls,
}

/// A positive number, perhaps with `k` or `m` behind it.
fn count(text: &str, max: usize) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    // `usize` would read a leading `+`.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("not a count such as `250`, `10k` or `1m`".into());
    }
    let number = digits.parse::<usize>().ok();
    match number.and_then(|number| number.checked_mul(unit)) {
        Some(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(format!("not between 1 and {max}")),
    }
}

fn keys(text: &str) -> Result<usize, String> {
    count(text, KEYS_MAX)
}

/// Servers that have bounds are given room for a million keys.
fn live_keys(text: &str) -> Result<u64, String> {
    count(text, 1_000_000).map(|keys| keys as u64)
}

fn flows(text: &str) -> Result<usize, String> {
    count(text, 10_000_000)
}

fn operations(text: &str) -> Result<usize, String> {
    count(text, 1_000_000_000)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    // Below a tenth only ticks of the clock would be measured.
    let seconds = seconds.filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "not between 0.1 and 600 seconds".into())
}

fn contestant(name: &str) -> Result<&'static Entry, String> {
    let names = || contestants::ALL.iter().map(|entry| entry.name);
    contestants::ALL
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| format!("not one of {}", names().collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_and_counts_are_read() {
        let line = "tollgate-bench compare --keys 1,10k,2m --dist zipf --kind u64 --threads 2 \
                    --mode refuse --only governor,noop --passes 3 --ops 5k --json";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Compare(options) = cli.command else {
            unreachable!("`{line}` is `compare`")
        };
        assert_eq!(options.keys, [1, 10_000, 2_000_000]);
        assert_eq!(options.distributions, [Distribution::Zipf]);
        assert_eq!(options.kinds, [KeyKind::U64]);
        assert_eq!(options.modes, [Mode::Refuse]);
        let names: Vec<_> = options.only.iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["governor", "noop"]);
        assert_eq!(options.repeats.until(), Until::Checks(5_000));
        assert!(cli.json);
    }

    #[test]
    fn a_wrong_value_is_an_error_that_names_the_flag() {
        for (line, expected) in [
            ("compare --keys 0", "not between 1 and 100000000"),
            ("compare --keys +1", "not a count"),
            ("compare --keys 1µ", "not a count"),
            ("compare --only me", "not one of governor"),
            ("servers --seconds inf", "not between 0.1 and 600"),
            ("servers --keys 2m", "not between 1 and 1000000"),
            ("servers sockets", "invalid value"),
            ("race", "unrecognized subcommand"),
        ] {
            let words = format!("tollgate-bench {line}");
            let error = Cli::try_parse_from(words.split_whitespace()).unwrap_err();
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
    }
}
