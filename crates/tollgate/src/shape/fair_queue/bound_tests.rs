//! The bound on running items of one flow, compared with a simple model and case by case.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;

use super::tests::{check, recount};
use super::*;

type Queue = FairQueue<u64, (), NumberHasher>;

fn queue(depth: usize, each: usize) -> Queue {
    let config = FairQueueConfig {
        depth,
        max_running_per_flow: each,
        max_queued_per_flow: 1000,
        max_queued_total: 10_000,
    };
    FairQueue::with_hasher(config, NumberHasher::new()).unwrap()
}

fn push(queue: &mut Queue, flow: u64, weight: u64, times: usize) -> Vec<Ticket> {
    let push = |_| queue.enqueue(flow, weight, 1, ()).unwrap().ticket;
    (0..times).map(push).collect()
}

/// Dispatches all that may run now: the flow and ticket of each.
fn run(queue: &mut Queue) -> Vec<(u64, Ticket)> {
    let next = || queue.dispatch().map(|next| (next.flow, next.ticket));
    std::iter::from_fn(next).collect()
}

fn flows(running: &[(u64, Ticket)]) -> Vec<u64> {
    running.iter().map(|(flow, _)| *flow).collect()
}

/// The rules as they are written, visiting every flow for every dispatch.
#[derive(Default)]
struct Model {
    now: u64,
    flows: BTreeMap<u64, Modelled>,
}

#[derive(Default)]
struct Modelled {
    finish: u64,
    running: usize,
    /// Number, cost and weight.
    waiting: VecDeque<(u64, u64, u64)>,
    /// The start tag of the head, if the flow is not skipped.
    start: Option<u64>,
}

impl Model {
    /// Tags heads that became eligible, and removes the tag of those that are not any more.
    fn tag(&mut self, each: usize) {
        for flow in self.flows.values_mut() {
            let is_eligible = !flow.waiting.is_empty() && flow.running < each;
            let tag = flow.start.unwrap_or(self.now.max(flow.finish));
            flow.start = is_eligible.then_some(tag);
        }
    }

    /// Dispatches the next item and returns its number.
    fn dispatch(&mut self, depth: usize, each: usize) -> Option<u64> {
        self.tag(each);
        let running: usize = self.flows.values().map(|flow| flow.running).sum();
        if running >= depth {
            return None;
        }
        let eligible = self.flows.values_mut().filter(|flow| flow.start.is_some());
        let next = eligible.min_by_key(|flow| (flow.start, flow.waiting[0].0))?;
        let (seq, cost, weight) = next.waiting.pop_front()?;
        self.now = next.start.take()?;
        next.finish = self.now + step_of(cost, weight);
        next.running += 1;
        self.tag(each);
        Some(seq)
    }

    fn complete(&mut self, flow: u64, (cost, actual, weight): (u64, u64, u64), each: usize) {
        let flow = self.flows.get_mut(&flow).unwrap();
        flow.running -= 1;
        if cost != actual {
            flow.finish = (flow.finish + step_of(actual, weight)) - step_of(cost, weight);
            flow.start = None;
        }
        self.rest(each);
    }

    fn cancel(&mut self, flow: u64, seq: u64, each: usize) {
        let flow = self.flows.get_mut(&flow).unwrap();
        flow.waiting.retain(|(waiting, ..)| *waiting != seq);
        self.rest(each);
    }

    fn rest(&mut self, each: usize) {
        self.tag(each);
        let has_work = |flow: &Modelled| flow.running > 0 || !flow.waiting.is_empty();
        if !self.flows.values().any(has_work) {
            *self = Model::default();
        }
    }
}

#[test]
fn the_order_equals_the_written_rules_under_random_operations() {
    let (mut turns, mut passed_over, mut open) = (0, 0, 0);
    for seed in 0..80 {
        let mut rng = Rng::with_seed(seed);
        let mut depth = 1 + rng.u64(..7) as usize;
        let mut each = 1 + rng.u64(..4) as usize;
        let mut queue = queue(depth, each);
        let mut model = Model::default();
        let mut known: BTreeMap<u64, (u64, Ticket, u64, u64)> = BTreeMap::new();
        let mut running: Vec<u64> = Vec::new();
        for _ in 0..2000 {
            match rng.u64(..20) {
                0..5 => {
                    let (flow, weight) = (rng.u64(..6), 1 + rng.u64(..5));
                    let cost = 1 + rng.u64(..9);
                    // Arrivals that need not wait use either path; the order must not differ.
                    let is_open = queue.is_open_to(&flow);
                    let ticket = if rng.u64(..2) == 0 {
                        let ticket = queue.dispatch_arrival(flow, weight, cost);
                        assert_eq!(ticket.is_some(), is_open);
                        ticket
                    } else {
                        None
                    };
                    let is_given = ticket.is_some();
                    let enqueue = || queue.enqueue(flow, weight, cost, ()).unwrap().ticket;
                    let ticket = ticket.unwrap_or_else(enqueue);
                    let seq = ticket.seq();
                    known.insert(seq, (flow, ticket, cost, weight));
                    let state = model.flows.entry(flow).or_default();
                    state.waiting.push_back((seq, cost, weight));
                    model.tag(each);
                    if is_given {
                        assert_eq!(model.dispatch(depth, each), Some(seq), "seed {seed}");
                        running.push(seq);
                        open += 1;
                    }
                }
                5..11 => {
                    let next = queue.dispatch().map(|next| next.ticket.seq());
                    assert_eq!(next, model.dispatch(depth, each), "seed {seed}");
                    turns += usize::from(next.is_some());
                    let is_room = queue.running() < depth;
                    passed_over += usize::from(next.is_none() && is_room && queue.queued() > 0);
                    running.extend(next);
                }
                11..18 if !running.is_empty() => {
                    let at = rng.u64(..running.len() as u64) as usize;
                    let seq = running.swap_remove(at);
                    let (flow, ticket, cost, weight) = known.remove(&seq).unwrap();
                    let is_corrected = rng.u64(..3) == 0;
                    let actual = if is_corrected { rng.u64(..12) } else { cost };
                    assert!(queue.complete(ticket, actual));
                    model.complete(flow, (cost, actual, weight), each);
                }
                18 => {
                    let waiting = known.keys().filter(|seq| !running.contains(seq));
                    let waiting: Vec<u64> = waiting.copied().collect();
                    if !waiting.is_empty() {
                        let seq = waiting[rng.u64(..waiting.len() as u64) as usize];
                        let (flow, ticket, ..) = known.remove(&seq).unwrap();
                        assert!(queue.cancel(ticket).is_some());
                        model.cancel(flow, seq, each);
                    }
                }
                _ if rng.u64(..4) == 0 => {
                    depth = 1 + rng.u64(..7) as usize;
                    each = [1, 2, 4, usize::MAX][rng.u64(..4) as usize];
                    queue.set_depth(depth).unwrap();
                    queue.set_running_per_flow(each).unwrap();
                    model.tag(each);
                }
                _ => {}
            }
            recount(&queue);
        }
    }
    assert!(
        turns > 10_000 && passed_over > 500 && open > 1000,
        "{turns}, {passed_over}, {open}"
    );
}

#[test]
fn a_flow_whose_items_never_end_holds_its_bound_and_others_the_rest() {
    let mut queue = queue(8, 3);
    push(&mut queue, 1, 1, 50);
    assert_eq!(flows(&run(&mut queue)), [1, 1, 1]);
    assert_eq!((queue.flows_at_bound(), queue.next_cost()), (1, None));
    push(&mut queue, 2, 1, 200);
    push(&mut queue, 3, 3, 200);
    let mut running = run(&mut queue);
    assert_eq!(running.len(), 5, "not one place stays free");
    let mut given = [0; 4];
    for _ in 0..160 {
        let (_, ticket) = running.remove(0);
        assert!(queue.complete(ticket, 1));
        running.extend(run(&mut queue));
        check(&queue);
        given[running.last().unwrap().0 as usize] += 1;
        assert_eq!(queue.running(), 8);
    }
    assert_eq!(given[1], 0);
    assert!(given[2] + given[3] == 160 && given[3] > given[2]);
}

#[test]
fn a_flow_that_returns_is_served_next_and_has_no_credit() {
    let mut queue = queue(3, 1);
    push(&mut queue, 1, 1, 50);
    let held = run(&mut queue);
    assert_eq!(flows(&held), [1]);
    // The other two places serve other flows for long: `V` advances without the skipped flow.
    push(&mut queue, 2, 1, 200);
    push(&mut queue, 3, 1, 200);
    let mut running = run(&mut queue);
    for _ in 0..100 {
        let (_, ticket) = running.remove(0);
        assert!(queue.complete(ticket, 1));
        let before = queue.virtual_time();
        running.extend(run(&mut queue));
        let moved = queue.virtual_time() - before;
        assert!(moved <= step_of(1, 1), "V jumped by {moved}");
    }
    assert!(queue.virtual_time() >= 49 * step_of(1, 1));
    let before = queue.virtual_time();
    assert!(queue.complete(held[0].1, 1));
    // All three places become free, and without a bound the flow could take them all.
    running.drain(..).for_each(|(_, ticket)| {
        assert!(queue.complete(ticket, 1));
    });
    queue.set_running_per_flow(usize::MAX).unwrap();
    let next = run(&mut queue);
    assert_eq!(next[0].0, 1, "of those tagged V it came first");
    assert!(next[1].0 != 1 || next[2].0 != 1, "it has no right to all");
    assert!(queue.virtual_time() >= before, "V never goes back");
    let mut served = Vec::new();
    let mut running = next;
    for _ in 0..30 {
        let (flow, ticket) = running.remove(0);
        served.push(flow);
        assert!(queue.complete(ticket, 1));
        running.extend(run(&mut queue));
    }
    for flow in 1..=3 {
        let turns = served.iter().filter(|served| **served == flow).count();
        assert!((9..=11).contains(&turns), "{served:?}");
    }
}

#[test]
fn a_new_flow_starts_at_v_although_a_flow_was_skipped() {
    let mut queue = queue(2, 1);
    push(&mut queue, 1, 1, 5);
    assert_eq!(flows(&run(&mut queue)), [1], "and it stays");
    push(&mut queue, 2, 1, 100);
    let mut next = run(&mut queue);
    for _ in 0..40 {
        assert!(queue.complete(next[0].1, 1));
        next = run(&mut queue);
    }
    push(&mut queue, 3, 1, 100);
    let mut turns = [0_usize; 4];
    for _ in 0..40 {
        assert!(queue.complete(next[0].1, 1));
        next = run(&mut queue);
        turns[next[0].0 as usize] += 1;
    }
    assert!(turns[2].abs_diff(turns[3]) <= 1, "{turns:?}");
}

#[test]
fn a_flow_sometimes_at_its_bound_gets_less_and_never_more() {
    let mut met = 0;
    for seed in 0..100 {
        let mut rng = Rng::with_seed(seed);
        // Flow 0 reaches its bound. Flow 1 is below it at every dispatch.
        let depth = 2 + rng.u64(..6) as usize;
        let mut queue = queue(depth, 1 + rng.u64(..depth as u64 - 1) as usize);
        let weights: Vec<u64> = (0..4).map(|_| 1 + rng.u64(..16)).collect();
        let mut work = [0_i128; 4];
        let mut running: Vec<(u64, Ticket, u64)> = Vec::new();
        let (mut least, mut worst) = (0_i128, 0_i128);
        for _ in 0..3000 {
            for flow in 0..4 {
                while queue.queued_of(&flow) < 2 {
                    let cost = 1 + rng.u64(..20);
                    let weight = weights[flow as usize];
                    let _ = queue.enqueue(flow, weight, cost, ()).unwrap();
                }
            }
            if let Some(next) = queue.dispatch() {
                let at = next.flow as usize;
                work[at] += i128::from(step_of(next.cost, weights[at]));
                running.push((next.flow, next.ticket, next.cost));
            }
            met += usize::from(queue.is_at_bound(&0));
            // Items of flow 1 end before the next dispatch; those of the others at any time.
            let mut is_over = |flow: u64| flow == 1 || rng.u64(..12) == 0;
            let (over, on): (Vec<_>, _) = running.drain(..).partition(|(flow, ..)| is_over(*flow));
            running = on;
            for (_, ticket, cost) in over {
                assert!(queue.complete(ticket, cost));
            }
            check(&queue);
            let ahead = work[0] - work[1];
            worst = worst.max(ahead - least);
            least = least.min(ahead);
        }
        let most = step_of(20, weights[0]) + step_of(20, weights[1]);
        assert!(worst <= i128::from(most), "seed {seed}");
        assert!(work[0] > 0, "seed {seed}");
    }
    assert!(met > 50_000, "{met}");
}

#[test]
fn weights_are_exact_between_those_that_are_below_their_bound() {
    let mut queue = queue(9, 4);
    push(&mut queue, 9, 100, 500);
    assert_eq!(run(&mut queue).len(), 4, "the heaviest holds its four");
    let mut turns = [0_usize; 3];
    for _ in 0..2100 {
        for (flow, weight) in [(0, 1), (1, 4), (2, 16)] {
            while queue.queued_of(&flow) < 2 {
                push(&mut queue, flow, weight, 1);
            }
        }
        let next = queue.dispatch().unwrap();
        turns[next.flow as usize] += 1;
        assert!(queue.complete(next.ticket, 1));
    }
    for (turns, weight) in turns.into_iter().zip([1, 4, 16]) {
        assert!(turns.abs_diff(weight * 100) <= weight + 1, "{turns}");
    }
}

#[test]
fn no_flow_starves_although_all_reach_their_bound() {
    let mut rng = Rng::with_seed(7);
    let mut queue = queue(6, 1);
    let mut running = Vec::new();
    let mut last = [0; 12];
    for turn in 1..6000 {
        for flow in 0..12 {
            if queue.queued_of(&flow) == 0 {
                push(&mut queue, flow, 1 + flow % 3, 1);
            }
        }
        for (flow, ticket) in run(&mut queue) {
            last[flow as usize] = turn;
            running.push((flow, ticket));
        }
        let at = rng.u64(..running.len() as u64) as usize;
        assert!(queue.complete(running.swap_remove(at).1, 1));
        check(&queue);
        for (flow, last) in last.iter().enumerate() {
            let is_held = running.iter().any(|(held, _)| *held == flow as u64);
            assert!(is_held || turn - last < 120, "{flow} at {turn}");
        }
    }
}

#[test]
fn a_larger_bound_lets_more_run_and_a_smaller_one_stops_nothing() {
    let mut queue = queue(10, 2);
    push(&mut queue, 1, 1, 20);
    push(&mut queue, 2, 1, 1);
    let mut running = run(&mut queue);
    assert_eq!(flows(&running), [1, 2, 1]);
    queue.set_running_per_flow(4).unwrap();
    assert_eq!(queue.flows_at_bound(), 0);
    running.extend(run(&mut queue));
    assert_eq!((queue.running(), queue.flows_at_bound()), (5, 1));
    queue.set_running_per_flow(1).unwrap();
    recount(&queue);
    assert_eq!((queue.running(), queue.flows_at_bound()), (5, 2));
    running.retain(|(flow, _)| *flow == 1);
    while let Some((_, ticket)) = running.pop() {
        assert_eq!(queue.dispatch(), None, "{} of it run", running.len() + 1);
        assert!(queue.complete(ticket, 1));
        recount(&queue);
    }
    assert_eq!(flows(&run(&mut queue)), [1]);
    queue.set_running_per_flow(usize::MAX).unwrap();
    assert_eq!(queue.flows_at_bound(), 0);
    assert_eq!(run(&mut queue).len(), 8);
    check(&queue);
}

#[test]
fn a_skipped_flow_can_cancel_and_be_displaced() {
    let mut queue = queue(4, 1);
    let tickets = push(&mut queue, 1, 1, 4);
    let running = run(&mut queue);
    assert_eq!(queue.cancel(tickets[1]), Some(()), "its head");
    assert_eq!(queue.dispatch(), None);
    check(&queue);
    queue.set_bounds(1000, 2).unwrap();
    let taken = queue.enqueue(2, 1, 1, ()).unwrap();
    assert_eq!(taken.displaced.unwrap().ticket, tickets[3]);
    check(&queue);
    assert!(queue.complete(running[0].1, 1));
    assert_eq!(flows(&run(&mut queue)), [2, 1]);
    assert_eq!(queue.cancel(tickets[2]), None, "it runs");
    // None of its items waits any more, but the running ones are still counted.
    assert!(queue.is_at_bound(&1) && queue.is_at_bound(&2));
    check(&queue);
}

#[test]
fn an_arrival_that_need_not_wait_starts_although_the_queue_is_full() {
    let mut queue = queue(4, 1);
    queue.set_bounds(1, 1).unwrap();
    push(&mut queue, 1, 1, 1);
    let held = run(&mut queue);
    push(&mut queue, 1, 1, 1);
    assert!(queue.enqueue(2, 1, 1, ()).is_err(), "the queue is full");
    assert!(!queue.is_open_to(&1) && queue.is_open_to(&2));
    assert_eq!(queue.dispatch_arrival(1, 1, 1), None);
    assert_eq!(queue.dispatch_arrival(2, 0, 1), None);
    assert_eq!(queue.dispatch_arrival(2, 1, 0), None);
    assert_eq!(queue.dispatch_arrival(2, 1, 1 + MAX_COST_PER_WEIGHT), None);
    let second = queue.dispatch_arrival(2, 1, 1).unwrap();
    check(&queue);
    assert_eq!((queue.queued(), queue.running()), (1, 2));
    assert_eq!(queue.dispatch_arrival(2, 1, 1), None, "it is at its bound");
    assert!(queue.complete(held[0].1, 1));
    assert!(!queue.is_open_to(&3), "an eligible item waits");
    assert_eq!(flows(&run(&mut queue)), [1]);
    assert!(queue.complete(second, 1));
    check(&queue);
}
