//! Problems as SARIF 2.1.0, which code scanning services read.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Value, json};
use tollgate_config::{Problem, Problems};

use crate::json;

/// Prints one SARIF object.
pub(super) fn print(problems: &Problems, out: &mut impl Write) -> io::Result<()> {
    let codes: BTreeSet<&str> = problems.iter().map(|problem| problem.code).collect();
    let rules: Vec<Value> = codes
        .into_iter()
        .map(|code| json!({ "id": code }))
        .collect();
    let result = |problem: &Problem| result(problems.name(), problem);
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "tollgate",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            } },
            "columnKind": "unicodeCodePoints",
            "results": problems.iter().map(result).collect::<Vec<_>>(),
        }],
    });
    json::line(&log, out)
}

fn result(file: &str, problem: &Problem) -> Value {
    let mut place = json!({ "artifactLocation": { "uri": file } });
    // Line 0 is the file as a whole.
    if problem.line > 0 {
        place["region"] = json!({
            "startLine": problem.line,
            "startColumn": problem.column,
            "endColumn": problem.column.saturating_add(problem.length),
        });
    }
    json!({
        "ruleId": problem.code,
        "level": problem.severity.name(),
        "message": { "text": format!("{}\nhint: {}", problem.message, problem.hint) },
        "locations": [{ "physicalLocation": place }],
    })
}
