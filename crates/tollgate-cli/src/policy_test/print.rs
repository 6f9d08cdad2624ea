//! Prints the outcomes of cases as text and as JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::{CaseOutcome, Difference};
use crate::fault::shown;
use crate::json;

/// The file, a line for each case with what differs below it, and a summary.
pub(super) fn text(
    name: &str,
    policy: &str,
    outcomes: &[CaseOutcome<'_>],
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}", shown(name))?;
    for outcome in outcomes {
        let result = match outcome.failure {
            None => "pass",
            Some(_) => "FAIL",
        };
        writeln!(out, "  {result}  {}", shown(&outcome.case.name))?;
        let Some(failure) = &outcome.failure else {
            continue;
        };
        let line = failure.line;
        writeln!(out, "    --> {}:{line}", shown(name))?;
        let source = policy.lines().nth(line.saturating_sub(1));
        writeln!(out, "     |  {}", shown(source.unwrap_or_default().trim()))?;
        writeln!(out, "    {}", failure.request)?;
        for Difference {
            field,
            expected,
            got,
        } in &failure.differences
        {
            writeln!(
                out,
                "    {field}: expected {}, got {}",
                shown(expected),
                shown(got)
            )?;
        }
    }
    let failed = outcomes.iter().filter(|o| o.failure.is_some()).count();
    let requests: u64 = outcomes.iter().map(|outcome| outcome.requests).sum();
    let cases = match outcomes.len() {
        1 => "1 case".to_owned(),
        cases => format!("{cases} cases"),
    };
    match failed {
        0 => writeln!(out, "ok: {cases}, {requests} requests"),
        failed => writeln!(out, "failed: {failed} of {cases}, {requests} requests"),
    }
}

#[derive(Serialize)]
struct CaseRecord<'a> {
    file: &'a str,
    case: &'a str,
    result: &'static str,
    requests: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<DifferenceRecord<'a>>,
}

#[derive(Serialize)]
struct DifferenceRecord<'a> {
    field: &'static str,
    expected: &'a str,
    got: &'a str,
}

#[derive(Serialize)]
struct Summary<'a> {
    file: &'a str,
    result: &'static str,
    cases: usize,
    failed: usize,
    requests: u64,
}

/// One object for each case, and one for the file.
pub(super) fn json(
    name: &str,
    outcomes: &[CaseOutcome<'_>],
    out: &mut impl Write,
) -> io::Result<()> {
    let result = |failed: bool| if failed { "failed" } else { "passed" };
    for outcome in outcomes {
        let failure = outcome.failure.as_ref();
        let differences = failure.map_or(&[][..], |failure| &failure.differences);
        let record = CaseRecord {
            file: name,
            case: &outcome.case.name,
            result: result(failure.is_some()),
            requests: outcome.requests,
            line: failure.map(|failure| failure.line),
            request: failure.map(|failure| &*failure.request),
            differences: differences
                .iter()
                .map(|difference| DifferenceRecord {
                    field: difference.field,
                    expected: &difference.expected,
                    got: &difference.got,
                })
                .collect(),
        };
        json::line(&record, out)?;
    }
    let failed = outcomes.iter().filter(|o| o.failure.is_some()).count();
    let summary = Summary {
        file: name,
        result: result(failed > 0),
        cases: outcomes.len(),
        failed,
        requests: outcomes.iter().map(|outcome| outcome.requests).sum(),
    };
    json::line(&summary, out)
}
