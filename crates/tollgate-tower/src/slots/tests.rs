//! Waiting in real time, and what vanishing gives back.

use std::time::Duration;

use tollgate::policy::{Facts, LimitRule, Policy, PolicyGate, Quota};
use tollgate::{Limit, Limiter, ManualClock};

use super::*;

fn leaky(rate: &str, queue: u64) -> Limit {
    Limit::leaky_bucket(rate.parse().unwrap(), queue).unwrap()
}

#[tokio::test]
async fn everybody_goes_at_its_slot_and_whoever_leaves_lets_the_others_move_up() {
    let limiter = Limiter::new(leaky("100/s", 100)).unwrap();
    let slots = Slots::new();
    let began = limiter.clock().now();
    let mut waits: Vec<_> = (0..10)
        .map(|_| slots.wait_for(limiter.queue_up("k", 1).1.unwrap()))
        .collect();
    // Five of ten leave, from all over the line, before their slots.
    for gone in [9, 7, 5, 3, 1] {
        drop(waits.remove(gone));
    }
    let mut went = Vec::new();
    for wait in waits {
        wait.await;
        went.push(limiter.clock().now().since(began).as_nanos() / 1_000);
    }
    for (at, us) in (0..).map(|i: u64| i * 10_000).zip(&went) {
        assert!(*us >= at.saturating_sub(100), "early: {went:?}");
    }
    assert!(went[4] < 80_000, "they moved up: {went:?}");
    assert_eq!(slots.lines(), 0);
    assert!(limiter.peek("k", 0).standing.full_after <= Span::from_millis(10));
}

fn policy_gate<C: Clock>(rate: &str, clock: C) -> PolicyGate<C> {
    let tokens = Limit::token_bucket("1/h".parse().unwrap(), 100).unwrap();
    let limits = vec![
        LimitRule::new("slots", Quota::plain(leaky(rate, 100))),
        LimitRule::new("tokens", Quota::plain(tokens)),
    ];
    let policy = Policy {
        limits,
        ..Policy::default()
    };
    PolicyGate::new(policy, clock).unwrap()
}

fn facts() -> Facts<'static> {
    Facts {
        method: "GET",
        path: "/",
        ..Facts::default()
    }
}

fn tokens_left(gate: &PolicyGate<impl Clock>) -> u64 {
    let asked = gate.peek_named("tokens", &[], 0).unwrap();
    asked.standing.remaining
}

fn promised(gate: &PolicyGate<impl Clock>) -> Duration {
    let asked = gate.peek_named("slots", &[], 0).unwrap();
    asked.standing.full_after.into()
}

#[tokio::test]
async fn a_request_that_vanishes_gives_back_its_slot_and_what_it_took_besides() {
    let gate = policy_gate("1/s", ManualClock::new());
    let slots = Slots::new();
    let first = gate.admit(&facts());
    assert!(slots.wait(&gate, &first).is_over(), "it begins at once");
    let waits = [(); 3].map(|()| slots.wait(&gate, &gate.admit(&facts())));
    assert_eq!(tokens_left(&gate), 96);
    assert_eq!(promised(&gate), Duration::from_secs(4));
    let [second, third, fourth] = waits;
    drop(third);
    assert_eq!(tokens_left(&gate), 97);
    assert_eq!(promised(&gate), Duration::from_secs(3));
    drop(second);
    drop(fourth);
    assert_eq!(tokens_left(&gate), 99, "only the first keeps what it took");
    assert_eq!(promised(&gate), Duration::from_secs(1));
}

#[tokio::test]
async fn whoever_has_gone_on_keeps_what_it_took() {
    let gate = policy_gate("200/s", MonotonicClock::since_1970());
    let slots = Slots::new();
    gate.admit(&facts());
    let answer = gate.admit(&facts());
    let began = gate.clock().now();
    let mut wait = slots.wait(&gate, &answer);
    assert!(!wait.is_over());
    (&mut wait).await;
    assert!(gate.clock().now().since(began) >= Span::from_millis(4));
    assert!(wait.is_over());
    drop(wait);
    assert_eq!(tokens_left(&gate), 98);
}

#[tokio::test]
async fn a_slot_with_a_stranger_behind_it_stays_idle_until_the_stranger_comes() {
    let limiter = Limiter::new(leaky("10/s", 100)).unwrap();
    let slots = Slots::new();
    limiter.check("k");
    let gone = slots.wait_for(limiter.queue_up("k", 1).1.unwrap());
    let stranger = limiter.queue_up("k", 1).1.unwrap();
    let before = stranger.starts();
    drop(gone);
    let told = limiter.peek("k", 0).standing.full_after;
    assert!(told > Span::from_millis(200), "nothing was given back");
    let comes = slots.wait_for(stranger);
    comes.await;
    assert!(limiter.clock().now() < before, "it moved up when it came");
}

#[test]
fn a_line_that_nobody_has_left_is_not_walked_through_by_those_who_come() {
    let limiter = Limiter::with_clock(leaky("1000/s", 10_000), ManualClock::new()).unwrap();
    let mut line = Line::new();
    let join = |line: &mut Line<ManualClock, u64>, id: u64| {
        line.join(id, limiter.queue_up("k", 1).1.unwrap(), id);
    };
    (0..1000).for_each(|id| join(&mut line, id));
    assert_eq!(line.looked_at, 0);
    // Who leaves is found again, and then there is nothing to look for any more.
    line.leave(900);
    assert_eq!(line.looked_at, 100);
    (1000..2000).for_each(|id| join(&mut line, id));
    assert_eq!(line.looked_at, 100);
    // An empty slot that cannot be given back, because somebody behind it is not here yet.
    let elsewhere = limiter.queue_up("k", 1).1.unwrap();
    line.leave(1999);
    let slots = line.slots().count();
    line.join(2000, elsewhere, 2000);
    assert_eq!(line.slots().count(), slots, "one came, one was given back");
    let before = line.looked_at;
    (2001..3000).for_each(|id| join(&mut line, id));
    assert_eq!(line.looked_at, before);
    // And one whose time has come is empty no more.
    let _elsewhere = limiter.queue_up("k", 1);
    line.leave(2999);
    let last = Moment::from_nanos(u64::MAX);
    while line.due(last).is_some() {}
    (3000..3010).for_each(|id| join(&mut line, id));
    assert_eq!(line.slots().count(), 10);
    assert_eq!(line.looked_at, before + 1);
}
