//! Warnings about pressure.

use tollgate::Scale;

use crate::read::Draft;
use crate::report::Report;

/// Reports on `pressure`.
pub(super) fn lint(draft: &Draft, report: &Report<'_>) {
    let Some(rule) = &draft.policy.pressure else {
        return;
    };
    let place = draft.file.name_of("pressure");
    if rule.latency.is_none() && rule.errors.is_none() && rule.cpu.is_none() {
        report.note(
            place,
            "pressure-by-hand",
            "there is no signal, so limits shrink only when an operator requests it",
            "add `latency: 500ms`, `errors: 10%` or `cpu: 90%` to shrink them automatically",
        );
    }
    if rule.floor == Scale::ONE && rule.floors.iter().all(|(_, floor)| *floor == Scale::ONE) {
        report.warn(
            draft.pressure.at("floor"),
            "pressure-without-effect",
            "a floor of 100% keeps every limit as it is, so pressure has no effect",
            "write the smallest part that is kept, such as `floor: 10%`",
        );
    }
}
