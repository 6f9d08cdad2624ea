//! `tollgate check`: prints all errors and warnings of a policy file.

mod github;
mod sarif;

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;
use tollgate_config::{Loaded, Problems, Severity};
use tollgate_policy::{DefaultAction, Policy};

use crate::bound::bounds;
use crate::cli::{Check, CheckFormat};
use crate::fault::Stop;
use crate::input;
use crate::json;

/// Reads the file and prints its problems.
pub(crate) fn run(asked: &Check, out: &mut impl Write) -> Result<ExitCode, Stop> {
    let (name, text) = input::policy(&asked.file)?;
    let read = tollgate_config::parse(&name, &text);
    let problems = match &read {
        Ok(loaded) => &loaded.warnings,
        Err(problems) => problems,
    };
    let loaded = read.as_ref().ok();
    let denied = asked.deny_warnings && problems.count(Severity::Warning) > 0;
    let good = loaded.filter(|_| !denied);
    let format = match asked.json {
        true => CheckFormat::Json,
        false => asked.format,
    };
    match format {
        CheckFormat::Text => print_text(problems, good, out),
        CheckFormat::Json => print_json(problems, good, out),
        CheckFormat::Github => github::print(problems, out),
        CheckFormat::Sarif => sarif::print(problems, out),
    }
    .map_err(Stop::Write)?;
    Ok(match good {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

fn print_text(problems: &Problems, good: Option<&Loaded>, out: &mut impl Write) -> io::Result<()> {
    if !problems.is_empty() {
        write!(out, "{problems}")?;
    }
    match good {
        Some(loaded) => {
            writeln!(out, "ok: {}", summary(loaded))?;
            for bound in bounds(loaded) {
                writeln!(out, "{}", bound.sentence())?;
            }
            Ok(())
        }
        None => Ok(()),
    }
}

fn print_json(problems: &Problems, good: Option<&Loaded>, out: &mut impl Write) -> io::Result<()> {
    for problem in problems {
        writeln!(out, "{}", problem.to_json(problems.name()))?;
    }
    for bound in good.map(bounds).unwrap_or_default() {
        json::line(&bound.record(problems.name()), out)?;
    }
    let count = |severity| problems.count(severity);
    let summary = Summary {
        file: problems.name(),
        result: if good.is_some() { "ok" } else { "failed" },
        errors: count(Severity::Error),
        warnings: count(Severity::Warning),
        notes: count(Severity::Note),
        limits: good.map(|l| l.policy.limits.len()),
        queues: good.map(|l| l.policy.queues.len()),
        upstreams: good.map(|l| l.gateway.upstreams.len()),
    };
    json::line(&summary, out)
}

/// The last line for programs.
#[derive(Serialize)]
struct Summary<'a> {
    file: &'a str,
    result: &'static str,
    errors: usize,
    warnings: usize,
    notes: usize,
    limits: Option<usize>,
    queues: Option<usize>,
    upstreams: Option<usize>,
}

/// `9 limits, 2 tiers, 1 entry in allow, 1 queue, 2 upstreams; everything else passes`.
fn summary(loaded: &Loaded) -> String {
    let Policy {
        limits,
        allow,
        deny,
        default,
        queues,
        follow,
        ..
    } = &loaded.policy;
    let counted = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let mut parts = vec![counted(limits.len(), "limit", "limits")];
    if !loaded.tiers.is_empty() {
        parts.push(counted(loaded.tiers.len(), "tier", "tiers"));
    }
    for (list, name) in [(allow, "allow"), (deny, "deny")] {
        if !list.is_empty() {
            parts.push(format!(
                "{} in `{name}`",
                counted(list.len(), "entry", "entries")
            ));
        }
    }
    if let Some(follow) = follow {
        let domains = counted(follow.domains.len(), "domain", "domains");
        parts.push(format!("{domains} where requests bring their limits"));
    }
    let upstreams = &loaded.gateway.upstreams;
    if !queues.is_empty() {
        parts.push(counted(queues.len(), "queue", "queues"));
    }
    if !upstreams.is_empty() {
        parts.push(counted(upstreams.len(), "upstream", "upstreams"));
    }
    let rest = match default {
        DefaultAction::Refuse => "everything else is refused",
        DefaultAction::Limit(_) => "everything else has the default limit",
        _ => "everything else passes",
    };
    format!("{}; {rest}", parts.join(", "))
}
