//! Instructions of one decision in the process, counted by callgrind and compared with the recorded counts.
//!
//! # Method
//!
//! Time differs from run to run; the number of executed instructions hardly does. Each case runs twice under
//! `valgrind --tool=callgrind`, the second time with more operations. The difference of both counts, divided by the difference
//! in operations, is the count of one operation: the cost of start and set-up cancels out.
//!
//! `counts.json` holds the recorded counts for each kind of machine: the architecture and the kernel's clock source, because the
//! exact clock reads the cycle counter only where the kernel does so itself. A count that moves by more than [`TOLERANCE_PERCENT`]
//! in either direction fails: growth is a regression, and a stale record would hide the next one. `--update` records.
//!
//! Counts say nothing about cache misses and stalls. Those are measured by `tollgate-bench compare`.

mod cases;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::process::{Command, ExitCode};

use cases::CASES;

/// A count may differ by this much from the recorded one.
const TOLERANCE_PERCENT: u64 = 5;
/// Operations of the two runs of a case.
const OPERATIONS: [u64; 2] = [20_000, 60_000];
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.json");

/// Instructions of one operation, by case.
type Counts = BTreeMap<String, u64>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        [] => count_all().and_then(|counts| compare(&counts)),
        ["--update"] => count_all().and_then(record).map(|()| true),
        ["run", case, operations] => run(case, operations).map(|()| true),
        _ => Err(io::Error::other("usage: tollgate-instructions [--update]")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a case in this process. The program starts itself under callgrind to do so.
fn run(case: &str, operations: &str) -> io::Result<()> {
    let found = CASES.iter().find(|(name, _)| *name == case);
    let (_, run) = found.ok_or_else(|| io::Error::other(format!("no case {case}")))?;
    run(operations.parse().map_err(io::Error::other)?)
}

fn count_all() -> io::Result<Counts> {
    let mut counts = Counts::new();
    for (case, _) in CASES {
        let [few, many] = OPERATIONS;
        let difference = executed(case, many)?.saturating_sub(executed(case, few)?);
        counts.insert((*case).to_owned(), difference.div_ceil(many - few));
    }
    Ok(counts)
}

/// All instructions of a process that runs this many operations.
fn executed(case: &str, operations: u64) -> io::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["run", case, &operations.to_string()])
        .output()
        .map_err(|error| io::Error::other(format!("valgrind: {error}; run tools/install.sh")))?;
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report
        .lines()
        .find_map(|line| line.split_once("Collected :"))
        .and_then(|(_, count)| count.trim().parse().ok());
    match collected {
        Some(count) if output.status.success() => Ok(count),
        _ => Err(io::Error::other(format!("{case} under valgrind: {report}"))),
    }
}

/// What the counts depend on beside the code and the compiler.
fn machine() -> String {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(source).unwrap_or_default();
    format!("{}, clock source {}", std::env::consts::ARCH, source.trim())
}

fn recorded() -> io::Result<BTreeMap<String, Counts>> {
    Ok(serde_json::from_slice(&fs::read(RECORD)?)?)
}

fn record(counts: Counts) -> io::Result<()> {
    let mut all = recorded()?;
    print(&counts, all.get(&machine()))?;
    all.insert(machine(), counts);
    fs::write(RECORD, serde_json::to_string_pretty(&all)? + "\n")
}

/// Prints the counts beside the recorded ones; returns whether all are within the tolerance.
fn compare(counts: &Counts) -> io::Result<bool> {
    let all = recorded()?;
    let Some(expected) = all.get(&machine()) else {
        print(counts, None)?;
        return Err(io::Error::other(format!(
            "{RECORD} has no counts for {}; `make instructions-update` records them",
            machine()
        )));
    };
    print(counts, Some(expected))?;
    let mut err = io::stderr();
    let mut is_within = counts.keys().eq(expected.keys());
    if !is_within {
        writeln!(
            err,
            "the recorded cases are others: make instructions-update"
        )?;
    }
    for (case, &now) in counts {
        let Some(&before) = expected.get(case) else {
            continue;
        };
        if now.abs_diff(before) * 100 <= before * TOLERANCE_PERCENT {
            continue;
        }
        is_within = false;
        let consequence = if now > before {
            "more instructions than recorded. Find the change that added them. If they are worth it, or a new compiler \
             emits them, record the new count"
        } else {
            "fewer instructions than recorded. Record the new count"
        };
        writeln!(
            err,
            "{case}: {now} instead of {before}, {consequence}: make instructions-update"
        )?;
    }
    Ok(is_within)
}

fn print(counts: &Counts, before: Option<&Counts>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:24}{:>8}{:>10}",
        "instructions of one", "now", "recorded"
    )?;
    for (case, count) in counts {
        let before = before.and_then(|before| before.get(case));
        let before = before.map_or("-".to_owned(), u64::to_string);
        writeln!(out, "{case:24}{count:8}{before:>10}")?;
    }
    Ok(())
}
