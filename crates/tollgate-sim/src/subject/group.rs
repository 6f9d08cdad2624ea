//! Several limits charged together, as timelines write them, and burst credits as two of them.
//!
//! A case configures limits as `ip.cap=5 ip.n=10 ip.p_ns=1000000000 org.cap=…`; a step names one key
//! for each limit that it falls under, `ip=1/org=O`.

use super::convert::{rate, span};
use crate::model::{GroupModel, Model, ModelChange, ModelCharge};
use crate::oracle::{LimitSpec, OracleDecision, OracleVerdict};
use crate::parameters::Parameters;
use crate::timeline::{TimelineCase, TimelineStep};
use tollgate_policy::BurstCredits;

/// The two limits of burst credits.
pub(super) const CREDIT: &str = "credit";
pub(super) const PEAK: &str = "peak";

/// The product's burst credits of these numbers.
///
/// # Errors
///
/// If they are of another algorithm, or have no rate.
pub fn credits_of(numbers: &Parameters) -> Result<BurstCredits, String> {
    let Parameters::BurstCredits {
        n,
        p_ns,
        mult,
        dur_ns,
        slack,
    } = *numbers
    else {
        return Err(format!("{numbers:?} are no burst credits"));
    };
    Ok(BurstCredits {
        rate: rate(n, p_ns)?,
        times: mult,
        duration: span(dur_ns),
        slack: Some(slack),
    })
}

/// The limits of `case`, in the order in which they are configured.
///
/// # Errors
///
/// If a word is not of a limit, or a limit lacks a number.
pub fn limits_of(case: &TimelineCase) -> Result<Vec<LimitSpec>, String> {
    let mut limits: Vec<LimitSpec> = Vec::new();
    // The words keep the order of configuration; the map of parameters does not.
    for word in &case.words {
        let unknown = || format!("`{word}` is no number of a limit");
        let (path, value) = word.split_once('=').ok_or_else(unknown)?;
        let (name, field) = path.split_once('.').ok_or_else(unknown)?;
        let value: u64 = value.parse().map_err(|_| unknown())?;
        let place = limits.iter().position(|limit| limit.name == name);
        let place = place.unwrap_or(limits.len());
        if place == limits.len() {
            limits.push(LimitSpec {
                name: name.to_owned(),
                cap: 0,
                n: 0,
                p_ns: 0,
            });
        }
        match (limits.get_mut(place), field) {
            (Some(limit), "cap") => limit.cap = value,
            (Some(limit), "n") => limit.n = value,
            (Some(limit), "p_ns") => limit.p_ns = value,
            _ => return Err(unknown()),
        }
    }
    match limits
        .iter()
        .find(|limit| [limit.cap, limit.n, limit.p_ns].contains(&0))
    {
        Some(limit) => Err(format!("limit `{}` lacks a number", limit.name)),
        None => Ok(limits),
    }
}

/// The charges of `step`.
///
/// # Errors
///
/// If a part is no `limit=key`.
pub fn keys_of<'a>(step: &'a TimelineStep) -> Result<Vec<ModelCharge<'a>>, String> {
    let cost = step.cost.unwrap_or(0);
    let charge = |word: &'a str| {
        let named = word.split_once('=');
        let (limit, key) = named.ok_or_else(|| format!("`{word}` names no limit"))?;
        Ok(ModelCharge { limit, key, cost })
    };
    step.key.split('/').map(charge).collect()
}

/// The answers of two limits as one: what both can give, and the later reset.
pub fn combined(
    verdict: OracleVerdict,
    one: OracleDecision,
    other: OracleDecision,
) -> OracleDecision {
    let binding = match other.remaining < one.remaining {
        true => other,
        false => one,
    };
    let at_most = one.next_after == 0 || other.next_after == 0;
    OracleDecision {
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

/// A group whose limits can be used one by one, too.
pub trait OpenGroup: GroupModel {
    /// The answer of one limit alone; takes nothing.
    ///
    /// # Errors
    ///
    /// If there is no such limit.
    fn peek(&self, t: u64, charge: ModelCharge<'_>) -> Result<OracleDecision, String>;

    /// Gives back what was charged to one limit at `issued`.
    ///
    /// # Errors
    ///
    /// If there is no such limit.
    fn refund(&mut self, t: u64, charge: ModelCharge<'_>, issued: u64) -> Result<(), String>;
}

/// Burst credits: a group of the limits `CREDIT` and `PEAK`, both charged with the same key and cost.
#[derive(Clone, Debug)]
pub struct CreditsModel<G>(pub G);

fn both(key: &str, cost: u64) -> [ModelCharge<'_>; 2] {
    [CREDIT, PEAK].map(|limit| ModelCharge { limit, key, cost })
}

/// A limit that is missing is one that never passes: every comparison fails then.
const MISSING: OracleDecision = OracleDecision {
    verdict: OracleVerdict::Never,
    remaining: 0,
    reset_after: 0,
    next_after: 0,
};

impl<G: OpenGroup> CreditsModel<G> {
    fn each(&self, t: u64, key: &str, cost: u64) -> [OracleDecision; 2] {
        both(key, cost).map(|charge| self.0.peek(t, charge).unwrap_or(MISSING))
    }

    fn report(&self, t: u64, key: &str, verdict: OracleVerdict) -> OracleDecision {
        let [credit, peak] = self.each(t, key, 0);
        combined(verdict, credit, peak)
    }
}

impl<G: OpenGroup> Model for CreditsModel<G> {
    fn check(&mut self, key: &str, t: u64, cost: u64) -> OracleDecision {
        let charged = self.0.charge(t, &both(key, cost), true);
        let verdict = charged.map_or(OracleVerdict::Never, |charged| charged.answer.verdict);
        self.report(t, key, verdict)
    }

    fn peek(&self, key: &str, t: u64, cost: u64) -> OracleDecision {
        let [credit, peak] = self.each(t, key, cost);
        let refused = match (credit.verdict, peak.verdict) {
            (OracleVerdict::Pass { .. }, OracleVerdict::Pass { .. }) => {
                return combined(credit.verdict, credit, peak);
            }
            (OracleVerdict::Never, _) | (_, OracleVerdict::Never) => OracleVerdict::Never,
            (
                OracleVerdict::Refuse { retry_after: a },
                OracleVerdict::Refuse { retry_after: b },
            ) => OracleVerdict::Refuse {
                retry_after: a.max(b),
            },
            (refused @ OracleVerdict::Refuse { .. }, _) | (_, refused) => refused,
        };
        // Neither would be charged.
        self.report(t, key, refused)
    }

    fn change(&mut self, key: &str, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        let ModelChange::Refund { cost, issued } = change else {
            return Err(change.unsupported());
        };
        for charge in both(key, cost) {
            self.0.refund(t, charge, issued)?;
        }
        Ok(self.report(t, key, OracleVerdict::Pass { delay: 0 }))
    }
}
