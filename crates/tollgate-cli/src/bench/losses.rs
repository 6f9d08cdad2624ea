//! Targets that were lost, wholly or in part, during the run: which, when, and why.

use std::time::Duration;

use tollgate_load::{LoadPlan, LoadReport, Loss, Target, TargetReport};

/// The targets with a loss.
pub(super) fn of<'a>(
    plan: &'a LoadPlan,
    report: &'a LoadReport,
) -> impl Iterator<Item = (&'a Target, &'a TargetReport, &'a Loss)> {
    let all = plan.targets.iter().zip(&report.targets);
    all.filter_map(|(target, counts)| Some((target, counts, counts.loss.as_ref()?)))
}

/// The target and the time of its loss: for a lost server that of the last answer, otherwise that of the first
/// lost connection.
pub(super) fn when(target: &Target, counts: &TargetReport, loss: &Loss) -> String {
    match (counts.is_lost(), counts.last_response) {
        (true, Some(last)) => format!("{target} answered nothing after {}", seconds(last)),
        (true, None) => format!("{target} never answered"),
        (false, _) => format!(
            "{} of {} connections to {target} were given up, the first after {}",
            loss.connections,
            counts.connections,
            seconds(loss.after)
        ),
    }
}

/// The text for standard error, if anything was lost.
pub(super) fn error(plan: &LoadPlan, report: &LoadReport) -> Option<String> {
    let lines = of(plan, report).map(|(target, counts, loss)| {
        let when = when(target, counts, loss);
        format!("error: {when}: it {}\n", loss.reason)
    });
    let lines: String = lines.collect();
    (!lines.is_empty()).then(|| {
        format!(
            "{lines}hint: see the server's log of that time; the results include what was measured until then"
        )
    })
}

fn seconds(since_begin: Duration) -> String {
    format!("{:.2} s", since_begin.as_secs_f64())
}
