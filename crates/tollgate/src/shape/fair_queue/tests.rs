//! Tests of the fair queue's guarantees.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::HashMap;

use fastrand::Rng;

use super::*;

type Queue = FairQueue<char, ()>;

fn queue(depth: usize, per_flow: usize, total: usize) -> Queue {
    FairQueue::new(FairQueueConfig {
        depth,
        max_running_per_flow: usize::MAX,
        max_queued_per_flow: per_flow,
        max_queued_total: total,
    })
    .unwrap()
}

fn push(queue: &mut Queue, flow: char, weight: u64, cost: u64) -> Ticket {
    let enqueued = queue.enqueue(flow, weight, cost, ()).unwrap();
    assert_eq!(enqueued.displaced, None);
    enqueued.ticket
}

/// Dispatches and completes the next item; the flow it was of.
fn serve(queue: &mut Queue) -> Option<char> {
    let next = queue.dispatch()?;
    assert!(queue.complete(next.ticket, next.cost));
    Some(next.flow)
}

fn serve_all(queue: &mut Queue) -> String {
    std::iter::from_fn(|| serve(queue)).collect()
}

/// Recounts everything that is stored redundantly, and checks every stated bound.
pub(super) fn check<F: Clone + Eq + Hash, T, S: BuildHasher>(queue: &FairQueue<F, T, S>) {
    let config = queue.config;
    assert!(queue.running() <= config.depth);
    assert!(queue.queued() <= config.max_queued_total);
    let most = config.max_queued_total.saturating_add(config.depth);
    assert!(queue.flows() <= most.saturating_mul(2));
    let per_flow = queue.flows.iter().map(|(_, state)| state.queued).max();
    assert!(per_flow.unwrap_or(0) <= config.max_queued_per_flow);
    let per_flow = queue.flows.iter().map(|(_, state)| state.running).max();
    assert!(per_flow.unwrap_or(0) <= config.max_running_per_flow);
    recount(queue);
}

/// The part of [`check`] that also holds while more items wait or run than later bounds allow.
pub(super) fn recount<F: Clone + Eq + Hash, T, S: BuildHasher>(queue: &FairQueue<F, T, S>) {
    assert!(queue.ahead.len() <= queue.most_ahead());
    assert_eq!(queue.names.len(), queue.flows.len());
    let mut queued = 0;
    let mut running = 0;
    let mut heads = 0;
    let mut backlogged = 0;
    let mut at_bound = 0;
    let mut ahead = 0;
    for (slot, state) in queue.flows.iter() {
        assert_eq!(queue.names.get(&state.name), Some(&slot));
        assert!(state.finish <= queue.now + MAX_LEAD);
        queued += state.queued;
        running += state.running;
        let (mut load, mut count) = (0_u128, 0);
        let (mut before, mut at) = (NONE, state.first);
        while let Some(item) = queue.items.get(at) {
            assert_eq!((item.flow, item.before), (slot, before));
            assert!(item.waiting.is_some());
            assert!(queue.items.get(before).is_none_or(|b| b.seq < item.seq));
            load += u128::from(item.step);
            count += 1;
            (before, at) = (at, item.after);
        }
        assert_eq!((at, state.last), (NONE, before));
        assert_eq!(state.load, load);
        assert_eq!(state.queued, count);
        let kept = (queue.are_loads_kept && count > 0).then_some(Reverse((load, state.born)));
        assert_eq!(queue.loads.get(slot), kept);
        let is_at_bound = state.running >= queue.config.max_running_per_flow;
        at_bound += usize::from(is_at_bound);
        assert_eq!(queue.is_at_bound(&state.name), is_at_bound);
        if let Some(head) = queue.items.get(state.first) {
            backlogged += 1;
            heads += usize::from(!is_at_bound);
            let tag = state.finish.max(queue.now);
            let order = (!is_at_bound).then_some(order_of(tag, head.seq));
            assert_eq!(queue.heads.get(slot), order);
            assert_eq!(queue.ahead.get(slot), None);
        } else if state.running == 0 {
            ahead += 1;
            assert!(state.finish > queue.now, "kept without a reason");
            assert_eq!(
                queue.ahead.get(slot),
                Some(order_of(state.finish, state.born))
            );
        }
    }
    assert_eq!((queued, running), (queue.queued(), queue.running()));
    assert_eq!(queue.items.len(), queued + running);
    assert_eq!((heads, ahead), (queue.heads.len(), queue.ahead.len()));
    assert_eq!(at_bound, queue.flows_at_bound());
    assert!(queue.loads.len() == backlogged || !queue.are_loads_kept);
    assert!(queue.now < REBASE_AT);
    if queued + running == 0 {
        assert_eq!((queue.flows(), queue.virtual_time()), (0, 0));
    }
}

#[test]
fn every_golden_timeline_is_dispatched_in_the_same_order() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../timelines/sfq.public.csv"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let mut weights: HashMap<String, u64> = HashMap::new();
    let mut queue: Option<FairQueue<String, u64>> = None;
    let mut running: HashMap<u64, (Ticket, u64)> = HashMap::new();
    let mut rows = 0;
    for line in text.lines().skip(1) {
        let row: Vec<&str> = line.split(',').collect();
        let (op, key, cost, arg, why) = (row[2], row[4], row[5], row[6], row[12]);
        if op == "new" {
            let mut words = arg.split(' ');
            assert_eq!(words.next(), Some("sfq"));
            let depth = words.next().unwrap().strip_prefix("depth=").unwrap();
            weights = words
                .map(|word| word.split_once(':').unwrap())
                .map(|(flow, weight)| (flow.to_owned(), weight.parse().unwrap()))
                .collect();
            let config = FairQueueConfig {
                depth: depth.parse().unwrap(),
                max_running_per_flow: usize::MAX,
                max_queued_per_flow: 1000,
                max_queued_total: 1000,
            };
            queue = Some(FairQueue::new(config).unwrap());
            running.clear();
            continue;
        }
        let queue = queue.as_mut().unwrap();
        rows += 1;
        match op {
            "enqueue" => {
                let cost = cost.parse().unwrap();
                let taken = queue.enqueue(key.to_owned(), weights[key], cost, cost);
                assert_eq!(taken.unwrap().ticket.seq().to_string(), why, "{line}");
            }
            "dispatch" => {
                let next = queue.dispatch();
                let name = next
                    .as_ref()
                    .map(|next| format!("{}:{}", next.ticket.seq(), next.flow));
                assert_eq!(name.unwrap_or_default(), why, "{line}");
                if let Some(next) = next {
                    running.insert(next.ticket.seq(), (next.ticket, next.cost));
                }
            }
            "complete" => {
                let (ticket, declared) = running.remove(&why.parse().unwrap()).unwrap();
                let actual = if cost.is_empty() {
                    declared
                } else {
                    cost.parse().unwrap()
                };
                assert!(queue.complete(ticket, actual), "{line}");
            }
            other => panic!("unknown op `{other}`"),
        }
        check(queue);
    }
    assert!(rows > 0);
}

#[test]
fn idle_is_not_debt() {
    // A rejected design compared tags with wall seconds. A tenant that had used 1000 units of idle capacity then
    // got 0 of the next 100 dispatches.
    let mut queue = queue(1, 2000, 4000);
    for _ in 0..1000 {
        push(&mut queue, 'a', 1, 1);
    }
    // One of A's items is always left, so the queue never falls idle and restarts.
    while queue.queued() > 1 {
        serve(&mut queue);
    }
    for _ in 0..100 {
        push(&mut queue, 'a', 1, 1);
        push(&mut queue, 'b', 1, 1);
    }
    let turns: String = (0..100).filter_map(|_| serve(&mut queue)).collect();
    let of_a = turns.matches('a').count();
    assert!((49..=51).contains(&of_a), "{turns}");
}

#[test]
fn a_late_joiner_starts_where_the_others_are_and_not_in_the_past() {
    let mut queue = queue(1, 100, 100);
    for _ in 0..60 {
        push(&mut queue, 'a', 1, 1);
    }
    for _ in 0..30 {
        serve(&mut queue);
    }
    for _ in 0..30 {
        push(&mut queue, 'b', 1, 1);
    }
    let turns: String = (0..20).filter_map(|_| serve(&mut queue)).collect();
    assert_eq!(turns.matches('b').count(), 10, "{turns}");
}

#[test]
fn weights_of_three_to_one_deliver_three_to_one() {
    let mut queue = queue(4, 1000, 2000);
    for _ in 0..1000 {
        push(&mut queue, 'a', 3, 7);
        push(&mut queue, 'b', 1, 7);
    }
    let turns: String = (0..400).filter_map(|_| serve(&mut queue)).collect();
    let of_a = turns.matches('a').count();
    assert!((299..=301).contains(&of_a), "{of_a} of 400");
}

#[test]
fn two_backlogged_flows_never_differ_by_more_than_one_item_each() {
    for seed in 0..150 {
        let mut rng = Rng::with_seed(seed);
        let depth = 1 + rng.u64(..8) as usize;
        let mut queue: FairQueue<usize, ()> = FairQueue::new(FairQueueConfig {
            depth,
            max_running_per_flow: usize::MAX,
            max_queued_per_flow: 64,
            max_queued_total: 512,
        })
        .unwrap();
        let weights: Vec<u64> = (0..5).map(|_| 1 + rng.u64(..16)).collect();
        let costs: Vec<u64> = (0..5).map(|_| 1 + rng.u64(..50)).collect();
        let mut work = [0_i128; 5];
        let (mut least, mut most) = (0, 0);
        let mut running = Vec::new();
        for _ in 0..2000 {
            // Flows 0 and 1 always have something waiting; the others come and go.
            for flow in 0..5 {
                while (flow < 2 && queue.queued_of(&flow) < 2)
                    || (queue.queued_of(&flow) < 60 && rng.u64(..6) == 0)
                {
                    let cost = 1 + rng.u64(..costs[flow]);
                    let _ = queue.enqueue(flow, weights[flow], cost, ()).unwrap();
                }
            }
            if let Some(next) = queue.dispatch() {
                work[next.flow] += i128::from(step_of(next.cost, weights[next.flow]));
                running.push((next.ticket, next.cost));
            }
            least = least.min(work[0] - work[1]);
            most = most.max(work[0] - work[1]);
            if running.len() == depth || rng.u64(..3) == 0 && !running.is_empty() {
                let at = rng.u64(..running.len() as u64) as usize;
                let (ticket, cost) = running.swap_remove(at);
                assert!(queue.complete(ticket, cost));
            }
        }
        // The spread of the running difference is its largest change over any stretch of time.
        let bound = step_of(costs[0], weights[0]) + step_of(costs[1], weights[1]);
        assert!(most - least <= i128::from(bound), "seed {seed}");
        assert!(work[0] > 0 && work[1] > 0);
    }
}

#[test]
fn a_cost_known_only_afterwards_counts_against_the_next_item() {
    // Both say 1 per item, but each of A's turns out to be 9.
    let mut queue = queue(1, 1000, 2000);
    for _ in 0..500 {
        push(&mut queue, 'a', 1, 1);
        push(&mut queue, 'b', 1, 1);
    }
    let mut of_a = 0;
    for _ in 0..100 {
        let next = queue.dispatch().unwrap();
        of_a += usize::from(next.flow == 'a');
        queue.complete(next.ticket, if next.flow == 'a' { 9 } else { 1 });
        check(&queue);
    }
    assert_eq!(of_a, 10);
}

#[test]
fn a_cost_given_back_is_not_credit_beyond_the_present() {
    let mut queue = queue(2, 10, 100);
    push(&mut queue, 'a', 1, 10);
    push(&mut queue, 'b', 1, 1);
    push(&mut queue, 'b', 1, 1);
    let a = queue.dispatch().unwrap();
    assert_eq!(serve(&mut queue), Some('b'));
    assert_eq!(serve(&mut queue), Some('b'));
    assert_eq!(queue.virtual_time(), 1 << 32);
    // Without this, A would keep its place at 10.
    push(&mut queue, 'a', 1, 1);
    push(&mut queue, 'b', 1, 1);
    assert!(queue.complete(a.ticket, 0));
    check(&queue);
    let next = queue.dispatch().unwrap();
    assert_eq!((next.flow, queue.virtual_time()), ('a', 1 << 32));
}

#[test]
fn no_more_than_the_depth_run_and_completing_frees_a_place_once() {
    let mut queue = queue(2, 10, 10);
    for _ in 0..4 {
        push(&mut queue, 'a', 1, 1);
    }
    let first = queue.dispatch().unwrap();
    assert!(queue.dispatch().is_some());
    assert_eq!(queue.dispatch(), None);
    assert!(queue.complete(first.ticket, 1));
    assert!(!queue.complete(first.ticket, 1));
    assert!(queue.dispatch().is_some());
    assert_eq!(queue.dispatch(), None);
    assert_eq!((queue.queued(), queue.running()), (1, 2));
}

#[test]
fn cancelling_gives_the_place_back() {
    let mut queue = queue(1, 3, 3);
    push(&mut queue, 'a', 1, 1);
    let second = push(&mut queue, 'a', 1, 50);
    let third = push(&mut queue, 'a', 1, 1);
    assert_eq!(
        queue.enqueue('a', 1, 1, ()).unwrap_err().reason,
        RejectReason::FlowFull { max: 3 }
    );
    assert_eq!(queue.cancel(second), Some(()));
    assert_eq!(queue.cancel(second), None);
    check(&queue);
    push(&mut queue, 'b', 1, 1);
    // The item of 50 is gone, so A's next starts at 1 and not at 51: it comes after one of B.
    assert_eq!(serve_all(&mut queue), "aba");
    assert_eq!(queue.cancel(third), None);
}

#[test]
fn cancelling_the_head_gives_its_tag_to_the_next_item() {
    let mut queue = queue(1, 10, 10);
    let head = push(&mut queue, 'a', 1, 5);
    push(&mut queue, 'b', 1, 1);
    push(&mut queue, 'a', 1, 1);
    assert_eq!(queue.cancel(head), Some(()));
    check(&queue);
    assert_eq!(queue.queued_of(&'a'), 1);
    assert_eq!(serve_all(&mut queue), "ba");
}

#[test]
fn cancelling_the_last_item_makes_the_queue_as_new() {
    let mut queue = queue(1, 10, 10);
    push(&mut queue, 'a', 1, 1);
    push(&mut queue, 'a', 1, 1);
    let last = push(&mut queue, 'a', 1, 1);
    serve(&mut queue);
    serve(&mut queue);
    assert!(queue.virtual_time() > 0);
    assert_eq!(queue.cancel(last), Some(()));
    check(&queue);
    assert_eq!((queue.virtual_time(), queue.flows()), (0, 0));
}

#[test]
fn when_full_the_flow_with_the_most_queued_pays() {
    let mut queue = queue(1, 10, 4);
    for _ in 0..3 {
        push(&mut queue, 'a', 1, 2);
    }
    push(&mut queue, 'b', 1, 1);
    // A would have the most, counting the arrival.
    assert_eq!(
        queue.enqueue('a', 1, 1, ()).unwrap_err().reason,
        RejectReason::TotalFull { max: 4 }
    );
    // C would have 7 against 6 of A.
    assert!(queue.enqueue('c', 1, 7, ()).is_err());
    // A tie displaces no item.
    assert!(queue.enqueue('c', 1, 6, ()).is_err());
    assert_eq!(queue.queued(), 4);
    // The same cost with twice the weight is half the load.
    let taken = queue.enqueue('c', 2, 6, ()).unwrap();
    let displaced = taken.displaced.unwrap();
    assert_eq!((displaced.ticket.seq(), displaced.flow), (3, 'a'));
    check(&queue);
    assert_eq!(queue.queued_of(&'a'), 2);
    assert_eq!(serve_all(&mut queue), "abca");
}

#[test]
fn a_displaced_head_leaves_no_trace() {
    let mut queue = queue(1, 10, 1);
    push(&mut queue, 'a', 1, 5);
    let taken = queue.enqueue('b', 1, 1, ()).unwrap();
    assert_eq!(taken.displaced.unwrap().flow, 'a');
    check(&queue);
    assert_eq!(queue.flows(), 1);
    assert_eq!(serve_all(&mut queue), "b");
}

#[test]
fn every_bound_holds_under_random_use() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let mut queue: FairQueue<u64, u64> = FairQueue::new(FairQueueConfig {
            depth: 1 + rng.u64(..4) as usize,
            max_running_per_flow: [1, 2, usize::MAX][rng.u64(..3) as usize],
            max_queued_per_flow: 1 + rng.u64(..6) as usize,
            max_queued_total: 1 + rng.u64(..20) as usize,
        })
        .unwrap();
        let mut running = Vec::new();
        let mut tickets = Vec::new();
        let (mut taken, mut refused, mut left) = (0_u64, 0_u64, 0_u64);
        for step in 0..3000_u64 {
            match rng.u64(..8) {
                0..4 => {
                    // Often a new flow: clients can invent names for free.
                    let flow = if rng.u64(..2) == 0 {
                        rng.u64(..5)
                    } else {
                        1000 + step
                    };
                    let weight = rng.u64(..5);
                    let big = MAX_COST_PER_WEIGHT * rng.u64(..6);
                    let cost = if rng.u64(..4) == 0 { big } else { rng.u64(..9) };
                    match queue.enqueue(flow, weight, cost, step) {
                        Ok(enqueued) => {
                            taken += 1;
                            tickets.push(enqueued.ticket);
                            left += u64::from(enqueued.displaced.is_some());
                        }
                        Err(rejected) => {
                            refused += 1;
                            assert_eq!(rejected.item, step);
                        }
                    }
                }
                4..6 => running.extend(queue.dispatch().map(|next| next.ticket)),
                6 if !running.is_empty() => {
                    let at = rng.u64(..running.len() as u64) as usize;
                    let actual = rng.u64(..20) << rng.u64(..60);
                    assert!(queue.complete(running.swap_remove(at), actual));
                    left += 1;
                }
                _ => {
                    // Most of them are completed, and their slots are reused.
                    let at = rng.u64(..=taken) as usize;
                    let ticket = tickets.get(at).copied();
                    left += u64::from(ticket.and_then(|ticket| queue.cancel(ticket)).is_some());
                }
            }
            check(&queue);
        }
        assert_eq!(taken - left, (queue.queued() + queue.running()) as u64);
        assert!(taken > 100 && refused > 0);
    }
}

#[test]
fn untrusted_clients_cannot_grow_the_memory_by_changing_their_name() {
    let mut queue: FairQueue<u32, ()> = FairQueue::new(FairQueueConfig {
        depth: 2,
        max_running_per_flow: usize::MAX,
        max_queued_per_flow: 4,
        max_queued_total: 8,
    })
    .unwrap();
    // One request that never ends keeps the queue from falling idle.
    let _ = queue.enqueue(0, 1, 1, ()).unwrap();
    assert!(queue.dispatch().is_some());
    for name in 1..10_000 {
        let _ = queue.enqueue(name, 1, 1, ()).unwrap();
        let next = queue.dispatch().unwrap();
        assert!(queue.complete(next.ticket, next.cost));
        check(&queue);
    }
    assert_eq!(
        queue.virtual_time(),
        0,
        "each starts at V and leaves it there"
    );
    assert_eq!(queue.flows(), 1 + 8 + 2);
}

#[test]
fn a_flow_that_is_ahead_is_remembered_until_it_is_not() {
    let mut queue = queue(2, 10, 10);
    push(&mut queue, 'z', 1, 1);
    let held = queue.dispatch().unwrap();
    push(&mut queue, 'a', 1, 3);
    assert_eq!(serve(&mut queue), Some('a'));
    assert_eq!(queue.flows(), 2, "A is 3 ahead");
    for _ in 0..5 {
        push(&mut queue, 'b', 1, 1);
    }
    // When it returns, A continues where it was: B goes at 0, 1, 2 first, and at 3 because it came first.
    push(&mut queue, 'a', 1, 1);
    assert_eq!(serve_all(&mut queue), "bbbbab");
    assert_eq!(queue.flows(), 2, "B is 1 ahead, and A was overtaken");
    assert!(queue.complete(held.ticket, 1));
    assert_eq!(queue.flows(), 0);
}

#[test]
fn shifting_the_tags_down_changes_no_order() {
    // Each item moves the tags by 2^60, so without shifting they would overflow after 16.
    let mut queue = queue(1, 10, 40);
    let mut turns = String::new();
    let mut shifted = 0;
    let mut before = 0;
    for _ in 0..400 {
        while queue.queued_of(&'a') < 3 {
            push(&mut queue, 'a', 3, 3 * MAX_COST_PER_WEIGHT);
        }
        while queue.queued_of(&'b') < 3 {
            push(&mut queue, 'b', 1, MAX_COST_PER_WEIGHT / 3);
        }
        turns.extend(serve(&mut queue));
        check(&queue);
        shifted += usize::from(queue.virtual_time() < before);
        before = queue.virtual_time();
    }
    let of_a = turns.matches('a').count();
    assert!((99..=101).contains(&of_a), "{of_a} of 400");
    assert!(shifted >= 20, "{shifted}");
}

#[test]
fn the_heaviest_flow_still_pays_for_every_item() {
    // Rounded down, its step would be 0 and its tag would never move.
    assert_eq!(step_of(1, u64::MAX), 1);
    assert_eq!(step_of(1, 3), (1 << 32) / 3 + 1);
    let mut queue = queue(1, 10, 10);
    for _ in 0..3 {
        push(&mut queue, 'h', u64::MAX, 1);
        push(&mut queue, 'g', u64::MAX, 1);
    }
    assert_eq!(serve_all(&mut queue), "hghghg");
}

#[test]
fn what_could_not_be_ordered_is_refused_and_given_back() {
    let mut queue: FairQueue<char, &str> = FairQueue::new(FairQueueConfig {
        depth: 1,
        max_running_per_flow: usize::MAX,
        max_queued_per_flow: 1,
        max_queued_total: 1,
    })
    .unwrap();
    let rejected = queue.enqueue('a', 0, 1, "mine").unwrap_err();
    assert_eq!(
        (rejected.item, rejected.reason),
        ("mine", RejectReason::ZeroWeight)
    );
    let rejected = queue.enqueue('a', 1, 0, "mine").unwrap_err();
    assert_eq!(rejected.reason, RejectReason::ZeroCost);
    let rejected = queue.enqueue('a', 2, u64::MAX, "mine").unwrap_err();
    assert_eq!(
        rejected.to_string(),
        "`cost` is 18446744073709551615, but this weight may ask for at most 536870912"
    );
    assert!(rejected.hint().starts_with("count cost in a larger unit"));
    assert_eq!((queue.queued(), queue.flows()), (0, 0));
    assert!(queue.enqueue('a', u64::MAX, u64::MAX, "mine").is_ok());
}

#[test]
fn a_queue_that_would_let_nothing_through_is_not_built() {
    let build = |depth, max_queued_per_flow, max_queued_total| {
        Queue::new(FairQueueConfig {
            depth,
            max_running_per_flow: usize::MAX,
            max_queued_per_flow,
            max_queued_total,
        })
        .unwrap_err()
    };
    assert_eq!(build(0, 1, 1), FairQueueError::ZeroDepth);
    assert_eq!(build(1, 0, 1), FairQueueError::ZeroQueuedPerFlow);
    assert_eq!(build(1, 1, 0), FairQueueError::ZeroQueuedTotal);
    assert_eq!(
        build(0, 1, 1).to_string(),
        "`depth` is 0, so nothing would ever run"
    );
    let mut queue = queue(1, 1, 1);
    let none = queue.set_running_per_flow(0).unwrap_err();
    assert_eq!(none, FairQueueError::ZeroRunningPerFlow);
    assert!(none.hint().starts_with("set `max_running_per_flow`"));
    let config = FairQueueConfig {
        max_running_per_flow: 0,
        ..queue.config()
    };
    assert_eq!(Queue::new(config).unwrap_err(), none);
}
