//! `tollgate try`: decides arrivals on a virtual clock with the embedded limiter.

use std::collections::HashSet;
use std::io::{BufRead, Write};
use std::rc::Rc;

use tollgate::{Algorithm, Decision, Gate, KeySecret, LimitId, Limiter, ManualClock, Rate, Span};
use tollgate_policy::Quota;

use crate::arrivals::{self, Arrival};
use crate::cli::Try;
use crate::fault::{ArgumentError, Stop};
use crate::{span_text, table};

/// Largest capacity that the demonstration uses one by one; a larger one is taken by a single arrival.
const SHOWN_ONE_BY_ONE: u64 = 100_000;

/// One request and its decision.
#[derive(Clone, Debug)]
pub(crate) struct ArrivalDecision {
    /// The request.
    pub(crate) arrival: Arrival,
    /// The decision.
    pub(crate) decision: Decision,
}

/// Parses the arguments, runs the arrivals and prints the decisions.
///
/// # Errors
/// An invalid limit or arrival, or an input or output error.
pub(crate) fn run(asked: &Try, input: &mut impl BufRead, out: &mut impl Write) -> Result<(), Stop> {
    arrivals::check_quotes(&asked.arrivals)?;
    let quota = tollgate_config::quota_from(&asked.limit)
        .map_err(|problems| Stop::Limit(Box::new(problems)))?;
    let demonstration = asked.arrivals.is_empty();
    let words = if demonstration {
        demonstrate(&quota)?
    } else {
        asked.arrivals.clone()
    };
    let outcomes = replay(&quota, arrivals::read(&words, input)?)?;
    if asked.json {
        return table::json(&outcomes, out).map_err(Stop::Write);
    }
    let mut title = quota.to_string();
    if matches!(quota.limit.algorithm(), Algorithm::Concurrency { .. }) {
        title.push_str(" (no permit is released here: each one expires)");
    }
    if demonstration {
        title = format!(
            "{title}\nno arrivals given, so these are tried: {}",
            words.join(" ")
        );
    }
    table::print(&title, &outcomes, out).map_err(Stop::Write)
}

/// Decides the arrivals one after the other, each at its time.
fn replay(quota: &Quota, arrivals: Vec<Arrival>) -> Result<Vec<ArrivalDecision>, Stop> {
    let clock = ManualClock::new();
    let keys: HashSet<&Option<Rc<str>>> = arrivals.iter().map(|arrival| &arrival.key).collect();
    let (gate, limits) = gate(quota, keys.len(), &clock)?;
    let decide = |arrival: Arrival| {
        clock.set(arrival.at);
        let charge = |limit: &LimitId| gate.charge(*limit, &arrival.key, arrival.cost);
        let charges: Vec<_> = limits.iter().map(charge).collect();
        let decision = gate.admit(&charges).decision;
        ArrivalDecision { arrival, decision }
    };
    Ok(arrivals.into_iter().map(decide).collect())
}

/// The limits of a quota behind one gate, with room for this many keys.
fn gate(
    quota: &Quota,
    keys: usize,
    clock: &ManualClock,
) -> Result<(Gate<ManualClock>, Vec<LimitId>), Stop> {
    let mut gate = Gate::with_clock(clock.clone());
    let mut limits = Vec::new();
    for limit in std::iter::once(&quota.limit).chain(&quota.peak) {
        let room = keys.clamp(1, limit.max_keys());
        let limit = limit.clone().with_max_keys(room);
        // A fixed secret: the same arrivals give the same output, byte for byte.
        let limiter = Limiter::with_secret(limit, clock.clone(), KeySecret::from_seed(0));
        limits.push(gate.adopt(limiter.map_err(refused)?));
    }
    Ok((gate, limits))
}

/// Arrivals that show the behaviour of a limit: twice what it holds at once, then one at each time when one more
/// is due.
fn demonstrate(quota: &Quota) -> Result<Vec<String>, Stop> {
    let (gate, limits) = gate(quota, 1, &ManualClock::new())?;
    let capacities = limits.iter().map(|limit| gate.limiter(*limit).capacity());
    let capacity = capacities.min().unwrap_or(u64::MAX);
    let mut words = if capacity <= SHOWN_ONE_BY_ONE {
        vec![format!("0s*{}", capacity * 2)]
    } else {
        vec![format!("0s,cost={capacity}"), "0s".into()]
    };
    let limits = std::iter::once(&quota.limit).chain(&quota.peak);
    let units = limits.map(|limit| time_for_one(limit.algorithm()));
    let unit = units.min().unwrap_or(Span::from_secs(1));
    for times in 1..=3 {
        let at = Span::from_nanos(unit.as_nanos().saturating_mul(times));
        words.push(span_text::exact(at));
    }
    Ok(words)
}

/// When one more is due after everything was taken, rounded up.
fn time_for_one(algorithm: &Algorithm) -> Span {
    let interval = |rate: Rate| Span::from_nanos(rate.per().as_nanos().div_ceil(rate.units()));
    match *algorithm {
        Algorithm::TokenBucket { rate, .. }
        | Algorithm::Gcra { rate, .. }
        | Algorithm::LeakyBucket { rate, .. } => interval(rate),
        Algorithm::FixedWindow { window, .. }
        | Algorithm::SlidingLog { window, .. }
        | Algorithm::SlidingWindow { window, .. } => window,
        Algorithm::Concurrency { ttl, .. } => ttl,
        // Other algorithms cannot be written.
    }
}

fn refused(cause: tollgate::LimitError) -> Stop {
    Stop::Fault(ArgumentError::Limit { cause }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::ENTRIES;
    use tollgate::{Moment, Origin};

    fn demonstration(text: &str) -> Vec<ArrivalDecision> {
        let quota = tollgate_config::quota_from(text).unwrap();
        let words = demonstrate(&quota).unwrap();
        replay(
            &quota,
            arrivals::read(&words, &mut std::io::empty()).unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn the_demonstration_of_every_algorithm_shows_an_admission_and_a_refusal() {
        for entry in &ENTRIES {
            let outcomes = demonstration(entry.example);
            let (some, others): (Vec<_>, Vec<_>) = outcomes
                .iter()
                .partition(|outcome| outcome.decision.is_admitted());
            assert!(
                !some.is_empty() && !others.is_empty(),
                "{}",
                entry.algorithm
            );
            let last = outcomes.last().unwrap();
            assert!(last.decision.is_admitted(), "{}", entry.algorithm);
        }
    }

    #[test]
    fn a_huge_limit_is_demonstrated_in_a_handful_of_arrivals() {
        let outcomes = demonstration("1000000000/s");
        assert_eq!(outcomes.len(), 5);
        assert!(!outcomes[1].decision.is_admitted());
    }

    #[test]
    fn every_key_has_its_own_allowance_however_many_there_are() {
        let quota = tollgate_config::quota_from("1/s").unwrap();
        let arrival = |i: usize| Arrival {
            at: Moment::ORIGIN,
            cost: 1,
            key: Some(i.to_string().into()),
            word: i,
        };
        let outcomes = replay(&quota, (0..50_000).map(arrival).collect()).unwrap();
        for outcome in outcomes {
            assert!(outcome.decision.is_admitted());
            assert_eq!(outcome.decision.origin, Origin::Fresh);
        }
    }

    #[test]
    fn the_end_of_the_clock_is_survived_by_every_algorithm() {
        for entry in &ENTRIES {
            let quota = tollgate_config::quota_from(entry.example).unwrap();
            let words = ["0s", "18446744073709551614ns*2", "18446744073709551615ns*3"];
            let words = words.map(str::to_owned);
            let arrivals = arrivals::read(&words, &mut std::io::empty()).unwrap();
            assert_eq!(replay(&quota, arrivals).unwrap().len(), 6);
        }
    }
}
