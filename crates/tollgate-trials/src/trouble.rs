//! What can go wrong with a world that is made for a test.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What a step of a trial gives.
pub type Outcome<T> = Result<T, Trouble>;

/// Why a server, a proxy or a question to them failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Trouble {
    /// A program is not on this machine.
    Missing {
        /// Which program.
        program: &'static str,
        /// Where it was looked for.
        looked: Vec<PathBuf>,
    },
    /// The system refused something.
    System {
        /// What was tried.
        doing: String,
        /// What it said.
        error: io::Error,
    },
    /// A server ended although nobody stopped it.
    Ended {
        /// Which server.
        who: String,
        /// The end of its log.
        log: String,
    },
    /// Something did not happen in time.
    Late {
        /// What was waited for.
        waited_for: String,
        /// For how long.
        patience: Duration,
        /// What was seen last.
        last: String,
        /// The ends of the logs of who was waited for.
        log: String,
    },
    /// A server answered with an error, or not at all.
    Refused {
        /// What was asked of whom.
        asked: String,
        /// What the client said.
        error: redis::RedisError,
    },
    /// A server answered something that makes no sense here.
    Odd {
        /// What was asked of whom.
        asked: String,
        /// What it answered.
        answer: String,
    },
    /// The caller asked for something that cannot be.
    Impossible(String),
}

impl Trouble {
    /// The first word of a server's error, such as `MOVED`; nothing if it is no such error.
    pub fn code(&self) -> Option<&str> {
        match self {
            Trouble::Refused { error, .. } => error.code(),
            _ => None,
        }
    }

    /// The system refused `doing`.
    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Trouble {
        let doing = doing.into();
        move |error| Trouble::System { doing, error }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Missing { program, looked } => {
                write!(f, "`{program}` is missing: run `make setup`. Looked for it")?;
                let places: Vec<String> = looked.iter().map(|p| p.display().to_string()).collect();
                write!(f, " in {}", places.join(", "))
            }
            Trouble::System { doing, error } => write!(f, "could not {doing}: {error}"),
            Trouble::Ended { who, log } => write!(f, "{who} ended. Its log:\n{log}"),
            Trouble::Late {
                waited_for,
                patience,
                last,
                log,
            } => write!(
                f,
                "waited {patience:?} in vain until {waited_for}. Last seen: {last}. The log:\n{log}"
            ),
            Trouble::Refused { asked, error } => write!(f, "{asked}: {error}"),
            Trouble::Odd { asked, answer } => write!(f, "{asked}: a strange answer, {answer}"),
            Trouble::Impossible(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Trouble {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Trouble::System { error, .. } => Some(error),
            Trouble::Refused { error, .. } => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_told_with_the_way_to_get_it() {
        let trouble = Trouble::Missing {
            program: "valkey-server",
            looked: vec!["/usr/bin".into(), "/opt".into()],
        };
        assert_eq!(
            trouble.to_string(),
            "`valkey-server` is missing: run `make setup`. Looked for it in /usr/bin, /opt"
        );
    }

    #[test]
    fn a_vain_wait_quotes_the_log() {
        let trouble = Trouble::Late {
            waited_for: "it answers".into(),
            patience: Duration::from_secs(2),
            last: "nothing".into(),
            log: "Out of memory".into(),
        };
        assert!(trouble.to_string().ends_with("The log:\nOut of memory"));
    }
}
