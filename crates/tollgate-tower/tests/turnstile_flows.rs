//! The bound on the turns that one flow holds at once, on a clock that stands still until it is moved.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{advance, sleep};
use tollgate::{Scale, Span};
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule};
use tollgate_tower::turnstile::{Entering, Outcome, Turn, Turned, Turnstile, Why};

fn rule(at_once: u32, of_one: u32) -> QueueRule {
    QueueRule {
        at_once_per_flow: Some(of_one),
        ..QueueRule::new("api", QueueConcurrency::Fixed(at_once))
    }
}

fn turnstile(rule: &QueueRule) -> Turnstile {
    Turnstile::new(rule).unwrap()
}

fn place(flow: u64) -> QueuePlace {
    QueuePlace {
        queue: 0,
        flow,
        tier: None,
        weight: 1,
        cost: 1,
    }
}

fn poll(entering: &mut Entering) -> Poll<Result<Turn, Turned>> {
    Pin::new(entering).poll(&mut Context::from_waker(Waker::noop()))
}

/// A turn that must be there.
fn taken(entering: &mut Entering) -> Turn {
    match poll(entering) {
        Poll::Ready(Ok(turn)) => turn,
        other => panic!("no turn: {other:?}"),
    }
}

fn enter_now(turnstile: &Turnstile, flow: u64) -> Turn {
    taken(&mut turnstile.enter(&place(flow)))
}

/// Somebody who has come and has to wait.
fn queue_up(turnstile: &Turnstile, flow: u64) -> Entering {
    let mut entering = turnstile.enter(&place(flow));
    assert!(poll(&mut entering).is_pending());
    entering
}

fn refused(turnstile: &Turnstile, flow: u64) -> Turned {
    match poll(&mut turnstile.enter(&place(flow))) {
        Poll::Ready(Err(turned)) => turned,
        other => panic!("not refused: {other:?}"),
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_never_gives_its_turns_back_leaves_all_the_others() {
    let turnstile = turnstile(&QueueRule {
        max_wait: Span::from_secs(3600),
        ..rule(8, 3)
    });
    let held: Vec<Turn> = (0..3).map(|_| enter_now(&turnstile, 1)).collect();
    let waits: Vec<Entering> = (0..50).map(|_| queue_up(&turnstile, 1)).collect();
    assert_eq!(turnstile.report().flows_at_bound, Some(1));
    let most = Arc::new(AtomicUsize::new(0));
    let served = Arc::new(AtomicUsize::new(0));
    let client = |at: u64| {
        let (turnstile, most, served) = (turnstile.clone(), Arc::clone(&most), Arc::clone(&served));
        tokio::spawn(async move {
            loop {
                let turn = turnstile.enter(&place(2 + at % 4)).await.unwrap();
                most.fetch_max(turnstile.report().under_way, Relaxed);
                served.fetch_add(1, Relaxed);
                sleep(ms(10)).await;
                turn.finish(Outcome::Answered);
            }
        })
    };
    let clients: Vec<_> = (0..20).map(client).collect();
    sleep(ms(10_000)).await;
    clients.iter().for_each(|client| client.abort());
    // Five places, each for 10 ms: all of them, all the time.
    let served = served.load(Relaxed);
    assert!((4990..=5010).contains(&served), "{served}");
    assert_eq!(most.load(Relaxed), 8);
    drop((held, waits));
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_a_flow_is_given_on_only_when_one_of_its_own_ends() {
    let turnstile = turnstile(&rule(4, 1));
    let first = enter_now(&turnstile, 1);
    let other = enter_now(&turnstile, 2);
    let mut next = queue_up(&turnstile, 1);
    let mut last = queue_up(&turnstile, 1);
    other.finish(Outcome::Answered);
    assert!(
        poll(&mut next).is_pending(),
        "there is room, but not for it"
    );
    // Others pass by at once.
    let other = enter_now(&turnstile, 2);
    assert_eq!(other.waited(), Duration::ZERO);
    advance(ms(40)).await;
    first.finish(Outcome::Answered);
    assert_eq!(turnstile.report().under_way, 2);
    let next = taken(&mut next);
    assert_eq!(next.waited(), ms(40));
    assert!(poll(&mut last).is_pending());
    drop(next);
    drop(taken(&mut last));
    let report = turnstile.report();
    assert_eq!((report.waiting, report.under_way), (0, 1));
    assert_eq!(report.flows_at_bound, Some(1), "the other one");
    drop(other);
    assert_eq!(turnstile.report().flows_at_bound, Some(0));
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_in_the_queue_or_with_a_turn_not_taken_lets_the_next_of_its_flow_go() {
    let turnstile = turnstile(&rule(4, 1));
    let held = enter_now(&turnstile, 1);
    let impatient = queue_up(&turnstile, 1);
    let unlucky = queue_up(&turnstile, 1);
    let mut last = queue_up(&turnstile, 1);
    drop(impatient);
    // Given to the unlucky one, who never comes to take it.
    held.finish(Outcome::Answered);
    assert!(poll(&mut last).is_pending());
    drop(unlucky);
    drop(taken(&mut last));
    let report = turnstile.report();
    assert_eq!((report.waiting, report.under_way), (0, 0));
    assert_eq!((report.unserved.gone, report.flows_at_bound), (2, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_for_its_bound_is_turned_away() {
    let turnstile = turnstile(&rule(4, 1));
    let _held = enter_now(&turnstile, 1);
    let entering = turnstile.enter(&place(1));
    let turned = entering.await.unwrap_err();
    assert_eq!(turned.why, Why::TooLong);
    let report = turnstile.report();
    assert_eq!((report.waiting, report.under_way), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_their_bound_keep_nobody_out_who_could_go() {
    let turnstile = turnstile(&QueueRule {
        total: 1,
        ..rule(3, 1)
    });
    let _held = enter_now(&turnstile, 1);
    let mut waits = queue_up(&turnstile, 1);
    // The waiting room is full, but it needs none.
    let second = enter_now(&turnstile, 2);
    assert_eq!(refused(&turnstile, 2).why, Why::Full);
    let _third = enter_now(&turnstile, 3);
    assert_eq!(refused(&turnstile, 4).why, Why::Full);
    drop(second);
    let _fourth = enter_now(&turnstile, 4);
    assert!(poll(&mut waits).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_changed_rule_bounds_flows_from_now_on_and_stops_nothing() {
    let turnstile = turnstile(&rule(6, 1));
    let mut held = vec![enter_now(&turnstile, 1)];
    let mut waits: Vec<Entering> = (0..6).map(|_| queue_up(&turnstile, 1)).collect();
    turnstile.change(&rule(6, 3));
    held.extend(waits.drain(..2).map(|mut entering| taken(&mut entering)));
    assert!(poll(&mut waits[0]).is_pending());
    turnstile.change(&rule(6, 2));
    assert_eq!(turnstile.report().under_way, 3);
    held.pop();
    assert!(poll(&mut waits[0]).is_pending(), "two are still under way");
    held.pop();
    held.push(taken(&mut waits.remove(0)));
    // A part of a rule that cannot be changes nothing.
    turnstile.change(&rule(6, 0));
    assert!(poll(&mut waits[0]).is_pending());
    turnstile.change(&QueueRule {
        at_once_per_flow: None,
        ..rule(6, 1)
    });
    assert_eq!(turnstile.report().flows_at_bound, None);
    held.extend(waits.drain(..).map(|mut entering| taken(&mut entering)));
    assert_eq!((held.len(), turnstile.report().waiting), (5, 0));
    assert!(Turnstile::new(&rule(6, 0)).is_err());
}

#[tokio::test(start_paused = true)]
async fn under_pressure_one_flow_has_as_large_a_part_as_before() {
    let turnstile = turnstile(&rule(8, 4));
    turnstile.set_scale(Scale::from_q16(1 << 15));
    let mut held: Vec<Turn> = (0..2).map(|_| enter_now(&turnstile, 1)).collect();
    let mut waits = queue_up(&turnstile, 1);
    held.extend((0..2).map(|_| enter_now(&turnstile, 2)));
    assert_eq!(turnstile.report().at_once, Some(4));
    // Never none, however much pressure there is.
    turnstile.set_scale(Scale::from_q16(1));
    held.clear();
    held.push(taken(&mut waits));
    let mut waits = queue_up(&turnstile, 1);
    turnstile.set_scale(Scale::ONE);
    held.push(taken(&mut waits));
    held.extend((0..2).map(|_| enter_now(&turnstile, 1)));
    drop(queue_up(&turnstile, 1));
}

#[tokio::test(start_paused = true)]
async fn with_a_rate_alone_it_bounds_what_is_under_way_and_costs_no_rate() {
    let turnstile = turnstile(&QueueRule {
        at_once: None,
        rate: Some(("10/s".parse().unwrap(), 2)),
        ..rule(1, 1)
    });
    let held = enter_now(&turnstile, 1);
    let mut waits = queue_up(&turnstile, 1);
    // Who waits for its bound has paid nothing: the second of the burst is there for another.
    let other = enter_now(&turnstile, 2);
    sleep(ms(1000)).await;
    assert!(poll(&mut waits).is_pending());
    held.finish(Outcome::Answered);
    let second = taken(&mut waits);
    let mut third = queue_up(&turnstile, 1);
    second.finish(Outcome::Answered);
    // Two had gone together before; this is the burst of the time since.
    let third = taken(&mut third);
    let mut fourth = queue_up(&turnstile, 1);
    third.finish(Outcome::Answered);
    assert!(poll(&mut fourth).is_pending(), "now it waits for the rate");
    let fourth = fourth.await.unwrap();
    assert!((ms(95)..ms(105)).contains(&fourth.waited()));
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn who_is_turned_away_is_told_how_fast_those_go_that_wait() {
    let turnstile = turnstile(&QueueRule {
        per_flow: 5,
        max_wait: Span::from_secs(60),
        ..rule(8, 1)
    });
    let mut held = enter_now(&turnstile, 1);
    let mut waits: std::collections::VecDeque<Entering> =
        (0..5).map(|_| queue_up(&turnstile, 1)).collect();
    for _ in 0..30 {
        // Others pass by all the time, and tell nothing about it.
        for _ in 0..100 {
            enter_now(&turnstile, 2).finish(Outcome::Answered);
            advance(ms(10)).await;
        }
        held.finish(Outcome::Answered);
        held = taken(&mut waits.pop_front().unwrap());
        waits.push_back(queue_up(&turnstile, 1));
    }
    // One goes each second, and five wait.
    let turned = refused(&turnstile, 1);
    assert_eq!(turned.why, Why::FlowFull);
    let told = Duration::from(turned.retry_after);
    assert!((ms(4900)..ms(5100)).contains(&told), "{told:?}");
}
