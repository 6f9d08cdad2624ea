//! One history of one key: core and oracle side by side.

use super::Walked;
use super::failure::{Failure, Recent};
use super::limits::any_rate;
use super::nature::{Nature, Time, cost};
use crate::model::{Change, Model};
use crate::oracle::{Answer, Verdict};
use crate::rng::Rng;
use std::collections::VecDeque;
use std::fmt;

/// Charges that may still be given back.
const CHARGES: usize = 4;

/// What is done in one step.
#[derive(Clone, Copy, Debug)]
enum Act {
    Check(u64),
    Peek(u64),
    Change(Change),
}

/// A step as a failure shows it.
#[derive(Clone, Copy, Debug)]
struct Done {
    t: u64,
    act: Act,
    answer: Answer,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { t, act, answer } = self;
        match act {
            Act::Check(cost) => write!(f, "t={t} check {cost}")?,
            Act::Peek(cost) => write!(f, "t={t} peek {cost}")?,
            Act::Change(change) => write!(f, "t={t} {change}")?,
        }
        write!(f, " -> {answer:?}")
    }
}

/// A history on its way.
struct Walk<O, C> {
    oracle: O,
    core: C,
    nature: Nature,
    time: Time,
    recent: Recent<Done>,
    /// Cost and time of the last charges that passed.
    charges: VecDeque<(u64, u64)>,
}

/// Walks `core` and `oracle`, both never used, through `steps` steps; how many they were.
///
/// # Errors
///
/// At the first answer of the core that is not the oracle's, or the first refusal that does not keep
/// its word.
pub fn walk<O: Model, C: Model>(
    oracle: O,
    core: C,
    nature: Nature,
    rng: &mut Rng,
    steps: u64,
) -> Walked {
    let mut walk = Walk {
        time: Time::begin(rng, &nature),
        oracle,
        core,
        nature,
        recent: Recent::new(),
        charges: VecDeque::with_capacity(CHARGES),
    };
    while walk.recent.count() < steps && walk.time.goes_on() {
        walk.time.pass(rng, &walk.nature);
        let act = walk.choose(rng);
        walk.step(act)?;
    }
    Ok(walk.recent.count())
}

impl<O: Model, C: Model> Walk<O, C> {
    fn choose(&mut self, rng: &mut Rng) -> Act {
        let cap = self.nature.cap;
        // Between a step far back and the next charge the state waits to be healed; what other
        // changes mean then is not laid down anywhere.
        let may_change = !self.time.is_far_behind(&self.nature);
        match rng.below(64) {
            0..=7 => Act::Peek(cost(rng, cap)),
            8..=13 if self.nature.has_refunds && may_change && !self.charges.is_empty() => {
                let (charged, issued) = self.refundable(rng);
                let cost = rng.between(1, charged.saturating_add(charged / 4));
                Act::Change(Change::Refund { cost, issued })
            }
            14 if self.nature.cap_max > 0 && may_change => {
                let near = cap.saturating_mul(2).min(self.nature.cap_max);
                let cap = rng.between(self.nature.cap_min, near);
                Act::Change(Change::SetCap { cap })
            }
            15 if self.nature.has_rate && may_change => {
                let (n, p_ns) = any_rate(rng, self.nature.cap.max(self.nature.cap_max));
                Act::Change(Change::SetRate { n, p_ns })
            }
            _ => Act::Check(cost(rng, cap)),
        }
    }

    /// A charge to give back: one that was made, and not in the future.
    fn refundable(&self, rng: &mut Rng) -> (u64, u64) {
        let at = rng.below(self.charges.len() as u64) as usize;
        let (charged, issued) = self.charges.get(at).copied().unwrap_or((1, 0));
        (charged, issued.min(self.time.now()))
    }

    fn step(&mut self, act: Act) -> Result<(), Box<Failure>> {
        let t = self.time.now();
        let told = match act {
            Act::Check(cost) => (Ok(self.oracle.check(t, cost)), Ok(self.core.check(t, cost))),
            Act::Peek(cost) => (Ok(self.oracle.peek(t, cost)), Ok(self.core.peek(t, cost))),
            Act::Change(change) => (self.oracle.change(t, change), self.core.change(t, change)),
        };
        let (Ok(expected), got) = told else {
            return Err(self.failure("the oracle cannot do this", &told.0, &told.1));
        };
        let answer = expected;
        self.recent.push(Done { t, act, answer });
        if got != Ok(expected) {
            return Err(self.failure("core and oracle disagree", &Ok(expected), &got));
        }
        if matches!(act, Act::Change(_)) {
            self.time.written();
        }
        match act {
            Act::Check(cost) => self.checked(t, cost, answer)?,
            Act::Peek(_) => {}
            Act::Change(Change::SetCap { cap }) => self.nature.cap = cap,
            Act::Change(_) => {}
        }
        Ok(())
    }

    fn checked(&mut self, t: u64, cost: u64, answer: Answer) -> Result<(), Box<Failure>> {
        if cost > 0 && answer.verdict != Verdict::Never {
            self.time.decided(&self.nature);
        }
        match answer.verdict {
            Verdict::Pass { .. } if cost > 0 => {
                if self.charges.len() == CHARGES {
                    self.charges.pop_front();
                }
                self.charges.push_back((cost, t));
            }
            Verdict::Refuse { retry_after } => {
                self.time.promise(retry_after);
                self.keeps_its_word(t, cost, retry_after, answer)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A refused request passes after the wait it was told, and not a nanosecond earlier.
    fn keeps_its_word(
        &self,
        t: u64,
        cost: u64,
        wait: u64,
        answer: Answer,
    ) -> Result<(), Box<Failure>> {
        // A wait that no clock can tell is told as the longest one.
        let Some(then) = t.checked_add(wait).filter(|_| wait < u64::MAX) else {
            return Ok(());
        };
        let is_full = answer.remaining < cost;
        let early = self.core.peek(then.saturating_sub(1), cost);
        if wait == 0 || early.passed() {
            return Err(self.failure("it passes earlier than told", &Ok(answer), &Ok(early)));
        }
        let late = self.core.peek(then, cost);
        let may_be_too_short = self.nature.has_max_wait && is_full;
        if !late.passed() && !may_be_too_short {
            return Err(self.failure("it does not pass when told", &Ok(answer), &Ok(late)));
        }
        Ok(())
    }

    fn failure(
        &self,
        what: &str,
        expected: &Result<Answer, String>,
        got: &Result<Answer, String>,
    ) -> Box<Failure> {
        self.recent
            .failure(&self.nature.params, what, expected, got)
    }
}
