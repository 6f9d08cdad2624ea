//! One key's copy: what the store said last, and what this node let pass since.
//!
//! # Theory
//!
//! With `sharing: sync` a node decides by its copy and tells the store afterwards, every [`SYNC_EVERY`], what passed;
//! the store takes it as far as there is room and says what is left. What there was no room for stays a *debt*: it is
//! told again until it is taken, and meanwhile this node lets nothing pass. So what a fleet lets pass too much in one
//! moment is missing in the next, and in the long run the limit holds.
//!
//! From what is left a node may take two of `n` parts: with one part no node could use what others leave, with
//! all of it every node would.
//!
//! A key that the copy knows nothing of, or nothing new, is decided by the store: so rare keys are exact. Whoever asks it
//! tells it first what passed; while somebody else does that, and while that is on its way beside all requests, nobody
//! asks without telling.
//!
//! # How much more may pass
//!
//! What has passed and is not yet told is, at each node, at most two parts of what the limit holds. All nodes but one
//! may do so beside the one that is right: [`above`](super::bound). A limit that earns more in the time between two
//! tellings than it holds is used up to what it holds: the store could not take more afterwards.
//!
//! # Invariant
//!
//! Every unit that passed is told until the store has taken it; if an answer is lost it is told again, rather twice
//! than not at all. A debt of a window ends with it: there is nothing to take it from.
//!
//! # What it does not know
//!
//! Keys, locks, the store, and which clock `now` is from.

use super::loan::{Paid, Spend};
use crate::decision::{Standing, Verdict};
use crate::limit::Algorithm;
use crate::policy::rule::Quota;
use crate::rate::Rate;
use crate::store::shared::SharedOutcome;
use crate::time::{Moment, Span};

/// How often nodes tell each other.
pub(in crate::policy) const SYNC_EVERY: Span = Span::from_millis(100);
/// A copy that is older than this is not believed.
pub(super) const STALE: Span = Span::from_millis(500);
/// No answer is later than this: stores have a deadline.
const LATE_MAX: Span = Span::from_secs(1);
/// Of what is left a node takes so many parts, of as many as there are nodes.
pub(super) const PARTS: u64 = 2;

/// How a limit is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct CopyTerms {
    /// Units that the limit holds at the most.
    pub(super) capacity: u64,
    /// What it earns, if it earns evenly.
    pub(super) rate: Option<Rate>,
    /// Is what is used forgotten all at once?
    ends_with_window: bool,
}

impl CopyTerms {
    /// How a quota is copied; none if it cannot be.
    pub(super) fn of(quota: &Quota) -> Option<CopyTerms> {
        let (capacity, _) = quota.advertised();
        let terms = |rate, ends_with_window| CopyTerms {
            capacity,
            rate,
            ends_with_window,
        };
        match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, .. } | Algorithm::Gcra { rate, .. } => {
                Some(terms(Some(rate), false))
            }
            Algorithm::FixedWindow { .. } => Some(terms(None, true)),
            Algorithm::SlidingWindow { .. } => Some(terms(None, false)),
            // A log would hold the moments at which it was told, not those at which something passed. Places are given back
            // to whoever counted them, slots are in an order, and credits are two rates.
            _ => None,
        }
    }

    /// The most that a node lets pass before the store hears of it: no more than the store can take afterwards.
    /// Rounded down: a limit of which there is less than one unit for each node is decided by the store.
    pub(super) fn unheard_max(&self, nodes: u32) -> u64 {
        let parts = self.capacity.saturating_mul(PARTS) / u64::from(nodes.max(1));
        parts.min(self.capacity)
    }

    fn earned_part(&self, span: Span, nodes: u32) -> u64 {
        let earned = self.rate.map_or(0, |rate| rate.earned_in(span));
        earned / u64::from(nodes.max(1))
    }
}

/// What a node takes of what is left.
fn part_of(left: u64, nodes: u32) -> u64 {
    left.saturating_mul(PARTS)
        .div_ceil(u64::from(nodes.max(1)))
        .min(left)
}

/// The copy of one key.
#[derive(Debug, Default)]
pub(super) struct Copy {
    /// What the store said last, and when it was asked.
    told: Option<(Standing, Moment)>,
    issued: Moment,
    /// What this node may let pass beyond what it earns, and what it did, since then.
    part: u64,
    passed: u64,
    /// Units that passed and the store has not taken, with those for which there was no room.
    unheard: u64,
    /// Those for which there was no room.
    debt: u64,
    /// Who costs at least this much is refused until then.
    refused: (u64, Moment),
    /// Was anybody here since the store was told?
    touched: bool,
    asking: bool,
    telling: bool,
    /// Units of `unheard` that the store is just being told, with a request or beside all of them: each by one.
    told_by_request: u64,
    told_by_tending: u64,
    /// What the request costs that the store is asked for: it may have taken that already.
    asked_for: u64,
}

impl Copy {
    /// Lets a request pass or not, or says what is to be done.
    pub(super) fn spend(
        &mut self,
        terms: &CopyTerms,
        nodes: u32,
        now: Moment,
        (cost, is_first): (u64, bool),
    ) -> Spend {
        self.touched = true;
        let (refused_cost, until) = self.refused;
        if now < until && cost >= refused_cost {
            return Spend::Refused(until.since(now));
        }
        let Some((standing, at)) = self.told.filter(|(_, at)| now.since(*at) < STALE) else {
            // The store has not answered for so long, and is just being told beside all requests. It may not know yet what
            // passed, and would let too much pass. What was told of a window that is over does not matter.
            return match self.told.is_some() && self.told_by_tending > 0 && !is_first {
                true => Spend::Wait,
                false => self.ask(is_first, cost),
            };
        };
        if self.is_another_window(terms, now) {
            // The store says how it stands there.
            self.told = None;
            return self.ask(is_first, cost);
        }
        if cost > terms.unheard_max(nodes) && self.debt == 0 {
            // Too much to be let pass untold.
            return self.ask(is_first, cost);
        }
        let earned = terms.earned_part(now.since(at), nodes);
        let allowed = match self.debt {
            0 => self
                .part
                .saturating_add(earned)
                .min(terms.unheard_max(nodes)),
            _ => 0,
        };
        // Also what passed before the store was last heard, and was not told.
        let untold = self.unheard.saturating_sub(self.debt);
        let fits = untold.saturating_add(cost) <= terms.unheard_max(nodes);
        if fits && self.passed.saturating_add(cost) <= allowed {
            self.passed = self.passed.saturating_add(cost);
            self.unheard = self.unheard.saturating_add(cost);
            return Spend::Paid(Paid {
                issued: self.issued,
                standing: Standing {
                    remaining: allowed - self.passed,
                    ..standing
                },
            });
        }
        let next = at.plus(SYNC_EVERY);
        Spend::Refused(next.since(now).max(Span::from_millis(1)))
    }

    /// Has the window ended of which the store spoke last? Then what there was no room for is not missing in the next.
    fn is_another_window(&mut self, terms: &CopyTerms, now: Moment) -> bool {
        let over = |(standing, at): (Standing, Moment)| now.since(at) >= standing.full_after;
        let is_over = terms.ends_with_window && self.told.is_some_and(over);
        if is_over {
            self.unheard = self.unheard.saturating_sub(self.debt);
            self.debt = 0;
        }
        is_over
    }

    fn ask(&mut self, is_first: bool, cost: u64) -> Spend {
        if is_first {
            return Spend::Ask;
        }
        if self.asking {
            return Spend::Wait;
        }
        self.asking = true;
        // Who decides without knowing of it would let as much pass once more.
        self.told_by_request = self.unheard.saturating_sub(self.told_by_tending);
        self.asked_for = cost;
        Spend::Borrow {
            block: 0,
            untold: self.told_by_request,
        }
    }

    /// Whoever asked has his answer, or will have none.
    pub(super) fn asked(&mut self) {
        self.asking = false;
        (self.told_by_request, self.asked_for) = (0, 0);
    }

    /// The store answered a request, and took what it was told with it, but for what it had no room for.
    pub(super) fn request_was_heard(&mut self, unpaid: u64) {
        let told = std::mem::take(&mut self.told_by_request);
        self.asked_for = 0;
        let unpaid = unpaid.min(told);
        self.unheard = self.unheard.saturating_sub(told - unpaid);
        self.debt = self.debt.min(self.unheard).max(unpaid);
    }

    /// Does somebody ask?
    pub(super) fn is_asked_for(&self) -> bool {
        self.asking
    }

    /// What the store says of a key, asked at `sent`.
    pub(super) fn hear(&mut self, nodes: u32, sent: Moment, outcome: &SharedOutcome) {
        // An answer that a later one overtook knows less than that. Whatever is older than answers can be is from a store
        // whose clock was set back.
        let is_overtaken = outcome.issued < self.issued
            && self.issued.since(outcome.issued) < LATE_MAX
            && self.told.is_some();
        if is_overtaken {
            return;
        }
        self.told = Some((outcome.standing, sent));
        self.issued = outcome.issued;
        let unheard = self.unheard.saturating_sub(self.debt);
        let untold = unheard.saturating_add(self.asked_for);
        self.part = part_of(outcome.standing.remaining.saturating_sub(untold), nodes);
        self.passed = 0;
    }

    /// The store refused a request of this cost.
    pub(super) fn denied(&mut self, nodes: u32, sent: Moment, cost: u64, outcome: &SharedOutcome) {
        self.hear(nodes, sent, outcome);
        if let Verdict::Refuse { retry_after } = outcome.verdict {
            self.refused = (cost, sent.plus(retry_after.min(SYNC_EVERY)));
        }
    }

    /// What the store is to be told now: so many units. None if nobody was here.
    pub(super) fn tell(&mut self, terms: &CopyTerms, now: Moment) -> Option<u64> {
        self.is_another_window(terms, now);
        let is_due = (self.unheard > 0 || self.touched) && !self.telling;
        is_due.then(|| {
            (self.telling, self.touched) = (true, false);
            self.told_by_tending = self.unheard.saturating_sub(self.told_by_request);
            self.told_by_tending
        })
    }

    /// It was told, and had no room for some of it. Returns how much of that is new.
    pub(super) fn heard_of(&mut self, told: u64, no_room: u64) -> u64 {
        let more = no_room.saturating_sub(self.debt);
        (self.telling, self.told_by_tending) = (false, 0);
        self.unheard = self.unheard.saturating_sub(told).saturating_add(no_room);
        self.debt = no_room;
        more
    }

    /// It may not have heard it.
    pub(super) fn not_heard(&mut self) {
        (self.telling, self.told_by_tending) = (false, 0);
    }

    /// Puts units back that passed when the store had last spoken at `issued`. False if it spoke since: then it may have
    /// them already, or has earned them back. What it is just being told stays told: one unit is as good as another, so
    /// these come out of what passed meanwhile.
    pub(super) fn put_back(&mut self, issued: Moment, units: u64) -> bool {
        let being_told = self.told_by_request.saturating_add(self.told_by_tending);
        let free = self.unheard.saturating_sub(being_told.max(self.debt));
        let is_here = free >= units && issued == self.issued;
        if is_here {
            self.unheard -= units;
            self.passed = self.passed.saturating_sub(units);
        }
        is_here
    }

    /// Takes units more that were used already: the store is told.
    pub(super) fn take_more(&mut self, units: u64) {
        self.touched = true;
        self.passed = self.passed.saturating_add(units);
        self.unheard = self.unheard.saturating_add(units);
    }

    /// All that the store has not heard of and is not just being told, to be told by whoever takes it.
    pub(super) fn take_unheard(&mut self, terms: &CopyTerms, now: Moment) -> u64 {
        self.is_another_window(terms, now);
        let being_told = self.told_by_request.saturating_add(self.told_by_tending);
        let free = self.unheard.saturating_sub(being_told);
        self.unheard -= free;
        (self.debt, self.told) = (0, None);
        free
    }

    /// Would nobody notice if it were forgotten?
    pub(super) fn is_idle(&self, now: Moment) -> bool {
        let (_, refused) = self.refused;
        self.unheard == 0
            && !self.asking
            && !self.telling
            && now >= refused
            && self.told.is_none_or(|(_, at)| now.since(at) >= STALE)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use super::*;
    use crate::limit::Limit;

    const NOW: Moment = Moment::ORIGIN;

    fn terms() -> CopyTerms {
        let limit = Limit::fixed_window("1000/1h".parse().unwrap()).unwrap();
        CopyTerms::of(&Quota::plain(limit)).unwrap()
    }

    /// The store says at its millisecond `issued` that so much is left.
    fn says(issued: u64, remaining: u64) -> SharedOutcome {
        SharedOutcome {
            verdict: Verdict::Pass,
            standing: Standing {
                remaining,
                full_after: Span::from_secs(3_600),
                next_after: Span::from_secs(3_600),
            },
            issued: Moment::ORIGIN.plus(Span::from_millis(issued)),
            unpaid: 0,
        }
    }

    /// Does a request of this cost pass by the copy?
    fn passes(copy: &mut Copy, cost: u64) -> bool {
        matches!(copy.spend(&terms(), 1, NOW, (cost, false)), Spend::Paid(_))
    }

    #[test]
    fn what_is_put_back_while_the_store_is_told_comes_out_of_what_passed_meanwhile() {
        let mut copy = Copy::default();
        let said = says(7, 1_000);
        copy.hear(1, NOW, &said);
        assert!(passes(&mut copy, 10));
        assert_eq!(copy.tell(&terms(), NOW), Some(10));
        // The store may have taken all of it: nothing of it is here.
        assert!(!copy.put_back(said.issued, 4));
        assert!(passes(&mut copy, 5));
        assert!(copy.put_back(said.issued, 4));
        assert!(!copy.put_back(said.issued, 2));
        copy.heard_of(10, 0);
        assert_eq!(copy.tell(&terms(), NOW), Some(1));
    }

    #[test]
    fn an_answer_that_a_later_one_overtook_is_not_believed() {
        let mut copy = Copy::default();
        copy.hear(1, NOW, &says(70, 10));
        copy.hear(1, NOW, &says(69, 500));
        assert!(!passes(&mut copy, 11));
        assert!(passes(&mut copy, 10));
        // A store whose clock was set back is.
        let mut copy = Copy::default();
        copy.hear(1, NOW, &says(7_000, 10));
        copy.hear(1, NOW, &says(69, 500));
        assert!(passes(&mut copy, 500));
    }

    #[test]
    fn what_the_store_is_asked_for_is_not_let_pass_besides() {
        let mut copy = Copy::default();
        let asked = copy.spend(&terms(), 1, NOW, (7, false));
        assert!(matches!(asked, Spend::Borrow { .. }));
        // What is left is told beside it, and may not be without it yet.
        copy.hear(1, NOW, &says(70, 10));
        assert!(!passes(&mut copy, 4));
        assert!(passes(&mut copy, 3));
        copy.asked();
        copy.hear(1, NOW, &says(71, 10));
        assert!(passes(&mut copy, 7), "what it was asked for was refused");
    }

    #[test]
    fn nobody_asks_a_store_that_is_just_being_told() {
        let mut copy = Copy::default();
        copy.hear(1, NOW, &says(7, 100));
        assert!(passes(&mut copy, 50));
        assert_eq!(copy.tell(&terms(), NOW), Some(50));
        let late = NOW.plus(STALE);
        let asks = |copy: &mut Copy| copy.spend(&terms(), 1, late, (1, false));
        assert!(matches!(asks(&mut copy), Spend::Wait));
        copy.not_heard();
        assert!(matches!(asks(&mut copy), Spend::Borrow { untold: 50, .. }));
    }

    #[test]
    fn what_a_refused_request_told_is_told_again_as_far_as_there_was_no_room() {
        let mut copy = Copy::default();
        copy.hear(1, NOW, &says(7, 100));
        assert!(passes(&mut copy, 50));
        copy.told = None;
        let asked = copy.spend(&terms(), 1, NOW, (1, false));
        assert!(matches!(asked, Spend::Borrow { untold: 50, .. }));
        copy.request_was_heard(20);
        copy.asked();
        copy.denied(1, NOW, 1, &says(8, 0));
        assert_eq!(copy.tell(&terms(), NOW), Some(20));
        assert!(!passes(&mut copy, 1), "it owes");
    }
}
