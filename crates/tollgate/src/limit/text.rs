//! A limit as text: `5/s burst 10`, `rides: gcra 10/s tolerance 250ms`.
//!
//! ```text
//! [name:] [algorithm] quantity [setting value]...
//! ```
//!
//! | algorithm | quantity | settings |
//! |---|---|---|
//! | `token bucket` (if none is written) | rate | `burst` (if left out: the units of the rate) |
//! | `gcra` | rate | `tolerance` (required) |
//! | `leaky bucket` | rate | `queue` (required), `max wait` |
//! | `fixed window` | rate | `anchor` |
//! | `sliding log` | rate | |
//! | `sliding window` | rate | `strict` |
//! | `concurrency` | number | `ttl` (required) |
//! | all | | `max keys` |
//!
//! A rate is `5/s`, `100/min`, `5 per second` or `10 in 30s`. `-` and `_` are read as the space in a name of two words.
//! What is printed is read back as the same limit.

use std::fmt;
use std::str::FromStr;

use super::{Algorithm, Estimate, Limit};
use crate::algorithm::LimitError;
use crate::cost::{Burst, units};
use crate::rate::Rate;
use crate::time::{Span, unit_nanos};

/// An algorithm as it is written, and its settings.
struct Grammar {
    name: &'static str,
    settings: &'static [&'static str],
}

const TOKEN_BUCKET: Grammar = Grammar::new("token bucket", &["burst", "max keys"]);
const GCRA: Grammar = Grammar::new("gcra", &["tolerance", "max keys"]);
const LEAKY_BUCKET: Grammar = Grammar::new("leaky bucket", &["queue", "max wait", "max keys"]);
const FIXED_WINDOW: Grammar = Grammar::new("fixed window", &["anchor", "max keys"]);
const SLIDING_LOG: Grammar = Grammar::new("sliding log", &["max keys"]);
const SLIDING_WINDOW: Grammar = Grammar::new("sliding window", &["strict", "max keys"]);
const CONCURRENCY: Grammar = Grammar::new("concurrency", &["ttl", "max keys"]);
const GRAMMARS: [&Grammar; 7] = [
    &TOKEN_BUCKET,
    &GCRA,
    &LEAKY_BUCKET,
    &FIXED_WINDOW,
    &SLIDING_LOG,
    &SLIDING_WINDOW,
    &CONCURRENCY,
];

impl Grammar {
    const fn new(name: &'static str, settings: &'static [&'static str]) -> Grammar {
        Grammar { name, settings }
    }
}

/// A text is not a limit. The message states what is wrong, where, and how to fix it.
///
/// ```
/// use tollgate::Limit;
/// let error = "5/s brust 10".parse::<Limit>().unwrap_err();
/// assert_eq!(error.column(), 5);
/// assert_eq!(
///     error.to_string(),
///     "`brust` at column 5 is not a setting of a token bucket; write `burst` or `max keys`"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLimitError {
    column: usize,
    message: String,
}

impl ParseLimitError {
    /// The column where the text is wrong: 1 is the first character.
    pub const fn column(&self) -> usize {
        self.column
    }
}

impl fmt::Display for ParseLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ParseLimitError {}

/// The words of a text, read from left to right.
struct Words<'a> {
    words: Vec<(usize, &'a str)>,
    next: usize,
    /// The column behind the text.
    end: usize,
    /// The text names its algorithm.
    has_algorithm: bool,
}

type Parsed<T> = Result<T, ParseLimitError>;

fn error<T>(column: usize, what: impl fmt::Display, fix: impl fmt::Display) -> Parsed<T> {
    Err(ParseLimitError {
        column,
        message: format!("{what}; {fix}"),
    })
}

impl<'a> Words<'a> {
    /// The words of `text` from the byte `start` on.
    fn new(text: &'a str, start: usize) -> Words<'a> {
        let column = |byte: usize| text[..byte].chars().count() + 1;
        let mut words = Vec::new();
        let mut from = start;
        for part in text[start..].split(char::is_whitespace) {
            if !part.is_empty() {
                words.push((column(from), part));
            }
            // White space that splits is one character of one to three bytes.
            from += part.len();
            from += text[from..].chars().next().map_or(0, char::len_utf8);
        }
        Words {
            words,
            next: 0,
            end: column(text.trim_end().len().max(start)),
            has_algorithm: false,
        }
    }

    fn peek(&self) -> Option<(usize, &'a str)> {
        self.words.get(self.next).copied()
    }

    fn take(&mut self) -> Option<(usize, &'a str)> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }

    /// Takes the next word, or the next two, if they are one of these names.
    fn take_name(&mut self, names: &[&'static str]) -> Option<(usize, &'static str)> {
        let (column, first) = self.peek()?;
        let first = first.to_lowercase().replace(['-', '_'], " ");
        let second = self.words.get(self.next + 1);
        let both = second.map(|(_, second)| format!("{first} {}", second.to_lowercase()));
        let named = |text: &str| names.iter().find(|name| **name == text);
        if let Some(name) = named(&first) {
            self.next += 1;
            return Some((column, name));
        }
        let name = named(&both?)?;
        self.next += 2;
        Some((column, name))
    }

    /// Takes the value of a setting: a word, or a number and its unit of time.
    fn take_value(&mut self, column: usize, setting: &str) -> Parsed<(usize, String)> {
        let Some((at, word)) = self.take() else {
            let fix = format!("write one such as `{setting} {}`", example(setting));
            return error(
                column,
                format!("`{setting}` at column {column} has no value"),
                fix,
            );
        };
        let mut value = word.to_owned();
        let is_number = word.starts_with(|c: char| c.is_ascii_digit())
            && word.ends_with(|c: char| c.is_ascii_digit());
        if let Some((_, unit)) = self
            .peek()
            .filter(|(_, unit)| is_number && unit_nanos(unit).is_some())
        {
            value.push_str(unit);
            self.next += 1;
        }
        Ok((at, value))
    }

    /// Takes the value of a setting and reads it.
    fn value<T>(
        &mut self,
        column: usize,
        setting: &str,
        read: impl Fn(&str) -> Result<T, (String, String)>,
    ) -> Parsed<T> {
        let (at, value) = self.take_value(column, setting)?;
        read(&value).or_else(|(what, fix)| {
            error(at, format!("`{setting}` at column {column}: {what}"), fix)
        })
    }

    /// Takes a rate: `5/s`, `5 per second`, `10 in 30s`.
    fn rate(&mut self) -> Parsed<Rate> {
        let (column, first) = self.quantity("rate such as `5/s`")?;
        let mut text = first.to_owned();
        let is_word =
            |word: &str| word.eq_ignore_ascii_case("per") || word.eq_ignore_ascii_case("in");
        if let Some((at, _)) = self
            .peek()
            .filter(|(_, word)| !first.contains('/') && is_word(word))
        {
            self.next += 1;
            text.push('/');
            text.push_str(&self.take_value(at, "in")?.1);
        }
        let rate = text.parse::<Rate>();
        rate.or_else(|cause| error(column, format!("{cause}, at column {column}"), cause.hint()))
    }

    /// Takes the word that states how much.
    fn quantity(&mut self, what: &str) -> Parsed<(usize, &'a str)> {
        let Some((column, word)) = self.take() else {
            return error(
                self.end,
                format!("the limit lacks a quantity at column {}", self.end),
                format!("write a {what}"),
            );
        };
        if !self.has_algorithm && word.starts_with(char::is_alphabetic) {
            let names = GRAMMARS.map(|grammar| format!("`{}`", grammar.name));
            return error(
                column,
                format!("`{word}` at column {column} is not an algorithm"),
                format!("write {}, or a rate such as `5/s`", names.join(", ")),
            );
        }
        Ok((column, word))
    }
}

/// A value that can stand behind a setting.
fn example(setting: &str) -> &'static str {
    match setting {
        "burst" | "queue" => "10",
        "max keys" => "100000",
        _ => "30s",
    }
}

/// What is written behind the quantity.
#[derive(Default)]
struct Settings {
    burst: Option<Burst>,
    queue: Option<u64>,
    max_keys: Option<usize>,
    /// `tolerance` or `ttl`.
    span: Option<Span>,
    max_wait: Option<Span>,
    anchor: Option<Span>,
    is_strict: bool,
}

fn number(text: &str) -> Result<u64, (String, String)> {
    units(text).map_err(|error| (error.to_string(), error.hint()))
}

fn span(text: &str) -> Result<Span, (String, String)> {
    let span = text.parse::<Span>();
    span.map_err(|error| (error.to_string(), error.hint()))
}

fn burst(text: &str) -> Result<Burst, (String, String)> {
    let burst = text.parse::<Burst>();
    burst.map_err(|error| {
        let fix = "write a whole number such as `10`, or a span of credit such as `30s`";
        (error.to_string(), fix.to_owned())
    })
}

fn settings(words: &mut Words<'_>, grammar: &Grammar) -> Parsed<Settings> {
    let mut found = Settings::default();
    let mut seen = Vec::new();
    while let Some((column, word)) = words.peek() {
        let Some((column, setting)) = words.take_name(grammar.settings) else {
            let known: Vec<String> = grammar.settings.iter().map(|s| format!("`{s}`")).collect();
            return error(
                column,
                format!(
                    "`{word}` at column {column} is not a setting of a {}",
                    grammar.name
                ),
                format!("write {}", known.join(" or ")),
            );
        };
        if seen.contains(&setting) {
            let what = format!("`{setting}` at column {column} is written twice");
            return error(column, what, "remove one of the two");
        }
        seen.push(setting);
        match setting {
            "burst" => found.burst = Some(words.value(column, setting, burst)?),
            "queue" => found.queue = Some(words.value(column, setting, number)?),
            "max keys" => {
                let keys = words.value(column, setting, number)?;
                found.max_keys = Some(usize::try_from(keys).unwrap_or(usize::MAX));
            }
            "max wait" => found.max_wait = Some(words.value(column, setting, span)?),
            "anchor" => found.anchor = Some(words.value(column, setting, span)?),
            "strict" => found.is_strict = true,
            _ => found.span = Some(words.value(column, setting, span)?),
        }
    }
    Ok(found)
}

/// The value of a setting that the algorithm cannot do without.
fn required<T>(value: Option<T>, setting: &str, grammar: &Grammar, end: usize) -> Parsed<T> {
    value.map_or_else(
        || {
            error(
                end,
                format!("a {} needs a `{setting}`, at column {end}", grammar.name),
                format!("write one such as `{setting} {}`", example(setting)),
            )
        },
        Ok,
    )
}

impl FromStr for Limit {
    type Err = ParseLimitError;

    /// Reads a limit: `5/s burst 10`, `100/min`, `sliding log 3 per minute`, `rides: concurrency 20 ttl 30s`.
    ///
    /// [`Limit`] lists the algorithms and their settings. A rate alone is a token bucket whose burst is the units of the rate.
    fn from_str(text: &str) -> Result<Limit, ParseLimitError> {
        // No limit contains a colon, so a name may.
        let (name, start) = match text.rsplit_once(':') {
            Some((name, _)) => (name, name.len() + 1),
            None => ("", 0),
        };
        let mut words = Words::new(text, start);
        let start = words.peek().map_or(words.end, |(column, _)| column);
        let names = GRAMMARS.map(|grammar| grammar.name);
        let algorithm = words.take_name(&names);
        words.has_algorithm = algorithm.is_some();
        let grammar = algorithm.and_then(|(_, name)| GRAMMARS.iter().find(|g| g.name == name));
        let grammar = grammar.copied().unwrap_or(&TOKEN_BUCKET);
        let (algorithm, max_keys) = match grammar.name {
            "concurrency" => {
                let (column, quantity) = words.quantity("number such as `20`")?;
                let limit = number(quantity).or_else(|(what, fix)| {
                    error(column, format!("{what}, at column {column}"), fix)
                })?;
                let settings = settings(&mut words, grammar)?;
                let ttl = required(settings.span, "ttl", grammar, words.end)?;
                (Algorithm::Concurrency { limit, ttl }, settings.max_keys)
            }
            _ => {
                let rate = words.rate()?;
                let settings = settings(&mut words, grammar)?;
                let max_keys = settings.max_keys;
                (
                    by_rate(grammar, rate, &settings, words.end, start)?,
                    max_keys,
                )
            }
        };
        let limit = Limit::new(algorithm).or_else(|cause| invalid(start, &cause))?;
        let limit = max_keys.map_or(limit.clone(), |max_keys| limit.with_max_keys(max_keys));
        Ok(limit.with_name(name))
    }
}

fn invalid<T>(column: usize, cause: &LimitError) -> Parsed<T> {
    error(column, format!("{cause}, at column {column}"), cause.hint())
}

/// The algorithms whose quantity is a rate.
fn by_rate(
    grammar: &Grammar,
    rate: Rate,
    settings: &Settings,
    end: usize,
    start: usize,
) -> Parsed<Algorithm> {
    let (limit, window) = (rate.units(), rate.per());
    Ok(match grammar.name {
        "gcra" => Algorithm::Gcra {
            rate,
            tolerance: required(settings.span, "tolerance", grammar, end)?,
        },
        "leaky bucket" => Algorithm::LeakyBucket {
            rate,
            queue: required(settings.queue, "queue", grammar, end)?,
            max_wait: settings.max_wait,
        },
        "fixed window" => Algorithm::FixedWindow {
            limit,
            window,
            anchor: settings.anchor.unwrap_or(Span::ZERO),
        },
        "sliding log" => Algorithm::SlidingLog { limit, window },
        "sliding window" => Algorithm::SlidingWindow {
            limit,
            window,
            estimate: match settings.is_strict {
                true => Estimate::Strict,
                false => Estimate::Span,
            },
        },
        _ => Algorithm::TokenBucket {
            rate,
            burst: match settings.burst {
                None => limit,
                Some(burst) => burst.units(rate).or_else(|cause| invalid(start, &cause))?,
            },
        },
    })
}

impl fmt::Display for Limit {
    /// The text that [`Limit::from_str`] reads back as the same limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{}: ", self.name)?;
        }
        let in_window = |f: &mut fmt::Formatter<'_>, name, limit: u64, window: Span| {
            write!(f, "{name} {limit} in {window}")
        };
        match self.algorithm {
            Algorithm::TokenBucket { rate, burst } => {
                write!(f, "token bucket {rate} burst {burst}")?;
            }
            Algorithm::Gcra { rate, tolerance } => write!(f, "gcra {rate} tolerance {tolerance}")?,
            Algorithm::LeakyBucket {
                rate,
                queue,
                max_wait,
            } => {
                write!(f, "leaky bucket {rate} queue {queue}")?;
                max_wait.map_or(Ok(()), |wait| write!(f, " max wait {wait}"))?;
            }
            Algorithm::FixedWindow {
                limit,
                window,
                anchor,
            } => {
                in_window(f, "fixed window", limit, window)?;
                if !anchor.is_zero() {
                    write!(f, " anchor {anchor}")?;
                }
            }
            Algorithm::SlidingLog { limit, window } => in_window(f, "sliding log", limit, window)?,
            Algorithm::SlidingWindow {
                limit,
                window,
                estimate,
            } => {
                in_window(f, "sliding window", limit, window)?;
                if estimate == Estimate::Strict {
                    f.write_str(" strict")?;
                }
            }
            Algorithm::Concurrency { limit, ttl } => write!(f, "concurrency {limit} ttl {ttl}")?,
        }
        match self.max_keys == self.default_max_keys() {
            true => Ok(()),
            false => write!(f, " max keys {}", self.max_keys),
        }
    }
}

#[cfg(test)]
mod tests;
