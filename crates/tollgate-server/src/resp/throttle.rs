//! `CL.THROTTLE` and `THROTTLE`: limits sent with the call, in two dialects.
//!
//! | command | arguments | reply |
//! |---|---|---|
//! | `CL.THROTTLE` | key, max burst, count, period, quantity | limited 0 or 1, limit (burst + 1), remaining, retry after or -1, reset after |
//! | `THROTTLE` | the same | allowed 1 or 0, limit (the burst itself), remaining, reset after, retry after or 0 |
//!
//! Seconds are rounded as in redis-cell: up, unless less than a millisecond is beyond the whole second.
//!
//! Differences from redis-cell: keys are any bytes; a negative burst, count or period is an error (there it refuses for
//! ever); the remaining quantity is computed in nanoseconds (there in microseconds, which reports too much for fractional
//! intervals, and nonsense for intervals below one microsecond).

use std::str::FromStr;

use tollgate::{InlineQuota, InlineQuotaError, OutOfRange, Span, ThrottleResult};

use super::codec::Command;
use super::reply::{FiveIntegers, Reply, quoted};

/// How a call is read and its reply written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `CL.THROTTLE`.
    Cell,
    /// `THROTTLE`.
    Plain,
}

/// The prefix of all errors of the first dialect.
const CELL: &str = "Cell error: Store error: ";

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ThrottleCall<'a> {
    pub(super) dialect: Dialect,
    pub(super) key: &'a [u8],
    pub(super) terms: InlineQuota,
    pub(super) quantity: i64,
}

impl Dialect {
    /// The dialect of a command name.
    #[inline]
    pub(super) fn from_name(name: &[u8]) -> Option<Dialect> {
        match name.len() {
            11 if name.eq_ignore_ascii_case(b"CL.THROTTLE") => Some(Dialect::Cell),
            8 if name.eq_ignore_ascii_case(b"THROTTLE") => Some(Dialect::Plain),
            _ => None,
        }
    }

    /// The error where callers may not send limits.
    pub(super) const OFF: &str = "ERR callers may not send limits to this server; use TOLLGATE.CHECK, or start \
                                  the server without --resp-policy-only";

    /// The error of a wrong number of arguments, if it is wrong.
    pub(super) fn wrong_count(self, command: &Command<'_>) -> Option<String> {
        (!matches!(command.len(), 5 | 6)).then(|| self.arity())
    }

    /// Reads a call.
    ///
    /// # Errors
    /// The whole text of the error.
    #[inline]
    pub(super) fn read<'a>(self, command: &Command<'a>) -> Result<ThrottleCall<'a>, String> {
        if let Some(wrong) = self.wrong_count(command) {
            return Err(wrong);
        }
        let number = |at: usize, name: &str| {
            let word = command.word(at);
            integer(word).ok_or_else(|| self.no_number(name, word))
        };
        let burst = number(2, "max_burst")?;
        let count = number(3, "count_per_period")?;
        let period = number(4, "period")?;
        let quantity = match command.len() {
            6 => number(5, "quantity")?,
            _ => 1,
        };
        let terms = match self {
            Dialect::Cell => InlineQuota::new(burst, count, period).map_err(cell_terms)?,
            Dialect::Plain => plain_terms(burst, count, period, quantity)?,
        };
        Ok(ThrottleCall {
            dialect: self,
            key: command.word(1),
            terms,
            quantity,
        })
    }

    /// Writes the reply.
    #[inline]
    pub(super) fn write(self, reply: &mut Reply<'_>, result: Result<ThrottleResult, OutOfRange>) {
        let result = match result {
            Ok(result) => result,
            Err(error) => return self.write_error(reply, error),
        };
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let retry = result.retry_after.map(seconds);
        let reset = seconds(result.reset_after);
        let (limit, remaining) = (count(result.limit), count(result.remaining));
        let numbers = match self {
            Dialect::Cell => {
                let limited = i64::from(result.is_limited);
                [limited, limit, remaining, retry.unwrap_or(-1), reset]
            }
            Dialect::Plain => {
                let allowed = i64::from(!result.is_limited);
                [allowed, limit, remaining, reset, retry.unwrap_or(0)]
            }
        };
        let mut text = FiveIntegers::default();
        for number in numbers {
            text.push(number);
        }
        reply.out.extend_from_slice(text.written());
    }

    #[cold]
    fn write_error(self, reply: &mut Reply<'_>, error: OutOfRange) {
        match self {
            Dialect::Cell => reply.error(&format!("{CELL}Error while setting key expire")),
            Dialect::Plain => reply.error(&format!("ERR {error}")),
        }
    }

    #[cold]
    fn arity(self) -> String {
        match self {
            Dialect::Cell => format!(
                "{CELL}Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
            ),
            Dialect::Plain => "ERR wrong number of arguments for 'throttle' command".into(),
        }
    }

    #[cold]
    fn no_number(self, name: &str, word: &[u8]) -> String {
        match self {
            Dialect::Cell => format!("{CELL}Couldn't parse as integer: {}", quoted(word)),
            Dialect::Plain => format!("ERR invalid {name}"),
        }
    }
}

#[cold]
fn cell_terms(error: InlineQuotaError) -> String {
    match error {
        InlineQuotaError::Negative { what } => format!("{CELL}A negative {what} is not supported"),
        _ => format!("{CELL}Zero rates are not supported"),
    }
}

/// In this dialect the burst is all that passes at once, and nothing can be refunded.
fn plain_terms(burst: i64, count: i64, period: i64, quantity: i64) -> Result<InlineQuota, String> {
    if quantity < 0 {
        return Err(format!("ERR negative quantity: {quantity}"));
    }
    if burst < 1 {
        return Err("ERR invalid rate limit parameters".into());
    }
    InlineQuota::new(burst - 1, count, period)
        .map_err(|_| "ERR invalid rate limit parameters".into())
}

/// Parses an integer with an optional sign.
#[inline]
fn integer(word: &[u8]) -> Option<i64> {
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

/// Whole seconds, and one more if at least a millisecond is beyond them.
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

    /// Reads an inline command.
    fn read(line: &str) -> Result<(InlineQuota, i64), String> {
        let mut words = Words::default();
        let line = format!("{line}\n");
        words.find(line.as_bytes(), &Bounds::AUTHENTICATED).unwrap();
        let command = words.command(line.as_bytes());
        let dialect = Dialect::from_name(command.word(0)).unwrap();
        dialect
            .read(&command)
            .map(|call| (call.terms, call.quantity))
    }

    #[test]
    fn numbers_are_whole_and_may_have_a_sign() {
        let usual = InlineQuota::new(15, 30, 60).unwrap();
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
        for (ns, result) in [
            (0, 0),
            (999_999, 0),
            (1_000_000, 1),
            (1_000_000_000, 1),
            (1_000_400_000, 1),
            (1_001_000_000, 2),
            (u64::MAX, 18_446_744_074),
        ] {
            assert_eq!(seconds(Span::from_nanos(ns)), result, "{ns}");
        }
    }
}
