//! Histories of leases: several holders, one limit, and a clock that does not step back: the limiter moves
//! permits to another epoch then, which the oracle does not model.

use super::Walked;
use super::failure::{Failure, Recent};
use super::nature::{Nature, Time};
use crate::model::LeaseModel;
use crate::oracle::{Answer, Concurrency, Verdict};
use crate::rng::Rng;
use crate::subject::store::permits::Permits;
use std::fmt;

/// Those who ask for leases.
const HOLDERS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

#[derive(Clone, Copy, Debug)]
enum Act {
    Acquire,
    Peek,
    Renew,
    Release,
    SetLimit(u64),
}

struct Done {
    t: u64,
    act: Act,
    holder: &'static str,
    answer: Answer,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            t,
            act,
            holder,
            answer,
        } = self;
        write!(f, "t={t} {act:?} {holder} -> {answer:?}")
    }
}

/// A history of leases.
///
/// # Errors
///
/// If core and oracle disagree, or a refusal does not keep its word.
pub fn walk(rng: &mut Rng, steps: u64) -> Walked {
    let limit = rng.between(1, 9);
    let ttl_ns = rng.magnitude(1 << 45);
    let nature = nature_of(limit, ttl_ns);
    let mut oracle = Concurrency::new(limit, ttl_ns);
    let mut store =
        Permits::new(limit, ttl_ns).map_err(|what| Failure::setup(nature.params.clone(), what))?;
    let mut time = Time::begin(rng, &nature);
    let mut recent = Recent::new();
    while recent.count() < steps && time.goes_on() {
        time.pass(rng, &nature);
        let t = time.now();
        let holder = rng.pick(&HOLDERS);
        let act = match rng.below(32) {
            0..=3 => Act::Peek,
            4..=9 => Act::Renew,
            10..=15 => Act::Release,
            16 => Act::SetLimit(rng.between(1, 9)),
            _ => Act::Acquire,
        };
        let expected = act_on(&mut oracle, act, t, holder);
        let got = act_on(&mut store, act, t, holder);
        time.written();
        let answer = expected
            .clone()
            .map_err(|what| Box::new(Failure::setup(nature.params.clone(), what)))?;
        recent.push(Done {
            t,
            act,
            holder,
            answer,
        });
        if got != expected {
            return Err(recent.failure(&nature.params, "core and oracle disagree", expected, got));
        }
        if let (Act::Acquire, Verdict::Refuse { retry_after }) = (act, answer.verdict) {
            time.promise(retry_after);
            let early = store.peek((t + retry_after).saturating_sub(1));
            let late = store.peek(t + retry_after);
            if early.passed() || !late.passed() {
                let what = "a refusal does not keep its word";
                return Err(recent.failure(&nature.params, what, answer, (early, late)));
            }
        }
    }
    Ok(recent.count())
}

fn nature_of(limit: u64, ttl_ns: u64) -> Nature {
    Nature {
        params: format!("limit {limit} ttl_ns {ttl_ns}"),
        cap: limit,
        cap_min: 1,
        cap_max: 0,
        tick: ttl_ns / limit,
        fill: ttl_ns,
        small_back: 0,
        floor: 0,
        has_refunds: false,
        has_rate: false,
        has_max_wait: false,
        goes_far_back: false,
    }
}

fn act_on<L: LeaseModel>(leases: &mut L, act: Act, t: u64, id: &str) -> Result<Answer, String> {
    Ok(match act {
        Act::Acquire => leases.acquire(t, id),
        Act::Peek => leases.peek(t),
        Act::Renew => leases.renew(t, id),
        Act::Release => leases.release(t, id),
        Act::SetLimit(limit) => return leases.set_limit(t, limit),
    })
}
