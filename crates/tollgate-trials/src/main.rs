//! The binary `tollgate-trials`: injects faults into servers and networks under a real service, and reports which
//! promises held.

#![forbid(unsafe_code)]

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use tollgate_testkit::now;
use tollgate_testkit::servers::Kind;
use tollgate_trials::trials::{ALL, Trial, TrialOptions};
use tollgate_trials::verdicts::time;

const EXAMPLES: &str = "\
Examples:
  tollgate-trials kill                       kill -9 of a primary, with all promises
  tollgate-trials all --quick                every trial, short and without promises about time
  tollgate-trials freeze --kind valkey --seconds 3 --seed 7
  tollgate-trials list                       the description of each trial

The service is `tollgate` beside this program, or TOLLGATE_BIN. The exit code is 0 if every promise was kept,
1 if one was broken, 2 if no trial ran.";

/// Arguments.
#[derive(Debug, Parser)]
#[command(name = "tollgate-trials", version, about = "Inject faults into real servers under a real service", after_help = EXAMPLES)]
struct Cli {
    /// The trial; `all` for all of them, `list` for their descriptions
    #[arg(value_parser = names(), hide_possible_values = true)]
    name: String,
    /// Short, and without promises about time: for shared machines
    #[arg(long)]
    quick: bool,
    /// The kind of servers: redis or valkey
    #[arg(long, default_value = "redis", value_parser = kind)]
    kind: Kind,
    /// The seed of all randomness; drawn and printed by default
    #[arg(long)]
    seed: Option<u64>,
    /// How long the main part of a trial takes
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,
    /// Requests per second
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: u64,
}

fn names() -> PossibleValuesParser {
    let trials = ALL.iter().map(|trial| trial.name);
    PossibleValuesParser::new(trials.chain(["all", "list"]))
}

fn kind(name: &str) -> Result<Kind, String> {
    match name {
        "redis" => Ok(Kind::Redis),
        "valkey" => Ok(Kind::Valkey),
        _ => Err("write `redis` or `valkey`".into()),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // If even standard error is closed, the exit code is left.
            let _ = writeln!(io::stderr().lock(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the trials, and returns whether every promise was kept.
fn run(cli: &Cli, out: &mut impl Write) -> io::Result<bool> {
    if cli.name == "list" {
        for trial in ALL {
            writeln!(out, "{:13}  {}", trial.name, trial.summary)?;
        }
        return Ok(true);
    }
    let seed = cli
        .seed
        .unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let options = TrialOptions {
        kind: cli.kind,
        quick: cli.quick,
        seed,
        seconds: cli.seconds,
        rate: cli.rate,
    };
    let wanted = |trial: &&Trial| cli.name == "all" || trial.name == cli.name;
    let (mut ran, mut broken) = (0, Vec::new());
    for trial in ALL.iter().filter(wanted) {
        writeln!(
            out,
            "{}: {} ({}, {}/s, seed {seed})",
            trial.name, trial.summary, options.kind, options.rate
        )?;
        out.flush()?;
        let start = now();
        let verdicts = trial.run(&options);
        write!(out, "{}", verdicts.text())?;
        writeln!(out, "  took    {}\n", time(start.elapsed()))?;
        ran += 1;
        if !verdicts.all_kept() {
            broken.push(trial.name);
        }
    }
    match broken.as_slice() {
        [] => writeln!(out, "{ran} trials, every promise kept")?,
        broken => writeln!(
            out,
            "{ran} trials, promises broken in: {}. Repeat with `--seed {seed}`",
            broken.join(", ")
        )?,
    }
    Ok(broken.is_empty())
}
