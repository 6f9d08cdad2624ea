//! A concurrency limiter of the public interface: one key, its permits by the name of their holder.

use super::convert::{answer, answer_of, at, span};
use crate::model::{PermitModel, PermitOp};
use crate::oracle::OracleDecision;
use std::collections::HashMap;
use tollgate::{ConcurrencyLimiter, Limit, ManualClock, Permit, Span, Verdict};

/// The key of all permits.
const KEY: &str = "key";

/// A concurrency limiter, its clock, and the permits that were granted.
#[derive(Debug)]
pub struct StorePermits {
    limiter: ConcurrencyLimiter<ManualClock>,
    ttl: Span,
    time: ManualClock,
    held: HashMap<String, Permit<ManualClock>>,
}

impl StorePermits {
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

    fn acquire(&mut self, id: &str) -> Verdict {
        match self.limiter.acquire(KEY) {
            Ok(permit) => {
                self.held.insert(id.to_owned(), permit);
                Verdict::Pass
            }
            Err(error) => match error.retry_after {
                Some(retry_after) => Verdict::Refuse { retry_after },
                None => Verdict::Never,
            },
        }
    }
}

impl PermitModel for StorePermits {
    fn apply(&mut self, t: u64, op: PermitOp, id: &str) -> Result<OracleDecision, String> {
        self.time.set(at(t));
        match op {
            PermitOp::Peek => return Ok(answer_of(&self.limiter.limiter().peek(KEY, 1))),
            PermitOp::SetLimit(limit) => {
                Limit::concurrency(limit, self.ttl)
                    .and_then(|limit| self.limiter.limiter().change(limit))
                    .map_err(|error| error.to_string())?;
            }
            PermitOp::Acquire | PermitOp::Renew | PermitOp::Release => {}
        }
        // Dropping a permit does not report whether it was live, so it is renewed before.
        let is_op_of_holder = !matches!(op, PermitOp::SetLimit(_));
        let is_held = is_op_of_holder && self.held.get_mut(id).is_some_and(Permit::renew);
        let verdict = match op {
            PermitOp::Acquire if !is_held => self.acquire(id),
            PermitOp::Renew | PermitOp::Release if !is_held => Verdict::Refuse {
                retry_after: Span::ZERO,
            },
            _ => Verdict::Pass,
        };
        if op == PermitOp::Release {
            drop(self.held.remove(id));
        }
        Ok(answer(verdict, self.limiter.limiter().peek(KEY, 0).status))
    }
}
