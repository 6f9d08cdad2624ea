//! `vectors`: replays golden timelines, first through the core's steps, then through the store.

use super::{CommandError, Tally};
use crate::replay::{OpenCase, ReplayReport, replay};
use crate::subject::{open_core, open_store};
use crate::timeline::Timeline;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

/// What is replayed.
#[derive(Debug, Args)]
pub struct VectorsArgs {
    /// Timelines; a folder is all of its `*.csv`
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// Replays every file of the paths.
///
/// # Errors
///
/// If one cannot be read or is no timeline; nothing was replayed then.
pub fn run(args: &VectorsArgs, out: &mut dyn Write) -> Result<Tally, CommandError> {
    let mut timelines = Vec::new();
    for path in files_of(&args.paths)? {
        let timeline = Timeline::read(&path);
        timelines.push(timeline.map_err(|error| CommandError::Input(error.to_string()))?);
    }
    let subjects: [(&str, OpenCase); 2] = [("core", open_core), ("store", open_store)];
    let mut tally = Tally::default();
    for timeline in &timelines {
        let mut line = Vec::new();
        for (name, open) in subjects {
            let report = replay(timeline, &open);
            for mismatch in &report.mismatches {
                writeln!(out, "FAILED {name}: {mismatch}")?;
            }
            for skip in &report.skips {
                let (file, case, what) = (&skip.file, &skip.case, &skip.what);
                writeln!(
                    out,
                    "not expressible by the {name}: {file}, case `{case}`: {what}"
                )?;
            }
            tally.passed += report.passed as u64;
            tally.failed += report.failed as u64;
            line.push(format!("{name} {}", summary(&report)));
        }
        writeln!(out, "{}: {}", timeline.name, line.join("; "))?;
    }
    Ok(tally)
}

fn summary(report: &ReplayReport) -> String {
    let skipped = match report.skipped {
        0 => String::new(),
        steps => format!(", {steps} not expressible"),
    };
    format!(
        "{} passed, {} failed{skipped}",
        report.passed, report.failed
    )
}

/// The files that `paths` mean: a folder is all of its `*.csv`, sorted.
fn files_of(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let unreadable =
            |error| CommandError::Input(format!("{}: cannot be read: {error}", path.display()));
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let file = entry.map_err(unreadable)?.path();
            if file.extension().is_some_and(|extension| extension == "csv") {
                inside.push(file);
            }
        }
        inside.sort();
        files.append(&mut inside);
    }
    Ok(files)
}
