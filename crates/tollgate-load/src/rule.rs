//! How a reply over the Redis protocol says yes.
//!
//! Limiters that answer over this protocol say it in one of two places: the first number of the reply, however deep it lies in
//! arrays, or a field with the name `verdict`, which our own service has by policy. Which of them it is goes by the
//! command, if that is known here, or by what the user says.
//!
//! # Invariant
//!
//! What cannot be judged is never a yes: a reply that a rule does not fit is an error, and without a rule an answer is
//! counted as what it is, an answer.

use crate::codec::{Failure, Verdict};

/// How a reply says yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Its first number is 0, as that of `CL.THROTTLE` (which tells whether the key *is limited*).
    Zero,
    /// Its first number is not 0, as that of throttlecrab's `THROTTLE` and of most scripts.
    NonZero,
    /// Its first number is at most this, as that of `INCR` against a limit.
    AtMost(i64),
    /// Its field `verdict` is `pass` or `wait`, as that of `TOLLGATE.CHECK`.
    Verdict,
    /// Whatever is no error.
    Any,
}

/// What a reply has in it that a rule looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks<'a> {
    /// Of the first element that is neither an array nor a map, if it is a number.
    pub(crate) number: Option<i64>,
    /// The value of the outermost field `verdict`, if it is a text.
    pub(crate) verdict: Option<&'a [u8]>,
}

impl Rule {
    /// The rule for a command, if it is one that is known.
    pub(crate) fn of(command: &str) -> Option<Rule> {
        match command.to_ascii_uppercase().as_str() {
            "CL.THROTTLE" => Some(Rule::Zero),
            "THROTTLE" => Some(Rule::NonZero),
            "TOLLGATE.CHECK" | "TOLLGATE.PEEK" | "TOLLGATE.EXPLAIN" => Some(Rule::Verdict),
            _ => None,
        }
    }

    pub(crate) fn judge(self, marks: Marks<'_>) -> Verdict<'static> {
        let admitted = match (self, marks.number) {
            (Rule::Any, _) => Some(true),
            (Rule::Verdict, _) => marks.verdict.and_then(is_yes),
            (Rule::Zero, Some(number)) => Some(number == 0),
            (Rule::NonZero, Some(number)) => Some(number != 0),
            (Rule::AtMost(most), Some(number)) => Some(number <= most),
            (_, None) => None,
        };
        match admitted {
            Some(true) => Verdict::Admitted,
            Some(false) => Verdict::Refused,
            None => Verdict::Failed(Failure::Unjudged(self)),
        }
    }
}

/// Whoever has to wait was admitted: the unit is taken.
fn is_yes(verdict: &[u8]) -> Option<bool> {
    match verdict {
        b"pass" | b"wait" => Some(true),
        b"refuse" | b"never" => Some(false),
        _ => None,
    }
}

/// Has the command its limit in itself: the burst, the count and the period after the key?
pub(crate) fn has_terms(command: &str) -> bool {
    ["CL.THROTTLE", "THROTTLE"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(command))
}

/// Does the command look and take nothing? Whoever only looks may be told yes for ever, and rightly so.
pub(crate) fn only_looks(command: &str) -> bool {
    ["TOLLGATE.PEEK", "TOLLGATE.EXPLAIN"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: i64) -> Marks<'static> {
        Marks {
            number: Some(number),
            verdict: None,
        }
    }

    #[test]
    fn commands_are_known_however_they_are_written() {
        for (command, rule) in [
            ("cl.throttle", Some(Rule::Zero)),
            ("Throttle", Some(Rule::NonZero)),
            ("TOLLGATE.CHECK", Some(Rule::Verdict)),
            ("tollgate.peek", Some(Rule::Verdict)),
            ("TOLLGATE.EXPLAIN", Some(Rule::Verdict)),
            ("TOLLGATE.SETTLE", None),
            ("INCR", None),
            ("", None),
        ] {
            assert_eq!(Rule::of(command), rule, "{command}");
        }
        assert!(only_looks("tollgate.peek") && !only_looks("TOLLGATE.CHECK"));
        assert!(has_terms("throttle") && !has_terms("TOLLGATE.CHECK"));
    }

    #[test]
    fn every_word_of_our_own_verdicts_is_yes_or_no_and_no_other_word_is() {
        let judged = |word: &'static str| {
            Rule::Verdict.judge(Marks {
                number: Some(1),
                verdict: Some(word.as_bytes()),
            })
        };
        assert_eq!(judged("pass"), Verdict::Admitted);
        assert_eq!(judged("wait"), Verdict::Admitted);
        assert_eq!(judged("refuse"), Verdict::Refused);
        assert_eq!(judged("never"), Verdict::Refused);
        let unjudged = Verdict::Failed(Failure::Unjudged(Rule::Verdict));
        for word in ["", "Pass", "passed", "1"] {
            assert_eq!(judged(word), unjudged, "{word}");
        }
        assert_eq!(Rule::Verdict.judge(number(0)), unjudged);
    }

    #[test]
    fn a_number_is_yes_by_its_rule() {
        for (rule, yes, no) in [
            (Rule::Zero, 0, 1),
            (Rule::NonZero, -1, 0),
            (Rule::AtMost(5), 5, 6),
        ] {
            assert_eq!(rule.judge(number(yes)), Verdict::Admitted);
            assert_eq!(rule.judge(number(no)), Verdict::Refused);
            let without = rule.judge(Marks::default());
            assert_eq!(without, Verdict::Failed(Failure::Unjudged(rule)));
        }
        assert_eq!(Rule::Any.judge(Marks::default()), Verdict::Admitted);
    }
}
