//! `tollgate bench`: puts load on any limiter, and audits whether it admits more than it should.
//!
//! `args` has the arguments and `asked` turns them into a plan. The load itself is [`tollgate_load`]. `table` and
//! `object` print the results, `losses` the lost targets, `progress` a progress line, and `interrupt` ends a run
//! early.

mod args;
mod asked;
mod interrupt;
mod losses;
mod object;
mod progress;
mod table;

use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;

pub(crate) use args::Bench;

use crate::fault::Stop;
use interrupt::Interrupt;
use progress::Progress;

/// Runs the load and prints the results.
pub(crate) fn run(asked: &Bench, out: &mut impl Write) -> Result<ExitCode, Stop> {
    let plan = asked::plan(asked)?;
    let mut progress = Progress::new(asked.quiet, &plan);
    let interrupt = Interrupt::awaited();
    let ran = tollgate_load::run_while(plan.clone(), &mut |answers, passed| {
        progress.show(answers, passed);
        match interrupt.is_set() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    progress.clear();
    let report = ran.map_err(asked::wrong)?;
    match asked.json {
        true => writeln!(out, "{}", object::object(&plan, &report)),
        false => table::print(&plan, &report, out),
    }
    .and_then(|()| out.flush())
    .map_err(Stop::Write)?;
    if report.responses() == 0 {
        if report.is_interrupted && report.errors.is_empty() {
            return Ok(ExitCode::from(interrupt::INTERRUPTED));
        }
        return Err(Stop::Found(nothing(&report)));
    }
    if let Some(lost) = losses::error(&plan, &report) {
        return Err(Stop::Found(lost));
    }
    let over = report.audit.as_ref().map_or(0, |audit| audit.over);
    Ok(match over {
        0 if report.is_interrupted => ExitCode::from(interrupt::INTERRUPTED),
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The error of a run without any verdict.
fn nothing(report: &tollgate_load::LoadReport) -> String {
    let worst = report.errors.iter().max_by_key(|(_, times)| **times);
    let why = worst.map_or("nothing came back".to_owned(), |(kind, times)| {
        format!("{times} times: {kind}")
    });
    format!(
        "no response was a verdict ({why})\n\
         hint: check that the target understands the request and that it has all arguments"
    )
}
