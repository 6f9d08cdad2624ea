//! What one thread counted, and the sum of all threads.

use std::collections::BTreeMap;

use crate::audit::Ledger;
use crate::codec::Verdict;
use crate::histogram::Histogram;
use crate::pace::Pace;

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

/// What one target said, and what was lost of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) unjudged: u64,
    pub(crate) errors: u64,
    /// When it last said anything that was an answer, in the warm-up too.
    pub(crate) last_answer: Option<u64>,
    /// Connections that were given up.
    pub(crate) given_up: u64,
    /// When the first of them was, and why.
    pub(crate) loss: Option<(u64, String)>,
}

impl Share {
    fn add(&mut self, other: &Share) {
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.unjudged += other.unjudged;
        self.errors += other.errors;
        self.last_answer = self.last_answer.max(other.last_answer);
        self.given_up += other.given_up;
        self.lose(other.loss.as_ref());
    }

    /// The earliest loss is kept.
    fn lose(&mut self, loss: Option<&(u64, String)>) {
        let known = self.loss.as_ref().map_or(u64::MAX, |(moment, _)| *moment);
        if let Some(loss) = loss.filter(|(moment, _)| *moment < known) {
            self.loss = Some(loss.clone());
        }
    }
}

/// Counts.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Requests that begin earlier are not counted, except by the audit.
    pub(crate) counts_from: u64,
    /// By target, in the order of the plan.
    pub(crate) shares: Vec<Share>,
    pub(crate) errors: BTreeMap<String, u64>,
    /// Times of answers that are no errors.
    pub(crate) times: Histogram,
    pub(crate) last_answer: u64,
    /// When the last connection was done.
    pub(crate) ended: u64,
    /// Connections that were opened again.
    pub(crate) reconnects: u64,
    /// Requests that were due and that nobody had room to send.
    pub(crate) unsent: u64,
    /// How connections that were given up would have gone on.
    pub(crate) abandoned: Vec<Pace>,
    pub(crate) ledger: Option<Ledger>,
}

impl Tally {
    /// For so many targets.
    pub(crate) fn of(targets: usize) -> Tally {
        Tally {
            shares: vec![Share::default(); targets],
            ..Tally::default()
        }
    }

    /// Counts an answer of the target with this number.
    pub(crate) fn answer(&mut self, from: usize, flight: Flight, verdict: Verdict<'_>, now: u64) {
        if let (Verdict::Admitted, Some(ledger)) = (verdict, &mut self.ledger) {
            ledger.admit(flight.key, flight.sent, now);
        }
        let Some(share) = self.shares.get_mut(from) else {
            return;
        };
        share.last_answer = share.last_answer.max(Some(now));
        if flight.start < self.counts_from {
            return;
        }
        match verdict {
            Verdict::Admitted => share.admitted += 1,
            Verdict::Refused => share.refused += 1,
            Verdict::Answered => share.unjudged += 1,
            Verdict::Failed(failure) => return self.error(from, &failure.to_string(), 1),
        }
        self.times.record(now.saturating_sub(flight.start));
        self.last_answer = self.last_answer.max(now);
    }

    /// Counts errors of a kind, of the target with this number.
    pub(crate) fn error(&mut self, from: usize, kind: &str, times: u64) {
        if times == 0 {
            return;
        }
        if let Some(share) = self.shares.get_mut(from) {
            share.errors += times;
        }
        self.error_of_kind(kind, times);
    }

    fn error_of_kind(&mut self, kind: &str, times: u64) {
        let is_known = self.errors.contains_key(kind);
        let kind = match is_known || self.errors.len() < KINDS_MAX {
            true => kind,
            false => OTHER_KINDS,
        };
        *self.errors.entry(kind.to_owned()).or_default() += times;
    }

    /// A connection to the target with this number is given up.
    pub(crate) fn give_up(&mut self, on: usize, now: u64, why: String) {
        if let Some(share) = self.shares.get_mut(on) {
            share.given_up += 1;
            share.lose(Some(&(now, why)));
        }
    }

    /// Adds what another thread counted.
    pub(crate) fn add(&mut self, other: Tally) {
        for (mine, theirs) in self.shares.iter_mut().zip(&other.shares) {
            mine.add(theirs);
        }
        for (kind, times) in &other.errors {
            self.error_of_kind(kind, *times);
        }
        self.times.add(&other.times);
        self.last_answer = self.last_answer.max(other.last_answer);
        self.ended = self.ended.max(other.ended);
        self.reconnects += other.reconnects;
        self.unsent += other.unsent;
        self.abandoned.extend(other.abandoned);
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
        let mut tally = Tally::of(1);
        for number in 0..1000 {
            let text = format!("ERR {number}");
            let failure = Failure::Said(text.as_bytes());
            tally.answer(0, FLIGHT, Verdict::Failed(failure), 200);
        }
        assert_eq!(tally.errors.len(), KINDS_MAX + 1);
        assert_eq!(tally.errors.values().sum::<u64>(), 1000);
        assert_eq!(
            (tally.shares[0].errors, tally.shares[0].admitted),
            (1000, 0)
        );
        assert_eq!(tally.times.total(), 0);
    }

    #[test]
    fn the_warm_up_counts_for_the_audit_only() {
        let mut tally = Tally {
            counts_from: 101,
            ledger: Some(Ledger::new(1, 10)),
            ..Tally::of(1)
        };
        tally.answer(0, FLIGHT, Verdict::Admitted, 200);
        assert_eq!((tally.shares[0].admitted, tally.times.total()), (0, 0));
        assert_eq!(tally.shares[0].last_answer, Some(200));
        let later = Flight {
            start: 101,
            ..FLIGHT
        };
        tally.answer(0, later, Verdict::Admitted, 250);
        assert_eq!((tally.shares[0].admitted, tally.times.most()), (1, 149));
        assert_eq!(tally.ledger.map(|ledger| ledger.admitted(0)), Some(2));
    }

    #[test]
    fn what_two_threads_counted_is_added_target_by_target_and_the_first_loss_is_told() {
        let (mut one, mut other) = (Tally::of(2), Tally::of(2));
        one.answer(0, FLIGHT, Verdict::Admitted, 200);
        one.answer(1, FLIGHT, Verdict::Answered, 210);
        one.give_up(1, 900, "later".into());
        other.answer(1, FLIGHT, Verdict::Refused, 300);
        other.error(1, "gone", 3);
        other.give_up(1, 800, "first".into());
        other.give_up(1, 850, "second".into());
        let mut all = Tally::of(2);
        all.add(one);
        all.add(other);
        let [first, second] = all.shares.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!((first.admitted, first.errors, first.given_up), (1, 0, 0));
        assert_eq!((second.refused, second.unjudged, second.errors), (1, 1, 3));
        assert_eq!((second.last_answer, second.given_up), (Some(300), 3));
        assert_eq!(second.loss, Some((800, "first".into())));
        assert_eq!(all.errors.get("gone"), Some(&3));
    }
}
