//! The sliding log as a model: a ring of stamps per key.

use super::convert::{answer, at, span};
use crate::model::{KeyModel, ModelChange};
use crate::oracle::OracleDecision;
use std::cell::Cell;
use tollgate::algorithm::log::{Log, Ring};
use tollgate::{QuotaStatus, Verdict};

/// One key of a sliding log.
#[derive(Clone, Debug)]
pub struct LogSteps {
    log: Log,
    cells: Vec<Cell<u64>>,
}

impl LogSteps {
    /// A key never used.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(limit: u64, window_ns: u64) -> Result<Self, String> {
        let log = Log::new(limit, span(window_ns)).map_err(|error| error.to_string())?;
        Ok(Self {
            log,
            cells: vec![Cell::new(0); log.cells()],
        })
    }

    /// A limit has at least one unit, so there always is a ring; without one nothing would pass.
    fn ring(&self) -> Option<Ring<'_, Cell<u64>>> {
        Ring::over(&self.cells)
    }

    fn charge(&self, t: u64, cost: u64, take: bool) -> OracleDecision {
        let nothing = (Verdict::Never, QuotaStatus::default());
        let (verdict, status) = self
            .ring()
            .map_or(nothing, |ring| self.log.charge(ring, at(t), cost, take));
        answer(verdict, status)
    }

    /// Another limit. A ring that is too short for it is laid out anew.
    fn set_limit(&mut self, limit: u64) -> Result<(), String> {
        let mut next = Self::new(limit, self.log.window().as_nanos())?;
        if next.cells.len() <= self.cells.len() {
            self.log = next.log;
            return Ok(());
        }
        if let (Some(to), Some(from)) = (next.ring(), self.ring()) {
            to.copy_from(from);
        }
        std::mem::swap(self, &mut next);
        Ok(())
    }
}

impl KeyModel for LogSteps {
    fn check(&mut self, t: u64, cost: u64) -> OracleDecision {
        self.charge(t, cost, true)
    }

    fn peek(&self, t: u64, cost: u64) -> OracleDecision {
        self.charge(t, cost, false)
    }

    fn change(&mut self, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        match change {
            ModelChange::Refund { cost, issued } => {
                if let Some(ring) = self.ring() {
                    self.log.refund(ring, cost, at(issued));
                }
            }
            ModelChange::SetCap { cap } => self.set_limit(cap)?,
            _ => return Err(change.unsupported()),
        }
        let status = self.ring().map(|ring| self.log.status(ring, at(t)));
        Ok(answer(Verdict::Pass, status.unwrap_or_default()))
    }
}
