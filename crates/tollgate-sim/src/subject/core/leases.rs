//! The core's leases as a model.

use super::told::{answer, at, span};
use crate::model::LeaseModel;
use crate::oracle::Answer;
use tollgate::algorithm::concurrency::Leases;
use tollgate::{Span, Verdict};

/// A concurrency limit that knows its holders by name.
#[derive(Clone, Debug)]
pub struct LeaseSteps(Leases<String>);

impl LeaseSteps {
    /// Nobody holds a lease yet.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(limit: u32, ttl_ns: u64) -> Result<Self, String> {
        Leases::new(limit, span(ttl_ns))
            .map(Self)
            .map_err(|error| error.to_string())
    }

    fn told(&self, t: u64, verdict: Verdict) -> Answer {
        answer(verdict, self.0.standing(at(t)))
    }
}

/// Waiting does not bring a lost lease back, so there is no wait to tell.
fn held(is_held: bool) -> Verdict {
    if is_held {
        Verdict::Pass
    } else {
        Verdict::Refuse {
            retry_after: Span::ZERO,
        }
    }
}

impl LeaseModel for LeaseSteps {
    fn acquire(&mut self, t: u64, id: &str) -> Answer {
        let verdict = self.0.acquire(at(t), id.to_owned());
        self.told(t, verdict)
    }

    fn peek(&self, t: u64, id: &str) -> Answer {
        self.clone().acquire(t, id)
    }

    fn renew(&mut self, t: u64, id: &str) -> Answer {
        let is_held = self.0.renew(at(t), &id.to_owned());
        self.told(t, held(is_held))
    }

    fn release(&mut self, t: u64, id: &str) -> Answer {
        let is_held = self.0.release(at(t), &id.to_owned());
        self.told(t, held(is_held))
    }

    fn set_limit(&mut self, t: u64, limit: u64) -> Result<Answer, String> {
        let limit = u32::try_from(limit).map_err(|error| error.to_string())?;
        self.0.set_limit(limit).map_err(|error| error.to_string())?;
        Ok(self.told(t, Verdict::Pass))
    }
}
