//! `tollgate test`: runs the cases that a policy has under `expect`.
//!
//! Every case gets the policy with unused limits and a clock of its own, so cases do not depend on each other, on their order
//! or on the day. Requests pass the same engine as in a server. Only the memory store is used: what a store that a fleet
//! shares adds is its sharing, which no case describes.

mod compare;
mod print;
mod run;

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use tollgate_config::{ExpectedCase, Loaded};

use crate::fault::{Stop, shown};
use crate::input;

const EXAMPLES: &str = "\
A policy with one case:
  default: pass
  limits:
    - { name: rides, match: { path: /api/rides }, key: header.x-rider-id, allow: 5/min, burst: 3 }
  expect:
    - name: three at once, then one every 12 seconds
      request: { path: /api/rides, headers: { x-rider-id: 42 } }
      steps:
        - { times: 3, verdict: pass, remaining: 0 }
        - { verdict: refuse, limit: rides, retry_after: 12s }
        - { advance: 12s, verdict: pass }

Examples:
  tollgate test tollgate.yaml
  tollgate test policies/*.yaml --json               one JSON object for each case, and a summary for each file

Every case starts with unused limits on 2026-01-01 (or its `start`) on a clock that only `advance` moves.

Exit codes: 0 all cases pass; 1 a case fails; 2 they cannot run: a policy has errors or no cases, or cannot be read.";

/// The arguments of `tollgate test`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Test {
    /// The policy files; `-` is standard input
    #[arg(required = true, value_name = "POLICY")]
    files: Vec<String>,
    /// Print one JSON object for each case, and a summary for each file
    #[arg(long)]
    json: bool,
}

/// The outcome of one case.
struct CaseOutcome<'c> {
    case: &'c ExpectedCase,
    /// Requests that were sent.
    requests: u64,
    failure: Option<Failure>,
}

/// The first request of a case that got another decision.
struct Failure {
    /// The line of the step.
    line: usize,
    /// The request, as text.
    request: String,
    /// What differs; never empty.
    differences: Vec<Difference>,
}

/// A field of a step with its expected and its actual value.
struct Difference {
    field: &'static str,
    expected: String,
    got: String,
}

/// Runs the cases of all files and prints their outcomes.
pub(crate) fn run(asked: &Test, out: &mut impl Write) -> Result<ExitCode, Stop> {
    let mut policies = Vec::new();
    for file in &asked.files {
        policies.push(load(file)?);
    }
    let mut failed = 0;
    for (name, text, loaded) in &policies {
        let outcomes: Result<Vec<_>, Stop> = loaded
            .expect
            .iter()
            .map(|case| run::case(case, &loaded.policy))
            .collect();
        let outcomes = outcomes?;
        failed += outcomes.iter().filter(|o| o.failure.is_some()).count();
        match asked.json {
            true => print::json(name, &outcomes, out),
            false => print::text(name, text, &outcomes, out),
        }
        .map_err(Stop::Write)?;
    }
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// A policy with at least one case: its name, its text and its content.
fn load(file: &str) -> Result<(String, String, Loaded), Stop> {
    let (name, text) = input::policy(file)?;
    let loaded = tollgate_config::parse(&name, &text).map_err(|p| Stop::Policy(Box::new(p)))?;
    if loaded.expect.is_empty() {
        return Err(Stop::Other {
            what: format!("`{}` has no cases to test", shown(&name)),
            hint: "add them under `expect:`; `tollgate test --help` shows one".into(),
        });
    }
    // It was parsed, so it is UTF-8.
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok((name, text, loaded))
}
