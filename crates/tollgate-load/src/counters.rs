//! The counters of one thread, and their sum.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::audit::AdmissionLog;
use crate::codec::Judgement;
use crate::histogram::Histogram;
use crate::report::{Loss, TargetReport};
use crate::schedule::Schedule;

/// The most kinds of errors: their texts come from servers.
const MAX_ERROR_KINDS: usize = 16;
const OTHER_KINDS: &str = "other errors";

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentRequest {
    pub(crate) key: u64,
    /// When it was written, or just before.
    pub(crate) sent: u64,
    /// When its time starts: when it was due, if it had to wait for others.
    pub(crate) start: u64,
}

/// The counters of a run.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Earlier requests are not counted, except by the audit.
    pub(crate) measured_from: u64,
    /// By target, in the order of the plan. Moments are since the stopwatch started.
    pub(crate) targets: Vec<TargetReport>,
    pub(crate) errors: BTreeMap<String, u64>,
    /// Times of responses that are no errors.
    pub(crate) times: Histogram,
    pub(crate) last_response: u64,
    /// When the last connection was done.
    pub(crate) ended: u64,
    /// Connections that were reopened.
    pub(crate) reconnects: u64,
    /// Requests that were due and never sent.
    pub(crate) unsent: u64,
    /// The schedules of connections that were given up.
    pub(crate) abandoned: Vec<Schedule>,
    pub(crate) log: Option<AdmissionLog>,
}

impl Counters {
    /// Counters for this many targets.
    pub(crate) fn new(targets: usize) -> Counters {
        Counters {
            targets: vec![TargetReport::default(); targets],
            ..Counters::default()
        }
    }

    /// Counts a response of a target.
    pub(crate) fn record_response(
        &mut self,
        target: usize,
        request: SentRequest,
        judgement: Judgement<'_>,
        now: u64,
    ) {
        if let (Judgement::Admitted, Some(log)) = (judgement, &mut self.log) {
            log.admit(request.key, request.sent, now);
        }
        let Some(counters) = self.targets.get_mut(target) else {
            return;
        };
        counters.last_response = counters.last_response.max(Some(Duration::from_nanos(now)));
        if request.start < self.measured_from {
            return;
        }
        match judgement {
            Judgement::Admitted => counters.admitted += 1,
            Judgement::Refused => counters.refused += 1,
            Judgement::Unjudged => counters.unjudged += 1,
            Judgement::Failed(failure) => return self.error(target, &failure.to_string(), 1),
        }
        self.times.record(now.saturating_sub(request.start));
        self.last_response = self.last_response.max(now);
    }

    /// Counts errors of a kind, of a target.
    pub(crate) fn error(&mut self, target: usize, kind: &str, times: u64) {
        if times == 0 {
            return;
        }
        if let Some(counters) = self.targets.get_mut(target) {
            counters.errors += times;
        }
        self.error_of_kind(kind, times);
    }

    fn error_of_kind(&mut self, kind: &str, times: u64) {
        let is_known = self.errors.contains_key(kind);
        let kind = match is_known || self.errors.len() < MAX_ERROR_KINDS {
            true => kind,
            false => OTHER_KINDS,
        };
        *self.errors.entry(kind.to_owned()).or_default() += times;
    }

    /// Counts a connection to a target that is given up.
    pub(crate) fn give_up(&mut self, target: usize, now: u64, reason: String) {
        if let Some(counters) = self.targets.get_mut(target) {
            counters.add_loss(Loss {
                connections: 1,
                after: Duration::from_nanos(now),
                reason,
            });
        }
    }

    /// Adds the counters of another thread.
    pub(crate) fn add(&mut self, other: Counters) {
        for (mine, theirs) in self.targets.iter_mut().zip(other.targets) {
            mine.add(theirs);
        }
        for (kind, times) in &other.errors {
            self.error_of_kind(kind, *times);
        }
        self.times.add(&other.times);
        self.last_response = self.last_response.max(other.last_response);
        self.ended = self.ended.max(other.ended);
        self.reconnects += other.reconnects;
        self.unsent += other.unsent;
        self.abandoned.extend(other.abandoned);
        match (&mut self.log, other.log) {
            (Some(mine), Some(theirs)) => mine.add(theirs),
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Failure;

    const REQUEST: SentRequest = SentRequest {
        key: 0,
        sent: 100,
        start: 100,
    };

    #[test]
    fn error_texts_of_a_server_do_not_exhaust_memory() {
        let mut counters = Counters::new(1);
        for number in 0..1000 {
            let text = format!("ERR {number}");
            let failure = Failure::ServerError(text.as_bytes());
            counters.record_response(0, REQUEST, Judgement::Failed(failure), 200);
        }
        assert_eq!(counters.errors.len(), MAX_ERROR_KINDS + 1);
        assert_eq!(counters.errors.values().sum::<u64>(), 1000);
        assert_eq!(
            (counters.targets[0].errors, counters.targets[0].admitted),
            (1000, 0)
        );
        assert_eq!(counters.times.total(), 0);
    }

    #[test]
    fn the_warm_up_counts_for_the_audit_only() {
        let mut counters = Counters {
            measured_from: 101,
            log: Some(AdmissionLog::new(1, 10)),
            ..Counters::new(1)
        };
        counters.record_response(0, REQUEST, Judgement::Admitted, 200);
        assert_eq!(
            (counters.targets[0].admitted, counters.times.total()),
            (0, 0)
        );
        let last_response = counters.targets[0].last_response;
        assert_eq!(last_response, Some(Duration::from_nanos(200)));
        let later = SentRequest {
            start: 101,
            ..REQUEST
        };
        counters.record_response(0, later, Judgement::Admitted, 250);
        assert_eq!(
            (counters.targets[0].admitted, counters.times.max()),
            (1, 149)
        );
        assert_eq!(counters.log.map(|log| log.admitted(0)), Some(2));
    }

    #[test]
    fn counters_are_added_by_target_and_the_first_loss_is_kept() {
        let (mut one, mut other) = (Counters::new(2), Counters::new(2));
        one.record_response(0, REQUEST, Judgement::Admitted, 200);
        one.record_response(1, REQUEST, Judgement::Unjudged, 210);
        one.give_up(1, 900, "later".into());
        other.record_response(1, REQUEST, Judgement::Refused, 300);
        other.error(1, "gone", 3);
        other.give_up(1, 800, "first".into());
        other.give_up(1, 850, "second".into());
        let mut all = Counters::new(2);
        all.add(one);
        all.add(other);
        let [first, second] = all.targets.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!((first.admitted, first.errors), (1, 0));
        assert_eq!(first.loss, None);
        assert_eq!((second.refused, second.unjudged, second.errors), (1, 1, 3));
        assert_eq!(second.last_response, Some(Duration::from_nanos(300)));
        let loss = Loss {
            connections: 3,
            after: Duration::from_nanos(800),
            reason: "first".into(),
        };
        assert_eq!(second.loss, Some(loss));
        assert_eq!(all.errors.get("gone"), Some(&3));
    }
}
