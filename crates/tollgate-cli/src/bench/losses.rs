//! Targets that were lost, wholly or in part, while the load was on: which, when, and why.

use std::time::Duration;

use tollgate_load::{LoadPlan, LoadReport, Loss, Target, TargetReport};

/// Those of which anything was lost.
pub(super) fn of<'a>(
    plan: &'a LoadPlan,
    report: &'a LoadReport,
) -> impl Iterator<Item = (&'a Target, &'a TargetReport, &'a Loss)> {
    let all = plan.targets.iter().zip(&report.targets);
    all.filter_map(|(target, told)| Some((target, told, told.loss.as_ref()?)))
}

/// Which one and when. The last answer is the nearest that is known of the end of a server; one that still answers has none.
pub(super) fn when(target: &Target, told: &TargetReport, loss: &Loss) -> String {
    match (told.is_lost(), told.last_response) {
        (true, Some(last)) => format!("{target} answered nothing after {}", seconds(last)),
        (true, None) => format!("{target} never answered"),
        (false, _) => format!(
            "{} of {} connections to {target} were given up, the first after {}",
            loss.connections,
            told.connections,
            seconds(loss.after)
        ),
    }
}

/// What goes to standard error, if anything was lost.
pub(super) fn error(plan: &LoadPlan, report: &LoadReport) -> Option<String> {
    let lines = of(plan, report).map(|(target, told, loss)| {
        let when = when(target, told, loss);
        format!("error: {when}: it {}\n", loss.reason)
    });
    let lines: String = lines.collect();
    (!lines.is_empty()).then(|| {
        format!(
            "{lines}hint: see what the server logged then; what was measured until its end, and of the others, is told"
        )
    })
}

fn seconds(since_begin: Duration) -> String {
    format!("{:.2} s", since_begin.as_secs_f64())
}
