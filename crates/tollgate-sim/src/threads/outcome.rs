//! The outcome of a scenario.

use std::fmt;

/// How many were admitted, how many had to be, and other mismatches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadOutcome {
    /// Charges that were admitted.
    pub admitted: u64,
    /// How many had to be, at the least.
    pub at_least: u64,
    /// How many had to be, at the most.
    pub at_most: u64,
    /// Details for the report.
    pub notes: Vec<String>,
    /// Other mismatches.
    pub faults: Vec<String>,
}

impl ThreadOutcome {
    /// Exactly this many had to be admitted.
    pub fn exactly(expected: u64, admitted: u64) -> Self {
        Self::between(expected, expected, admitted)
    }

    /// The least and the greatest number that had to be admitted.
    pub fn between(at_least: u64, at_most: u64, admitted: u64) -> Self {
        Self {
            admitted,
            at_least,
            at_most,
            notes: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Adds a fault unless `got` is `expected`.
    pub fn expect_equal(&mut self, what: &str, expected: u64, got: u64) {
        if got != expected {
            self.faults
                .push(format!("{what} is {got}, expected {expected}"));
        }
    }

    /// Whether every expectation holds.
    pub fn is_good(&self) -> bool {
        (self.at_least..=self.at_most).contains(&self.admitted) && self.faults.is_empty()
    }
}

impl fmt::Display for ThreadOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            admitted,
            at_least,
            at_most,
            ..
        } = self;
        write!(f, "{admitted} admitted, ")?;
        if at_least == at_most {
            write!(f, "expected {at_least}")?;
        } else {
            write!(f, "expected {at_least} to {at_most}")?;
        }
        for more in self.notes.iter().chain(&self.faults) {
            write!(f, "; {more}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_and_one_too_few_are_both_wrong() {
        assert!(ThreadOutcome::exactly(10, 10).is_good());
        assert!(!ThreadOutcome::exactly(10, 11).is_good());
        assert!(!ThreadOutcome::exactly(10, 9).is_good());
        assert!(ThreadOutcome::between(10, 12, 12).is_good());
        assert!(!ThreadOutcome::between(10, 12, 13).is_good());
    }

    #[test]
    fn a_mismatch_is_reported_with_what_was_expected() {
        let mut outcome = ThreadOutcome::exactly(10, 10);
        outcome.expect_equal("what is left", 3, 3);
        assert!(outcome.is_good());
        outcome.expect_equal("what is left", 3, 4);
        assert!(!outcome.is_good());
        let text = "10 admitted, expected 10; what is left is 4, expected 3";
        assert_eq!(outcome.to_string(), text);
    }
}
