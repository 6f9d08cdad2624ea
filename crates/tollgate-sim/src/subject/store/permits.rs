//! A concurrency limiter of the public interface as a model: one key, its permits by the name of their holder.

use super::super::core::told::{answer, at, span};
use crate::model::LeaseModel;
use crate::oracle::Answer;
use std::collections::HashMap;
use tollgate::{ConcurrencyLimiter, Limit, ManualClock, Permit, Span, Verdict};

/// The key of all permits.
const KEY: &str = "key";

/// A concurrency limiter, its clock, and the permits that were granted.
#[derive(Debug)]
pub struct Permits {
    limiter: ConcurrencyLimiter<ManualClock>,
    ttl: Span,
    time: ManualClock,
    held: HashMap<String, Permit<ManualClock>>,
}

impl Permits {
    /// A limiter without a permit granted.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(limit: u64, ttl_ns: u64) -> Result<Self, String> {
        let (time, ttl) = (ManualClock::new(), span(ttl_ns));
        let limiter = ConcurrencyLimiter::with_clock(limit, ttl, time.clone())
            .map_err(|error| error.to_string())?;
        Ok(Self {
            limiter,
            ttl,
            time,
            held: HashMap::new(),
        })
    }

    fn told(&self, verdict: Verdict) -> Answer {
        answer(verdict, self.limiter.limiter().peek(KEY, 0).status)
    }

    /// Renews the permit of `id`; false if there is none or it is lost.
    fn renews(&mut self, id: &str) -> bool {
        self.held.get_mut(id).is_some_and(Permit::renew)
    }
}

/// Waiting does not bring a lost permit back, so there is no wait to tell.
fn held(is_held: bool) -> Verdict {
    if is_held {
        Verdict::Pass
    } else {
        Verdict::Refuse {
            retry_after: Span::ZERO,
        }
    }
}

impl LeaseModel for Permits {
    fn acquire(&mut self, t: u64, id: &str) -> Answer {
        self.time.set(at(t));
        if self.renews(id) {
            return self.told(Verdict::Pass);
        }
        match self.limiter.acquire(KEY) {
            Ok(permit) => {
                self.held.insert(id.to_owned(), permit);
                self.told(Verdict::Pass)
            }
            Err(verdict) => self.told(verdict),
        }
    }

    fn peek(&self, t: u64) -> Answer {
        self.time.set(at(t));
        let decision = self.limiter.limiter().peek(KEY, 1);
        answer(decision.verdict, decision.status)
    }

    fn renew(&mut self, t: u64, id: &str) -> Answer {
        self.time.set(at(t));
        let is_held = self.renews(id);
        self.told(held(is_held))
    }

    /// Dropping a permit does not tell whether it was live, so it is renewed first.
    fn release(&mut self, t: u64, id: &str) -> Answer {
        self.time.set(at(t));
        let is_held = self.renews(id);
        drop(self.held.remove(id));
        self.told(held(is_held))
    }

    fn set_limit(&mut self, t: u64, limit: u64) -> Result<Answer, String> {
        self.time.set(at(t));
        Limit::concurrency(limit, self.ttl)
            .and_then(|limit| self.limiter.limiter().change(limit))
            .map_err(|error| error.to_string())?;
        Ok(self.told(Verdict::Pass))
    }
}
