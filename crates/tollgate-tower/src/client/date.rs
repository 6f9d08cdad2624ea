//! Dates as HTTP writes them, in all three forms (RFC 9110, 5.6.7).
//!
//! ```text
//! Sun, 06 Nov 1994 08:49:37 GMT      the one that is sent
//! Sunday, 06-Nov-94 08:49:37 GMT     obsolete; of the year only two digits
//! Sun Nov  6 08:49:37 1994           obsolete
//! ```
//!
//! The name of the weekday is not compared with the date: it adds nothing, and clients that insist on it
//! gain nothing.

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Seconds since 1970; none if it is no date, or one before. `now` says which century two digits mean.
pub(super) fn seconds(text: &str, now: u64) -> Option<u64> {
    // Nothing that is a date is longer, and what is not ASCII is none.
    if text.len() > 64 || !text.is_ascii() {
        return None;
    }
    let mut words = text.split_ascii_whitespace();
    let weekday = words.next()?;
    let (year, month, day, time) = match weekday.strip_suffix(',') {
        None => {
            let (month, day, time) = (words.next()?, words.next()?, words.next()?);
            (full_year(words.next()?)?, month, day, time)
        }
        Some(_) => {
            let first = words.next()?;
            let (year, month, day) = match first.split_once('-') {
                Some((day, rest)) => {
                    let (month, year) = rest.split_once('-')?;
                    (short_year(year, now)?, month, day)
                }
                None => {
                    let month = words.next()?;
                    (full_year(words.next()?)?, month, first)
                }
            };
            let time = words.next()?;
            (words.next()? == "GMT").then_some((year, month, day, time))?
        }
    };
    if words.next().is_some() {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == month)?;
    let day = number(day, 1, 2)?;
    let mut of_day = time.split(':').map(|part| number(part, 2, 2));
    let (hour, minute, second) = (of_day.next()??, of_day.next()??, of_day.next()??);
    let is_time = of_day.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    if !is_time || !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    let days = days_before_year(year)?.checked_add(days_before_month(year, month) + day - 1)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

fn full_year(text: &str) -> Option<u64> {
    number(text, 4, 4)
}

/// The year that ends in these digits and is at most 50 years ahead.
fn short_year(text: &str, now: u64) -> Option<u64> {
    let digits = number(text, 2, 2)?;
    // Close enough: it only has to tell centuries apart.
    let this_year = 1970 + now / 31_556_952;
    let year = this_year / 100 * 100 + digits;
    Some(if year > this_year + 50 {
        year - 100
    } else {
        year
    })
}

fn number(text: &str, least: usize, most: usize) -> Option<u64> {
    let is_one = (least..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_one.then(|| text.parse().ok()).flatten()
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: usize) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

fn days_before_month(year: u64, month: usize) -> u64 {
    (0..month).map(|month| days_of(year, month)).sum()
}

/// From 1970 to the first of January of a year.
fn days_before_year(year: u64) -> Option<u64> {
    let leaps = |before: u64| before / 4 - before / 100 + before / 400;
    let since = year.checked_sub(1970)?;
    Some(since * 365 + leaps(year - 1) - leaps(1969))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_forms_are_the_same_moment() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(seconds(text, 784_000_000), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn known_days_have_their_known_numbers() {
        let cases = [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Tue, 29 Feb 2000 00:00:00 GMT", 951_782_400),
            ("Wed, 01 Mar 2000 00:00:00 GMT", 951_868_800),
            ("Tue, 19 Jan 2038 03:14:08 GMT", 2_147_483_648),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
        ];
        for (text, known) in cases {
            assert_eq!(seconds(text, 0), Some(known), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        let long = "x".repeat(1000);
        for text in [
            "",
            "120",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37 GMT x",
            "Sun, 30 Feb 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 0000 08:49:37 GMT",
            "Sun, 06 Növ 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            &long,
        ] {
            assert_eq!(seconds(text, 784_000_000), None, "{text}");
        }
    }
}
