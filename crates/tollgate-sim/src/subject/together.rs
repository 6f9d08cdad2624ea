//! Several limits charged together, as timelines write them.
//!
//! A case configures limits as `ip.cap=5 ip.n=10 ip.p_ns=1000000000 org.cap=…`; a step names one key
//! for each limit that it falls under, `ip=1/org=O`.

use super::core::told::{rate, span};
use super::given::Given;
use crate::oracle::{Answer, LimitSpec, Verdict};
use crate::timeline::{Case, Step};
use tollgate_policy::BurstCredits;

/// The burst credits of `case`.
///
/// # Errors
///
/// If a number is missing, malformed or not understood.
pub fn credits_of(case: &Case) -> Result<BurstCredits, String> {
    let given = Given::of_case(case, &["n", "p_ns", "mult", "dur_ns", "slack"])?;
    Ok(BurstCredits {
        rate: rate(given.need("n")?, given.need("p_ns")?)?,
        times: given.need("mult")?,
        duration: span(given.need("dur_ns")?),
        slack: Some(given.need("slack")?),
    })
}

/// The answers of two limits, told as that of one: what both give, and the later reset.
pub fn told_as_one(verdict: Verdict, one: Answer, other: Answer) -> Answer {
    let binding = match other.remaining < one.remaining {
        true => other,
        false => one,
    };
    let at_most = one.next_after == 0 || other.next_after == 0;
    Answer {
        verdict,
        remaining: binding.remaining,
        reset_after: one.reset_after.max(other.reset_after),
        next_after: match one.remaining == other.remaining {
            false => binding.next_after,
            // Equally tight: more is left only when both have more, and never if one has all it can.
            true if at_most => 0,
            true => one.next_after.max(other.next_after),
        },
    }
}

/// The limits of `case`, in the order in which they are configured.
///
/// # Errors
///
/// If a word is not of a limit, or a limit lacks a number.
pub fn limits_of(case: &Case) -> Result<Vec<LimitSpec>, String> {
    let mut names: Vec<&str> = Vec::new();
    let mut known: Vec<String> = Vec::new();
    // The words keep the order of configuration; the map of parameters does not.
    for word in &case.words {
        let (name, _) = word
            .split_once('.')
            .ok_or_else(|| format!("`{word}` names no limit"))?;
        if !names.contains(&name) {
            names.push(name);
            known.extend(["cap", "n", "p_ns"].map(|what| format!("{name}.{what}")));
        }
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let given = Given::of_case(case, &known)?;
    let spec = |name: &&str| {
        Ok(LimitSpec {
            name: (*name).to_owned(),
            cap: given.need(&format!("{name}.cap"))?,
            n: given.need(&format!("{name}.n"))?,
            p_ns: given.need(&format!("{name}.p_ns"))?,
        })
    };
    names.iter().map(spec).collect()
}

/// The limit and key of each charge of `step`, as written.
///
/// # Errors
///
/// If a part is no `limit=key`.
pub fn keys_of(step: &Step) -> Result<Vec<(&str, &str)>, String> {
    Given::of_step(step, &[])?;
    step.key
        .split('/')
        .map(|word| {
            word.split_once('=')
                .ok_or_else(|| format!("`{word}` names no limit"))
        })
        .collect()
}
