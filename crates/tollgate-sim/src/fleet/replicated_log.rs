//! A sliding log of the simulated store, with a replica that lags.
//!
//! # Theory
//!
//! A log is too long to be noted anew with every change. So it is kept twice: as it is, and as it was a while ago, with all
//! changes since. A failover takes the older one and repeats the changes that the replica had received. Both use the
//! core's steps.
//!
//! # Invariant
//!
//! The older log and all recorded changes make the present one.
//!
//! # What it does not know
//!
//! Which clock moments are from.

use std::cell::Cell;
use std::collections::VecDeque;

use tollgate::algorithm::log::{Log, Ring};
use tollgate::{Moment, QuotaStatus, Verdict};

/// A log that has no cells holds nothing; every log has some.
const NOTHING: QuotaStatus = QuotaStatus {
    remaining: 0,
    full_after: tollgate::Span::ZERO,
    next_after: tollgate::Span::ZERO,
};

/// The log of one key.
#[derive(Debug)]
pub(super) struct ReplicatedLog {
    log: Log,
    now: Cells,
    before: Cells,
    /// The changes since `before`, with their simulation time.
    changes: VecDeque<(u64, LogChange)>,
}

type Cells = Vec<Cell<u64>>;

/// A change that can be made again.
#[derive(Clone, Copy, Debug)]
enum LogChange {
    Charge { now: Moment, cost: u64 },
    AddUsage { now: Moment, cost: u64 },
    Refund { issued: Moment, cost: u64 },
}

impl LogChange {
    fn make(self, log: &Log, cells: &Cells) {
        let Some(ring) = Ring::over(cells) else {
            return;
        };
        match self {
            LogChange::Charge { now, cost } => {
                let _ = log.charge(ring, now, cost, true);
            }
            LogChange::AddUsage { now, cost } => {
                log.charge_saturating(ring, now, cost);
            }
            LogChange::Refund { issued, cost } => log.refund(ring, cost, issued),
        }
    }
}

impl ReplicatedLog {
    /// Of a key never used.
    pub(super) fn new(log: Log) -> ReplicatedLog {
        let cells: Cells = vec![Cell::new(0); log.cells()];
        ReplicatedLog {
            log,
            now: cells.clone(),
            before: cells,
            changes: VecDeque::new(),
        }
    }

    fn ring(&self) -> Option<Ring<'_, Cell<u64>>> {
        Ring::over(&self.now)
    }

    /// What a charge would come to, and how the key would stand then.
    pub(super) fn peek(&self, now: Moment, cost: u64) -> (Verdict, QuotaStatus) {
        let ring = self.ring();
        ring.map_or((Verdict::Never, NOTHING), |ring| {
            self.log.charge(ring, now, cost, false)
        })
    }

    /// How the key stands.
    pub(super) fn status(&self, now: Moment) -> QuotaStatus {
        let ring = self.ring();
        ring.map_or(NOTHING, |ring| self.log.status(ring, now))
    }

    /// Charges at this simulation time. A refusal changes nothing, unless the clock was set back.
    pub(super) fn charge(&mut self, simulation: u64, now: Moment, cost: u64) {
        let is_back = self.ring().and_then(Ring::newest) > Some(now);
        if is_back || self.peek(now, cost).0.is_admitted() {
            self.change(simulation, LogChange::Charge { now, cost });
        }
    }

    /// Adds usage that already happened, and returns what did not fit.
    pub(super) fn add_usage(&mut self, simulation: u64, now: Moment, cost: u64) -> u64 {
        let room = self.status(now).remaining;
        self.change(simulation, LogChange::AddUsage { now, cost });
        cost.saturating_sub(room)
    }

    /// Gives back what was charged at `issued`.
    pub(super) fn refund(&mut self, simulation: u64, issued: Moment, cost: u64) {
        self.change(simulation, LogChange::Refund { issued, cost });
    }

    fn change(&mut self, simulation: u64, change: LogChange) {
        change.make(&self.log, &self.now);
        self.changes.push_back((simulation, change));
        while let Some((at, change)) = self.changes.front().copied()
            && at + super::fake_store::FORGETS_MAX < simulation
        {
            change.make(&self.log, &self.before);
            self.changes.pop_front();
        }
    }

    /// Forgets what happened from then on.
    pub(super) fn fail_over(&mut self, since: u64) {
        self.changes.retain(|(at, _)| *at < since);
        self.now.clone_from(&self.before);
        for (_, change) in &self.changes {
            change.make(&self.log, &self.now);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use super::*;
    use tollgate::Span;

    const SECOND: u64 = 1_000_000_000;

    fn totals() -> ReplicatedLog {
        ReplicatedLog::new(Log::new(10, Span::from_secs(60)).unwrap())
    }

    fn left(totals: &ReplicatedLog, now: u64) -> u64 {
        totals.status(Moment::from_nanos(now)).remaining
    }

    #[test]
    fn a_failover_forgets_the_last_moments_and_nothing_else() {
        let mut totals = totals();
        for second in 1..=5 {
            let at = second * SECOND;
            totals.charge(at, Moment::from_nanos(at), 1);
        }
        totals.refund(6 * SECOND, Moment::from_nanos(SECOND), 1);
        assert_eq!(left(&totals, 6 * SECOND), 6);
        totals.fail_over(6 * SECOND);
        assert_eq!(left(&totals, 6 * SECOND), 5);
        totals.fail_over(5 * SECOND);
        assert_eq!(left(&totals, 6 * SECOND), 6);
        // Changes are kept for a second: every replica has received older ones.
        totals.fail_over(0);
        assert!(left(&totals, 6 * SECOND) < 10);
    }

    #[test]
    fn what_does_not_fit_is_returned() {
        let mut totals = totals();
        let now = Moment::from_nanos(SECOND);
        assert_eq!(totals.add_usage(SECOND, now, 7), 0);
        assert_eq!(totals.add_usage(SECOND, now, 7), 4);
        assert!(!totals.peek(now, 1).0.is_admitted());
    }
}
