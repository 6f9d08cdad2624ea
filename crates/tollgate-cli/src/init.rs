//! `tollgate init`: writes a commented policy for a common case, with its tests.
//!
//! The policies are the recipes of the documentation, from `examples/recipes`.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::fault::{Stop, shown};

/// The cases: their names and their policies.
const CASES: [(&str, &str); 12] = [
    (
        "anonymous",
        include_str!("../../../examples/recipes/anonymous.yaml"),
    ),
    (
        "login",
        include_str!("../../../examples/recipes/login.yaml"),
    ),
    (
        "monthly",
        include_str!("../../../examples/recipes/monthly.yaml"),
    ),
    ("llm", include_str!("../../../examples/recipes/llm.yaml")),
    (
        "credits",
        include_str!("../../../examples/recipes/credits.yaml"),
    ),
    (
        "concurrency",
        include_str!("../../../examples/recipes/concurrency.yaml"),
    ),
    ("gps", include_str!("../../../examples/recipes/gps.yaml")),
    (
        "global",
        include_str!("../../../examples/recipes/global.yaml"),
    ),
    (
        "exempt",
        include_str!("../../../examples/recipes/exempt.yaml"),
    ),
    (
        "rollout",
        include_str!("../../../examples/recipes/rollout.yaml"),
    ),
    ("cost", include_str!("../../../examples/recipes/cost.yaml")),
    ("fair", include_str!("../../../examples/recipes/fair.yaml")),
];

const EXAMPLES: &str = "\
Examples:
  tollgate init                                      the cases
  tollgate init anonymous                            writes tollgate.yaml
  tollgate test tollgate.yaml                        runs the cases that the policy has under `expect`
  tollgate init login --output -                     prints the policy";

/// The arguments of `tollgate init`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Init {
    /// The case; all are listed if it is left out
    #[arg(value_parser = PossibleValuesParser::new(CASES.map(|(name, _)| name)), hide_possible_values = true)]
    case: Option<String>,
    /// The file to write; `-` is standard output
    #[arg(
        long,
        short = 'o',
        value_name = "FILE",
        default_value = "tollgate.yaml"
    )]
    output: String,
}

/// Writes the policy, or lists the cases.
pub(crate) fn run(asked: &Init, out: &mut impl Write) -> Result<ExitCode, Stop> {
    let found = asked.case.as_deref();
    let found = found.and_then(|case| CASES.into_iter().find(|(name, _)| *name == case));
    let Some((_, policy)) = found else {
        for (name, policy) in CASES {
            writeln!(out, "{name:13}{}", title(policy)).map_err(Stop::Write)?;
        }
        writeln!(
            out,
            "\n`tollgate init CASE` writes a policy to tollgate.yaml"
        )
        .map_err(Stop::Write)?;
        return Ok(ExitCode::SUCCESS);
    };
    if asked.output == "-" {
        write!(out, "{policy}").map_err(Stop::Write)?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = shown(&asked.output);
    // An existing file is never overwritten.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&asked.output);
    let written = file.and_then(|mut file| file.write_all(policy.as_bytes()));
    written.map_err(|cause| Stop::Other {
        what: format!("cannot write `{name}`: {cause}"),
        hint: match cause.kind() {
            io::ErrorKind::AlreadyExists => "name another file with `--output FILE`".into(),
            _ => "name a file that this process may write, with `--output FILE`".into(),
        },
    })?;
    writeln!(
        out,
        "wrote {name}: {}\n\ncheck      tollgate check {name}\ntest       tollgate test {name}\nserve      tollgate serve --policy {name}",
        title(policy)
    )
    .map_err(Stop::Write)?;
    Ok(ExitCode::SUCCESS)
}

/// The first comment of a policy.
fn title(policy: &str) -> &str {
    let line = policy.lines().next().unwrap_or_default();
    line.trim_start_matches(['#', ' ']).trim_end_matches('.')
}
