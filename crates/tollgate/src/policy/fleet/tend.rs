//! Settling with the store, beside all requests: what was lent and not spent goes back, and what passed by copies is told.
//!
//! # What it does not know
//!
//! When it is called: whoever has a policy in force sees to that ([`PolicyGate::tend`]).

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::super::gate::PolicyGate;
use super::loans::{Borrower, Loans, News, Return};
use crate::clock::Clock;
use crate::store::shared::{
    SharedCharge, SharedKey, SharedLimits, SharedOutcome, SharedRequest, SharedSettle,
};
use crate::time::{Moment, Span};

impl<C: Clock> PolicyGate<C> {
    /// Gives back to the store what was lent and not spent, and tells it what passed by copies. To be called ten times
    /// a second where a limit is not shared exactly ([`Sharing`](crate::policy::Sharing)).
    pub async fn tend(&self) {
        let Some(fleet) = &self.fleet else {
            return;
        };
        fleet.loans.sweep(self.clock.now());
        let returns = fleet.loans.returns().into_iter();
        let returns = returns
            .map(|back| Sending::new(&fleet.loans, back))
            .collect();
        all(returns, |mut sending: Sending<'_>| async move {
            let Some(back) = sending.back.clone() else {
                return;
            };
            let Return { limits, settle, .. } = &back;
            if settle.used <= settle.taken {
                // What is not answered is not sent again: it is earned anew.
                sending.is_done();
                let _ = limits.settle(settle).await;
                return;
            }
            let of = Borrower {
                limit: settle.limit,
                hash: 0,
            };
            let units = settle.used - settle.taken;
            let told = tell(&**limits, of, &settle.key, units).await;
            // What it may not have heard is told again, too.
            let left = told.map_or(units, |(no_room, _)| no_room);
            sending.is_done();
            fleet.loans.no_room(back, left, told.is_some());
        })
        .await;
        let nodes = fleet.store.nodes().max(1);
        let limits = &fleet.limits;
        let news = fleet.loans.news(self.clock.now()).into_iter();
        let news = news.map(|news| Telling::new(&fleet.loans, news)).collect();
        all(news, |mut telling: Telling<'_>| async move {
            let Some(news) = telling.news.clone() else {
                return;
            };
            let sent = self.clock.now();
            let answer = tell(&**limits, news.of, &news.key, news.units).await;
            telling.is_done();
            fleet.loans.told(&news, nodes, sent, answer);
        })
        .await;
    }

    /// Lends and copies nothing any more, and settles everything with the store: when this node ends.
    pub async fn return_loans(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.loans.close(self.clock.now());
            self.tend().await;
            // What was on its way when it was closed goes back, too.
            for of in fleet.loans.asked_for() {
                fleet.loans.wait(of).await;
            }
            self.tend().await;
        }
    }
}

/// Something on its way back. Whoever goes away before it was sent leaves it to the next who tends.
struct Sending<'a> {
    loans: &'a Loans,
    back: Option<Return>,
}

impl<'a> Sending<'a> {
    fn new(loans: &'a Loans, back: Return) -> Sending<'a> {
        Sending {
            loans,
            back: Some(back),
        }
    }

    fn is_done(&mut self) {
        self.back = None;
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            self.loans.keep(back);
        }
    }
}

/// News on its way. Whoever goes away leaves it as not heard.
struct Telling<'a> {
    loans: &'a Loans,
    news: Option<News>,
}

impl<'a> Telling<'a> {
    fn new(loans: &'a Loans, news: News) -> Telling<'a> {
        Telling {
            loans,
            news: Some(news),
        }
    }

    fn is_done(&mut self) {
        self.news = None;
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if let Some(news) = self.news.take() {
            self.loans.told(&news, 1, Moment::ORIGIN, None);
        }
    }
}

/// Asks the store what is left for a key, and tells it what passed, as far as there is room: it rounds against whoever
/// tells it more, and who tells it again and again would never have paid. Returns what there was no room for, and
/// how the key then stands; none if there is no answer.
async fn tell(
    limits: &dyn SharedLimits,
    of: Borrower,
    key: &SharedKey,
    units: u64,
) -> Option<(u64, SharedOutcome)> {
    let question = SharedRequest {
        take: false,
        waited: Span::ZERO,
        charges: vec![SharedCharge {
            limit: of.limit,
            key: key.clone(),
            cost: 0,
            most: None,
            enforced: true,
            owed: 0,
        }],
    };
    let mut outcome = *limits.charge(&question).await.ok()?.first()?;
    let left = &mut outcome.standing.remaining;
    let fits = units.min(*left);
    if fits == 0 {
        return Some((units, outcome));
    }
    let settle = SharedSettle {
        limit: of.limit,
        key: key.clone(),
        issued: outcome.issued,
        taken: 0,
        used: fits,
    };
    let unpaid = limits.settle(&settle).await.ok()?.min(fits);
    *left -= fits - unpaid;
    Some((units - fits + unpaid, outcome))
}

/// Questions that are under way at once.
const AT_ONCE: usize = 64;

/// Does something for all of these, many at once.
async fn all<T, F: Future>(items: Vec<T>, each: impl Fn(T) -> F) {
    let mut items = items.into_iter();
    let mut under_way: Vec<Pin<Box<F>>> = Vec::new();
    poll_fn(|context| {
        loop {
            let more = AT_ONCE - under_way.len().min(AT_ONCE);
            under_way.extend(items.by_ref().take(more).map(|item| Box::pin(each(item))));
            let before = under_way.len();
            under_way.retain_mut(|one| one.as_mut().poll(context).is_pending());
            match (under_way.len(), items.len()) {
                (0, 0) => return Poll::Ready(()),
                (now, left) if now == before || left == 0 => return Poll::Pending,
                _ => {}
            }
        }
    })
    .await;
}
