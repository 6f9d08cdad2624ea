//! Parses arrivals: `0s`, `0s*11`, `1s-20s/1s`, `0s*3,cost=5,key=alice`.
//!
//! A word is a time or a range of times, with a number of arrivals at each, a cost and a key. Words are expanded
//! here, up to a bound, and sorted by time.

use std::io::{self, BufRead, Read};
use std::num::{IntErrorKind, ParseIntError};
use std::rc::Rc;

use tollgate::{Moment, Span};
use tollgate_config::suggest::suggest;

use crate::fault::{ArgumentError, Fault, Place, Stop};

/// Most arrivals of a run: a second of work, and some hundred megabytes.
pub(crate) const ARRIVALS_MAX: usize = 1_000_000;
/// The longest line of standard input. An arrival is a few dozen bytes; this leaves room for a key.
pub(crate) const LINE_MAX: usize = 4096;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Its time.
    pub(crate) at: Moment,
    /// Its cost.
    pub(crate) cost: u64,
    /// Its key; `None` if it is left out.
    pub(crate) key: Option<Rc<str>>,
    /// The index of the word that it was written in: rows of one word may be folded.
    pub(crate) word: usize,
}

/// What may follow a comma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `cost=5`.
    Cost,
    /// `key=alice`.
    Key,
}

impl Part {
    const ALL: [Part; 2] = [Part::Cost, Part::Key];

    /// The word before the `=`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Part::Cost => "cost",
            Part::Key => "key",
        }
    }

    /// The part with a value.
    pub(crate) const fn sample(self) -> &'static str {
        match self {
            Part::Cost => "cost=5",
            Part::Key => "key=alice",
        }
    }
}

/// The arrivals of these words, by time; those of the same time in the order in which they were written. A single
/// `-` reads the lines of `input`.
///
/// # Errors
/// A word that is no arrival, too many arrivals, or an `input` that cannot be read.
pub(crate) fn read(words: &[String], input: &mut impl BufRead) -> Result<Vec<Arrival>, Stop> {
    let mut arrivals = Vec::new();
    match words {
        [dash] if dash == "-" => lines(input, &mut arrivals)?,
        words => {
            for (index, word) in words.iter().enumerate() {
                let label = || format!("ARRIVALS, word {}", index + 1);
                if word == "-" {
                    return Err(ArgumentError::DashNotAlone
                        .at(Place::within(label(), word, word))
                        .into());
                }
                Group::parse(word, &label)?.expand(index, &mut arrivals, &label)?;
            }
        }
    }
    // Stable, so that those of the same time stay as they were written.
    arrivals.sort_by_key(|arrival: &Arrival| arrival.at);
    Ok(arrivals)
}

/// Reports a field of the limit among the arrivals: the quotes around the limit are missing.
///
/// # Errors
/// A word that begins with a letter and has a colon, which no arrival does.
pub(crate) fn check_quotes(words: &[String]) -> Result<(), Fault> {
    let is_field = |word: &str| word.starts_with(char::is_alphabetic) && word.contains(':');
    match words.iter().enumerate().find(|(_, word)| is_field(word)) {
        None => Ok(()),
        Some((index, word)) => {
            let label = format!("ARRIVALS, word {}", index + 1);
            Err(ArgumentError::Unquoted { word: word.clone() }.at(Place::within(label, word, word)))
        }
    }
}

fn lines(input: &mut impl BufRead, arrivals: &mut Vec<Arrival>) -> Result<(), Stop> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        bounded_line(input, &mut line).map_err(Stop::Read)?;
        if line.is_empty() {
            break;
        }
        let label = || format!("standard input, line {number}");
        let seen = String::from_utf8_lossy(line.get(..40).unwrap_or(&line));
        if line.len() > LINE_MAX {
            return Err(ArgumentError::LongLine
                .at(Place::within(label(), &seen, &seen))
                .into());
        }
        let Ok(text) = std::str::from_utf8(&line) else {
            let seen = seen.trim_end();
            return Err(ArgumentError::NotUtf8
                .at(Place::within(label(), seen, seen))
                .into());
        };
        let text = text.trim();
        if !text.is_empty() && !text.starts_with('#') {
            Group::parse(text, &label)?.expand(number, arrivals, &label)?;
        }
    }
    Ok(())
}

/// Reads a line, or enough of it to show that it is too long.
fn bounded_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    input.take(LINE_MAX as u64 + 1).read_until(b'\n', line)
}

/// The arrivals of one word.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group<'a> {
    word: &'a str,
    from: Span,
    /// Time between two of the range.
    step: Span,
    /// Times in the range.
    steps: u64,
    /// Arrivals at each.
    times: u64,
    cost: u64,
    key: Option<Rc<str>>,
}

impl<'a> Group<'a> {
    fn parse(word: &'a str, label: &dyn Fn() -> String) -> Result<Group<'a>, Fault> {
        let at = |part: &str| Place::within(label(), word, part);
        let mut parts = word.split(',');
        let when = parts.next().unwrap_or_default();
        let (when, times) = match when.split_once('*') {
            Some((when, times)) => (
                when,
                self::times(times).map_err(|wrong| wrong.at(at(times)))?,
            ),
            None => (when, 1),
        };
        let (from, step, steps) = range(when, &at)?;
        let mut group = Group {
            word,
            from,
            step,
            steps,
            times,
            cost: 1,
            key: None,
        };
        let mut seen = Vec::new();
        for text in parts {
            let (part, value) = part(text).map_err(|wrong| wrong.at(at(text)))?;
            if seen.contains(&part) {
                return Err(ArgumentError::Twice {
                    option: part.name(),
                }
                .at(at(text)));
            }
            seen.push(part);
            match part {
                Part::Cost => group.cost = cost(value).map_err(|wrong| wrong.at(at(value)))?,
                Part::Key => group.key = Some(value.into()),
            }
        }
        Ok(group)
    }

    fn expand(
        &self,
        word: usize,
        arrivals: &mut Vec<Arrival>,
        label: &dyn Fn() -> String,
    ) -> Result<(), Fault> {
        let room = (ARRIVALS_MAX - arrivals.len()) as u64;
        if self
            .steps
            .checked_mul(self.times)
            .is_none_or(|all| all > room)
        {
            return Err(ArgumentError::TooMany.at(Place::within(label(), self.word, self.word)));
        }
        for i in 0..self.steps {
            // Within the range, so within the clock.
            let at = Moment::ORIGIN
                .plus(self.from)
                .plus(Span::from_nanos(self.step.as_nanos() * i));
            for _ in 0..self.times {
                arrivals.push(Arrival {
                    at,
                    cost: self.cost,
                    key: self.key.clone(),
                    word,
                });
            }
        }
        Ok(())
    }
}

/// `100ms`, or `1s-20s/1s`: the first time, the time between two, and how many times.
fn range(text: &str, at: &dyn Fn(&str) -> Place) -> Result<(Span, Span, u64), Fault> {
    let time = |text: &str| -> Result<Span, Fault> {
        text.parse()
            .map_err(|cause| ArgumentError::Span { cause }.at(at(text)))
    };
    let (span, step) = match (text.split_once('/'), text.contains('-')) {
        (None, false) => return Ok((time(text)?, Span::ZERO, 1)),
        (None, true) => return Err(ArgumentError::NoStep { range: text.into() }.at(at(text))),
        (Some(_), false) => return Err(ArgumentError::NoRange { word: text.into() }.at(at(text))),
        (Some(parts), true) => parts,
    };
    let Some((from, to)) = span.split_once('-') else {
        return Err(ArgumentError::NoRange { word: text.into() }.at(at(text)));
    };
    let (first, last, every) = (time(from)?, time(to)?, time(step)?);
    if every.is_zero() {
        return Err(ArgumentError::ZeroStep.at(at(step)));
    }
    if last < first {
        return Err(ArgumentError::Backwards {
            from: from.into(),
            to: to.into(),
        }
        .at(at(span)));
    }
    let steps = (last.as_nanos() - first.as_nanos()) / every.as_nanos();
    Ok((first, every, steps.saturating_add(1)))
}

fn times(text: &str) -> Result<u64, ArgumentError> {
    match whole(text) {
        Ok(0) => Err(ArgumentError::ZeroTimes),
        Ok(times) => Ok(times),
        Err(error) => Err(match error.kind() {
            IntErrorKind::PosOverflow => ArgumentError::TooMany,
            _ => ArgumentError::Times { word: text.into() },
        }),
    }
}

fn cost(text: &str) -> Result<u64, ArgumentError> {
    whole(text).map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow => ArgumentError::TooLarge { word: text.into() },
        _ => ArgumentError::Cost { word: text.into() },
    })
}

/// A whole number, with `_` between digits if it is long.
fn whole(text: &str) -> Result<u64, ParseIntError> {
    text.replace('_', "").parse()
}

fn part(text: &str) -> Result<(Part, &str), ArgumentError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let Some(part) = Part::ALL.into_iter().find(|part| part.name() == name) else {
        let near = suggest(name, Part::ALL.map(Part::name));
        return Err(ArgumentError::UnknownPart {
            word: text.into(),
            near,
        });
    };
    if value.is_empty() {
        Err(ArgumentError::PartNoValue { part })
    } else {
        Ok((part, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Vec<Arrival> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        read(&words, &mut io::empty()).unwrap()
    }

    fn millis(arrivals: &[Arrival]) -> Vec<u64> {
        arrivals
            .iter()
            .map(|arrival| arrival.at.as_nanos() / 1_000_000)
            .collect()
    }

    #[test]
    fn times_ranges_and_repetitions_are_parsed() {
        assert_eq!(millis(&of(&["0s", "1.5s"])), [0, 1500]);
        assert_eq!(millis(&of(&["0s*3"])), [0, 0, 0]);
        assert_eq!(millis(&of(&["1s-3s/1s"])), [1000, 2000, 3000]);
        assert_eq!(
            millis(&of(&["1s-3500ms/1s*2"])),
            [1000, 1000, 2000, 2000, 3000, 3000]
        );
        assert_eq!(millis(&of(&["5s-5s/1s"])), [5000]);
    }

    #[test]
    fn costs_and_keys_follow_in_any_order() {
        let arrivals = of(&["0s,key=alice,cost=5", "0s,cost=0", "0s,key=a=b"]);
        let parts: Vec<_> = arrivals
            .iter()
            .map(|a| (a.cost, a.key.as_deref()))
            .collect();
        assert_eq!(parts, [(5, Some("alice")), (0, None), (1, Some("a=b"))]);
    }

    #[test]
    fn arrivals_come_in_the_order_of_their_times_and_then_of_their_words() {
        let arrivals = of(&["2s", "0s-2s/1s,key=a", "0s"]);
        assert_eq!(millis(&arrivals), [0, 0, 1000, 2000, 2000]);
        assert_eq!(
            arrivals.iter().map(|a| a.word).collect::<Vec<_>>(),
            [1, 2, 1, 0, 1]
        );
    }

    #[test]
    fn as_many_as_the_bound_are_read_and_not_one_more() {
        assert_eq!(of(&["0s*999_999", "1s"]).len(), ARRIVALS_MAX);
        for words in [
            vec!["0s*999999", "1s*2"],
            vec!["0s*99999999999999999999"],
            vec!["0s-584w/1ns*9"],
        ] {
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            let Err(Stop::Fault(fault)) = read(&words, &mut io::empty()) else {
                panic!("{words:?} are too many");
            };
            assert_eq!(fault.wrong, ArgumentError::TooMany);
        }
    }

    #[test]
    fn lines_are_read_up_to_their_bound_and_not_further() {
        let dash = ["-".to_owned()];
        let long = format!("0s,key={}", "k".repeat(LINE_MAX - 7));
        assert_eq!(read(&dash, &mut long.as_bytes()).unwrap().len(), 1);
        let mut longer = long.as_bytes().chain(io::repeat(b'k'));
        let Err(Stop::Fault(fault)) = read(&dash, &mut io::BufReader::new(&mut longer)) else {
            panic!("an endless line is too long");
        };
        assert_eq!(fault.wrong, ArgumentError::LongLine);
    }

    #[test]
    fn a_range_may_reach_the_end_of_the_clock() {
        let arrivals = of(&["0ns-18446744073709551615ns/18446744073709551615ns"]);
        assert_eq!(arrivals[1].at, Moment::from_nanos(u64::MAX));
    }
}
