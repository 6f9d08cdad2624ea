//! Prints an explanation as a table.

use std::io::{self, Write};

use serde_json::Value;
use tollgate::Span;

use crate::cli::Explain;
use crate::fault::shown;
use crate::span_text::short;

const HEAD: [&str; 6] = ["limit", "applies", "key", "cost", "left after", "says"];

/// Prints the request, a row for each limit, and the verdict.
pub(crate) fn table(
    source: &str,
    asked: &Explain,
    explanation: &Value,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{} {}  (by {})",
        shown(&asked.method),
        shown(&asked.path),
        shown(source)
    )?;
    match explanation.get("path").and_then(Value::as_str) {
        Some(path) if path != asked.path.split('?').next().unwrap_or_default() => {
            writeln!(out, "the path counts as {}", shown(path))?;
        }
        _ => {}
    }
    let none = Vec::new();
    let limits = explanation
        .get("limits")
        .and_then(Value::as_array)
        .unwrap_or(&none);
    let rows: Vec<[String; 6]> = limits.iter().map(row).collect();
    if !rows.is_empty() {
        writeln!(out)?;
        let mut widths = HEAD.map(str::len);
        for cells in &rows {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        line(&HEAD.map(String::from), &widths, out)?;
        for cells in &rows {
            line(cells, &widths, out)?;
        }
    }
    writeln!(out, "\n{}", verdict(explanation))?;
    if explanation.get("degraded").and_then(Value::as_bool) == Some(true) {
        let fallback = "the store does not answer: this node decides by `on_store_error`";
        writeln!(out, "{fallback}; `tollgate doctor` reports the cause")?;
    }
    for limit in limits.iter().filter_map(shared) {
        writeln!(out, "{limit}")?;
    }
    match explanation.get("queue") {
        Some(queue) => writeln!(out, "then: {}", queue_line(queue)),
        None => Ok(()),
    }
}

/// The overshoot bound of a limit that is not shared exactly.
fn shared(limit: &Value) -> Option<String> {
    let text = |name: &str| limit.get(name).and_then(Value::as_str).map(shown);
    let number = |name: &str| limit.get(name).and_then(Value::as_u64);
    let sharing = text("sharing").filter(|sharing| sharing != "exact")?;
    let (name, nodes, above) = (text("name")?, number("nodes")?, number("above")?);
    let is_leased = limit.get("leased").and_then(Value::as_bool);
    Some(match above {
        _ if is_leased == Some(false) => format!(
            "`{name}` is to be shared by {sharing}, but too small or too slow for it: the store decides every request"
        ),
        0 => format!(
            "`{name}` is shared by {sharing}: never more than it allows, with {nodes} nodes"
        ),
        above => format!(
            "`{name}` is shared by {sharing}: in any stretch of time at most {above} more than it allows, with {nodes} nodes"
        ),
    })
}

/// The queue and flow in which the request waits.
fn queue_line(queue: &Value) -> String {
    let text = |name: &str| queue.get(name).and_then(Value::as_str).map(shown);
    let number = |name: &str| queue.get(name).and_then(Value::as_u64).unwrap_or(1);
    let parts = queue.get("flow").and_then(Value::as_array);
    let parts = parts.into_iter().flatten().filter_map(Value::as_str);
    let parts: Vec<String> = parts.map(shown).collect();
    let flow = match text("flow_is").as_deref() {
        Some("own") if parts.is_empty() => String::from("all requests"),
        Some("own") => parts.join(", "),
        Some(other) if parts.is_empty() => other.to_owned(),
        Some(other) => format!("{} ({other})", parts.join(", ")),
        None => String::new(),
    };
    let tier = text("tier").map_or(String::new(), |tier| format!(", tier {tier}"));
    format!(
        "it waits in queue `{}` as {flow}{tier}, weight {}, cost {}",
        text("name").unwrap_or_default(),
        number("weight"),
        number("cost"),
    )
}

fn row(limit: &Value) -> [String; 6] {
    let text = |name: &str| limit.get(name).and_then(Value::as_str).map(shown);
    let number = |name: &str| limit.get(name).and_then(Value::as_u64);
    let name = text("name").unwrap_or_default();
    if let Some(why) = text("why_not") {
        let no = format!("no: {why}");
        return [
            name,
            no,
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ];
    }
    let mut applies = match text("role").as_deref() {
        None | Some("enforced") => String::from("yes"),
        Some(role) => role.to_owned(),
    };
    let is_enforced = limit.get("is_enforced").and_then(Value::as_bool);
    if let (Some(share), Some(is_enforced)) = (text("enforce"), is_enforced) {
        let place = if is_enforced { "among" } else { "not among" };
        applies = format!("{applies}: {place} the {share}");
    }
    if let Some(tier) = text("tier") {
        applies = format!("{applies}, tier {tier}");
    }
    if let Some(tier) = text("unknown_tier") {
        applies = format!("{applies}, unknown tier {tier}");
    }
    if limit.get("overridden").and_then(Value::as_bool) == Some(true) {
        applies.push_str(", override");
    }
    let left = match (number("remaining"), text("quota")) {
        (Some(left), Some(quota)) => format!("{left} of {quota}"),
        (_, quota) => quota.unwrap_or_default(),
    };
    let says = match text("verdict") {
        Some(verdict) => with_wait(&verdict, limit),
        None => String::new(),
    };
    let cost = number("cost")
        .map(|cost| cost.to_string())
        .unwrap_or_default();
    [name, applies, key(limit), cost, left, says]
}

fn key(limit: &Value) -> String {
    let parts = limit.get("key").and_then(Value::as_array);
    let texts = parts.map(|parts| {
        let texts = parts.iter().filter_map(Value::as_str).map(shown);
        texts.collect::<Vec<_>>().join(" + ")
    });
    match (texts, limit.get("key_is").and_then(Value::as_str)) {
        (Some(texts), Some("own")) if texts.is_empty() => String::from("all requests"),
        (Some(texts), Some("own")) => texts,
        (Some(texts), Some(instead)) => format!("{texts} ({instead})").trim_start().to_owned(),
        _ => String::from("missing"),
    }
}

fn with_wait(verdict: &str, explanation: &Value) -> String {
    let span = |name: &str| {
        let millis = explanation.get(name).and_then(Value::as_u64)?;
        Some(short(Span::from_millis(millis)))
    };
    match (verdict, span("retry_after_ms"), span("delay_ms")) {
        ("refuse", Some(span), _) => format!("refuse, retry after {span}"),
        ("wait", _, Some(span)) => format!("wait {span}"),
        (verdict, _, _) => verdict.to_owned(),
    }
}

fn verdict(explanation: &Value) -> String {
    let text = |name: &str| explanation.get(name).and_then(Value::as_str).map(shown);
    let verdict = with_wait(&text("verdict").unwrap_or_default(), explanation);
    let rule = text("rule").unwrap_or_default();
    let limit = text("limit").unwrap_or_default();
    let why = match text("reason").as_deref() {
        Some("limit") => match text("limit") {
            Some(limit) => format!("`{limit}` decides"),
            None => String::from("an override exempts it"),
        },
        Some("allow-list") => format!("`{rule}` is on the allow list"),
        Some("deny-list") => format!("`{rule}` is on the deny list"),
        Some("only-counted") => String::from("only limits that are counted and not enforced match"),
        Some("unmatched") => String::from("no limit matches; the policy's default decides"),
        Some("switched-off") => String::from("limiting is switched off"),
        Some("path") => {
            let fault = text("path_fault").unwrap_or_default();
            format!("{fault}; {}", text("hint").unwrap_or_default())
        }
        Some("missing-key") => format!("`{limit}` refuses requests without its key"),
        Some("blocked") => format!("an override of `{limit}` blocks this key"),
        Some("too-many-limits") => String::from("more than 16 limits match it"),
        other => other.unwrap_or_default().to_owned(),
    };
    format!("verdict: {verdict} ({why})")
}

fn line(cells: &[String; 6], widths: &[usize; 6], out: &mut impl Write) -> io::Result<()> {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let pad = width.saturating_sub(cell.chars().count());
        text.push_str(cell);
        text.push_str(&" ".repeat(pad + 2));
    }
    writeln!(out, "{}", text.trim_end())
}
