//! The error of this crate.

use std::fmt;

/// Why a run cannot start, or has ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The problem.
    pub problem: String,
    /// What can be done about it.
    pub hint: String,
}

impl LoadError {
    /// A problem with its remedy.
    pub fn new(problem: impl Into<String>, hint: impl Into<String>) -> LoadError {
        LoadError {
            problem: problem.into(),
            hint: hint.into(),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.hint)
    }
}

impl std::error::Error for LoadError {}
