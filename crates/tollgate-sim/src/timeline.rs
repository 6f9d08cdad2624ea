//! Golden timelines: what a limiter must answer, row by row.
//!
//! # Format
//!
//! A comma-separated file with the header
//!
//! ```text
//! case,step,op,t_ns,key,cost,arg,allowed,remaining,retry_after_ns,reset_after_ns,delay_ns,why
//! ```
//!
//! A row whose `op` is `new` opens a case: its `arg` names the algorithm, then its parameters as
//! words, most of them `name=value`. The rows after it, until the next `new`, are its steps. The six
//! last cells are what is expected; an empty one asserts nothing.
//!
//! Fields hold no quotes and no commas, so a line is split at its commas and nothing else. A quote is
//! an error and not a character: were the format ever to grow quoting, this reader must not guess.
//!
//! # What it does not know
//!
//! What any operation means. That is for [`crate::replay`] and its subjects.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::num::ParseIntError;
use std::path::{Path, PathBuf};

/// The first line of every timeline.
pub const HEADER: &str = "case,step,op,t_ns,key,cost,arg,\
                          allowed,remaining,retry_after_ns,reset_after_ns,delay_ns,why";

/// One file of cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// The name of the file, without its folder.
    pub name: String,
    /// The cases in the order of the file.
    pub cases: Vec<Case>,
}

/// One limiter and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What the case is called in its file.
    pub name: String,
    /// The first word of the `new` row.
    pub algorithm: String,
    /// The words of the form `name=value` after the algorithm.
    pub params: BTreeMap<String, String>,
    /// All words after the algorithm, as written: their order matters where limits are configured,
    /// and some (`A:1`) are no `name=value`.
    pub words: Vec<String>,
    /// The rows after `new`.
    pub steps: Vec<Step>,
}

/// One operation and what is expected of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number in the file; the `new` row is number zero.
    pub number: u64,
    /// The operation.
    pub op: String,
    /// When it happens.
    pub t_ns: Option<u64>,
    /// Whose state it concerns, or which lease.
    pub key: String,
    /// What it costs; an empty cell is zero.
    pub cost: u64,
    /// Whether the cost was written at all.
    pub is_cost_given: bool,
    /// The words of the argument; one without `=` has an empty value.
    pub args: BTreeMap<String, String>,
    /// What must be observed.
    pub expect: Expect,
}

/// What a step must answer; an empty cell asserts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// One if it passed, zero if not; for a burst, how many passed.
    pub allowed: Option<u64>,
    /// Units left afterwards.
    pub remaining: Option<u64>,
    /// Wait until the request would pass; -1 if it never will. Wider than a `u64` for that one value.
    pub retry_after: Option<i128>,
    /// Wait until the limiter is as good as new.
    pub reset_after: Option<u64>,
    /// Wait of a request that passed.
    pub delay: Option<u64>,
    /// The reason or the result in words.
    pub why: Option<String>,
}

/// Why a file is no timeline. Every variant says which file, and which line where there is one.
#[derive(Debug)]
#[non_exhaustive]
pub enum TimelineError {
    /// The file could not be read.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The first line is not [`HEADER`].
    Header {
        /// The file.
        file: String,
    },
    /// A line has a quote in it.
    Quote {
        /// The file.
        file: String,
        /// The line, from one.
        line: usize,
    },
    /// A line has too few or too many fields.
    Fields {
        /// The file.
        file: String,
        /// The line, from one.
        line: usize,
        /// How many it has.
        found: usize,
    },
    /// A cell that must be a number is none, or one too large.
    Number {
        /// The file.
        file: String,
        /// The line, from one.
        line: usize,
        /// The column.
        column: &'static str,
        /// What the cell holds.
        text: String,
        /// What is wrong with it.
        source: ParseIntError,
    },
    /// A `new` row names no algorithm.
    NoAlgorithm {
        /// The file.
        file: String,
        /// The line, from one.
        line: usize,
    },
    /// A parameter is given twice in one argument.
    Repeated {
        /// The file.
        file: String,
        /// The line, from one.
        line: usize,
        /// Its name.
        name: String,
    },
    /// A step stands in a case that no `new` row has opened just before.
    NotOpened {
        /// The file.
        file: String,
        /// The line, from one.
        line: usize,
        /// The case it claims.
        case: String,
    },
}

impl fmt::Display for TimelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, source } => {
                write!(f, "{}: cannot be read: {source}", file.display())
            }
            Self::Header { file } => write!(f, "{file}:1: the header must be `{HEADER}`"),
            Self::Quote { file, line } => {
                write!(f, "{file}:{line}: quotes are not part of the format")
            }
            Self::Fields { file, line, found } => {
                write!(
                    f,
                    "{file}:{line}: {found} fields where {COLUMNS} are needed"
                )
            }
            Self::Number {
                file,
                line,
                column,
                text,
                source,
            } => {
                write!(f, "{file}:{line}: `{column}` is `{text}`: {source}")
            }
            Self::NoAlgorithm { file, line } => {
                write!(f, "{file}:{line}: `new` names no algorithm")
            }
            Self::Repeated { file, line, name } => {
                write!(f, "{file}:{line}: `{name}` is given twice")
            }
            Self::NotOpened { file, line, case } => {
                write!(
                    f,
                    "{file}:{line}: case `{case}` is not opened by a `new` row before it"
                )
            }
        }
    }
}

impl std::error::Error for TimelineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } => Some(source),
            Self::Number { source, .. } => Some(source),
            _ => None,
        }
    }
}

const COLUMNS: usize = 13;

impl Timeline {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is not of the format.
    pub fn read(path: &Path) -> Result<Self, TimelineError> {
        let text = fs::read_to_string(path).map_err(|source| TimelineError::Unreadable {
            file: path.to_owned(),
            source,
        })?;
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        Self::parse(&name, &text)
    }

    /// Reads `text`, which errors will call `name`.
    ///
    /// # Errors
    ///
    /// If it is not of the format.
    pub fn parse(name: &str, text: &str) -> Result<Self, TimelineError> {
        let mut lines = text.lines();
        if lines.next().map(str::trim_end) != Some(HEADER) {
            return Err(TimelineError::Header {
                file: name.to_owned(),
            });
        }
        let mut cases: Vec<Case> = Vec::new();
        for (i, text) in lines.enumerate() {
            // Counted from one, and the header is the first.
            let line = Line {
                file: name,
                number: i + 2,
            };
            if text.trim().is_empty() {
                continue;
            }
            let row = line.split(text)?;
            if row.op == "new" {
                cases.push(line.open(&row)?);
            } else {
                let step = line.step(&row)?;
                match cases.last_mut() {
                    Some(case) if case.name == row.case => case.steps.push(step),
                    _ => return Err(line.not_opened(row.case)),
                }
            }
        }
        Ok(Self {
            name: name.to_owned(),
            cases,
        })
    }
}

/// Where an error is.
#[derive(Clone, Copy)]
struct Line<'a> {
    file: &'a str,
    number: usize,
}

/// The cells of one line.
struct Row<'a> {
    case: &'a str,
    step: &'a str,
    op: &'a str,
    t_ns: &'a str,
    key: &'a str,
    cost: &'a str,
    arg: &'a str,
    expect: [&'a str; 6],
}

impl Line<'_> {
    fn split<'a>(&self, text: &'a str) -> Result<Row<'a>, TimelineError> {
        if text.contains('"') {
            return Err(TimelineError::Quote {
                file: self.file.to_owned(),
                line: self.number,
            });
        }
        let cells: Vec<&str> = text
            .trim_end_matches('\r')
            .split(',')
            .map(str::trim)
            .collect();
        match cells[..] {
            [case, step, op, t_ns, key, cost, arg, ref expect @ ..] => {
                match <[&str; 6]>::try_from(expect) {
                    Ok(expect) => Ok(Row {
                        case,
                        step,
                        op,
                        t_ns,
                        key,
                        cost,
                        arg,
                        expect,
                    }),
                    Err(_) => Err(self.fields(cells.len())),
                }
            }
            _ => Err(self.fields(cells.len())),
        }
    }

    fn open(&self, row: &Row<'_>) -> Result<Case, TimelineError> {
        let mut words = row.arg.split_whitespace().map(str::to_owned);
        let Some(algorithm) = words.next() else {
            return Err(TimelineError::NoAlgorithm {
                file: self.file.to_owned(),
                line: self.number,
            });
        };
        let words: Vec<String> = words.collect();
        let mut params = BTreeMap::new();
        for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
            self.insert(&mut params, name, value)?;
        }
        Ok(Case {
            name: row.case.to_owned(),
            algorithm,
            params,
            words,
            steps: Vec::new(),
        })
    }

    fn step(&self, row: &Row<'_>) -> Result<Step, TimelineError> {
        let mut args = BTreeMap::new();
        for word in row.arg.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            self.insert(&mut args, name, value)?;
        }
        let [allowed, remaining, retry_after, reset_after, delay, why] = row.expect;
        Ok(Step {
            number: self.number("step", row.step)?.unwrap_or(0),
            op: row.op.to_owned(),
            t_ns: self.number("t_ns", row.t_ns)?,
            key: row.key.to_owned(),
            cost: self.number("cost", row.cost)?.unwrap_or(0),
            is_cost_given: !row.cost.is_empty(),
            args,
            expect: Expect {
                allowed: self.number("allowed", allowed)?,
                remaining: self.number("remaining", remaining)?,
                retry_after: self.number("retry_after_ns", retry_after)?,
                reset_after: self.number("reset_after_ns", reset_after)?,
                delay: self.number("delay_ns", delay)?,
                why: (!why.is_empty()).then(|| why.to_owned()),
            },
        })
    }

    fn insert(
        &self,
        into: &mut BTreeMap<String, String>,
        name: &str,
        value: &str,
    ) -> Result<(), TimelineError> {
        match into.insert(name.to_owned(), value.to_owned()) {
            None => Ok(()),
            Some(_) => Err(TimelineError::Repeated {
                file: self.file.to_owned(),
                line: self.number,
                name: name.to_owned(),
            }),
        }
    }

    fn number<N: std::str::FromStr<Err = ParseIntError>>(
        &self,
        column: &'static str,
        text: &str,
    ) -> Result<Option<N>, TimelineError> {
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .map(Some)
            .map_err(|source| TimelineError::Number {
                file: self.file.to_owned(),
                line: self.number,
                column,
                text: text.to_owned(),
                source,
            })
    }

    fn fields(&self, found: usize) -> TimelineError {
        TimelineError::Fields {
            file: self.file.to_owned(),
            line: self.number,
            found,
        }
    }

    fn not_opened(&self, case: &str) -> TimelineError {
        TimelineError::NotOpened {
            file: self.file.to_owned(),
            line: self.number,
            case: case.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rows: &str) -> Result<Timeline, TimelineError> {
        Timeline::parse("t.csv", &format!("{HEADER}\n{rows}"))
    }

    fn complaint(rows: &str) -> String {
        parse(rows)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn a_row_becomes_a_step_and_empty_cells_assert_nothing() -> Result<(), TimelineError> {
        let timeline = parse(
            "a,0,new,,,,sfq depth=2 A:4 B:2,,,,,,\r\n\
             a,1,check,18446744073709551615,k,7,v_ns=5 odd,0,3,-1,,0,impossible\r\n\
             a,2,dispatch,,,,,,,,,,1:A\n\n\
             b,0,new,,,,token_bucket cap=1,,,,,,\n",
        )?;
        let [a, b] = &timeline.cases[..] else {
            return Err(TimelineError::Header { file: "".into() });
        };
        assert_eq!(
            (a.algorithm.as_str(), a.words.join(" ").as_str()),
            ("sfq", "depth=2 A:4 B:2")
        );
        assert_eq!(
            a.params,
            BTreeMap::from([("depth".to_owned(), "2".to_owned())])
        );
        assert_eq!((b.name.as_str(), b.steps.len()), ("b", 0));
        let args = [("odd", ""), ("v_ns", "5")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(
            a.steps[0],
            Step {
                number: 1,
                op: "check".to_owned(),
                t_ns: Some(u64::MAX),
                key: "k".to_owned(),
                cost: 7,
                is_cost_given: true,
                args: args.into(),
                expect: Expect {
                    allowed: Some(0),
                    remaining: Some(3),
                    retry_after: Some(-1),
                    reset_after: None,
                    delay: Some(0),
                    why: Some("impossible".to_owned()),
                },
            }
        );
        assert_eq!((a.steps[1].t_ns, a.steps[1].cost), (None, 0));
        Ok(())
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        let new = "a,0,new,,,,x,,,,,,\n";
        for (rows, expected) in [
            (
                "a,0,new,,,,\"x\",,,,,,",
                "t.csv:2: quotes are not part of the format",
            ),
            (
                "a,0,new,,,,x,,,,,",
                "t.csv:2: 12 fields where 13 are needed",
            ),
            ("a,0,new", "t.csv:2: 3 fields where 13 are needed"),
            ("a,0,new,,,,,,,,,,", "t.csv:2: `new` names no algorithm"),
            ("a,0,new,,,,x n=1 n=2,,,,,,", "t.csv:2: `n` is given twice"),
            (
                "a,1,check,0,k,1,,,,,,,",
                "t.csv:2: case `a` is not opened by a `new` row before it",
            ),
            (
                &format!("{new}a,1,check,-1,k,1,,,,,,,"),
                "t.csv:3: `t_ns` is `-1`: invalid digit found in string",
            ),
            (
                &format!("{new}b,1,check,0,k,1,,,,,,,"),
                "t.csv:3: case `b` is not opened by a `new` row before it",
            ),
        ] {
            assert_eq!(complaint(rows), expected);
        }
    }

    #[test]
    fn a_file_without_the_header_is_refused() {
        assert!(matches!(
            Timeline::parse("t.csv", "case,step\n"),
            Err(TimelineError::Header { .. })
        ));
        assert!(matches!(
            Timeline::parse("t.csv", ""),
            Err(TimelineError::Header { .. })
        ));
    }
}
