//! What one thread counted, and the sum of all threads.

use std::collections::BTreeMap;

use crate::audit::Ledger;
use crate::codec::Verdict;
use crate::histogram::Histogram;

/// Kinds of errors that are told apart; servers may put anything into their texts.
const KINDS_MAX: usize = 16;
const OTHER_KINDS: &str = "other errors";

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) key: u64,
    /// When it was written, or just before.
    pub(crate) sent: u64,
    /// From when its time counts: when it was due, if it had to wait for others.
    pub(crate) start: u64,
}

/// Counts.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Requests that begin earlier are not counted, except by the audit.
    pub(crate) counts_from: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    /// Times of answers that say yes or no.
    pub(crate) times: Histogram,
    pub(crate) last_answer: u64,
    /// When the last connection was done.
    pub(crate) ended: u64,
    /// Connections that were opened again.
    pub(crate) reconnects: u64,
    /// Requests that were due and that nobody had room to send.
    pub(crate) unsent: u64,
    pub(crate) ledger: Option<Ledger>,
}

impl Tally {
    /// Counts an answer.
    pub(crate) fn answer(&mut self, flight: Flight, verdict: Verdict<'_>, now: u64) {
        if let (Verdict::Admitted, Some(ledger)) = (verdict, &mut self.ledger) {
            ledger.admit(flight.key, flight.sent, now);
        }
        if flight.start < self.counts_from {
            return;
        }
        match verdict {
            Verdict::Admitted => self.admitted += 1,
            Verdict::Refused => self.refused += 1,
            Verdict::Failed(failure) => return self.error(&failure.to_string(), 1),
        }
        self.times.record(now.saturating_sub(flight.start));
        self.last_answer = self.last_answer.max(now);
    }

    /// Counts errors of a kind.
    pub(crate) fn error(&mut self, kind: &str, times: u64) {
        if times == 0 {
            return;
        }
        let is_known = self.errors.contains_key(kind);
        let kind = match is_known || self.errors.len() < KINDS_MAX {
            true => kind,
            false => OTHER_KINDS,
        };
        *self.errors.entry(kind.to_owned()).or_default() += times;
    }

    /// Adds what another thread counted.
    pub(crate) fn add(&mut self, other: Tally) {
        self.admitted += other.admitted;
        self.refused += other.refused;
        for (kind, times) in &other.errors {
            self.error(kind, *times);
        }
        self.times.add(&other.times);
        self.last_answer = self.last_answer.max(other.last_answer);
        self.ended = self.ended.max(other.ended);
        self.reconnects += other.reconnects;
        self.unsent += other.unsent;
        match (&mut self.ledger, other.ledger) {
            (Some(mine), Some(theirs)) => mine.add(theirs),
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Failure;

    const FLIGHT: Flight = Flight {
        key: 0,
        sent: 100,
        start: 100,
    };

    #[test]
    fn a_server_that_makes_up_errors_does_not_fill_the_memory() {
        let mut tally = Tally::default();
        for number in 0..1000 {
            let text = format!("ERR {number}");
            let failure = Failure::Said(text.as_bytes());
            tally.answer(FLIGHT, Verdict::Failed(failure), 200);
        }
        assert_eq!(tally.errors.len(), KINDS_MAX + 1);
        assert_eq!(tally.errors.values().sum::<u64>(), 1000);
        assert_eq!((tally.times.total(), tally.admitted), (0, 0));
    }

    #[test]
    fn the_warm_up_counts_for_the_audit_only() {
        let mut tally = Tally {
            counts_from: 101,
            ledger: Some(Ledger::new(1, 10)),
            ..Tally::default()
        };
        tally.answer(FLIGHT, Verdict::Admitted, 200);
        assert_eq!((tally.admitted, tally.times.total()), (0, 0));
        let later = Flight {
            start: 101,
            ..FLIGHT
        };
        tally.answer(later, Verdict::Admitted, 250);
        assert_eq!((tally.admitted, tally.times.most()), (1, 149));
        assert_eq!(tally.ledger.map(|ledger| ledger.admitted(0)), Some(2));
    }
}
