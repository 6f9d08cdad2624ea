//! Errors in arguments: what is wrong, where, and how to fix it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use tollgate::LimitError;
use tollgate::SpanError;
use tollgate_server::RunError;

use crate::arrivals::{ARRIVALS_MAX, LINE_MAX, Part};

/// An error that ends the program.
#[derive(Debug)]
pub(crate) enum Stop {
    /// An error in an argument.
    Fault(Fault),
    /// Standard input cannot be read.
    Read(io::Error),
    /// A file cannot be read.
    File {
        /// Its name, as typed.
        name: String,
        /// Why.
        cause: io::Error,
    },
    /// Standard output cannot be written.
    Write(io::Error),
    /// Errors in the limit of `tollgate try`.
    Limit(Box<tollgate_config::Problems>),
    /// Errors in the policy.
    Policy(Box<tollgate_config::Problems>),
    /// A text that has its own hint.
    Plain(String),
    /// What a command found after it ran, with its own hint.
    Found(String),
    /// Another error.
    Other {
        /// What is wrong.
        what: String,
        /// How to fix it.
        hint: String,
    },
}

impl Stop {
    /// 1 for what a command found, 2 for what kept it from running.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Stop::Found(_) => ExitCode::from(1),
            _ => ExitCode::from(2),
        }
    }

    /// Why a server did not start. A taken port names the flag that changes it.
    pub(crate) fn start(error: &RunError) -> Stop {
        let RunError::Bind {
            port,
            address,
            cause,
        } = error
        else {
            return Stop::Plain(error.to_string());
        };
        let flag = match *port {
            "http" | "gateway" => "--listen",
            "rls" => "--rls",
            "resp" => "--resp",
            "admin" => "--admin",
            _ => return Stop::Plain(error.to_string()),
        };
        if cause.kind() != io::ErrorKind::AddrInUse {
            return Stop::Plain(error.to_string());
        }
        let port = address.port();
        let next = port.checked_add(1).unwrap_or(port - 1);
        Stop::Other {
            what: format!("cannot listen on {address}: {cause}"),
            hint: format!(
                "stop the process that listens there, or choose another port with `{flag} {}`",
                SocketAddr::new(address.ip(), next)
            ),
        }
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl fmt::Display for Stop {
    /// What goes to standard error, with the line end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Fault(fault) => {
                writeln!(f, "error: {}", fault.wrong)?;
                if let Some(place) = &fault.place {
                    write!(f, "{place}")?;
                }
                writeln!(f, "hint: {}", fault.wrong.hint())
            }
            Stop::Read(e) => {
                writeln!(f, "error: standard input cannot be read: {e}")?;
                writeln!(f, "hint: write the arrivals as arguments instead of `-`")
            }
            Stop::File { name, cause } => {
                writeln!(f, "error: `{}` cannot be read: {cause}", shown(name))?;
                writeln!(
                    f,
                    "hint: name a file that exists and that this process may read"
                )
            }
            Stop::Limit(problems) | Stop::Policy(problems) => write!(f, "{problems}"),
            // An invalid policy begins with its first error.
            Stop::Plain(text) | Stop::Found(text) if text.starts_with("error: ") => {
                writeln!(f, "{}", text.trim_end())
            }
            Stop::Plain(text) | Stop::Found(text) => writeln!(f, "error: {}", text.trim_end()),
            Stop::Other { what, hint } => {
                writeln!(f, "error: {what}")?;
                writeln!(f, "hint: {hint}")
            }
            Stop::Write(e) => {
                writeln!(f, "error: standard output cannot be written: {e}")?;
                writeln!(f, "hint: see that there is room where the output goes")
            }
        }
    }
}

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What is wrong.
    pub(crate) wrong: ArgumentError,
    /// Its place; `None` if it has none.
    pub(crate) place: Option<Place>,
}

impl ArgumentError {
    /// The same fault at this place.
    pub(crate) fn at(self, place: Place) -> Fault {
        Fault {
            wrong: self,
            place: Some(place),
        }
    }
}

impl From<ArgumentError> for Fault {
    fn from(wrong: ArgumentError) -> Fault {
        Fault { wrong, place: None }
    }
}

/// A range of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Such as `ARRIVALS, word 2`.
    pub(crate) label: String,
    /// The whole text.
    pub(crate) text: String,
    /// Characters of it before the stretch.
    pub(crate) from: usize,
    /// Characters of the range.
    pub(crate) width: usize,
}

impl Place {
    /// Where `part` stands in `text`, of which it is a slice.
    pub(crate) fn within(label: String, text: &str, part: &str) -> Place {
        let bytes = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
        let from = text.get(..bytes).unwrap_or_default().chars().count();
        Place {
            label,
            text: text.into(),
            from,
            width: part.chars().count(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place {
            label,
            text,
            from,
            width,
        } = self;
        writeln!(f, "  --> {label}")?;
        writeln!(f, "   |  {}", shown(text))?;
        writeln!(f, "   |  {:from$}{}", "", "^".repeat((*width).max(1)))
    }
}

/// The text with each control character replaced, so that no argument or input can control a terminal or break a
/// table. Each is replaced by one character, so columns keep their positions.
pub(crate) fn shown(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// All errors in arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ArgumentError {
    /// A number above what fits.
    TooLarge { word: String },
    /// A part that occurs twice.
    Twice { option: &'static str },
    /// The numbers make no limit.
    Limit { cause: LimitError },

    /// A word of the limit among the arrivals: the quotes are missing.
    Unquoted { word: String },
    /// A word that is not a span of time.
    Span { cause: SpanError },
    /// A range without a step.
    NoStep { range: String },
    /// A step without a range.
    NoRange { word: String },
    /// A step of zero.
    ZeroStep,
    /// The end is before the start.
    Backwards { from: String, to: String },
    /// An invalid number of arrivals.
    Times { word: String },
    /// `*0`.
    ZeroTimes,
    /// An unknown part after a comma.
    UnknownPart {
        word: String,
        near: Option<&'static str>,
    },
    /// `cost` or `key` without a value.
    PartNoValue { part: Part },
    /// A cost that is not a whole number.
    Cost { word: String },
    /// More arrivals than are allowed.
    TooMany,
    /// `-` beside other arrivals.
    DashNotAlone,
    /// A line of standard input that is too long.
    LongLine,
    /// A line of standard input that is not UTF-8.
    NotUtf8,

    /// A text that is not a name and a value.
    NoPair {
        flag: &'static str,
        text: String,
        sample: &'static str,
    },
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { word } => write!(f, "`{}` is too large", shown(word)),
            Self::Twice { option } => write!(f, "`{option}` is given twice"),
            Self::Limit { cause } => write!(f, "{cause}"),
            Self::Unquoted { word } => {
                write!(
                    f,
                    "`{}` belongs to a limit, not to the arrivals",
                    shown(word)
                )
            }
            Self::Span { cause } => f.write_str(&shown(&cause.to_string())),
            Self::Cost { word } => write!(f, "`{}` is not a whole number", shown(word)),
            Self::NoStep { range } => {
                write!(f, "`{}` does not say how often", shown(range))
            }
            Self::NoRange { word } => {
                write!(f, "`{}` does not say from when to when", shown(word))
            }
            Self::ZeroStep => f.write_str("one every 0s would never end"),
            Self::Backwards { from, to } => {
                write!(f, "`{}` is before `{}`", shown(to), shown(from))
            }
            Self::Times { word } => {
                write!(f, "`{}` is not a whole number of arrivals", shown(word))
            }
            Self::ZeroTimes => f.write_str("`*0` is no arrival at all"),
            Self::UnknownPart { word, .. } => {
                write!(f, "`{}` is neither `cost=…` nor `key=…`", shown(word))
            }
            Self::PartNoValue { part } => write!(f, "`{}=` has no value", part.name()),
            Self::TooMany => write!(f, "more than {ARRIVALS_MAX} arrivals"),
            Self::DashNotAlone => f.write_str("`-` stands beside other arrivals"),
            Self::LongLine => write!(f, "a line longer than {LINE_MAX} bytes"),
            Self::NotUtf8 => f.write_str("a line that is not UTF-8"),
            Self::NoPair { flag, text, .. } => {
                write!(f, "`{flag} {}` is not a name and a value", shown(text))
            }
        }
    }
}

impl ArgumentError {
    /// What to write instead.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::TooLarge { .. } => format!("write at most {}", u64::MAX),
            Self::Twice { .. } => "keep one of the two".into(),
            Self::Span { cause } => cause.hint(),
            Self::Limit { cause } => cause.hint(),
            Self::Unquoted { .. } => {
                "put the whole limit in one pair of quotes: tollgate try 'allow: 5/s, burst: 10' '0s*11'"
                    .into()
            }
            Self::NoStep { range } => format!("write `{}/1s` for one every second", shown(range)),
            Self::NoRange { .. } => "write from, to and how often, such as `1s-20s/1s`".into(),
            Self::ZeroStep => "write a step such as `1s`, or `0s*11` for eleven at once".into(),
            Self::Backwards { .. } => "write the earlier time first, such as `1s-20s/1s`".into(),
            Self::Times { .. } => "write digits only, such as `0s*11`".into(),
            Self::ZeroTimes => "write at least `*1`, or leave the word out".into(),
            Self::UnknownPart {
                near: Some(near), ..
            } => format!("did you mean `{near}=`?"),
            Self::UnknownPart { near: None, .. } => {
                "write `0s,cost=5`, `0s,key=alice` or both; a key has no comma in it".into()
            }
            Self::PartNoValue { part } => format!("write `{}`", part.sample()),
            Self::Cost { .. } => "write digits only, such as `cost=5`".into(),
            Self::TooMany => "try fewer; a limit shows what it does in a few periods".into(),
            Self::DashNotAlone => {
                "put all arrivals into standard input, or write all of them as arguments".into()
            }
            Self::LongLine => "write one arrival on each line, such as `0s*11,key=alice`".into(),
            Self::NotUtf8 => "write the arrivals as plain text".into(),
            Self::NoPair { flag, sample, .. } => format!("write `{flag} '{sample}'`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_the_error_the_place_and_the_fix() {
        let place = Place {
            label: "ARRIVALS, word 2".into(),
            text: "0s,cots=5".into(),
            from: 3,
            width: 6,
        };
        let wrong = ArgumentError::UnknownPart {
            word: "cots=5".into(),
            near: Some("cost"),
        };
        assert_eq!(
            Stop::from(wrong.at(place)).to_string(),
            "error: `cots=5` is neither `cost=…` nor `key=…`\n\
             \x20 --> ARRIVALS, word 2\n\
             \x20  |  0s,cots=5\n\
             \x20  |     ^^^^^^\n\
             hint: did you mean `cost=`?\n"
        );
    }

    #[test]
    fn no_argument_can_control_the_terminal() {
        assert_eq!(
            shown("a\x1b[31m\nb\u{9b}"),
            "a\u{fffd}[31m\u{fffd}b\u{fffd}"
        );
        let wrong = ArgumentError::UnknownPart {
            word: "\x1b[2J".into(),
            near: None,
        };
        assert!(!wrong.to_string().contains('\x1b'));
    }
}
