//! The binary `tollgate-trials`: breaks real servers and networks under a real service, and tells which promises held.

#![forbid(unsafe_code)]

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use tollgate_testkit::now;
use tollgate_testkit::servers::Kind;
use tollgate_trials::trials::{ALL, Options, Race, Trial, work};
use tollgate_trials::verdicts::time;

const EXAMPLES: &str = "\
Examples:
  tollgate-trials kill                       kill -9 of a primary, with all promises
  tollgate-trials all --quick                every trial, short and without promises about time
  tollgate-trials freeze --kind valkey --seconds 3 --seed 7
  tollgate-trials list                       what each trial does

The service is `tollgate` beside this program, or what TOLLGATE_BIN says. The exit code is 0 if every promise was kept,
1 if one was broken, 2 if nothing was tried.";

/// What was asked.
#[derive(Debug, Parser)]
#[command(name = "tollgate-trials", version, about = "Break real servers under a real service", after_help = EXAMPLES)]
struct Cli {
    /// Which trial; `all` for all of them, `list` for what each does
    #[arg(value_parser = names(), hide_possible_values = true)]
    name: String,
    /// Short, and without promises about time: for machines that others use as well
    #[arg(long)]
    quick: bool,
    /// Which servers: redis or valkey
    #[arg(long, default_value = "redis", value_parser = kind)]
    kind: Kind,
    /// Where all randomness comes from; drawn and printed if left out
    #[arg(long)]
    seed: Option<u64>,
    /// How long the main part of a trial takes
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,
    /// Requests in a second
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: u64,
    /// A worker of the race: where the store is
    #[arg(long, hide = true)]
    port: Option<u16>,
    /// A worker of the race: what is raced for
    #[arg(long, hide = true, value_parser = race)]
    race: Option<Race>,
    /// A worker of the race: how often it charges
    #[arg(long, hide = true, default_value_t = 0)]
    charges: u64,
}

fn names() -> PossibleValuesParser {
    let trials = ALL.iter().map(|trial| trial.name);
    PossibleValuesParser::new(trials.chain(["all", "list", "work"]))
}

fn kind(name: &str) -> Result<Kind, String> {
    match name {
        "redis" => Ok(Kind::Redis),
        "valkey" => Ok(Kind::Valkey),
        _ => Err("write `redis` or `valkey`".into()),
    }
}

fn race(name: &str) -> Result<Race, String> {
    Race::named(name).ok_or_else(|| "there is no such race".into())
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // If even standard error is closed, the exit code is all that is left to say it with.
            let _ = writeln!(io::stderr().lock(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Does what was asked, and says whether every promise was kept.
fn run(cli: &Cli, out: &mut impl Write) -> io::Result<bool> {
    match cli.name.as_str() {
        "work" => return worker(cli, out),
        "list" => {
            for trial in ALL {
                writeln!(out, "{:13}  {}", trial.name, trial.about)?;
            }
            return Ok(true);
        }
        _ => {}
    }
    let seed = cli
        .seed
        .unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let options = Options {
        kind: cli.kind,
        quick: cli.quick,
        seed,
        seconds: cli.seconds,
        rate: cli.rate,
    };
    let wanted = |trial: &&Trial| cli.name == "all" || trial.name == cli.name;
    let (mut tried, mut broken) = (0, Vec::new());
    for trial in ALL.iter().filter(wanted) {
        writeln!(
            out,
            "{}: {} ({}, {}/s, seed {seed})",
            trial.name, trial.about, options.kind, options.rate
        )?;
        out.flush()?;
        let start = now();
        let verdicts = trial.run(&options);
        write!(out, "{}", verdicts.text())?;
        writeln!(out, "  took    {}\n", time(start.elapsed()))?;
        tried += 1;
        if !verdicts.all_kept() {
            broken.push(trial.name);
        }
    }
    match broken.as_slice() {
        [] => writeln!(out, "{tried} trials, every promise kept")?,
        broken => writeln!(
            out,
            "{tried} trials, promises broken in: {}. Again with `--seed {seed}`",
            broken.join(", ")
        )?,
    }
    Ok(broken.is_empty())
}

fn worker(cli: &Cli, out: &mut impl Write) -> io::Result<bool> {
    let (Some(port), Some(race)) = (cli.port, cli.race) else {
        return Err(io::Error::other(
            "`work` is what the race starts; ask for `race`",
        ));
    };
    let said =
        work(port, race, cli.charges).map_err(|error| io::Error::other(error.to_string()))?;
    writeln!(out, "{said}")?;
    Ok(true)
}
