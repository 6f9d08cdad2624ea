//! What is unwise about pressure, or worth knowing.

use tollgate::Scale;

use crate::read::Draft;
use crate::report::Report;

/// Says what is unwise about what a policy does under pressure.
pub(super) fn lint(draft: &Draft, report: &Report<'_>) {
    let Some(rule) = &draft.policy.pressure else {
        return;
    };
    let place = draft.file.name_of("pressure");
    if rule.latency.is_none() && rule.errors.is_none() && rule.cpu.is_none() {
        report.note(
            place,
            "pressure-by-hand",
            "no signal is named, so limits shrink only when an operator says so",
            "add `latency: 500ms`, `errors: 10%` or `cpu: 90%` if they are to shrink by themselves",
        );
    }
    if rule.floor == Scale::ONE && rule.floors.iter().all(|(_, floor)| *floor == Scale::ONE) {
        report.warn(
            draft.pressure.at("floor"),
            "pressure-without-effect",
            "a floor of 100% leaves every limit as it is, so pressure changes nothing",
            "write how much is left at the least, such as `floor: 10%`",
        );
    }
}
