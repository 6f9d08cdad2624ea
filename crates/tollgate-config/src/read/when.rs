//! Dates and calendars: the only module of this crate that uses time zones.
//!
//! A calendar quota counts days, weeks or months of a time zone. Their starts are computed once, with the rules of the
//! zone that are built into the program; the core looks them up in [`Periods`].
//!
//! # Invariant
//!
//! Periods are numbered from the one that contains January 1, 2020. The numbers are stored with the counts, so they must
//! be the same on every load.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::civil::{Date, Weekday, date};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use tollgate::Periods;
use tollgate::{Moment, Span};

use super::fields::Fields;
use super::item::Item;
use super::scalar::{choice, integer, text};
use crate::report::{Read, quoted};
use crate::shape;
use crate::suggest::suggest;

const FIRST_YEAR: i16 = 2020;
const LAST_YEAR: i16 = 2080;
const DAY_SECS: u64 = 86_400;
/// Calendars that are cached for the next load. A file with more of them loads more slowly.
const CACHE_MAX: usize = 256;

/// The kind of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Every {
    Day,
    Week(Weekday),
    /// From this day of the month, or its last day if the month is shorter.
    Month(i8),
}

/// Reads a moment: `2027-01-01` (midnight UTC) or `2027-01-01T12:00:00Z`.
pub(crate) fn moment(node: Item<'_>) -> Read<Moment> {
    let text = text(node)?;
    let timestamp = match text.parse::<Timestamp>() {
        Ok(timestamp) => Some(timestamp),
        // A date with a time but without a zone would parse as midnight.
        Err(_) if text.len() > 10 => None,
        Err(_) => text
            .parse::<Date>()
            .ok()
            .and_then(|date| date.to_zoned(TimeZone::UTC).ok())
            .map(|zoned| zoned.timestamp()),
    };
    if timestamp.is_none() && text.parse::<jiff::civil::DateTime>().is_ok() && text.len() > 10 {
        return Err(node.error(
            "bad-date",
            format!("{} has no time zone", quoted(text)),
            format!("write `{text}Z` for UTC, or an offset such as `{text}+02:00`"),
        ));
    }
    timestamp.and_then(since_1970).ok_or_else(|| {
        node.error(
            "bad-date",
            format!("{} is not a date", quoted(text)),
            "write a day, `2027-01-01`, or a moment with its zone, `2027-01-01T12:00:00Z`",
        )
    })
}

/// The day of a moment, for messages.
pub(crate) fn day(moment: Moment) -> String {
    let ns = i128::from(moment.as_nanos());
    let timestamp = Timestamp::from_nanosecond(ns).unwrap_or(Timestamp::MAX);
    timestamp.strftime("%Y-%m-%d").to_string()
}

/// The current time, for the lint of expired limits.
pub(crate) fn now() -> Moment {
    since_1970(Timestamp::now()).unwrap_or(Moment::ORIGIN)
}

fn since_1970(timestamp: Timestamp) -> Option<Moment> {
    let ns = u64::try_from(timestamp.as_nanosecond()).ok()?;
    Some(Moment::from_nanos(ns))
}

/// Reads `calendar: { every: month, zone: Europe/Berlin, starts: 15 }`.
pub(crate) fn calendar(node: Item<'_>) -> Read<Periods> {
    let fields = Fields::open(node, "calendar", shape::Calendar::FIELDS)?;
    let kinds = [("day", 'd'), ("week", 'w'), ("month", 'm')];
    let message = "the calendar has no `every`";
    let hint = "write `every: day`, `every: week` or `every: month`";
    let every = fields.required("every", (message, hint), |n| choice(n, "a period", &kinds));
    let zone = fields.read("zone", zone);
    let starts = fields.get("starts");
    let every = match (every?, starts) {
        ('d', None) => Every::Day,
        ('d', Some(_)) => {
            return Err(node.report.error(
                fields.name_place("starts").unwrap_or(node.place),
                "misplaced-field",
                "a day starts at midnight",
                "remove `starts`; for another midnight set another `zone`",
            ));
        }
        ('w', None) => Every::Week(Weekday::Monday),
        ('w', Some(node)) => Every::Week(choice(node, "a day of the week", &WEEKDAYS)?),
        (_, None) => Every::Month(1),
        (_, Some(node)) => Every::Month(integer(node, 1..=31, "15")?),
    };
    let zone = zone?.unwrap_or(TimeZone::UTC);
    periods(every, &zone).ok_or_else(|| {
        let message = "the periods of this calendar cannot be computed";
        fields.error("bad-zone", message, "set another `zone`")
    })
}

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

fn zone(node: Item<'_>) -> Read<TimeZone> {
    let text = text(node)?;
    TimeZone::get(text).map_err(|_| {
        let names = jiff::tz::db().available();
        let names: Vec<(String, String)> = names
            .map(|name| (name.as_str().to_lowercase(), name.as_str().to_owned()))
            .collect();
        // `Berlin` is the end of a name; a misspelling is compared with whole names.
        let tail = format!("/{}", text.to_lowercase().replace(' ', "_"));
        let lower = names.iter().map(|(lower, _)| lower.as_str());
        let near = lower.clone().find(|name| name.ends_with(&tail));
        let near = near.or_else(|| suggest(text, lower));
        let near = names.iter().find(|(lower, _)| Some(lower.as_str()) == near);
        let hint = match near {
            Some((_, near)) => format!("did you mean `{near}`?"),
            None => {
                "write a name of the time zone database, such as `Europe/Berlin` or `UTC`".into()
            }
        };
        node.error(
            "bad-zone",
            format!("{} is not a time zone", quoted(text)),
            hint,
        )
    })
}

/// The periods of a zone, cached.
fn periods(every: Every, zone: &TimeZone) -> Option<Periods> {
    static CACHE: Mutex<Option<HashMap<(Every, String), Periods>>> = Mutex::new(None);
    let key = (every, zone.iana_name()?.to_owned());
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = cache.get_or_insert_default();
    if let Some(periods) = cache.get(&key) {
        return Some(periods.clone());
    }
    let periods = compute_periods(every, zone, &key.1)?;
    if cache.len() >= CACHE_MAX {
        cache.clear();
    }
    cache.insert(key, periods.clone());
    Some(periods)
}

fn compute_periods(every: Every, zone: &TimeZone, name: &str) -> Option<Periods> {
    let first = date(FIRST_YEAR, 1, 1);
    let last = date(LAST_YEAR, 1, 1);
    let mut dates = Vec::new();
    let (word, days) = match every {
        Every::Day => {
            dates.extend(first.series(1.day()).take_while(|d| *d <= last));
            ("day", 1)
        }
        Every::Week(weekday) => {
            let back = i64::from(weekday.until(first.weekday()));
            let start = first.checked_sub(back.days()).ok()?;
            dates.extend(start.series(7.days()).take_while(|d| *d <= last));
            ("week", 7)
        }
        Every::Month(day) => {
            let months = first.series(1.month()).take_while(|d| *d <= last);
            dates.extend(months.filter_map(|month| {
                let day = day.min(month.days_in_month());
                month.with().day(day).build().ok()
            }));
            ("month", 30)
        }
    };
    let starts: Option<Vec<Moment>> = dates.iter().map(|d| start_of(*d, zone)).collect();
    let nominal = Span::from_secs(days * DAY_SECS);
    Periods::new(&format!("{word} in {name}"), &starts?, nominal)
}

/// The first moment of a day, which is not 00:00 where clocks go forward at midnight.
fn start_of(day: Date, zone: &TimeZone) -> Option<Moment> {
    let midnight = day.at(0, 0, 0, 0);
    let timestamp = match zone.to_ambiguous_timestamp(midnight).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(midnight).ok()?,
        // Midnight occurs twice: the day starts with the first.
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(midnight).ok()?,
        // Midnight is skipped: the day starts when the clocks go forward.
        AmbiguousOffset::Gap { before, .. } => {
            let skipped = before.to_timestamp(midnight).ok()?;
            let just_after = skipped.checked_add(1.nanosecond()).ok()?;
            zone.preceding(just_after).next()?.timestamp()
        }
    };
    since_1970(timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(every: Every, zone: &str, from: &str, count: usize) -> Vec<String> {
        let zone = TimeZone::get(zone).unwrap();
        let from: Date = from.parse().unwrap();
        let step = match every {
            Every::Day => 1.day(),
            Every::Week(_) => 7.days(),
            Every::Month(_) => 1.month(),
        };
        from.series(step)
            .take(count)
            .map(|day| start_of(day, &zone).unwrap())
            .map(|moment| {
                Timestamp::from_nanosecond(i128::from(moment.as_nanos()))
                    .unwrap()
                    .to_string()
            })
            .collect()
    }

    #[test]
    fn days_follow_the_clocks_of_their_zone() {
        assert_eq!(
            starts(Every::Day, "Europe/Berlin", "2027-03-28", 2),
            ["2027-03-27T23:00:00Z", "2027-03-28T22:00:00Z"]
        );
    }

    #[test]
    fn a_day_without_midnight_begins_when_the_clocks_are_put_forward() {
        // Beirut skips from 00:00 to 01:00 on the last Sunday of March.
        assert_eq!(
            starts(Every::Day, "Asia/Beirut", "2027-03-28", 1),
            ["2027-03-27T22:00:00Z"]
        );
        // Cairo skips midnight on the last Friday of April.
        assert_eq!(
            starts(Every::Day, "Africa/Cairo", "2027-04-30", 1),
            ["2027-04-29T22:00:00Z"]
        );
    }

    #[test]
    fn every_zone_has_every_kind_of_period() {
        for name in jiff::tz::db().available() {
            let zone = TimeZone::get(name.as_str()).unwrap();
            for every in [Every::Week(Weekday::Sunday), Every::Month(31)] {
                assert!(
                    compute_periods(every, &zone, "x").is_some(),
                    "{name} {every:?}"
                );
            }
        }
        for name in ["UTC", "Europe/Berlin", "Asia/Beirut", "America/Sao_Paulo"] {
            let zone = TimeZone::get(name).unwrap();
            assert!(compute_periods(Every::Day, &zone, "x").is_some(), "{name}");
        }
    }

    #[test]
    fn months_of_different_lengths_make_windows_of_the_longest() {
        let zone = TimeZone::UTC;
        let months = compute_periods(Every::Month(31), &zone, "UTC").unwrap();
        // The longest stretch between two last days of months is 31 days.
        assert_eq!(months.window(), Span::from_secs(31 * DAY_SECS));
        assert_eq!(months.name(), "month in UTC");
        let weeks = compute_periods(Every::Week(Weekday::Monday), &zone, "UTC").unwrap();
        assert_eq!(weeks.window(), Span::from_secs(7 * DAY_SECS));
    }

    #[test]
    fn periods_are_computed_once() {
        let zone = TimeZone::get("Europe/Paris").unwrap();
        let first = periods(Every::Day, &zone).unwrap();
        assert_eq!(periods(Every::Day, &zone), Some(first));
    }
}
