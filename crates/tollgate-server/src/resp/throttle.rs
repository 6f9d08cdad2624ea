//! Limits that come with the call, as two kinds of callers know them.
//!
//! | command | asks | answers |
//! |---|---|---|
//! | `CL.THROTTLE` | key, max burst, count, period, quantity | limited 0 or 1, limit (burst + 1), remaining, retry after or -1, reset after |
//! | `THROTTLE` | the same | allowed 1 or 0, limit (the burst itself), remaining, reset after, retry after or 0 |
//!
//! Seconds are rounded as callers know them: up, unless less than a millisecond is beyond the whole second.
//!
//! What differs from the original on purpose: keys are any bytes; a negative burst, count or period is an
//! error (there it refuses for ever); what remains is divided in nanoseconds (there in microseconds, which
//! tells too much for intervals that are not whole ones, and nonsense below one).

use std::str::FromStr;

use tollgate::{OutOfRange, Span, Terms, TermsError, Throttled};

use super::codec::Command;
use super::reply::{Numbers, Reply, quoted};

/// How a call is understood and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `CL.THROTTLE`.
    Cell,
    /// `THROTTLE`.
    Plain,
}

/// What every error of the first form begins with.
const CELL: &str = "Cell error: Store error: ";

/// What a call says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said<'a> {
    pub(super) key: &'a [u8],
    pub(super) terms: Terms,
    pub(super) quantity: i64,
}

impl Form {
    /// The form of a command by its name.
    #[inline]
    pub(super) fn of(name: &[u8]) -> Option<Form> {
        match name.len() {
            11 if name.eq_ignore_ascii_case(b"CL.THROTTLE") => Some(Form::Cell),
            8 if name.eq_ignore_ascii_case(b"THROTTLE") => Some(Form::Plain),
            _ => None,
        }
    }

    /// What is told where callers may not choose their limits.
    pub(super) const OFF: &str = "ERR callers may not choose their own limits here; ask TOLLGATE.CHECK, or start \
                                  the server without --resp-policy-only";

    /// What is wrong with how many words a call has, if anything is.
    pub(super) fn wrong_count(self, command: &Command<'_>) -> Option<String> {
        (!matches!(command.len(), 5 | 6)).then(|| self.arity())
    }

    /// Reads a call.
    ///
    /// # Errors
    /// The whole text of the error.
    #[inline]
    pub(super) fn read<'a>(self, command: &Command<'a>) -> Result<Said<'a>, String> {
        if let Some(wrong) = self.wrong_count(command) {
            return Err(wrong);
        }
        let number = |at: usize, name: &str| {
            let word = command.word(at);
            whole(word).ok_or_else(|| self.no_number(name, word))
        };
        let burst = number(2, "max_burst")?;
        let count = number(3, "count_per_period")?;
        let period = number(4, "period")?;
        let quantity = match command.len() {
            6 => number(5, "quantity")?,
            _ => 1,
        };
        let terms = match self {
            Form::Cell => Terms::new(burst, count, period).map_err(cell_terms)?,
            Form::Plain => plain_terms(burst, count, period, quantity)?,
        };
        Ok(Said {
            key: command.word(1),
            terms,
            quantity,
        })
    }

    /// Writes what a call came to.
    #[inline]
    pub(super) fn write(self, reply: &mut Reply<'_>, told: Result<Throttled, OutOfRange>) {
        let told = match told {
            Ok(told) => told,
            Err(error) => return self.write_error(reply, error),
        };
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let retry = told.retry_after.map(seconds);
        let reset = seconds(told.reset_after);
        let (limit, remaining) = (count(told.limit), count(told.remaining));
        let numbers = match self {
            Form::Cell => {
                let limited = i64::from(told.is_limited);
                [limited, limit, remaining, retry.unwrap_or(-1), reset]
            }
            Form::Plain => {
                let allowed = i64::from(!told.is_limited);
                [allowed, limit, remaining, reset, retry.unwrap_or(0)]
            }
        };
        let mut text = Numbers::default();
        for number in numbers {
            text.push(number);
        }
        reply.out.extend_from_slice(text.written());
    }

    #[cold]
    fn write_error(self, reply: &mut Reply<'_>, error: OutOfRange) {
        match self {
            Form::Cell => reply.error(&format!("{CELL}Error while setting key expire")),
            Form::Plain => reply.error(&format!("ERR {error}")),
        }
    }

    #[cold]
    fn arity(self) -> String {
        match self {
            Form::Cell => format!(
                "{CELL}Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
            ),
            Form::Plain => "ERR wrong number of arguments for 'throttle' command".into(),
        }
    }

    #[cold]
    fn no_number(self, name: &str, word: &[u8]) -> String {
        match self {
            Form::Cell => format!("{CELL}Couldn't parse as integer: {}", quoted(word)),
            Form::Plain => format!("ERR invalid {name}"),
        }
    }
}

#[cold]
fn cell_terms(error: TermsError) -> String {
    match error {
        TermsError::Negative { what } => format!("{CELL}A negative {what} is not supported"),
        _ => format!("{CELL}Zero rates are not supported"),
    }
}

/// In this form the burst is all that passes at once, and nothing can be given back.
fn plain_terms(burst: i64, count: i64, period: i64, quantity: i64) -> Result<Terms, String> {
    if quantity < 0 {
        return Err(format!("ERR negative quantity: {quantity}"));
    }
    if burst < 1 {
        return Err("ERR invalid rate limit parameters".into());
    }
    Terms::new(burst - 1, count, period).map_err(|_| "ERR invalid rate limit parameters".into())
}

/// A whole number, with a sign if it has one, and nothing else.
#[inline]
fn whole(word: &[u8]) -> Option<i64> {
    // Most are a few digits.
    if let 1..=9 = word.len() {
        let mut number = 0;
        for byte in word {
            match byte {
                b'0'..=b'9' => number = number * 10 + i64::from(byte - b'0'),
                _ => return signed(word),
            }
        }
        return Some(number);
    }
    signed(word)
}

#[cold]
fn signed(word: &[u8]) -> Option<i64> {
    i64::from_str(std::str::from_utf8(word).ok()?).ok()
}

/// Whole seconds, and one more if a millisecond or more is beyond them.
#[inline]
fn seconds(span: Span) -> i64 {
    let ns = span.as_nanos();
    let whole = ns / 1_000_000_000 + u64::from(ns % 1_000_000_000 >= 1_000_000);
    i64::try_from(whole).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::codec::{Bounds, Words};
    use super::*;

    /// Reads a line, and tells its error or its numbers.
    fn read(line: &str) -> Result<(Terms, i64), String> {
        let mut words = Words::default();
        let line = format!("{line}\n");
        words.find(line.as_bytes(), &Bounds::KNOWN).unwrap();
        let command = words.command(line.as_bytes());
        let form = Form::of(command.word(0)).unwrap();
        form.read(&command).map(|said| (said.terms, said.quantity))
    }

    #[test]
    fn numbers_are_whole_and_may_have_a_sign() {
        let usual = Terms::new(15, 30, 60).unwrap();
        assert_eq!(read("cl.throttle k 15 30 60"), Ok((usual, 1)));
        assert_eq!(read("CL.Throttle k +15 30 060 -4"), Ok((usual, -4)));
        assert_eq!(read("throttle k 16 30 60 5"), Ok((usual, 5)));
        for (word, shown) in [("1.0", "1.0"), ("' 15'", " 15"), ("x", "x"), ("''", "")] {
            let error = format!("{CELL}Couldn't parse as integer: {shown}");
            assert_eq!(read(&format!("cl.throttle k {word} 30 60")), Err(error));
        }
        let long = "99999999999999999999";
        assert!(read(&format!("cl.throttle k 1 {long} 60")).is_err());
    }

    #[test]
    fn errors_are_those_that_callers_know() {
        for (line, error) in [
            (
                "cl.throttle",
                "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
            ),
            (
                "cl.throttle k 1 2",
                "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
            ),
            (
                "cl.throttle k 1 2 3 4 5",
                "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
            ),
            ("cl.throttle k 1 0 60", "Zero rates are not supported"),
            ("cl.throttle k 1 30 0", "Zero rates are not supported"),
            (
                "cl.throttle k -1 30 60",
                "A negative burst is not supported",
            ),
            (
                "cl.throttle k 1 -30 60",
                "A negative count is not supported",
            ),
            (
                "cl.throttle k 1 30 -60",
                "A negative period is not supported",
            ),
        ] {
            assert_eq!(read(line), Err(format!("{CELL}{error}")), "{line}");
        }
        for (line, error) in [
            (
                "throttle k 1 2",
                "ERR wrong number of arguments for 'throttle' command",
            ),
            ("throttle k x 1 1", "ERR invalid max_burst"),
            ("throttle k 1 1 1 x", "ERR invalid quantity"),
            ("throttle k 1 1 1 -1", "ERR negative quantity: -1"),
            ("throttle k 0 1 1", "ERR invalid rate limit parameters"),
            ("throttle k 1 0 1", "ERR invalid rate limit parameters"),
        ] {
            assert_eq!(read(line), Err(error.into()), "{line}");
        }
    }

    #[test]
    fn seconds_are_rounded_up_from_a_millisecond_on() {
        for (ns, told) in [
            (0, 0),
            (999_999, 0),
            (1_000_000, 1),
            (1_000_000_000, 1),
            (1_000_400_000, 1),
            (1_001_000_000, 2),
            (u64::MAX, 18_446_744_074),
        ] {
            assert_eq!(seconds(Span::from_nanos(ns)), told, "{ns}");
        }
    }
}
