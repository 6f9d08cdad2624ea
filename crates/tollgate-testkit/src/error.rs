//! Errors of the test kit: why a server, a proxy or a client of a test failed.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The result of every fallible step of the set-up.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a step of the set-up failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A program is not installed.
    Missing {
        /// Name of the program.
        program: String,
        /// Directories that were searched.
        searched: Vec<PathBuf>,
    },
    /// A system call failed.
    Io {
        /// What was tried.
        doing: String,
        /// Why it failed.
        error: io::Error,
    },
    /// A program exited by itself.
    Exited {
        /// Name of the program.
        name: String,
        /// The end of its log.
        log: String,
    },
    /// A condition did not hold before the deadline.
    Timeout {
        /// The condition.
        what: String,
        /// How long the wait was.
        deadline: Duration,
        /// What was observed last.
        last: String,
        /// Ends of the logs of the servers.
        log: String,
    },
    /// A server answered with an error, or not at all.
    Rejected {
        /// The command, and its server.
        command: String,
        /// Error of the client.
        error: redis::RedisError,
    },
    /// A server sent an answer of an unexpected form.
    Unexpected {
        /// The command, and its server.
        command: String,
        /// The answer.
        answer: String,
    },
    /// The arguments of the caller are invalid.
    Invalid(String),
}

impl Error {
    /// First word of a server's error, such as `MOVED`; `None` for every other error.
    pub fn code(&self) -> Option<&str> {
        match self {
            Error::Rejected { error, .. } => error.code(),
            _ => None,
        }
    }

    /// Wraps an I/O error of `doing`: `.map_err(Error::io("read a file"))`.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |error| Error::Io { doing, error }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing { program, searched } => {
                let searched: Vec<String> =
                    searched.iter().map(|p| p.display().to_string()).collect();
                write!(
                    f,
                    "`{program}` is missing: run `make setup`. Searched in {}",
                    searched.join(", ")
                )
            }
            Error::Io { doing, error } => write!(f, "could not {doing}: {error}"),
            Error::Exited { name, log } => write!(f, "{name} exited. Its log:\n{log}"),
            Error::Timeout {
                what,
                deadline,
                last,
                log,
            } => write!(
                f,
                "waited {deadline:?} in vain until {what}. Last observed: {last}. The log:\n{log}"
            ),
            Error::Rejected { command, error } => write!(f, "{command}: {error}"),
            Error::Unexpected { command, answer } => {
                write!(f, "{command}: an unexpected answer, {answer}")
            }
            Error::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { error, .. } => Some(error),
            Error::Rejected { error, .. } => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_the_remedy() {
        let error = Error::Missing {
            program: "valkey-server".into(),
            searched: vec!["/usr/bin".into(), "/opt".into()],
        };
        assert_eq!(
            error.to_string(),
            "`valkey-server` is missing: run `make setup`. Searched in /usr/bin, /opt"
        );
    }

    #[test]
    fn a_timeout_quotes_the_log() {
        let error = Error::Timeout {
            what: "it answers".into(),
            deadline: Duration::from_secs(2),
            last: "nothing".into(),
            log: "Out of memory".into(),
        };
        assert!(error.to_string().ends_with("The log:\nOut of memory"));
    }
}
