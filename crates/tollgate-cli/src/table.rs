//! Prints the decisions on arrivals as a table or as JSON.

use std::io::{self, Write};

use serde::Serialize;
use tollgate::{Span, Verdict};

use crate::fault::shown;
use crate::span_text::{exact, short};
use crate::trial::ArrivalDecision;

const HEAD: [&str; 7] = [
    "at",
    "key",
    "cost",
    "verdict",
    "remaining",
    "retry after",
    "full after",
];
/// Numbers end below each other, words begin below each other.
const RIGHT: [bool; 7] = [false, false, true, false, true, true, true];
/// Rows of one word that are folded from this many on: with fewer, the fold would take as much room.
const FOLD_FROM: usize = 3;

/// Prints the title, a row for each outcome with like ones folded, and a summary.
pub(crate) fn print(
    title: &str,
    outcomes: &[ArrivalDecision],
    out: &mut impl Write,
) -> io::Result<()> {
    let rows = fold(outcomes);
    let mut widths = HEAD.map(str::len);
    // The cells are made twice, for their widths and for printing, rather than kept: a million rows of
    // seven strings would be most of the memory.
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row.cells()) {
            *width = (*width).max(cell.chars().count());
        }
    }
    writeln!(out, "{title}\n")?;
    line(&HEAD, &widths, out)?;
    for row in &rows {
        line(&row.cells(), &widths, out)?;
    }
    writeln!(out, "\n{}", summary(outcomes))
}

/// An outcome in JSON. A span occurs twice, in nanoseconds and as text; both are exact.
#[derive(Serialize)]
struct Record<'a> {
    at_ns: u64,
    at: String,
    key: Option<&'a str>,
    cost: u64,
    verdict: &'static str,
    delay_ns: Option<u64>,
    delay: Option<String>,
    retry_after_ns: Option<u64>,
    retry_after: Option<String>,
    remaining: u64,
    full_after_ns: u64,
    full_after: String,
}

/// Prints an object for each outcome.
pub(crate) fn json(outcomes: &[ArrivalDecision], out: &mut impl Write) -> io::Result<()> {
    for ArrivalDecision { arrival, decision } in outcomes {
        let at = Span::from_nanos(arrival.at.as_nanos());
        let (delay, retry_after) = (delay(decision.verdict), retry_after(decision.verdict));
        let full_after = decision.status.full_after;
        let record = Record {
            at_ns: at.as_nanos(),
            at: at.to_string(),
            key: arrival.key.as_deref(),
            cost: arrival.cost,
            verdict: name(decision.verdict),
            delay_ns: delay.map(Span::as_nanos),
            delay: delay.map(|span| span.to_string()),
            retry_after_ns: retry_after.map(Span::as_nanos),
            retry_after: retry_after.map(|span| span.to_string()),
            remaining: decision.remaining(),
            full_after_ns: full_after.as_nanos(),
            full_after: full_after.to_string(),
        };
        crate::json::line(&record, out)?;
    }
    Ok(())
}

/// A line of the table.
#[derive(Debug)]
struct Row<'a> {
    outcome: &'a ArrivalDecision,
    /// How many like the row above this stands for, of which `outcome` is the last; none for a row
    /// that stands for itself.
    folded: Option<usize>,
}

impl Row<'_> {
    fn cells(&self) -> [String; 7] {
        let ArrivalDecision { arrival, decision } = self.outcome;
        let dash = |span: Option<Span>| span.map_or("-".into(), short);
        let verdict = decision.verdict;
        let (at, key, cost, said) = match self.folded {
            None => {
                let wait =
                    delay(verdict).map_or(String::new(), |delay| format!(" {}", short(delay)));
                (
                    exact(Span::from_nanos(arrival.at.as_nanos())),
                    arrival.key.as_deref().map_or("-".into(), shown),
                    arrival.cost.to_string(),
                    format!("{}{wait}", name(verdict)),
                )
            }
            Some(count) => {
                let last = delay(verdict).map_or(String::new(), |d| format!(", last {}", short(d)));
                let said = format!("… {count} more {}{last}", name(verdict));
                (String::new(), String::new(), String::new(), said)
            }
        };
        let remaining = decision.remaining().to_string();
        let full = short(decision.status.full_after);
        [
            at,
            key,
            cost,
            said,
            remaining,
            dash(retry_after(verdict)),
            full,
        ]
    }
}

/// Rows, in which outcomes of the same word, time and verdict are folded.
fn fold(outcomes: &[ArrivalDecision]) -> Vec<Row<'_>> {
    let alike = |a: &ArrivalDecision, b: &ArrivalDecision| {
        a.arrival.word == b.arrival.word
            && a.arrival.at == b.arrival.at
            && name(a.decision.verdict) == name(b.decision.verdict)
    };
    let mut rows = Vec::new();
    for run in outcomes.chunk_by(alike) {
        match run {
            [first, .., last] if run.len() >= FOLD_FROM => {
                rows.push(Row {
                    outcome: first,
                    folded: None,
                });
                rows.push(Row {
                    outcome: last,
                    folded: Some(run.len() - 1),
                });
            }
            few => rows.extend(few.iter().map(|outcome| Row {
                outcome,
                folded: None,
            })),
        }
    }
    rows
}

/// Writes cells below each other, without spaces at the end.
fn line(cells: &[impl AsRef<str>], widths: &[usize], out: &mut impl Write) -> io::Result<()> {
    let mut text = String::new();
    for ((cell, width), right) in cells.iter().zip(widths).zip(RIGHT) {
        let cell = cell.as_ref();
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        let (before, after) = if right {
            (padding.as_str(), "")
        } else {
            ("", padding.as_str())
        };
        text.extend([before, cell, after, "  "]);
    }
    writeln!(out, "{}", text.trim_end())
}

fn summary(outcomes: &[ArrivalDecision]) -> String {
    let count = |wanted: &str| {
        outcomes
            .iter()
            .filter(|o| name(o.decision.verdict) == wanted)
            .count()
    };
    let noun = if outcomes.len() == 1 {
        "arrival"
    } else {
        "arrivals"
    };
    format!(
        "{} {noun}: {} passed, {} waited, {} refused, {} never",
        outcomes.len(),
        count("pass"),
        count("wait"),
        count("refuse"),
        count("never"),
    )
}

const fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Wait { .. } => "wait",
        Verdict::Refuse { .. } => "refuse",
        Verdict::Never => "never",
    }
}

const fn delay(verdict: Verdict) -> Option<Span> {
    match verdict {
        Verdict::Wait { delay } => Some(delay),
        _ => None,
    }
}

const fn retry_after(verdict: Verdict) -> Option<Span> {
    match verdict {
        Verdict::Refuse { retry_after } => Some(retry_after),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Arrival;
    use tollgate::{Decision, Moment, Origin, QuotaStatus};

    fn outcome(word: usize, at: u64, verdict: Verdict, remaining: u64) -> ArrivalDecision {
        let issued = Moment::from_nanos(at);
        ArrivalDecision {
            arrival: Arrival {
                at: issued,
                cost: 1,
                key: None,
                word,
            },
            decision: Decision {
                verdict,
                status: QuotaStatus {
                    remaining,
                    ..QuotaStatus::default()
                },
                issued,
                origin: Origin::Fresh,
            },
        }
    }

    fn counts(outcomes: &[ArrivalDecision]) -> Vec<Option<usize>> {
        fold(outcomes).iter().map(|row| row.folded).collect()
    }

    #[test]
    fn only_like_rows_of_one_word_and_one_time_are_folded() {
        let pass = |word, at| outcome(word, at, Verdict::Pass, 1);
        assert_eq!(counts(&[]), []);
        assert_eq!(
            counts(&[pass(0, 0), pass(0, 0), pass(0, 0)]),
            [None, Some(2)]
        );
        assert_eq!(counts(&[pass(0, 0), pass(1, 0), pass(2, 0)]), [None; 3]);
        assert_eq!(counts(&[pass(0, 0), pass(0, 1), pass(0, 2)]), [None; 3]);
        let never = |word| outcome(word, 0, Verdict::Never, 1);
        assert_eq!(
            counts(&[pass(0, 0), never(0), pass(0, 0), never(0)]),
            [None; 4]
        );
    }

    #[test]
    fn two_like_rows_are_shown_because_folding_them_saves_nothing() {
        let pass = || outcome(0, 0, Verdict::Pass, 1);
        assert_eq!(counts(&[pass(), pass()]), [None, None]);
    }

    #[test]
    fn a_folded_row_shows_how_things_stand_after_the_last_of_them() {
        let wait = |ms, left| {
            outcome(
                0,
                0,
                Verdict::Wait {
                    delay: Span::from_millis(ms),
                },
                left,
            )
        };
        let outcomes = [wait(1, 7), wait(2, 6), wait(3, 5)];
        let rows = fold(&outcomes);
        assert_eq!(
            rows[0].cells(),
            ["0s", "-", "1", "wait 1ms", "7", "-", "0s"]
        );
        assert_eq!(
            rows[1].cells(),
            ["", "", "", "… 2 more wait, last 3ms", "5", "-", "0s"]
        );
    }

    #[test]
    fn the_summary_counts_every_verdict() {
        let refuse = Verdict::Refuse {
            retry_after: Span::ZERO,
        };
        let all = [outcome(0, 0, Verdict::Pass, 0), outcome(1, 0, refuse, 0)];
        assert_eq!(
            summary(&all),
            "2 arrivals: 1 passed, 0 waited, 1 refused, 0 never"
        );
        assert_eq!(
            summary(&all[..1]),
            "1 arrival: 1 passed, 0 waited, 0 refused, 0 never"
        );
    }
}
