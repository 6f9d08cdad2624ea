//! The loans and copies of all keys, and who waits for one.
//!
//! # Theory
//!
//! An *account* is what this node has of a key: a [loan](super::loan) or a [copy](super::copy). They are in a map under sixty-four locks. A decision that is paid from an account holds one of them for some twenty
//! nanoseconds and meets no other lock; keys that are as hot as that are few, and each is one short step.
//!
//! # Invariant
//!
//! Every unit of a block is spent once, given back once, or lost with the node: whoever takes a block out of
//! the map ([`Loans::close`], [`Loans::sweep`]) takes it under the lock under which it is spent. A table that is
//! closed lends nothing: it says so before the locks are gone through, and who holds one looks.
//!
//! # Bounds
//!
//! At most [`LOANS_MAX`] keys. One that finds no room is decided by the store with every request. At most
//! [`RETURNS_MAX`] rests wait to be given back; what does not fit is earned again by the store itself.
//!
//! # What it does not know
//!
//! The store, and how many nodes there are.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::account::{Account, Terms};
use super::ahead::{Ahead, Want};
use super::ledger::{Ledger, LendingReport};
use super::loan::{Rest, Spend};
use super::paid_from::Corrected;
use crate::gate::LimitId;
use crate::store::shared::{SharedKey, SharedLimits, SharedOutcome, SharedSettle};
use crate::time::Moment;

/// Keys that have a loan, or may soon have one.
const LOANS_MAX: usize = 1 << 16;
/// Rests that wait to be given back.
const RETURNS_MAX: usize = 1 << 12;
const SHARDS: usize = 64;

/// Whose loan: a limit and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Borrower {
    pub(super) limit: LimitId,
    /// Of the key, by this node's secret: it is spread well.
    pub(super) hash: u64,
}

impl Hash for Borrower {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let limit = (self.limit.index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state.write_u64(self.hash ^ limit);
    }
}

/// A hash that is one already.
#[derive(Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

type Shard = HashMap<Borrower, Entry, BuildHasherDefault<Spread>>;

#[derive(Debug)]
struct Entry {
    account: Account,
    /// As the store knows it.
    key: SharedKey,
    waiting: Vec<Waker>,
    /// Raised when those who wait are woken.
    round: u64,
}

/// The loans of one policy.
#[derive(Debug)]
pub(in crate::policy) struct Loans {
    shards: Vec<Mutex<Shard>>,
    /// One list for all policies, one after the other: a decision of the last one may end under the next.
    returns: Arc<Mutex<Vec<Return>>>,
    ledger: Arc<Ledger>,
    /// Who lends.
    limits: Arc<dyn SharedLimits>,
    /// What is to be borrowed before it is needed.
    pub(super) ahead: Ahead,
    /// Another policy is in force: nothing is lent any more.
    closed: AtomicBool,
}

/// What passed for a key and the store has not heard of.
#[derive(Clone, Debug)]
pub(super) struct News {
    pub(super) of: Borrower,
    pub(super) key: SharedKey,
    pub(super) units: u64,
}

/// A rest on its way back.
#[derive(Clone, Debug)]
pub(super) struct Return {
    pub(super) limits: Arc<dyn SharedLimits>,
    pub(super) settle: SharedSettle,
    /// How often it was told already.
    pub(super) told: u32,
}

/// What there is no room for is told so often: ten seconds long.
const TELLS_MAX: u32 = 100;

/// Who wants to spend, and what is known of the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    pub(super) of: Borrower,
    pub(super) key: &'a SharedKey,
    pub(super) nodes: u32,
    pub(super) now: Moment,
    pub(super) cost: u64,
    /// Is this the first look at a request? Then it is counted, and nobody is asked yet.
    pub(super) is_first: bool,
}

impl Loans {
    /// No loans yet, after those of the policy before.
    pub(in crate::policy) fn new(limits: Arc<dyn SharedLimits>, before: Option<&Loans>) -> Loans {
        Loans {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            returns: before.map_or_else(Arc::default, |before| Arc::clone(&before.returns)),
            ledger: before.map_or_else(Arc::default, |before| Arc::clone(&before.ledger)),
            limits,
            ahead: Ahead::default(),
            closed: AtomicBool::new(false),
        }
    }

    fn shard(&self, of: &Borrower) -> Option<MutexGuard<'_, Shard>> {
        // The map goes by the lowest and the highest bits.
        let shard = self.shards.get((of.hash >> 40) as usize % SHARDS)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Spends, or says what is to be done. None if there is no room for another key: it is as if this limit
    /// were not lent.
    pub(super) fn spend(&self, wish: &Wish<'_>, terms: &Terms) -> Option<Spend> {
        let mut shard = self.shard(&wish.of)?;
        if self.closed.load(Relaxed) {
            return None;
        }
        if shard.len() >= LOANS_MAX / SHARDS && !shard.contains_key(&wish.of) {
            let now = wish.now;
            shard.retain(|_, entry| !entry.account.is_idle(now));
            if shard.len() >= LOANS_MAX / SHARDS {
                return None;
            }
        }
        let entry = shard.entry(wish.of).or_insert_with(|| Entry {
            account: Account::new(terms),
            key: wish.key.clone(),
            waiting: Vec::new(),
            round: 0,
        });
        let (spend, rest) = entry.account.spend(wish);
        let wishes = match (&mut entry.account, spend) {
            (Account::Loan(loan, terms), Spend::Paid(_)) if self.ahead.is_tended() => {
                loan.wishes(terms, wish.now)
            }
            _ => false,
        };
        if rest.is_none() && !wishes {
            return Some(spend);
        }
        let back = rest.map(|rest| self.giving_back(wish.of, &entry.key, rest));
        drop(shard);
        back.into_iter().for_each(|back| self.give_back(back));
        if wishes && !self.ahead.wish(wish.of) {
            self.forget_wish(&wish.of);
        }
        Some(spend)
    }

    /// The turn to borrow for a wish, if it is still time for that.
    pub(super) fn begin_ahead(&self, of: Borrower, now: Moment) -> Option<Want> {
        let mut shard = self.shard(&of)?;
        if self.closed.load(Relaxed) {
            return None;
        }
        let entry = shard.get_mut(&of)?;
        let Account::Loan(loan, terms) = &mut entry.account else {
            return None;
        };
        let block = loan.ahead(terms, now)?;
        Some(Want {
            of,
            key: entry.key.clone(),
            block,
        })
    }

    /// Nobody will look at a wish.
    pub(super) fn forget_wish(&self, of: &Borrower) {
        self.with(of, |account| {
            if let Account::Loan(loan, _) = account {
                loan.forget_wish();
            }
        });
    }

    /// Changes an account, if it is still there, and wakes those who wait for it once nobody asks.
    fn with<T>(&self, of: &Borrower, change: impl FnOnce(&mut Account) -> T) -> Option<T> {
        let mut shard = self.shard(of)?;
        let entry = shard.get_mut(of)?;
        let changed = change(&mut entry.account);
        // Nobody looks after a copy of a policy that is no more: what it has to tell is told by the next.
        let news = match &mut entry.account {
            Account::Copy(copy, terms) if self.closed.load(Relaxed) => {
                let used = copy.take_unheard(terms, Moment::ORIGIN);
                (used > 0).then(|| self.telling(*of, &entry.key, used))
            }
            _ => None,
        };
        let woken = match entry.account.is_asked_for() {
            true => Vec::new(),
            false => {
                entry.round = entry.round.wrapping_add(1);
                std::mem::take(&mut entry.waiting)
            }
        };
        drop(shard);
        woken.into_iter().for_each(Waker::wake);
        news.into_iter().for_each(|news| self.give_back(news));
        Some(changed)
    }

    /// The store took a request and its block, of which nothing may be left.
    pub(super) fn granted(
        &self,
        wish: &Wish<'_>,
        block: u64,
        sent: Moment,
        outcome: &SharedOutcome,
    ) {
        if block > 0 {
            self.ledger.lent(block, wish.cost == 0);
        }
        let unspent = Rest {
            units: block,
            issued: outcome.issued,
        };
        let rest = self.with(&wish.of, |account| {
            let rest = match account {
                Account::Loan(loan, terms) if !self.closed.load(Relaxed) => {
                    loan.granted(terms, sent, (wish.cost, block), outcome)
                }
                Account::Copy(copy, _) => {
                    copy.request_was_heard(outcome.unpaid);
                    copy.hear(wish.nodes, sent, outcome);
                    Some(unspent)
                }
                Account::Loan(..) => Some(unspent),
            };
            account.asked();
            rest
        });
        // A loan that is gone takes nothing.
        let rest = rest.unwrap_or(Some(unspent)).filter(|rest| rest.units > 0);
        if let Some(rest) = rest {
            self.give_back(self.giving_back(wish.of, wish.key, rest));
        }
    }

    /// The store refused a request that it was asked for alone in the end. `borrowed` if it was asked for more before.
    pub(super) fn denied(
        &self,
        wish: &Wish<'_>,
        borrowed: bool,
        sent: Moment,
        outcome: &SharedOutcome,
    ) {
        self.with(&wish.of, |account| {
            // What it told was taken, although it was refused.
            if let (Account::Copy(copy, _), true) = (&mut *account, borrowed) {
                copy.request_was_heard(outcome.unpaid);
            }
            if borrowed {
                account.asked();
            }
            match account {
                Account::Loan(loan, terms) => {
                    loan.denied(terms, sent, wish.cost, outcome);
                }
                Account::Copy(copy, _) => copy.denied(wish.nodes, sent, wish.cost, outcome),
            }
        });
    }

    /// The request was refused by another limit: nothing was taken here.
    pub(super) fn heard(
        &self,
        wish: &Wish<'_>,
        borrowed: bool,
        sent: Moment,
        outcome: &SharedOutcome,
    ) {
        self.with(&wish.of, |account| {
            if let (Account::Copy(copy, _), true) = (&mut *account, borrowed) {
                copy.request_was_heard(outcome.unpaid);
            }
            if borrowed {
                account.asked();
            }
            account.hear(wish.nodes, sent, outcome);
        });
    }

    /// Whoever was to borrow does not ask after all.
    pub(super) fn not_sent(&self, of: &Borrower) {
        self.with(of, |account| account.asked());
    }

    /// Whoever borrowed goes away without an answer.
    pub(super) fn unanswered(&self, of: &Borrower, now: Moment) {
        self.with(of, |account| account.lost(now));
    }

    /// Puts units back that were paid here. None if their block is over, or the store has heard of them: then they
    /// belong to the store.
    pub(super) fn put_back(
        &self,
        of: &Borrower,
        issued: Moment,
        units: u64,
        now: Moment,
    ) -> Option<Corrected> {
        self.with(of, |account| {
            // After the end nobody would take it out again.
            let is_open = !self.closed.load(Relaxed);
            match account {
                Account::Loan(loan, _) if is_open => loan
                    .put_back(issued, units, now)
                    .then_some(Corrected::Block),
                Account::Copy(copy, _) if is_open => {
                    copy.put_back(issued, units).then_some(Corrected::Copy)
                }
                _ => None,
            }
        })?
    }

    /// A request gave back what it had taken: who was refused for it may pass now.
    pub(super) fn freed(&self, of: &Borrower) {
        self.with(of, |account| {
            if let Account::Loan(loan, _) = account {
                loan.freed();
            }
        });
    }

    /// Undoes that units were paid: they are put back, or given back to the store if their block is over.
    pub(super) fn undo(&self, of: Borrower, issued: Moment, units: u64, now: Moment) {
        if self.put_back(&of, issued, units, now).is_some() {
            return;
        }
        let key = self
            .shard(&of)
            .and_then(|shard| Some(shard.get(&of)?.key.clone()));
        // Who knows the key no more lets the store earn it again.
        if let Some(key) = key {
            self.give_back(self.giving_back(of, &key, Rest { units, issued }));
        }
    }

    /// Takes up to so many units more and tells how many there were, and where.
    pub(super) fn take_more(
        &self,
        of: &Borrower,
        units: u64,
        now: Moment,
    ) -> Option<(u64, Corrected)> {
        self.with(of, |account| match account {
            Account::Loan(loan, _) => Some((loan.take_more(units, now), Corrected::Block)),
            Account::Copy(copy, _) if !self.closed.load(Relaxed) => {
                copy.take_more(units);
                Some((units, Corrected::Copy))
            }
            Account::Copy(..) => None,
        })?
    }

    /// Waits until whoever borrows for this key has his answer, which the deadline of the store bounds. The next one who
    /// borrows is not waited for.
    pub(super) async fn wait(&self, of: Borrower) {
        let mut since = None;
        poll_fn(|context| {
            let Some(mut shard) = self.shard(&of) else {
                return Poll::Ready(());
            };
            let Some(entry) = shard.get_mut(&of) else {
                return Poll::Ready(());
            };
            if !entry.account.is_asked_for() || *since.get_or_insert(entry.round) != entry.round {
                return Poll::Ready(());
            }
            let waker = context.waker();
            if !entry
                .waiting
                .last()
                .is_some_and(|last| last.will_wake(waker))
            {
                entry.waiting.push(waker.clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Takes back what is over and forgets whoever is quiet.
    pub(super) fn sweep(&self, now: Moment) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let mut back = Vec::new();
            shard.retain(|of, entry| {
                while let Some(rest) = entry.account.end(now) {
                    back.push(self.giving_back(*of, &entry.key, rest));
                }
                !entry.account.is_idle(now)
            });
            drop(shard);
            back.into_iter().for_each(|rest| self.give_back(rest));
        }
    }

    /// Ends all loans: what was not spent is to be given back. Whoever still decides by this policy asks the store.
    pub(in crate::policy) fn close(&self, now: Moment) {
        self.closed.store(true, Relaxed);
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let mut back = Vec::new();
            for (of, entry) in shard.iter_mut() {
                while let Some(rest) = entry.account.rest() {
                    back.push(self.giving_back(*of, &entry.key, rest));
                }
                if let Account::Copy(copy, terms) = &mut entry.account {
                    let used = copy.take_unheard(terms, now);
                    back.extend((used > 0).then(|| self.telling(*of, &entry.key, used)));
                }
            }
            drop(shard);
            back.into_iter().for_each(|rest| self.give_back(rest));
        }
    }

    /// Notes what is to be given back. Beyond the bound it is lost to this node, not to the limit.
    pub(super) fn give_back(&self, rest: Return) {
        self.ledger.returned(rest.settle.taken);
        self.keep(rest);
    }

    /// Notes it, or notes it again. What is told must not be forgotten as what is given back may: nobody earns it.
    pub(super) fn keep(&self, rest: Return) {
        let is_told = rest.settle.used > rest.settle.taken;
        let most = if is_told { LOANS_MAX } else { RETURNS_MAX };
        let mut returns = self.returns.lock().unwrap_or_else(PoisonError::into_inner);
        if returns.len() < most {
            returns.push(rest);
        }
    }

    /// The store had no room for so much of what it was told, or gave no answer: it is told again.
    pub(super) fn no_room(&self, mut back: Return, units: u64, is_answered: bool) {
        back.told += u32::from(is_answered);
        if units > 0 && back.told < TELLS_MAX {
            (back.settle.taken, back.settle.used) = (0, units);
            self.keep(back);
        }
    }

    /// All that is to be given back. Whoever takes it sees to it.
    pub(super) fn returns(&self) -> Vec<Return> {
        let mut returns = self.returns.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *returns)
    }

    /// What the store is to be told of copies now. Whoever takes it says what became of it ([`Loans::told`]).
    pub(super) fn news(&self, now: Moment) -> Vec<News> {
        let mut news = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (of, entry) in shard.iter_mut() {
                if let Account::Copy(copy, terms) = &mut entry.account
                    && let Some(units) = copy.tell(terms, now)
                {
                    news.push(News {
                        of: *of,
                        key: entry.key.clone(),
                        units,
                    });
                }
            }
        }
        news
    }

    /// What became of news: how much of it the store had no room for, and what it then said. None if it may not have
    /// heard it.
    pub(super) fn told(
        &self,
        news: &News,
        nodes: u32,
        sent: Moment,
        answer: Option<(u64, SharedOutcome)>,
    ) {
        self.with(&news.of, |account| {
            let Account::Copy(copy, _) = account else {
                return;
            };
            match answer {
                Some((no_room, outcome)) => {
                    self.ledger.over(copy.heard_of(news.units, no_room));
                    copy.hear(nodes, sent, &outcome);
                }
                None => copy.not_heard(),
            }
        });
    }

    /// Who borrows or asks now.
    pub(super) fn asked_for(&self) -> Vec<Borrower> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let asked = shard
                .iter()
                .filter(|(_, entry)| entry.account.is_asked_for());
            all.extend(asked.map(|(of, _)| *of));
        }
        all
    }

    /// What tells the store of units that passed.
    fn telling(&self, of: Borrower, key: &SharedKey, used: u64) -> Return {
        let mut tells = self.giving_back(of, key, Rest::default());
        tells.settle.used = used;
        tells
    }

    /// What was lent so far.
    pub(super) fn report(&self) -> LendingReport {
        let shards = self.shards.iter();
        let keys = shards.map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).len() as u64);
        self.ledger.report(keys.sum())
    }

    /// What gives a rest back to the store.
    pub(super) fn giving_back(&self, of: Borrower, key: &SharedKey, rest: Rest) -> Return {
        Return {
            limits: Arc::clone(&self.limits),
            settle: SharedSettle {
                limit: of.limit,
                key: key.clone(),
                issued: rest.issued,
                taken: rest.units,
                used: 0,
            },
            told: 0,
        }
    }
}
