//! Spans of time in a short form for tables.
//!
//! The core prints spans exactly (`1s666ms333us334ns`), which suits JSON but not a column. Both forms can be
//! parsed.

use tollgate::Span;

/// Units below a minute, longest first, and the names that the core reads.
const DECIMAL_UNITS: [(&str, u64); 3] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
const MINUTE: u64 = 60_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// The span to three decimals, rounded **up**: a client that waits as long must not come too early. From a minute
/// on in whole milliseconds, in the core's form.
pub(crate) fn short(span: Span) -> String {
    let ns = span.as_nanos();
    if ns >= MINUTE {
        let up = ns.div_ceil(MILLISECOND).saturating_mul(MILLISECOND);
        return Span::from_nanos(up).to_string();
    }
    match DECIMAL_UNITS.iter().find(|(_, unit)| ns >= *unit) {
        Some((name, unit)) => decimal(ns, name, *unit),
        None => span.to_string(),
    }
}

/// The span as in [`short`] if that is exact, else in the core's form.
pub(crate) fn exact(span: Span) -> String {
    let short = short(span);
    if short.parse() == Ok(span) {
        short
    } else {
        span.to_string()
    }
}

fn decimal(ns: u64, name: &str, unit: u64) -> String {
    let thousandths = ns.div_ceil(unit / 1000);
    let (whole, fraction) = (thousandths / 1000, thousandths % 1000);
    if fraction == 0 {
        return format!("{whole}{name}");
    }
    let digits = format!("{fraction:03}");
    format!("{whole}.{}{name}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_short_and_never_shorter_than_it_is() {
        for (ns, text) in [
            (0, "0s"),
            (999, "999ns"),
            (1_000, "1us"),
            (333_334, "333.334us"),
            (200_000_000, "200ms"),
            (1_500_000_000, "1.5s"),
            (1_666_333_334, "1.667s"),
            (59_999_999_999, "60s"),
            (60_000_000_000, "1m"),
            (90_000_000_001, "1m30s1ms"),
            (u64::MAX, "30500w3d23h34m33s709ms551us615ns"),
        ] {
            let span = Span::from_nanos(ns);
            assert_eq!(short(span), text);
            assert!(text.parse::<Span>().unwrap() >= span);
        }
    }

    #[test]
    fn an_exact_span_reads_back_as_itself() {
        for (ns, text) in [
            (1_500_000_000, "1.5s"),
            (1_000_000_001, "1s1ns"),
            (90_000_000_001, "1m30s1ns"),
        ] {
            let span = Span::from_nanos(ns);
            assert_eq!(exact(span), text);
            assert_eq!(text.parse(), Ok(span));
        }
    }
}
