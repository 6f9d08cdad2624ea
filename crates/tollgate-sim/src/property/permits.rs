//! Histories of permits: several holders, one limit, and a clock that does not step back. The limiter moves
//! permits to another epoch then, which the oracle does not model.

use super::Walked;
use super::failure::Recent;
use super::input_profile::{InputProfile, Time};
use crate::model::{PermitModel, PermitOp};
use crate::oracle::{OracleConcurrency, OracleVerdict};
use crate::rng::Rng;
use crate::subject::permits::StorePermits;

const HOLDERS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// A history of permits.
///
/// # Errors
///
/// If limiter and oracle disagree, or the wait of a refusal is too long or too short.
pub fn walk(rng: &mut Rng, steps: u64) -> Walked {
    let limit = rng.between(1, 9);
    let ttl_ns = rng.magnitude(1 << 45);
    let profile = InputProfile {
        cap: limit,
        tick: ttl_ns / limit,
        fill: ttl_ns,
        ..InputProfile::default()
    };
    let mut recent = Recent::new(format!("limit {limit} ttl_ns {ttl_ns}"));
    let mut oracle = OracleConcurrency::new(limit, ttl_ns);
    let mut store =
        StorePermits::new(limit, ttl_ns).map_err(|error| recent.setup_failure(error))?;
    let mut time = Time::new(rng, &profile);
    while recent.count() < steps && time.is_running() {
        time.advance(rng, &profile);
        let t = time.now();
        let holder = rng.pick(&HOLDERS);
        let op = match rng.below(32) {
            0..=3 => PermitOp::Peek,
            4..=9 => PermitOp::Renew,
            10..=15 => PermitOp::Release,
            16 => PermitOp::SetLimit(rng.between(1, 9)),
            _ => PermitOp::Acquire,
        };
        let expected = oracle.apply(t, op, holder);
        let got = store.apply(t, op, holder);
        time.written();
        recent.push(&format_args!("t={t} {op:?} {holder} -> {expected:?}"));
        if got != expected {
            return Err(recent.failure("core and oracle disagree", expected, got));
        }
        if let (PermitOp::Acquire, Ok(answer)) = (op, expected)
            && let OracleVerdict::Refuse { retry_after } = answer.verdict
        {
            time.refused(retry_after);
            let mut peek = |at| store.apply(at, PermitOp::Peek, holder);
            let early = peek((t + retry_after).saturating_sub(1));
            let late = peek(t + retry_after);
            let passes = |answer: &Result<crate::oracle::OracleDecision, String>| {
                answer.as_ref().is_ok_and(|answer| answer.passed())
            };
            if passes(&early) || !passes(&late) {
                return Err(recent.failure("a wait is wrong", answer, (early, late)));
            }
        }
    }
    Ok(recent.count())
}
