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
//! # What it does not know
//!
//! What any operation means. That is for [`crate::replay`] and its subjects.

use crate::oracle::{OracleDecision, OracleVerdict};
use crate::parameters::flag;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The first line of every timeline.
pub const HEADER: &str = "case,step,op,t_ns,key,cost,arg,\
                          allowed,remaining,retry_after_ns,reset_after_ns,delay_ns,why";

/// One file of cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// The name of the file, without its folder.
    pub name: String,
    /// The cases in the order of the file.
    pub cases: Vec<TimelineCase>,
}

/// One limiter and its operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineCase {
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
    pub steps: Vec<TimelineStep>,
}

/// One operation and what is expected of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineStep {
    /// The number in the file; the `new` row is number zero.
    pub number: u64,
    /// The name of the operation.
    pub op: String,
    /// When it happens.
    pub t_ns: Option<u64>,
    /// The key or, for permits, the holder.
    pub key: String,
    /// What it costs.
    pub cost: Option<u64>,
    /// The words of the argument; one without `=` has an empty value.
    pub args: BTreeMap<String, String>,
    /// What must be observed.
    pub expect: Observation,
}

/// An operation with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are those of the timelines")]
pub enum Operation {
    Check {},
    Peek {},
    Burst {
        count: u64,
    },
    BurstQuiet {
        count: u64,
    },
    Refund {
        issued_ns: u64,
    },
    Late {},
    SetCap {
        cap: u64,
    },
    SetRate {
        n: u64,
        p_ns: u64,
    },
    Acquire {},
    Renew {},
    Release {},
    Sample {
        rtt_ns: u64,
        inflight: u32,
        #[serde(deserialize_with = "flag")]
        drop: bool,
    },
    Enqueue {},
    Dispatch {},
    Complete {},
}

/// What a step must answer, or did: an empty cell asserts nothing, or is not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Observation {
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

impl From<OracleDecision> for Observation {
    fn from(answer: OracleDecision) -> Self {
        let (allowed, retry_after, delay, why) = match answer.verdict {
            OracleVerdict::Pass { delay } => (1, 0, delay, None),
            OracleVerdict::Refuse { retry_after } => (0, i128::from(retry_after), 0, None),
            OracleVerdict::Never => (0, -1, 0, Some("impossible".to_owned())),
        };
        Self {
            allowed: Some(allowed),
            remaining: Some(answer.remaining),
            retry_after: Some(retry_after),
            reset_after: Some(answer.reset_after),
            delay: Some(delay),
            why,
        }
    }
}

/// A file that is no timeline: which file, which line, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineError(String);

impl fmt::Display for TimelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TimelineError {}

/// The cells of one line, by position.
#[derive(Deserialize)]
struct Row {
    case: String,
    step: Option<u64>,
    op: String,
    t_ns: Option<u64>,
    key: String,
    cost: Option<u64>,
    arg: String,
    expect: Observation,
}

impl Timeline {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is not of the format.
    pub fn read(path: &Path) -> Result<Self, TimelineError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            TimelineError(format!("{}: cannot be read: {error}", path.display()))
        })?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self::parse(&name.to_string_lossy(), &text)
    }

    /// Reads `text`, which errors will call `name`.
    ///
    /// # Errors
    ///
    /// If it is not of the format.
    pub fn parse(name: &str, text: &str) -> Result<Self, TimelineError> {
        let wrong = |what: &dyn fmt::Display| TimelineError(format!("{name}: {what}"));
        let mut cases: Vec<TimelineCase> = Vec::new();
        // By position, because a row holds a struct; the header is checked and skipped by hand.
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let mut records = reader.records();
        let header = records.next().transpose().map_err(|error| wrong(&error))?;
        if !header.is_some_and(|header| header.iter().eq(HEADER.split(','))) {
            return Err(wrong(&format_args!("the header must be `{HEADER}`")));
        }
        for record in records {
            let record = record.map_err(|error| wrong(&error))?;
            let row: Row = record.deserialize(None).map_err(|error| wrong(&error))?;
            let line = record.position().map_or(0, csv::Position::line);
            let wrong = |what: &str| wrong(&format_args!("line {line}: {what}"));
            if row.op == "new" {
                cases.push(row.open().map_err(|what| wrong(&what))?);
                continue;
            }
            match cases.last_mut() {
                Some(case) if case.name == row.case => {
                    case.steps.push(row.step().map_err(|what| wrong(&what))?);
                }
                _ => {
                    let what = format!("case `{}` has no `new` row before it", row.case);
                    return Err(wrong(&what));
                }
            }
        }
        Ok(Self {
            name: name.to_owned(),
            cases,
        })
    }
}

impl Row {
    fn open(self) -> Result<TimelineCase, String> {
        let mut words = self.arg.split_whitespace().map(str::to_owned);
        let algorithm = words.next().ok_or("`new` names no algorithm")?;
        let words: Vec<String> = words.collect();
        let named = words.iter().filter_map(|word| word.split_once('='));
        Ok(TimelineCase {
            name: self.case,
            algorithm,
            params: map_of(named)?,
            words,
            steps: Vec::new(),
        })
    }

    fn step(self) -> Result<TimelineStep, String> {
        let words = self.arg.split_whitespace();
        Ok(TimelineStep {
            number: self.step.unwrap_or(0),
            op: self.op,
            t_ns: self.t_ns,
            key: self.key,
            cost: self.cost,
            args: map_of(words.map(|word| word.split_once('=').unwrap_or((word, ""))))?,
            expect: self.expect,
        })
    }
}

fn map_of<'a>(
    words: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<BTreeMap<String, String>, String> {
    let mut map = BTreeMap::new();
    for (name, value) in words {
        if map.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(format!("`{name}` is given twice"));
        }
    }
    Ok(map)
}

impl TimelineStep {
    /// The operation and its arguments.
    ///
    /// # Errors
    ///
    /// If there is no such operation, or an argument is missing, malformed or unknown.
    pub fn operation(&self) -> Result<Operation, String> {
        numbers_of(&self.op, &self.args)
    }

    /// The moment, which most operations need.
    ///
    /// # Errors
    ///
    /// If the cell is empty.
    pub fn time(&self) -> Result<u64, String> {
        self.t_ns
            .ok_or_else(|| format!("`{}` needs a time", self.op))
    }

    /// The error of a subject that does not have this operation.
    pub fn unsupported(&self) -> String {
        format!("there is no `{}` for this algorithm", self.op)
    }
}

/// The variant `name` with these numbers as its fields.
pub(crate) fn numbers_of<T: DeserializeOwned>(
    name: &str,
    words: &BTreeMap<String, String>,
) -> Result<T, String> {
    let mut numbers = serde_json::Map::new();
    for (name, text) in words {
        let number: u64 = text
            .parse()
            .map_err(|_| format!("`{name}` is `{text}`, which is no such number"))?;
        numbers.insert(name.clone(), number.into());
    }
    let value = serde_json::json!({ name: numbers });
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rows: &str) -> Result<Timeline, TimelineError> {
        Timeline::parse("t.csv", &format!("{HEADER}\n{rows}"))
    }

    #[test]
    fn a_row_becomes_a_step_and_empty_cells_assert_nothing() {
        let timeline = parse(
            "a,0,new,,,,sfq depth=2 A:4 B:2,,,,,,\r\n\
             a,1,check,18446744073709551615,k,7,v_ns=5 odd,0,3,-1,,0,impossible\r\n\
             a,2,dispatch,,,,,,,,,,1:A\n\n\
             b,0,new,,,,token_bucket cap=1,,,,,,\n",
        )
        .unwrap();
        let [a, b] = &timeline.cases[..] else {
            panic!("{timeline:?}");
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
            TimelineStep {
                number: 1,
                op: "check".to_owned(),
                t_ns: Some(u64::MAX),
                key: "k".to_owned(),
                cost: Some(7),
                args: args.into(),
                expect: Observation {
                    allowed: Some(0),
                    remaining: Some(3),
                    retry_after: Some(-1),
                    reset_after: None,
                    delay: Some(0),
                    why: Some("impossible".to_owned()),
                },
            }
        );
        assert_eq!((a.steps[1].t_ns, a.steps[1].cost), (None, None));
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        let new = "a,0,new,,,,x,,,,,,\n";
        for (rows, line, what) in [
            ("a,0,new,,,,x,,,,,".to_owned(), "line: 2", "12 fields"),
            ("a,0,new".to_owned(), "line: 2", "3 fields"),
            (
                "a,0,new,,,,,,,,,,".to_owned(),
                "line 2",
                "`new` names no algorithm",
            ),
            (
                "a,0,new,,,,x n=1 n=2,,,,,,".to_owned(),
                "line 2",
                "`n` is given twice",
            ),
            (
                "a,1,check,0,k,1,,,,,,,".to_owned(),
                "line 2",
                "case `a` has no `new` row before it",
            ),
            (
                format!("{new}a,1,check,-1,k,1,,,,,,,"),
                "line: 3",
                "invalid digit found in string",
            ),
            (
                format!("{new}b,1,check,0,k,1,,,,,,,"),
                "line 3",
                "case `b` has no `new` row before it",
            ),
        ] {
            let error = parse(&rows).unwrap_err().to_string();
            assert!(error.starts_with("t.csv: "), "{error}");
            assert!(error.contains(line) && error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_file_without_the_header_is_refused() {
        for text in ["case,step\n", ""] {
            let error = Timeline::parse("t.csv", text).unwrap_err().to_string();
            assert!(error.contains("the header must be"), "{error}");
        }
    }
}
