//! Histories of several buckets charged together: the gate against the oracle's hierarchy.
//!
//! A store forgets keys that are as if never used when it needs their place. If the clock then steps
//! back to a moment at which they were not, they are better off than in the oracle, which forgets
//! nothing. So a history has either several keys or a clock that steps back.

use super::Walked;
use super::draw::exact_rate;
use super::failure::Recent;
use super::input_profile::{InputProfile, Time, cost};
use crate::model::{GroupModel, ModelCharge};
use crate::oracle::bucket::REPAIR_NS;
use crate::oracle::{LimitSpec, OracleHierarchy, OracleVerdict};
use crate::rng::Rng;
use crate::subject::gate::GateGroup;
use crate::subject::group::OpenGroup;

/// The names of the limits, in the order of configuration.
const NAMES: [&str; 4] = ["ip", "key", "user", "org"];
const KEYS: [&str; 3] = ["1", "2", "3"];

type GroupRequest = Vec<ModelCharge<'static>>;

/// A history of two to four limits behind one gate.
///
/// # Errors
///
/// If gate and oracle disagree, or the wait of a refusal is too long or too short.
pub fn walk(rng: &mut Rng, steps: u64) -> Walked {
    let specs = limits(rng);
    let keys = if rng.one_in(2) {
        KEYS.as_slice()
    } else {
        &["1"]
    };
    let profile = profile_of(&specs, keys.len() == 1);
    let mut recent = Recent::new(format!("{specs:?}"));
    let mut gate = GateGroup::new(&specs).map_err(|error| recent.setup_failure(error))?;
    let names = specs.len();
    let mut oracle = OracleHierarchy::new(specs);
    let mut time = Time::new(rng, &profile);
    while recent.count() < steps && time.is_running() {
        time.advance(rng, &profile);
        let t = time.now();
        let request = request(rng, names, keys, profile.cap);
        let expected = oracle.charge(t, &request, true);
        let got = gate.charge(t, &request, true);
        time.decided(&profile);
        let charges: Vec<String> = request
            .iter()
            .map(|ModelCharge { limit, key, cost }| format!("{limit}={key}:{cost}"))
            .collect();
        recent.push(&format_args!(
            "t={t} admit {} -> {expected:?}",
            charges.join(" ")
        ));
        if got != expected {
            return Err(recent.failure("gate and oracle disagree", expected, got));
        }
        if let Ok(answered) = expected
            && let OracleVerdict::Refuse { retry_after } = answered.answer.verdict
        {
            time.refused(retry_after);
            let then = t.saturating_add(retry_after);
            let early = passes(&gate, then.saturating_sub(1), &request);
            let late = passes(&gate, then, &request);
            if early || !late {
                let what = "a wait is wrong: would the request pass just before its end, and then";
                return Err(recent.failure(what, (false, true), (early, late)));
            }
        }
    }
    Ok(recent.count())
}

/// Whether every limit on its own would let its charge pass at `t`.
fn passes(gate: &GateGroup, t: u64, request: &GroupRequest) -> bool {
    let mut charges = request.iter();
    charges.all(|charge| gate.peek(t, *charge).is_ok_and(|answer| answer.passed()))
}

fn limits(rng: &mut Rng) -> Vec<LimitSpec> {
    let count = rng.between(2, 4) as usize;
    let mut limit = |name: &&str| {
        let cap = match rng.below(4) {
            0 => rng.between(1, 100),
            _ => rng.between(1, 12),
        };
        let (n, p_ns) = exact_rate(rng, cap);
        LimitSpec {
            name: (*name).to_owned(),
            cap,
            n,
            p_ns: p_ns.min(1 << 36),
        }
    };
    NAMES.iter().take(count).map(&mut limit).collect()
}

fn request(rng: &mut Rng, names: usize, keys: &[&'static str], cap: u64) -> GroupRequest {
    let shared = cost(rng, cap);
    let mut request = GroupRequest::new();
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
        let key = rng.pick(keys);
        request.push(ModelCharge {
            limit: name,
            key,
            cost,
        });
    }
    if request.is_empty() {
        request.push(ModelCharge {
            limit: "ip",
            key: "1",
            cost: shared,
        });
    }
    request
}

fn profile_of(specs: &[LimitSpec], steps_back: bool) -> InputProfile {
    let least = |of: fn(&LimitSpec) -> u64| specs.iter().map(of).min().unwrap_or(1);
    InputProfile {
        cap: least(|spec| spec.cap),
        cap_min: 1,
        tick: least(|spec| spec.p_ns / spec.n),
        fill: least(|spec| spec.p_ns.saturating_mul(spec.cap) / spec.n),
        small_back: if steps_back { REPAIR_NS } else { 0 },
        goes_far_back: steps_back,
        ..InputProfile::default()
    }
}
