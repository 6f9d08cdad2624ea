//! The results of a run as a table.

use std::io::{self, Write};

use tollgate::{Limit, Span};
use tollgate_load::{Allowance, Audit, AuditFinding, LoadPlan, LoadReport, WHOLE};

use super::losses;
use crate::fault::shown;
use crate::span_text;

/// Prints everything.
pub(super) fn print(plan: &LoadPlan, report: &LoadReport, out: &mut impl Write) -> io::Result<()> {
    for target in &plan.targets {
        line(out, "target", &target.to_string())?;
    }
    line(out, "load", &load(plan))?;
    line(
        out,
        "time",
        &format!(
            "{:.2} s{}",
            report.elapsed.as_secs_f64(),
            if report.is_interrupted {
                ", interrupted"
            } else {
                ""
            }
        ),
    )?;
    writeln!(out)?;
    line(out, "requests/s", &grouped(report.per_second() as u64))?;
    verdicts(plan, report, out)?;
    line(out, "errors", &grouped(report.error_count()))?;
    for (kind, times) in &report.errors {
        line(out, "", &format!("{}  {kind}", grouped(*times)))?;
    }
    if report.reconnects > 0 {
        line(out, "reconnects", &grouped(report.reconnects))?;
    }
    if report.unsent > 0 {
        let unsent = grouped(report.unsent);
        line(
            out,
            "never sent",
            &format!("{unsent}  due, but nothing was free to send them"),
        )?;
    }
    if report.targets.len() > 1 {
        by_target(plan, report, out)?;
    }
    for (target, counts, loss) in losses::of(plan, report) {
        let name = if counts.is_lost() { "LOST" } else { "GIVEN UP" };
        line(out, name, &losses::when(target, counts, loss))?;
        line(out, "", &format!("it {}", loss.reason))?;
    }
    writeln!(out)?;
    times(report, out)?;
    match (&plan.allowance, &report.audit) {
        (Some(allowance), Some(found)) => audit(plan, allowance, found, out),
        _ => Ok(()),
    }
}

/// Admitted and refused as shares of the judged responses; and the responses that were not judged.
fn verdicts(plan: &LoadPlan, report: &LoadReport, out: &mut impl Write) -> io::Result<()> {
    let judged = report.admitted + report.refused;
    if judged > 0 || report.unjudged == 0 {
        line(out, "admitted", &part(report.admitted, judged))?;
        line(out, "refused", &part(report.refused, judged))?;
    }
    if report.unjudged == 0 {
        return Ok(());
    }
    let command = plan.command.split_whitespace().next().unwrap_or_default();
    let command = shown(command);
    let note = format!("how `{command}` admits is unknown: set it with `--admitted`");
    line(
        out,
        "not judged",
        &format!("{}  {note}", grouped(report.unjudged)),
    )
}

/// The responses of each of several targets.
fn by_target(plan: &LoadPlan, report: &LoadReport, out: &mut impl Write) -> io::Result<()> {
    let row = |cells: [String; 4]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>13}")).collect();
        cells
    };
    let head = ["answers", "admitted", "refused", "errors"].map(str::to_owned);
    writeln!(out)?;
    line(out, "by target", &row(head))?;
    for (target, target_report) in plan.targets.iter().zip(&report.targets) {
        let counts = [
            target_report.responses(),
            target_report.admitted,
            target_report.refused,
            target_report.errors,
        ];
        let counts = row(counts.map(grouped));
        line(out, "", &format!("{counts}  {target}"))?;
    }
    Ok(())
}

fn line(out: &mut impl Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{name:<15} {value}")
}

fn load(plan: &LoadPlan) -> String {
    let keys = match (plan.keys, plan.zipf) {
        (1, _) => "1 key".to_owned(),
        (keys, None) => format!("{} keys", grouped(keys)),
        (keys, Some(zipf)) => format!("{} keys by Zipf {zipf}", grouped(keys)),
    };
    let pace = plan
        .rate
        .map_or("as fast as answers come".to_owned(), |rate| {
            format!("{rate} by the clock")
        });
    let connections = match plan.connections {
        1 => "1 connection".to_owned(),
        many => format!("{} connections", grouped(many as u64)),
    };
    format!("{connections} x {} at once, {keys}, {pace}", plan.pipeline)
}

fn times(report: &LoadReport, out: &mut impl Write) -> io::Result<()> {
    let quantiles = [
        ("p50", WHOLE / 2),
        ("p90", WHOLE / 10 * 9),
        ("p99", WHOLE / 100 * 99),
        ("p99.9", WHOLE / 1000 * 999),
    ];
    let mut names = String::new();
    let mut values = String::new();
    let measured = quantiles.map(|(name, share)| (name, report.times.quantile(share)));
    for (name, nanos) in measured.into_iter().chain([("max", report.times.max())]) {
        names.push_str(&format!("{name:>11}"));
        values.push_str(&format!("{:>11}", rounded(nanos)));
    }
    line(out, "latency", names.trim_end())?;
    line(out, "", values.trim_end())
}

fn audit(
    plan: &LoadPlan,
    allowance: &Allowance,
    audit: &Audit,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out)?;
    line(
        out,
        "audit",
        &format!("{} for each key", limit_of(allowance)),
    )?;
    let of_most = |admitted: u64, allowed: u64| {
        let share = percent(admitted, allowed);
        format!(
            "{} of at most {} ({share})",
            grouped(admitted),
            grouped(allowed)
        )
    };
    let keys = match audit.keys {
        1 => "1 key".to_owned(),
        keys => format!("{} keys", grouped(keys)),
    };
    line(
        out,
        "units admitted",
        &format!("{}, {keys}", of_most(audit.admitted, audit.allowed)),
    )?;
    if let Some(busiest) = audit.busiest.as_ref().filter(|_| audit.keys > 1) {
        let key = plan.key(busiest.key);
        line(
            out,
            "busiest key",
            &format!("{}, {key}", of_most(busiest.admitted, busiest.allowed)),
        )?;
    }
    if audit.looked_at.saturating_mul(plan.cost) < audit.admitted {
        let looked_at = grouped(audit.looked_at);
        let note = format!("the first {looked_at} admissions, for there were too many to keep");
        line(out, "stretches", &note)?;
    }
    if audit.over == 0 {
        return line(out, "over-admission", "0");
    }
    let keys = grouped(audit.keys_over);
    line(
        out,
        "OVER-ADMISSION",
        &format!("{}  at {keys} of the keys; the worst:", grouped(audit.over)),
    )?;
    for finding in &audit.worst {
        line(out, "", &worst(plan, finding))?;
    }
    Ok(())
}

fn worst(plan: &LoadPlan, finding: &AuditFinding) -> String {
    format!(
        "{}  {}: {} admitted in {} from {} on, at most {} allowed",
        grouped(finding.over()),
        plan.key(finding.key),
        grouped(finding.admitted),
        rounded(finding.window.as_nanos()),
        rounded(finding.from.as_nanos()),
        grouped(finding.allowed)
    )
}

/// The limit as it is written elsewhere.
pub(super) fn limit_of(allowance: &Allowance) -> String {
    // Validated before the run.
    Limit::new(allowance.algorithm).map_or_else(|_| "a limit".into(), |limit| limit.to_string())
}

/// Three digits that matter.
fn rounded(nanos: u64) -> String {
    let digits = nanos.checked_ilog10().unwrap_or(0) + 1;
    let unit = 10_u64.pow(digits.saturating_sub(3));
    span_text::short(Span::from_nanos(nanos.div_ceil(unit).saturating_mul(unit)))
}

fn part(count: u64, all: u64) -> String {
    format!("{}  {}", grouped(count), percent(count, all))
}

fn percent(count: u64, all: u64) -> String {
    match all {
        0 => "-".into(),
        all => format!("{:.1} %", count as f64 * 100.0 / all as f64),
    }
}

/// With commas between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_times_three_digits() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
        let shown = [0, 7, 123_456, 1_234_567, 61_000_000_000].map(rounded);
        assert_eq!(shown, ["0s", "7ns", "124us", "1.24ms", "1m1s"]);
    }

    #[test]
    fn a_share_of_nothing_is_none() {
        assert_eq!(
            (percent(1, 3), percent(0, 0)),
            ("33.3 %".into(), "-".into())
        );
    }
}
