//! One history of one key: oracle and product side by side.

use super::Walked;
use super::draw::exact_rate;
use super::failure::{Failure, Recent};
use super::input_profile::{InputProfile, Time, cost};
use crate::model::{Model, ModelChange};
use crate::oracle::{OracleDecision, OracleVerdict};
use crate::rng::Rng;
use std::collections::VecDeque;

/// Charges that may still be given back.
const CHARGES: usize = 4;
/// The one key.
const KEY: &str = "key";

/// What is done in one step.
#[derive(Clone, Copy, Debug)]
enum WalkStep {
    Check(u64),
    Peek(u64),
    Change(ModelChange),
}

/// The state of a history.
struct Walk<'a> {
    oracle: Box<dyn Model>,
    product: &'a mut dyn Model,
    profile: InputProfile,
    time: Time,
    recent: Recent,
    /// Cost and time of the last charges that passed.
    charges: VecDeque<(u64, u64)>,
}

/// Walks the oracle and the product, both never used, through `steps` steps; how many they were.
///
/// # Errors
///
/// At the first answer of the product that is not the oracle's, or the first refusal whose wait is
/// too long or too short.
pub fn walk(
    oracle: Box<dyn Model>,
    product: &mut dyn Model,
    (profile, params): (InputProfile, String),
    rng: &mut Rng,
    steps: u64,
) -> Walked {
    let mut walk = Walk {
        time: Time::new(rng, &profile),
        oracle,
        product,
        profile,
        recent: Recent::new(params),
        charges: VecDeque::with_capacity(CHARGES),
    };
    while walk.recent.count() < steps && walk.time.is_running() {
        walk.time.advance(rng, &walk.profile);
        let act = walk.choose(rng);
        walk.step(act)?;
    }
    Ok(walk.recent.count())
}

impl Walk<'_> {
    fn choose(&mut self, rng: &mut Rng) -> WalkStep {
        let cap = self.profile.cap;
        // Between a step far back and the next charge the state waits to be repaired; what other
        // changes mean then is not specified.
        let may_change = !self.time.is_far_behind(&self.profile);
        match rng.below(64) {
            0..=7 => WalkStep::Peek(cost(rng, cap)),
            8..=13 if self.profile.has_refunds && may_change && !self.charges.is_empty() => {
                let (charged, issued) = self.refundable(rng);
                let cost = rng.between(1, charged.saturating_add(charged / 4));
                WalkStep::Change(ModelChange::Refund { cost, issued })
            }
            14 if self.profile.cap_max > 0 && may_change => {
                let near = cap.saturating_mul(2).min(self.profile.cap_max);
                let cap = rng.between(self.profile.cap_min, near);
                WalkStep::Change(ModelChange::SetCap { cap })
            }
            15 if self.profile.has_rate && may_change => {
                let (n, p_ns) = exact_rate(rng, self.profile.cap.max(self.profile.cap_max));
                WalkStep::Change(ModelChange::SetRate { n, p_ns })
            }
            16..=19 if self.profile.has_late_costs && may_change => {
                let cost = rng.between(1, cap.saturating_mul(2));
                WalkStep::Change(ModelChange::Late { cost })
            }
            _ => WalkStep::Check(cost(rng, cap)),
        }
    }

    /// A charge to give back: one that was made, and not in the future.
    fn refundable(&self, rng: &mut Rng) -> (u64, u64) {
        let at = rng.below(self.charges.len() as u64) as usize;
        let (charged, issued) = self.charges.get(at).copied().unwrap_or((1, 0));
        (charged, issued.min(self.time.now()))
    }

    fn step(&mut self, act: WalkStep) -> Result<(), Box<Failure>> {
        let t = self.time.now();
        let run = |model: &mut dyn Model| match act {
            WalkStep::Check(cost) => Ok(model.check(KEY, t, cost)),
            WalkStep::Peek(cost) => Ok(model.peek(KEY, t, cost)),
            WalkStep::Change(change) => model.change(KEY, t, change),
        };
        let (expected, got) = (run(self.oracle.as_mut()), run(self.product));
        let Ok(answer) = expected else {
            return Err(self
                .recent
                .failure("the oracle cannot do this", expected, got));
        };
        self.recent
            .push(&format_args!("t={t} {act:?} -> {answer:?}"));
        if got != expected {
            return Err(self
                .recent
                .failure("core and oracle disagree", expected, got));
        }
        match act {
            WalkStep::Check(cost) => return self.checked(t, cost, answer),
            WalkStep::Peek(_) => {}
            WalkStep::Change(change) => {
                self.time.written();
                if let ModelChange::SetCap { cap } = change {
                    self.profile.cap = cap;
                }
            }
        }
        Ok(())
    }

    fn checked(&mut self, t: u64, cost: u64, answer: OracleDecision) -> Result<(), Box<Failure>> {
        if cost > 0 && answer.verdict != OracleVerdict::Never {
            self.time.decided(&self.profile);
        }
        match answer.verdict {
            OracleVerdict::Pass { .. } if cost > 0 => {
                if self.charges.len() == CHARGES {
                    self.charges.pop_front();
                }
                self.charges.push_back((cost, t));
            }
            OracleVerdict::Refuse { retry_after } => {
                self.time.refused(retry_after);
                self.check_wait(t, cost, retry_after, answer)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A refused request passes after its wait, and not a nanosecond earlier.
    fn check_wait(
        &self,
        t: u64,
        cost: u64,
        wait: u64,
        answer: OracleDecision,
    ) -> Result<(), Box<Failure>> {
        // A wait beyond the clock is reported as the longest one.
        let Some(then) = t.checked_add(wait).filter(|_| wait < u64::MAX) else {
            return Ok(());
        };
        let is_full = answer.remaining < cost;
        let early = self.product.peek(KEY, then.saturating_sub(1), cost);
        if wait == 0 || early.passed() {
            return Err(self
                .recent
                .failure("it passes before its wait", answer, early));
        }
        let late = self.product.peek(KEY, then, cost);
        let may_be_too_short = self.profile.has_max_wait && is_full;
        if !late.passed() && !may_be_too_short {
            return Err(self
                .recent
                .failure("it does not pass after its wait", answer, late));
        }
        Ok(())
    }
}
