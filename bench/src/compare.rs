//! Measures the time of one check, workload by workload.
//!
//! # Method
//!
//! In each workload every contestant is built, warmed up with all keys, and then takes its turns, interleaved with the others.
//! Reported is the median over the passes. With too many keys the contestants do not fit into memory beside each other. Then
//! each takes all its turns before the next is built; the output notes it, because a busy minute then falls on one of them.

use std::io;

use crate::args::Compare;
use crate::contestants::{ALL, BASELINE};
use crate::figures::{Figures, ratio};
use crate::measure::{Until, WorkloadResult, measure};
use crate::output::{Output, Row, shown};
use crate::workload::{Distribution, Workload};

/// Compares in all workloads; returns whether every contestant admitted what it should.
pub(crate) fn run(args: &Compare, out: &mut Output<'_>) -> io::Result<bool> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let turn = match args.repeats.until() {
        Until::Elapsed(time) => format!("at least {} s of checks", time.as_secs_f64()),
        Until::Checks(checks) => format!("{checks} checks per thread"),
    };
    out.line(&format!("machine: {}, {cores} cores", processor()))?;
    out.line(&format!(
        "each contestant: {} turns of {turn}; ns are per check and thread",
        args.repeats.passes
    ))?;
    out.line(&format!(
        "vs {BASELINE}: how many times as fast, by the medians of the same workload"
    ))?;
    let entries = match args.only.as_slice() {
        [] => ALL.iter().collect(),
        only => only.to_vec(),
    };
    let mut all_correct = true;
    for workload in workloads(args) {
        let results = measure(&workload, &entries, args.repeats)?;
        let baseline = results
            .iter()
            .find(|result| result.entry.name == BASELINE)
            .map(|result| &result.ns);
        let rows: Vec<Row> = results
            .iter()
            .map(|result| row(&workload, result, baseline, args.repeats.passes))
            .collect();
        let mut title = workload.title();
        if !workload.is_interleaved() {
            title += "\n  (not interleaved: too many keys to build all contestants side by side)";
        }
        out.rows(&title, &rows)?;
        for result in results.iter().filter(|result| !result.is_correct()) {
            let (name, expected) = (result.entry.name, result.expected);
            out.line(&format!(
                "  ! `{name}` should have admitted {expected}: its time is of other work"
            ))?;
            all_correct = false;
        }
    }
    Ok(all_correct)
}

/// Every combination of the lists. A single key has no distribution, so it is listed once.
fn workloads(args: &Compare) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for &keys in &args.keys {
        let distributions = match keys {
            1 => &[Distribution::Uniform],
            _ => args.distributions.as_slice(),
        };
        for &distribution in distributions {
            for &kind in &args.kinds {
                for &threads in &args.threads {
                    workloads.extend(args.modes.iter().map(|&mode| Workload {
                        keys,
                        distribution,
                        kind,
                        threads: usize::from(threads),
                        mode,
                    }));
                }
            }
        }
    }
    workloads
}

fn row(
    workload: &Workload,
    result: &WorkloadResult,
    baseline: Option<&Figures>,
    passes: u16,
) -> Row {
    let WorkloadResult { entry, ns, .. } = result;
    let (least, most) = ns.range().unzip();
    let admitted = entry.decides.then_some(result.admitted);
    let mark = if result.is_correct() { "" } else { " !" };
    let times = baseline.and_then(|baseline| ratio(baseline, ns));
    let millions = ns
        .median()
        .map(|median| workload.threads as f64 * 1000.0 / median);
    Row::new("compare", entry.name)
        .json("keys", workload.keys)
        .json("dist", workload.distribution_name())
        .json("kind", workload.kind.name())
        .json("threads", workload.threads)
        .json("mode", workload.mode.name())
        .figure("median_ns", "median ns", ns.median(), 1)
        .figure("min_ns", "min", least, 1)
        .figure("max_ns", "max", most, 1)
        .column(
            "M checks/s",
            shown(millions, |millions| format!("{millions:.1}")),
        )
        .json("vs_governor", times)
        .column(
            &format!("vs {BASELINE}"),
            shown(times, |times| format!("{times:.2}x")),
        )
        .count("checks", "checks", result.checks)
        .json("admitted", admitted)
        .column(
            "admitted",
            admitted.map_or("-".to_owned(), |count| format!("{count}{mark}")),
        )
        .json("passes", passes)
        .json(
            "admitted_as_expected",
            entry.decides.then(|| result.is_correct()),
        )
        .json("interleaved", workload.is_interleaved())
}

/// The model of the processor, where the system reports it.
fn processor() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown processor".to_owned(), |(_, name)| {
        name.trim().to_owned()
    })
}
