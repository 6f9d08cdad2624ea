//! What is wrong with what was asked for, and how to mend it.

use std::fmt;

/// Why there is no run, or why it ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong.
    pub what: String,
    /// What can be done about it.
    pub hint: String,
}

impl Wrong {
    /// This, with its mend.
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Wrong {
        Wrong {
            what: what.into(),
            hint: hint.into(),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.hint)
    }
}

impl std::error::Error for Wrong {}
