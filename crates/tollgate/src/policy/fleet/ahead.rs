//! Borrowing before it is needed, so that no request waits for a loan.
//!
//! # Theory
//!
//! A request that finds little left in a block is paid and goes its way. What it leaves is a wish, and whoever
//! tends the gate ([`PolicyGate::borrow_ahead`]) carries it out beside all requests. Without anybody who tends, nobody
//! wishes: a request that finds nothing borrows for itself.
//!
//! # Invariant
//!
//! A wish is no turn: whoever finds nothing meanwhile borrows for himself, and nobody waits for a wish in the line. Whoever
//! tends takes the turn when he asks, if it is still time for that; it ends with an answer or with none, and then those who
//! wait for it are woken.
//!
//! # Bounds
//!
//! One wish for each key, [`AT_ONCE`] questions under way.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::super::gate::PolicyGate;
use super::Fleet;
use super::loans::{Borrower, Loans, Wish};
use crate::clock::Clock;
use crate::limit::Algorithm;
use crate::store::shared::{SharedCharge, SharedKey, SharedRequest};
use crate::time::{Moment, Span};

/// Questions that are under way at once.
const AT_ONCE: usize = 64;

/// A block that somebody will need, and whose turn it is to ask for it.
#[derive(Clone, Debug)]
pub(super) struct Want {
    pub(super) of: Borrower,
    pub(super) key: SharedKey,
    pub(super) block: u64,
}

/// What is to be borrowed, until somebody sees to it.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    wants: Mutex<Wants>,
    /// How many tend.
    tended: AtomicUsize,
}

#[derive(Debug, Default)]
struct Wants {
    line: VecDeque<Borrower>,
    /// Of those who tend and found nothing.
    wakers: Vec<Waker>,
}

impl Ahead {
    fn wants(&self) -> MutexGuard<'_, Wants> {
        self.wants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does anybody see to it?
    pub(super) fn is_tended(&self) -> bool {
        self.tended.load(Relaxed) > 0
    }

    /// Wishes for a block. False if nobody tends any more.
    pub(super) fn wish(&self, of: Borrower) -> bool {
        let mut wants = self.wants();
        // Whoever leaves looks under this lock whether he is the last.
        if !self.is_tended() {
            return false;
        }
        wants.line.push_back(of);
        let wakers = std::mem::take(&mut wants.wakers);
        drop(wants);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    fn next(&self, context: &Context<'_>) -> Option<Borrower> {
        let mut wants = self.wants();
        let want = wants.line.pop_front();
        let waker = context.waker();
        if want.is_none() && !wants.wakers.iter().any(|other| other.will_wake(waker)) {
            wants.wakers.push(waker.clone());
        }
        want
    }
}

/// Somebody who tends. When he leaves, nobody waits for what he did not get to.
struct Tending<'a>(&'a Loans);

impl<'a> Tending<'a> {
    fn begin(loans: &'a Loans) -> Tending<'a> {
        loans.ahead.tended.fetch_add(1, Relaxed);
        Tending(loans)
    }
}

impl Drop for Tending<'_> {
    fn drop(&mut self) {
        let mut wants = self.0.ahead.wants();
        let left = match self.0.ahead.tended.fetch_sub(1, Relaxed) {
            1 => std::mem::take(&mut wants.line),
            _ => VecDeque::new(),
        };
        let wakers = std::mem::take(&mut wants.wakers);
        drop(wants);
        for of in left {
            self.0.forget_wish(&of);
        }
        // He may be the only one who was woken for what is in the line.
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A turn to ask that ends without an answer unless it is told one.
struct Turn<'a> {
    loans: &'a Loans,
    of: Option<Borrower>,
    sent: Moment,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(of) = self.of.take() {
            self.loans.unanswered(&of, self.sent);
        }
    }
}

impl<C: Clock> PolicyGate<C> {
    /// Borrows ahead of need, for limits that are lent ([`Sharing::Lease`](crate::policy::Sharing::Lease)), until `over`; what is under way then is waited
    /// for. To be run beside all requests, as long as this policy is in force.
    ///
    /// Without it a request that finds a loan used up waits for the store.
    pub async fn borrow_ahead(&self, over: impl Future<Output = ()>) {
        let Some(fleet) = &self.fleet else {
            return over.await;
        };
        let mut over = pin!(over);
        let mut tending = Some(Tending::begin(&fleet.loans));
        let mut under_way: Vec<Pin<Box<_>>> = Vec::new();
        poll_fn(|context| {
            if tending.is_some() && over.as_mut().poll(context).is_ready() {
                tending = None;
            }
            loop {
                while tending.is_some()
                    && under_way.len() < AT_ONCE
                    && let Some(of) = fleet.loans.ahead.next(context)
                {
                    if let Some(want) = fleet.loans.begin_ahead(of, self.clock.now()) {
                        under_way.push(Box::pin(self.borrow(fleet, want)));
                    }
                }
                let before = under_way.len();
                under_way.retain_mut(|one| one.as_mut().poll(context).is_pending());
                // Whoever got no place may have one now.
                if under_way.len() == before || before < AT_ONCE {
                    break;
                }
            }
            match tending.is_none() && under_way.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Borrows one block.
    async fn borrow(&self, fleet: &Fleet, want: Want) {
        let Want { of, key, block } = want;
        let sent = self.clock.now();
        let mut turn = Turn {
            loans: &fleet.loans,
            of: Some(of),
            sent,
        };
        let owed = self.owed(fleet, of.limit, of.hash);
        let request = SharedRequest {
            take: true,
            waited: Span::ZERO,
            charges: vec![SharedCharge {
                limit: of.limit,
                key,
                cost: block,
                most: None,
                enforced: true,
                owed: owed.units(),
            }],
        };
        let answer = fleet.limits(sent).charge(&request).await;
        let outcome = answer.ok().and_then(|told| told.first().copied());
        let (Some(outcome), [charge]) = (outcome, &request.charges[..]) else {
            return;
        };
        owed.was_told();
        turn.of = None;
        let wish = Wish {
            of,
            key: &charge.key,
            nodes: fleet.store.nodes().max(1),
            now: sent,
            cost: 0,
            is_first: false,
        };
        if !outcome.verdict.is_admitted() {
            fleet.loans.heard(&wish, true, sent, &outcome);
            return;
        }
        let limiter = self.gate.limiter(of.limit);
        // Places are taken from the share one by one.
        if !matches!(limiter.limit().algorithm(), Algorithm::Concurrency { .. }) {
            limiter.take_over(of.hash, block);
        }
        fleet.loans.granted(&wish, block, sent, &outcome);
    }
}
