//! Rules for replies over the Redis protocol: which of them admit a request.
//!
//! Limiters on this protocol report the decision in one of two places: the first number of the reply, at any depth, or a field
//! `verdict`, as Tollgate's own service by policy. Known commands have a rule; for others the user states one.
//!
//! # Invariant
//!
//! A reply that the rule does not fit is an error, and never admits. Without a rule a reply is unjudged.

use crate::codec::{Failure, Judgement};

/// How a reply admits a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitRule {
    /// Its first number is 0, as with `CL.THROTTLE` (it reports whether the key *is limited*).
    Zero,
    /// Its first number is not 0, as with throttlecrab's `THROTTLE` and most scripts.
    NonZero,
    /// Its first number is at most this, as with `INCR` against a limit.
    AtMost(i64),
    /// Its field `verdict` is `pass` or `wait`, as with `TOLLGATE.CHECK`.
    VerdictField,
    /// Any reply that is no error.
    Any,
}

/// The parts of a reply that rules read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplyFields<'a> {
    /// The first element that is neither an array nor a map, if it is a number.
    pub(crate) number: Option<i64>,
    /// The value of the outermost field `verdict`, if it is a string.
    pub(crate) verdict: Option<&'a [u8]>,
}

impl AdmitRule {
    /// The rule of a known command.
    pub(crate) fn for_command(command: &str) -> Option<AdmitRule> {
        match command.to_ascii_uppercase().as_str() {
            "CL.THROTTLE" => Some(AdmitRule::Zero),
            "THROTTLE" => Some(AdmitRule::NonZero),
            "TOLLGATE.CHECK" | "TOLLGATE.PEEK" | "TOLLGATE.EXPLAIN" => {
                Some(AdmitRule::VerdictField)
            }
            _ => None,
        }
    }

    pub(crate) fn judge(self, reply: ReplyFields<'_>) -> Judgement<'static> {
        let admitted = match (self, reply.number) {
            (AdmitRule::Any, _) => Some(true),
            (AdmitRule::VerdictField, _) => reply.verdict.and_then(is_admitted),
            (AdmitRule::Zero, Some(number)) => Some(number == 0),
            (AdmitRule::NonZero, Some(number)) => Some(number != 0),
            (AdmitRule::AtMost(most), Some(number)) => Some(number <= most),
            (_, None) => None,
        };
        match admitted {
            Some(true) => Judgement::Admitted,
            Some(false) => Judgement::Refused,
            None => Judgement::Failed(Failure::Unjudged(self)),
        }
    }
}

/// A request that has to wait is admitted: its unit is taken.
fn is_admitted(verdict: &[u8]) -> Option<bool> {
    match verdict {
        b"pass" | b"wait" => Some(true),
        b"refuse" | b"never" => Some(false),
        _ => None,
    }
}

/// Whether the command states its limit: burst, count and period after the key.
pub(crate) fn has_inline_limit(command: &str) -> bool {
    ["CL.THROTTLE", "THROTTLE"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(command))
}

/// Whether the command takes nothing. Such a command may rightly be admitted forever.
pub(crate) fn is_read_only(command: &str) -> bool {
    ["TOLLGATE.PEEK", "TOLLGATE.EXPLAIN"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: i64) -> ReplyFields<'static> {
        ReplyFields {
            number: Some(number),
            verdict: None,
        }
    }

    #[test]
    fn commands_are_known_in_any_case() {
        for (command, rule) in [
            ("cl.throttle", Some(AdmitRule::Zero)),
            ("Throttle", Some(AdmitRule::NonZero)),
            ("TOLLGATE.CHECK", Some(AdmitRule::VerdictField)),
            ("tollgate.peek", Some(AdmitRule::VerdictField)),
            ("TOLLGATE.EXPLAIN", Some(AdmitRule::VerdictField)),
            ("TOLLGATE.SETTLE", None),
            ("INCR", None),
            ("", None),
        ] {
            assert_eq!(AdmitRule::for_command(command), rule, "{command}");
        }
        assert!(is_read_only("tollgate.peek") && !is_read_only("TOLLGATE.CHECK"));
        assert!(has_inline_limit("throttle") && !has_inline_limit("TOLLGATE.CHECK"));
    }

    #[test]
    fn only_the_known_verdicts_admit_or_refuse() {
        let judged = |word: &'static str| {
            AdmitRule::VerdictField.judge(ReplyFields {
                number: Some(1),
                verdict: Some(word.as_bytes()),
            })
        };
        assert_eq!(judged("pass"), Judgement::Admitted);
        assert_eq!(judged("wait"), Judgement::Admitted);
        assert_eq!(judged("refuse"), Judgement::Refused);
        assert_eq!(judged("never"), Judgement::Refused);
        let unjudged = Judgement::Failed(Failure::Unjudged(AdmitRule::VerdictField));
        for word in ["", "Pass", "passed", "1"] {
            assert_eq!(judged(word), unjudged, "{word}");
        }
        assert_eq!(AdmitRule::VerdictField.judge(number(0)), unjudged);
    }

    #[test]
    fn a_number_admits_by_its_rule() {
        for (rule, admits, refuses) in [
            (AdmitRule::Zero, 0, 1),
            (AdmitRule::NonZero, -1, 0),
            (AdmitRule::AtMost(5), 5, 6),
        ] {
            assert_eq!(rule.judge(number(admits)), Judgement::Admitted);
            assert_eq!(rule.judge(number(refuses)), Judgement::Refused);
            let without = rule.judge(ReplyFields::default());
            assert_eq!(without, Judgement::Failed(Failure::Unjudged(rule)));
        }
        assert_eq!(
            AdmitRule::Any.judge(ReplyFields::default()),
            Judgement::Admitted
        );
    }
}
