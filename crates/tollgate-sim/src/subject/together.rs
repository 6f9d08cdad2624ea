//! Several limits charged together, as timelines write them.
//!
//! A case configures limits as `ip.cap=5 ip.n=10 ip.p_ns=1000000000 org.cap=…`; a step names one key
//! for each limit that it falls under, `ip=1/org=O`.

use super::given::Given;
use crate::oracle::LimitSpec;
use crate::timeline::{Case, Step};

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
