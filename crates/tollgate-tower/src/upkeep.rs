//! What a node of a fleet does beside answering requests.
//!
//! # Theory
//!
//! Where limits are counted in a store that several processes share, some things are due whoever asks: this node's share of
//! each limit follows the number of nodes, what was lent and not spent goes back, what passed by copies is told, and the
//! next loan is fetched before it is needed. [`look_after`] does all of it; spawn it beside the service:
//!
//! ```no_run
//! # async fn serve(in_force: tollgate_tower::InForce) {
//! let (end, ended) = tokio::sync::oneshot::channel::<()>();
//! let upkeep = tokio::spawn(tollgate_tower::look_after(in_force, async {
//!     let _ = ended.await;
//! }));
//! // ... serve, and when it is over:
//! let _ = end.send(());
//! let _ = upkeep.await;
//! # }
//! ```
//!
//! Without it limits hold all the same: the share stays what it was, loans run out after their term, and a request
//! that finds a loan used up waits for the store. Limits with `sharing: sync` do need it: nobody else tells the store.
//!
//! # What it does not know
//!
//! How limits are shared, and what is settled: that is the gate's.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

use crate::authority::{Authority, Epoch};

/// How often what was lent and not spent is given back, and what passed is told.
const TEND_EVERY: Duration = Duration::from_millis(100);
/// How often this node looks whether others came or went.
const DIVIDE_EVERY: Duration = Duration::from_secs(1);
/// How long the last settling may take.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Does all that a node of a fleet has to do beside answering, until `over`; then it gives back what it has on loan.
/// Without a store it only waits.
pub async fn look_after<A: Authority>(authority: A, over: impl Future<Output = ()>) {
    if authority.epoch().gate().store().is_none() {
        return over.await;
    }
    let dividing = async {
        let mut due = every(DIVIDE_EVERY);
        loop {
            due.tick().await;
            let epoch = authority.epoch();
            // If others came, every table is gone through once.
            let _ = tokio::task::spawn_blocking(move || epoch.gate().rebalance()).await;
        }
    };
    first(tend(authority.clone(), over), dividing).await;
}

/// Settles with the store what this node decides by itself, and borrows ahead of need, until `over`; then it gives back what it has
/// on loan. For whoever sees to the rest of [`look_after`] in another way.
pub async fn tend<A: Authority>(authority: A, over: impl Future<Output = ()>) {
    let is_over = AtomicBool::new(false);
    let settling = async {
        let (mut due, mut over) = (every(TEND_EVERY), pin!(over));
        while !comes_first(over.as_mut(), &mut due).await {
            authority.epoch().gate().sync_leases().await;
        }
        is_over.store(true, Relaxed);
    };
    let borrowing = async {
        while !is_over.load(Relaxed) {
            let epoch = authority.epoch();
            let replaced = async {
                while !is_over.load(Relaxed) && Arc::ptr_eq(&epoch, &authority.epoch()) {
                    sleep(TEND_EVERY).await;
                }
            };
            epoch.gate().run_background(replaced).await;
        }
    };
    both(settling, borrowing).await;
    // Whoever dies without it takes what it had on loan with it, and the store has to earn it again.
    let epoch = authority.epoch();
    let _ = timeout(LAST_WORD, epoch.gate().release_leases()).await;
}

fn every(span: Duration) -> Interval {
    let mut due = interval(span);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    due
}

/// Is it over before it is due again?
async fn comes_first(mut over: Pin<&mut impl Future<Output = ()>>, due: &mut Interval) -> bool {
    poll_fn(|context| match over.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => due.poll_tick(context).map(|_| false),
    })
    .await
}

/// Waits for both.
async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut one_ended, mut other_ended) = (false, false);
    poll_fn(|context| {
        one_ended = one_ended || one.as_mut().poll(context).is_ready();
        other_ended = other_ended || other.as_mut().poll(context).is_ready();
        match one_ended && other_ended {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// Waits for the first, and has the second one, which never ends, go on meanwhile.
async fn first(one: impl Future<Output = ()>, other: impl Future<Output = Infallible>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(context).map(|never| match never {}),
    })
    .await;
}
