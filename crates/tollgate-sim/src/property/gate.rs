//! Histories of several buckets charged together: the gate against the oracle's hierarchy.
//!
//! A store forgets keys that are as if never used when it needs their place. If the clock then steps
//! back to a moment at which they were not, they are better off than in the oracle, which forgets
//! nothing. So a history has either several keys or a clock that steps back.

use super::Walked;
use super::failure::{Failure, Recent};
use super::limits::any_rate;
use super::nature::{Nature, Time, cost};
use crate::oracle::bucket::HEAL_NS;
use crate::oracle::{Answer, Charge, Hierarchy, LimitSpec, Verdict};
use crate::rng::Rng;
use crate::subject::core::told::at;
use crate::subject::store::gate::GateSubject;
use std::fmt;
use tollgate::ManualClock;

/// What the limits are called, in the order of configuration.
const NAMES: [&str; 4] = ["ip", "key", "user", "org"];
/// Whose buckets they are.
const KEYS: [&str; 3] = ["1", "2", "3"];

type Request = Vec<(&'static str, &'static str, u64)>;

struct Done {
    t: u64,
    request: Request,
    answer: Answer,
    reported: String,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t={} admit", self.t)?;
        for (limit, key, cost) in &self.request {
            write!(f, " {limit}={key}:{cost}")?;
        }
        write!(f, " -> {:?} by {}", self.answer, self.reported)
    }
}

/// A history of two to four limits behind one gate.
///
/// # Errors
///
/// If gate and oracle disagree, or a refusal does not keep its word.
pub fn walk(rng: &mut Rng, steps: u64) -> Walked {
    let specs = any_limits(rng);
    let keys = if rng.one_in(2) {
        KEYS.as_slice()
    } else {
        &["1"]
    };
    let nature = nature_of(&specs, keys.len() == 1);
    let gate = GateSubject::new(&specs, ManualClock::new())
        .map_err(|what| Failure::setup(nature.params.clone(), what))?;
    let names = specs.len();
    let mut oracle = Hierarchy::new(specs);
    let mut time = Time::begin(rng, &nature);
    let mut recent = Recent::new();
    while recent.count() < steps && time.goes_on() {
        time.pass(rng, &nature);
        let t = time.now();
        let request = any_request(rng, names, keys, nature.cap);
        let charges: Vec<Charge<'_>> = request
            .iter()
            .map(|&(limit, key, cost)| Charge { limit, key, cost })
            .collect();
        let ruling = oracle
            .check(t, &charges)
            .map_err(|error| Failure::setup(nature.params.clone(), error.to_string()))?;
        let got = gate.admit(t, &request);
        time.decided(&nature);
        let answer = ruling.answer;
        let expected = Ok((answer, ruling.reported.clone()));
        recent.push(Done {
            t,
            request,
            answer,
            reported: ruling.reported,
        });
        if got != expected {
            return Err(recent.failure(&nature.params, "gate and oracle disagree", expected, got));
        }
        if let (Verdict::Refuse { retry_after }, Some(done)) = (answer.verdict, recent.last()) {
            time.promise(retry_after);
            let early = passes(&gate, t.saturating_add(retry_after) - 1, &done.request);
            let late = passes(&gate, t.saturating_add(retry_after), &done.request);
            if early || !late {
                let what = "a refusal does not keep its word: would it pass just before, and then";
                return Err(recent.failure(&nature.params, what, (false, true), (early, late)));
            }
        }
    }
    Ok(recent.count())
}

/// Whether every limit on its own would let its charge pass at `t`.
fn passes(gate: &GateSubject, t: u64, request: &Request) -> bool {
    gate.time().set(at(t));
    request.iter().all(|&(name, key, cost)| {
        let limiter = gate.limit(name).map(|limit| gate.gate().limiter(limit));
        limiter.is_some_and(|limiter| limiter.peek(key, cost).is_admitted())
    })
}

fn any_limits(rng: &mut Rng) -> Vec<LimitSpec> {
    let count = rng.between(2, 4) as usize;
    let mut limit = |name: &&str| {
        let cap = match rng.below(4) {
            0 => rng.between(1, 100),
            _ => rng.between(1, 12),
        };
        let (n, p_ns) = any_rate(rng, cap);
        LimitSpec {
            name: (*name).to_owned(),
            cap,
            n,
            p_ns: p_ns.min(1 << 36),
        }
    };
    NAMES.iter().take(count).map(&mut limit).collect()
}

fn any_request(rng: &mut Rng, names: usize, keys: &[&'static str], cap: u64) -> Request {
    let shared = cost(rng, cap);
    let mut request = Request::new();
    for name in NAMES.iter().take(names) {
        // Most requests fall under all limits and cost the same in each.
        if rng.one_in(8) {
            continue;
        }
        let cost = if rng.one_in(4) {
            cost(rng, cap)
        } else {
            shared
        };
        request.push((name, rng.pick(keys), cost));
    }
    if request.is_empty() {
        request.push(("ip", "1", shared));
    }
    request
}

fn nature_of(specs: &[LimitSpec], steps_back: bool) -> Nature {
    let least = |of: fn(&LimitSpec) -> u64| specs.iter().map(of).min().unwrap_or(1);
    Nature {
        params: format!("{specs:?}"),
        cap: least(|spec| spec.cap),
        cap_min: 1,
        cap_max: 0,
        tick: least(|spec| spec.p_ns / spec.n),
        fill: least(|spec| spec.p_ns.saturating_mul(spec.cap) / spec.n),
        small_back: if steps_back { HEAL_NS } else { 0 },
        floor: 0,
        has_refunds: false,
        has_rate: false,
        has_max_wait: false,
        goes_far_back: steps_back,
    }
}
