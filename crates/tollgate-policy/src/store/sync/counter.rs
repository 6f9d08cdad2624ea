//! The counter of one key: the last reply of the store, and what passed here since.
//!
//! ```text
//!           push answered, all of it fitted                 older than STALE_AFTER, or its window ended
//!  Unknown ---------------------------------> Fresh ---------------------------------> Unknown
//!     | ^                                       |
//!     | +--- no answer                          | push answered, some did not fit
//!     +------- some did not fit --> Indebted <--+        (nothing passes until a push fits)
//! ```
//!
//! # Theory
//!
//! A node may take two of `n` parts of the remainder: with one part no node could use what others leave, with all
//! of it every node would. Usage is pushed every [`SYNC_EVERY`]; the store takes it as far as there is room. The
//! rest is a debt: it is pushed again until it is taken, and meanwhile nothing passes here. So what a fleet admits
//! above the limit in one moment is missing in the next, and in the long run the limit holds. A debt of a window
//! ends with it.
//!
//! # Bound
//!
//! The usage that is not pushed is, at each node, at most two of `n` parts of what the limit holds
//! ([`SyncTerms::unsynced_max`]), and no more than the store can take afterwards.
//!
//! # Invariant
//!
//! Every unit that passed is pushed until the store has taken it. After a lost answer it is pushed again, so it
//! counts twice rather than not at all.

use super::super::time_until_room;
use crate::rule::Quota;
use tollgate::Algorithm;
use tollgate::QuotaStatus;
use tollgate::Rate;
use tollgate::{Moment, Span};

/// How often usage is pushed.
const SYNC_EVERY: Span = Span::from_millis(100);
/// An answer older than this is stale.
const STALE_AFTER: Span = Span::from_millis(500);
/// A node takes this many parts of the remainder, out of as many as there are nodes.
const PARTS: u64 = 2;
/// The shortest wait of a refusal.
const RETRY_MIN: Span = Span::from_millis(1);

/// The ends of a limit's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowEnd {
    /// At multiples of `window` from `anchor` on, by the clock of the store.
    Clock { window: Span, anchor: Span },
    /// By a calendar.
    Calendar,
}

/// How a limit is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyncTerms {
    /// Most units that the limit holds.
    capacity: u64,
    /// Its rate, if it earns evenly.
    rate: Option<Rate>,
    /// The window whose end clears all usage.
    window: Option<WindowEnd>,
}

impl SyncTerms {
    /// How a quota is synced; `None` if it cannot be.
    pub(crate) fn from_quota(quota: &Quota) -> Option<SyncTerms> {
        // A counter would follow only one of two rates.
        if quota.peak.is_some() {
            return None;
        }

        let (capacity, _) = quota.advertised();
        let terms = |rate, window| SyncTerms {
            capacity,
            rate,
            window,
        };
        match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, .. } | Algorithm::Gcra { rate, .. } => {
                Some(terms(Some(rate), None))
            }
            Algorithm::FixedWindow { window, anchor, .. } => {
                let window = match quota.periods {
                    Some(_) => WindowEnd::Calendar,
                    None => WindowEnd::Clock { window, anchor },
                };
                Some(terms(None, Some(window)))
            }
            Algorithm::SlidingWindow { .. } => Some(terms(None, None)),
            // A log would hold the moments of pushes, not of charges. Permits are released where they were
            // counted, and slots are ordered.
            _ => None,
        }
    }

    /// The most that passes here before it is pushed: no more than the store can take afterwards. Rounded down: a
    /// limit with less than one unit for each node is decided by the store.
    pub(crate) fn unsynced_max(&self, nodes: u32) -> u64 {
        let parts = self.capacity.saturating_mul(PARTS) / u64::from(nodes.max(1));
        parts.min(self.capacity)
    }

    /// How long after `issued`, by the clock of the store, its window ended; `None` if that is unknown.
    fn window_left(&self, issued: Moment, status: &QuotaStatus) -> Option<Span> {
        // The end of an unused window is unknown.
        match self.window? {
            _ if status.full_after > Span::ZERO => Some(status.full_after),
            WindowEnd::Clock { window, anchor } => {
                let length = window.as_nanos().max(1);
                let since = issued.as_nanos().wrapping_sub(anchor.as_nanos()) % length;
                Some(Span::from_nanos(length - since))
            }
            WindowEnd::Calendar => None,
        }
    }

    /// This node's part of what was earned in `span` after `status` was reported.
    fn earned_part(&self, status: &QuotaStatus, span: Span, nodes: u32) -> u64 {
        let Some(rate) = self.rate.filter(|_| span >= status.next_after) else {
            return 0;
        };
        // A part of the next unit was there already.
        let rest = Span::from_nanos(span.as_nanos() - status.next_after.as_nanos());
        rate.earned_in(rest).saturating_add(1) / u64::from(nodes.max(1))
    }
}

/// The part of the remainder that a node takes.
fn part_of(left: u64, nodes: u32) -> u64 {
    let parts = left.saturating_mul(PARTS);
    parts.div_ceil(u64::from(nodes.max(1))).min(left)
}

/// The state of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No information, or a stale one.
    #[default]
    Unknown,
    /// All of the last push fitted.
    Fresh {
        /// When the store was asked, and when its answer arrived.
        at: Moment,
        answered: Moment,
        status: QuotaStatus,
        /// The store's moment.
        issued: Moment,
        /// What may pass here beyond what is earned.
        part: u64,
        /// What passed since.
        passed: u64,
    },
    /// Some of the last push did not fit.
    Indebted {
        at: Moment,
        answered: Moment,
        status: QuotaStatus,
    },
}

/// How a charge is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CounterDecision {
    Pass {
        issued: Moment,
        status: QuotaStatus,
    },
    Refuse {
        retry_after: Span,
    },
    /// After a push.
    Unknown,
    /// By the store, after a push: too much to pass here unsynced.
    Large {
        has_unsynced: bool,
    },
}

/// The content of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Push {
    pub(super) units: u64,
    /// The store may have no room. Ask first how much fits, because the store rounds against a push that does not
    /// fit, and a repeated one would never be paid.
    pub(super) is_indebted: bool,
}

/// The store's answer to a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pushed {
    pub(super) units: u64,
    /// Of these, units that did not fit.
    pub(super) unpaid: u64,
    pub(super) status: QuotaStatus,
    pub(super) issued: Moment,
    /// When the answer arrived.
    pub(super) answered: Moment,
}

/// The counter of one key.
#[derive(Debug, Default)]
pub(super) struct Counter {
    state: State,
    /// Units that passed and that the store has not taken, including those being pushed.
    unsynced: u64,
    /// Units that are being pushed.
    pushing: u64,
    /// Units of `unsynced` that did not fit, and the end of the window that they did not fit in.
    debt: u64,
    debt_ends: Moment,
    /// Whether there was a charge since the last push. A key without charges is dropped.
    is_used: bool,
}

impl Counter {
    /// Drops stale state, and the debt of a window that has ended.
    fn advance(&mut self, terms: Option<&SyncTerms>, now: Moment) {
        let ends = terms.is_some_and(|terms| terms.window.is_some());
        match self.state {
            State::Fresh { at, status, .. } => {
                // The end of an unused window is unknown.
                let ends_after = Some(status.full_after).filter(|span| *span > Span::ZERO);
                let is_over = ends && ends_after.is_some_and(|span| now.since(at) >= span);
                if is_over || now.since(at) >= STALE_AFTER {
                    self.state = State::Unknown;
                }
            }
            State::Indebted { at, .. } if now.since(at) >= STALE_AFTER => {
                self.state = State::Unknown;
            }
            State::Indebted { .. } | State::Unknown => {}
        }
        if ends && self.debt > 0 && now >= self.debt_ends {
            self.unsynced = self.unsynced.saturating_sub(self.debt).max(self.pushing);
            self.debt = 0;
            self.state = State::Unknown;
        }
    }

    /// Decides a charge, or returns what to do.
    pub(super) fn decide(
        &mut self,
        terms: &SyncTerms,
        nodes: u32,
        cost: u64,
        now: Moment,
    ) -> CounterDecision {
        self.is_used = true;
        self.advance(Some(terms), now);
        let most = terms.unsynced_max(nodes);
        let retry_after = self.retry_after(terms, nodes, cost, now);
        let refuse = CounterDecision::Refuse { retry_after };
        match &mut self.state {
            State::Unknown => CounterDecision::Unknown,
            State::Indebted { .. } => refuse,
            State::Fresh { .. } if cost > most => CounterDecision::Large {
                has_unsynced: self.unsynced > 0,
            },
            State::Fresh {
                answered,
                status,
                issued,
                part,
                passed,
                ..
            } => {
                let earned = terms.earned_part(status, now.since(*answered), nodes);
                let allowed = part.saturating_add(earned).min(most);
                let fits = self.unsynced.saturating_add(cost) <= most;
                if !fits || passed.saturating_add(cost) > allowed {
                    return refuse;
                }
                *passed = passed.saturating_add(cost);
                self.unsynced = self.unsynced.saturating_add(cost);
                let status = QuotaStatus {
                    remaining: allowed - *passed,
                    ..*status
                };
                CounterDecision::Pass {
                    issued: *issued,
                    status,
                }
            }
        }
    }

    /// How long until a charge that is refused now passes, if nothing else is charged until then.
    ///
    /// | what it waits for | until |
    /// |---|---|
    /// | the end of a window that is used up | its end |
    /// | units that this node alone earns | they are earned |
    /// | units that several nodes earn, or a debt | the store has room, and a push later |
    fn retry_after(&self, terms: &SyncTerms, nodes: u32, cost: u64, now: Moment) -> Span {
        let (at, answered, issued, status) = match &self.state {
            State::Fresh {
                at,
                answered,
                issued,
                status,
                ..
            } => (*at, *answered, *issued, status),
            State::Indebted {
                at,
                answered,
                status,
            } => (*at, *answered, Moment::ORIGIN, status),
            State::Unknown => return RETRY_MIN,
        };
        // The remainder must be so large that this node's part is `cost`.
        let whole = cost.saturating_mul(u64::from(nodes.max(1))).div_ceil(PARTS);
        let room = self.unsynced.saturating_add(whole.max(cost));
        let pushed_at = at.plus(SYNC_EVERY).plus(SYNC_EVERY);
        let retry_at = match (terms.rate, terms.window_left(issued, status)) {
            (_, Some(left)) if room > status.remaining => answered.plus(left),
            // All is used: units are earned from when the store gets the push.
            (Some(rate), _) if room > terms.capacity => {
                pushed_at.plus(rate.time_to_earn(room - terms.capacity))
            }
            (rate, _) => {
                let wait = time_until_room(status, terms.capacity, room, terms.window.is_some());
                let has_room_at = answered.plus(wait);
                match rate.is_some() && nodes <= 1 && matches!(self.state, State::Fresh { .. }) {
                    true => has_room_at,
                    false => pushed_at.max(has_room_at.plus(SYNC_EVERY).plus(SYNC_EVERY)),
                }
            }
        };
        retry_at.since(now).max(RETRY_MIN)
    }

    /// Whether there is anything to push.
    pub(super) fn is_due(&mut self, terms: Option<&SyncTerms>, now: Moment) -> bool {
        self.advance(terms, now);
        self.is_used || self.unsynced > 0
    }

    /// The content of the next push. Ends with [`Counter::finish_push`].
    pub(super) fn start_push(&mut self) -> Push {
        (self.pushing, self.is_used) = (self.unsynced, false);
        Push {
            units: self.unsynced,
            is_indebted: matches!(self.state, State::Indebted { .. }),
        }
    }

    /// Ends a push that was sent at `sent`; `None` without an answer: the store may not have received it. Returns
    /// units that do not fit now and fitted before.
    pub(super) fn finish_push(&mut self, nodes: u32, sent: Moment, pushed: Option<Pushed>) -> u64 {
        self.pushing = 0;
        let Some(pushed) = pushed else {
            return 0;
        };
        let unpaid = pushed.unpaid.min(pushed.units);
        self.unsynced = self.unsynced.saturating_sub(pushed.units - unpaid);
        let before = std::mem::replace(&mut self.debt, unpaid);
        self.debt_ends = sent.plus(pushed.status.full_after);
        let left = pushed.status.remaining;
        self.state = match unpaid {
            0 => State::Fresh {
                at: sent,
                answered: pushed.answered,
                status: pushed.status,
                issued: pushed.issued,
                part: part_of(left.saturating_sub(self.unsynced), nodes),
                passed: 0,
            },
            _ => State::Indebted {
                at: sent,
                answered: pushed.answered,
                status: pushed.status,
            },
        };
        unpaid.saturating_sub(before)
    }

    /// Removes units that passed when the store's last answer was of `issued`. False if there was a later answer:
    /// then the store may have them already, or has earned them back. Units being pushed stay pushed; as units are
    /// interchangeable, these come out of later ones.
    pub(super) fn put_back(&mut self, since: Moment, units: u64) -> bool {
        match &mut self.state {
            State::Fresh { issued, passed, .. }
                if *issued == since && self.unsynced - self.pushing.min(self.unsynced) >= units =>
            {
                self.unsynced -= units;
                *passed = passed.saturating_sub(units);
                true
            }
            _ => false,
        }
    }

    /// Adds units that were used already.
    pub(super) fn add(&mut self, units: u64) {
        self.is_used = true;
        self.unsynced = self.unsynced.saturating_add(units);
        if let State::Fresh { passed, .. } = &mut self.state {
            *passed = passed.saturating_add(units);
        }
    }

    /// Whether it can be dropped. It must not be in a push.
    pub(super) fn is_unused(&mut self, terms: Option<&SyncTerms>, now: Moment) -> bool {
        self.advance(terms, now);
        self.unsynced == 0 && !self.is_used && self.state == State::Unknown
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use super::*;
    use tollgate::Limit;

    const NOW: Moment = Moment::ORIGIN;

    fn terms() -> SyncTerms {
        let limit = Limit::fixed_window("1000/1h".parse().unwrap()).unwrap();
        SyncTerms::from_quota(&Quota::plain(limit)).unwrap()
    }

    /// Pushes what is due. The store answers at its millisecond `issued` with this remainder and these unpaid
    /// units.
    fn push(counter: &mut Counter, issued: u64, remaining: u64, unpaid: u64) -> u64 {
        let units = counter.start_push().units;
        counter.finish_push(1, NOW, Some(says(units, issued, remaining, unpaid)));
        units
    }

    fn says(units: u64, issued: u64, remaining: u64, unpaid: u64) -> Pushed {
        Pushed {
            units,
            unpaid,
            status: QuotaStatus {
                remaining,
                full_after: Span::from_secs(3_600),
                next_after: Span::from_secs(3_600),
            },
            issued: Moment::ORIGIN.plus(Span::from_millis(issued)),
            answered: NOW,
        }
    }

    fn at(issued: u64) -> Moment {
        NOW.plus(Span::from_millis(issued))
    }

    fn passes(counter: &mut Counter, cost: u64) -> bool {
        matches!(
            counter.decide(&terms(), 1, cost, NOW),
            CounterDecision::Pass { .. }
        )
    }

    #[test]
    fn units_put_back_during_a_push_come_out_of_what_passed_meanwhile() {
        let mut counter = Counter::default();
        push(&mut counter, 7, 1_000, 0);
        assert!(passes(&mut counter, 10));
        assert_eq!(counter.start_push().units, 10);
        // The store may have taken all of it: nothing of it is here.
        assert!(!counter.put_back(at(7), 4));
        assert!(passes(&mut counter, 5));
        assert!(counter.put_back(at(7), 4));
        assert!(!counter.put_back(at(7), 2));
        counter.finish_push(1, NOW, Some(says(10, 7, 990, 0)));
        assert_eq!(counter.start_push().units, 1);
    }

    #[test]
    fn nothing_is_put_back_that_the_store_may_have_earned_back() {
        let mut counter = Counter::default();
        push(&mut counter, 7, 100, 0);
        assert!(passes(&mut counter, 10));
        push(&mut counter, 8, 90, 0);
        assert!(passes(&mut counter, 10));
        assert!(!counter.put_back(at(7), 10));
        assert!(counter.put_back(at(8), 10));
    }

    #[test]
    fn a_stale_counter_knows_nothing_and_pushes_what_passed() {
        let mut counter = Counter::default();
        push(&mut counter, 7, 100, 0);
        assert!(passes(&mut counter, 50));
        let late = NOW.plus(STALE_AFTER);
        assert_eq!(
            counter.decide(&terms(), 1, 1, late),
            CounterDecision::Unknown
        );
        assert_eq!(counter.start_push().units, 50);
        // Without an answer all of it is pushed again.
        counter.finish_push(1, late, None);
        assert_eq!(counter.start_push().units, 50);
    }

    #[test]
    fn what_does_not_fit_is_pushed_again_and_nothing_passes() {
        let mut counter = Counter::default();
        push(&mut counter, 7, 100, 0);
        assert!(passes(&mut counter, 50));
        assert_eq!(push(&mut counter, 8, 0, 20), 50);
        assert!(!passes(&mut counter, 1), "it is in debt");
        let again = Push {
            units: 20,
            is_indebted: true,
        };
        assert_eq!(counter.start_push(), again);
        counter.finish_push(1, NOW, Some(says(20, 9, 10, 0)));
        assert!(passes(&mut counter, 10));
    }

    #[test]
    fn a_debt_of_a_window_ends_with_it() {
        let mut counter = Counter::default();
        push(&mut counter, 7, 100, 0);
        assert!(passes(&mut counter, 50));
        push(&mut counter, 8, 0, 20);
        let next = NOW.plus(Span::from_secs(3_600));
        assert!(counter.is_unused(Some(&terms()), next));
    }
}
