//! Bounds that change while the queue is in use, and a queue without a bound on running items.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use fastrand::Rng;

use super::tests::{check, recount};
use super::*;

fn queue(depth: usize, per_flow: usize, total: usize) -> FairQueue<u64, u64, NumberHasher> {
    let config = FairQueueConfig {
        depth,
        max_running_per_flow: usize::MAX,
        max_queued_per_flow: per_flow,
        max_queued_total: total,
    };
    FairQueue::with_hasher(config, NumberHasher::new()).unwrap()
}

#[test]
fn a_smaller_depth_stops_nothing_and_a_larger_one_lets_more_run() {
    let mut queue = queue(3, 10, 10);
    for item in 0..6 {
        let _ = queue.enqueue(1, 1, 1, item).unwrap();
    }
    let running: Vec<Ticket> = (0..3).map(|_| queue.dispatch().unwrap().ticket).collect();
    queue.set_depth(1).unwrap();
    recount(&queue);
    assert_eq!((queue.running(), queue.next_cost()), (3, None));
    assert!(queue.complete(running[0], 1) && queue.complete(running[1], 1));
    assert_eq!(queue.dispatch(), None, "one still runs");
    assert!(queue.complete(running[2], 1));
    assert_eq!(queue.next_cost(), Some(1));
    assert_eq!(queue.dispatch().unwrap().item, 3);
    assert_eq!(queue.dispatch(), None);
    queue.set_depth(2).unwrap();
    assert_eq!(queue.dispatch().unwrap().item, 4);
    assert_eq!(queue.set_depth(0), Err(FairQueueError::ZeroDepth));
    assert_eq!(queue.config().depth, 2);
}

#[test]
fn smaller_bounds_remove_no_waiting_item_and_admit_none() {
    let mut queue = queue(1, 10, 20);
    for item in 0..10 {
        let _ = queue.enqueue(item % 2, 1, 1, item).unwrap();
    }
    queue.set_bounds(2, 4).unwrap();
    recount(&queue);
    assert_eq!(queue.queued(), 10);
    let reason = queue.enqueue(0, 1, 1, 10).unwrap_err().reason;
    assert_eq!(reason, RejectReason::FlowFull { max: 2 });
    let taken = queue.enqueue(2, 1, 1, 11).unwrap();
    assert_eq!(taken.displaced.unwrap().item, 9);
    recount(&queue);
    assert_eq!(queue.queued(), 10);
    while let Some(next) = queue.dispatch() {
        queue.complete(next.ticket, next.cost);
        recount(&queue);
    }
    assert_eq!(queue.queued(), 0);
    let zero = queue.set_bounds(0, 1);
    assert_eq!(zero, Err(FairQueueError::ZeroQueuedPerFlow));
    assert_eq!(queue.set_bounds(1, 0), Err(FairQueueError::ZeroQueuedTotal));
    assert_eq!(queue.config().max_queued_total, 4);
}

#[test]
fn without_a_depth_everything_runs_and_new_flow_names_grow_nothing() {
    let mut queue = queue(usize::MAX, 4, 8);
    let _ = queue.enqueue(0, 1, 1, 0).unwrap();
    assert!(queue.dispatch().is_some(), "and it never ends");
    for name in 1..10_000 {
        let _ = queue.enqueue(name, 1, 1, 0).unwrap();
        let next = queue.dispatch().unwrap();
        assert!(queue.complete(next.ticket, next.cost));
        check(&queue);
    }
    assert_eq!(queue.flows(), 1 + 8);
}

#[test]
fn everything_agrees_whatever_is_changed_in_between() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let mut queue = queue(2, 4, 16);
        let mut running = Vec::new();
        let mut tickets = Vec::new();
        for step in 0..3000 {
            let (queued, runs) = (queue.queued(), queue.running());
            match rng.u64(..13) {
                0..5 => {
                    let flow = rng.u64(..12);
                    let cost = 1 + rng.u64(..9);
                    if let Ok(taken) = queue.enqueue(flow, 1 + rng.u64(..3), cost, step) {
                        tickets.push(taken.ticket);
                        // A queue above its bounds never grows.
                        let max = queue.config().max_queued_total;
                        assert!(queue.queued() <= queued.max(max));
                    }
                }
                5..8 => {
                    if let Some(next) = queue.dispatch() {
                        assert!(runs < queue.config().depth);
                        running.push(next.ticket);
                    }
                }
                8 if !running.is_empty() => {
                    let at = rng.u64(..running.len() as u64) as usize;
                    assert!(queue.complete(running.swap_remove(at), rng.u64(..20)));
                }
                9 if !tickets.is_empty() => {
                    let at = rng.u64(..tickets.len() as u64) as usize;
                    queue.cancel(tickets[at]);
                }
                10 => {
                    let most = [1, 2, 3, usize::MAX][rng.u64(..4) as usize];
                    queue.set_running_per_flow(most).unwrap();
                    assert_eq!((queue.queued(), queue.running()), (queued, runs));
                }
                11 => {
                    let depth = [1, 2, 5, usize::MAX][rng.u64(..4) as usize];
                    queue.set_depth(depth).unwrap();
                    assert_eq!((queue.queued(), queue.running()), (queued, runs));
                }
                _ => {
                    let total = 1 + rng.u64(..24) as usize;
                    queue.set_bounds(1 + rng.u64(..6) as usize, total).unwrap();
                    assert_eq!((queue.queued(), queue.running()), (queued, runs));
                }
            }
            recount(&queue);
        }
    }
}
