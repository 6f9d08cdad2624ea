//! Measures what it costs to charge all limits or none: one request under two, three and four limits.
//!
//! # Method
//!
//! As in [`compare`](crate::compare), with the same passes, keys and limits: a request is charged to all limits, once through a
//! gate and once by one `Limiter::charge` after the other, which promises less. The ratio of their medians is the cost of the
//! promise; 1 would be nothing.

use std::io;

use crate::args::Gate;
use crate::contestants::Entry;
use crate::contestants::gates::GATES;
use crate::figures::ratio;
use crate::measure::measure;
use crate::output::{Output, Row};
use crate::workload::{Distribution, KeyKind, Mode, Workload};

/// Measures in all workloads; returns whether everything was admitted that should be.
pub(crate) fn run(args: &Gate, out: &mut Output<'_>) -> io::Result<bool> {
    let mut all_correct = true;
    for &keys in &args.keys {
        let workload = Workload {
            keys,
            distribution: Distribution::Uniform,
            kind: KeyKind::U64,
            threads: 1,
            mode: Mode::Pass,
        };
        let mut rows = Vec::new();
        for (limits, entries) in &GATES {
            let entries: Vec<&Entry> = entries.iter().collect();
            let results = measure(&workload, &entries, args.repeats)?;
            let [one_by_one, gate] = results.as_slice() else {
                continue;
            };
            let is_correct = results.iter().all(|result| result.is_correct());
            all_correct &= is_correct;
            let row = Row::new("gate", &limits.to_string())
                .json("keys", keys)
                .json("limits", limits)
                .figure("one_by_one_ns", "one by one ns", one_by_one.ns.median(), 1)
                .figure("gate_ns", "gate ns", gate.ns.median(), 1)
                .figure(
                    "ratio",
                    "gate / one by one",
                    ratio(&gate.ns, &one_by_one.ns),
                    2,
                )
                .json("passes", args.repeats.passes)
                .json("interleaved", workload.is_interleaved())
                .json("admitted_as_expected", is_correct);
            rows.push(row);
        }
        let title = workload.title();
        out.rows(
            &format!("{title}: ns per request, by the number of its limits"),
            &rows,
        )?;
        if !all_correct {
            out.line("  ! not everything was admitted: the time is of other work")?;
        }
    }
    Ok(all_correct)
}
