//! What the turnstile promises, on a clock that stands still until it is moved.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tollgate::shape::{Adaptive, Estimator};
use tollgate::{Scale, Span};
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule, Source, TierWeights};
use tollgate_tower::turnstile::{
    Entering, Outcome, QueueError, QueueSet, Turn, Turned, Turnstile, Why,
};

fn rule(at_once: u32) -> QueueRule {
    QueueRule::new("api", QueueConcurrency::Fixed(at_once))
}

fn paced(rate: &str, burst: u64) -> QueueRule {
    QueueRule {
        at_once: None,
        rate: Some((rate.parse().unwrap(), burst)),
        ..rule(1)
    }
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

fn costing(cost: u64) -> QueuePlace {
    QueuePlace { cost, ..place(1) }
}

fn poll(entering: &mut Entering) -> Poll<Result<Turn, Turned>> {
    Pin::new(entering).poll(&mut Context::from_waker(Waker::noop()))
}

/// A turn that must be there at once.
fn enter_now(turnstile: &Turnstile, place: &QueuePlace) -> Turn {
    match poll(&mut turnstile.enter(place)) {
        Poll::Ready(Ok(turn)) => turn,
        other => panic!("no turn at once: {other:?}"),
    }
}

/// Somebody who has come and has to wait.
fn queue_up(turnstile: &Turnstile, place: &QueuePlace) -> Entering {
    let mut entering = turnstile.enter(place);
    assert!(poll(&mut entering).is_pending());
    entering
}

fn refused(turnstile: &Turnstile, place: &QueuePlace) -> Turned {
    match poll(&mut turnstile.enter(place)) {
        Poll::Ready(Err(turned)) => turned,
        other => panic!("not refused: {other:?}"),
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_free_place_is_taken_at_the_first_poll_and_the_next_waits_for_it() {
    let turnstile = Turnstile::new(&rule(1)).unwrap();
    let unpolled = turnstile.enter(&place(9));
    let first = enter_now(&turnstile, &place(1));
    assert_eq!(first.waited(), Duration::ZERO);
    let mut second = queue_up(&turnstile, &place(2));
    drop(unpolled);
    let report = turnstile.report();
    assert_eq!((report.waiting, report.under_way), (1, 1));
    assert_eq!(report.at_once, Some(1));
    advance(ms(30)).await;
    first.finish(Outcome::Answered);
    let Poll::Ready(Ok(second)) = poll(&mut second) else {
        panic!("its turn has come")
    };
    assert_eq!(second.waited(), ms(30));
    drop(second);
    let report = turnstile.report();
    assert_eq!((report.waiting, report.under_way), (0, 0));
    assert_eq!(report.served_of_none.turns, 2);
    assert_eq!((report.waits.counts[0], report.waits.counts[4]), (1, 1));
    assert_eq!(report.waits.sum, ms(30));
    assert_eq!(report.unserved.by_name().map(|(_, count)| count), [0; 5]);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_before_the_turn_leaves_the_queue_and_after_it_lets_the_next_go() {
    let turnstile = Turnstile::new(&rule(1)).unwrap();
    let held = enter_now(&turnstile, &place(1));
    let impatient = queue_up(&turnstile, &place(2));
    let unlucky = queue_up(&turnstile, &place(3));
    let mut last = queue_up(&turnstile, &place(4));
    drop(impatient);
    assert_eq!(turnstile.report().waiting, 2);
    // The turn is given to the unlucky one, who never comes to take it.
    held.finish(Outcome::Answered);
    assert!(poll(&mut last).is_pending());
    assert_eq!(turnstile.report().under_way, 1);
    drop(unlucky);
    assert!(poll(&mut last).is_ready());
    let report = turnstile.report();
    assert_eq!((report.unserved.gone, report.served_of_none.turns), (2, 2));
    assert_eq!((report.waiting, report.under_way), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_is_turned_away_in_time_and_without_being_polled() {
    let mut rule = rule(1);
    rule.max_wait = Span::from_millis(100);
    let turnstile = Turnstile::new(&rule).unwrap();
    let _held = enter_now(&turnstile, &place(1));
    let begin = Instant::now();
    let early = turnstile.enter(&place(2));
    let late = async {
        sleep(ms(40)).await;
        let turned = turnstile.enter(&place(3)).await.unwrap_err();
        (turned, begin.elapsed())
    };
    let (early, (late, after)) =
        tokio::join!(async { (early.await.unwrap_err(), begin.elapsed()) }, late);
    assert_eq!((early.0.why, late.why), (Why::TooLong, Why::TooLong));
    assert!((ms(100)..=ms(102)).contains(&early.1), "{:?}", early.1);
    assert!((ms(140)..=ms(142)).contains(&after), "{after:?}");
    assert!(late.retry_after <= Span::from_millis(100));
    assert!(late.retry_after >= Span::from_millis(1));
    let report = turnstile.report();
    assert_eq!((report.unserved.too_long, report.waiting), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn no_patience_at_all_is_an_answer_at_the_first_poll() {
    let mut rule = rule(1);
    rule.max_wait = Span::ZERO;
    let turnstile = Turnstile::new(&rule).unwrap();
    let held = enter_now(&turnstile, &place(1));
    assert_eq!(refused(&turnstile, &place(2)).why, Why::TooLong);
    drop(held);
    drop(enter_now(&turnstile, &place(2)));
}

#[tokio::test(start_paused = true)]
async fn the_bounds_of_flow_and_queue_are_told_apart_and_the_largest_flow_pays() {
    let mut rule = rule(1);
    (rule.per_flow, rule.total) = (2, 3);
    let turnstile = Turnstile::new(&rule).unwrap();
    let _held = enter_now(&turnstile, &place(1));
    let _one = queue_up(&turnstile, &place(1));
    let mut two = queue_up(&turnstile, &place(1));
    assert_eq!(refused(&turnstile, &place(1)).why, Why::FlowFull);
    let _three = queue_up(&turnstile, &place(2));
    assert_eq!(refused(&turnstile, &place(2)).why, Why::Full);
    let _four = queue_up(&turnstile, &place(3));
    let Poll::Ready(Err(turned)) = poll(&mut two) else {
        panic!("it had to make room")
    };
    assert_eq!(turned.why, Why::Displaced);
    let unserved = turnstile.report().unserved;
    assert_eq!((unserved.flow_full, unserved.full), (1, 1));
    assert_eq!((unserved.displaced, turnstile.report().waiting), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn no_window_of_time_lets_more_go_than_rate_and_burst() {
    let mut rule = paced("100/s", 5);
    rule.per_flow = 400;
    let turnstile = Turnstile::new(&rule).unwrap();
    let begin = Instant::now();
    let enter = |_| {
        let entering = turnstile.enter(&place(1));
        tokio::spawn(async move {
            let turn = entering.await.unwrap();
            let at = begin.elapsed();
            turn.finish(Outcome::Answered);
            at
        })
    };
    let tasks: Vec<_> = (0..300).map(enter).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.push(task.await.unwrap());
    }
    times.sort();
    for (i, from) in times.iter().enumerate() {
        for (j, to) in times.iter().enumerate().skip(i) {
            let allowed = 5 + (*to - *from).as_millis() / 10;
            assert!((j - i) as u128 <= allowed, "{i}..={j}: {from:?} to {to:?}");
        }
    }
    // Nor less, but for a millisecond of the timer at each turn.
    assert!(times[299] <= ms(2950 + 300), "{:?}", times[299]);
}

#[tokio::test(start_paused = true)]
async fn a_rate_beyond_the_grain_of_timers_is_reached_all_the_same() {
    let mut rule = paced("5000/s", 1);
    rule.per_flow = 1000;
    let turnstile = Turnstile::new(&rule).unwrap();
    let begin = Instant::now();
    let enter = |_| tokio::spawn(turnstile.enter(&place(1)));
    let tasks: Vec<_> = (0..1000).map(enter).collect();
    for task in tasks {
        task.await.unwrap().unwrap().finish(Outcome::Answered);
    }
    let took = begin.elapsed();
    assert!((ms(198)..=ms(230)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_burst_empties_the_bucket_and_does_not_hang() {
    let turnstile = Turnstile::new(&paced("10/s", 5)).unwrap();
    let begin = Instant::now();
    drop(enter_now(&turnstile, &costing(50)));
    turnstile
        .enter(&costing(1))
        .await
        .unwrap()
        .finish(Outcome::Answered);
    assert!((ms(100)..=ms(102)).contains(&begin.elapsed()));
    turnstile
        .enter(&costing(50))
        .await
        .unwrap()
        .finish(Outcome::Answered);
    assert!((ms(600)..=ms(604)).contains(&begin.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn rate_and_places_must_both_agree() {
    let mut rule = paced("10/s", 1);
    rule.at_once = Some(QueueConcurrency::Fixed(1));
    let turnstile = Turnstile::new(&rule).unwrap();
    let held = enter_now(&turnstile, &place(1));
    let mut next = queue_up(&turnstile, &place(1));
    sleep(ms(500)).await;
    assert!(
        poll(&mut next).is_pending(),
        "the rate agrees, the place does not"
    );
    held.finish(Outcome::Answered);
    let Poll::Ready(Ok(turn)) = poll(&mut next) else {
        panic!("now both agree")
    };
    turn.finish(Outcome::Answered);
    let mut next = queue_up(&turnstile, &place(1));
    sleep(ms(98)).await;
    assert!(
        poll(&mut next).is_pending(),
        "the place agrees, the rate does not"
    );
    sleep(ms(4)).await;
    assert!(poll(&mut next).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_nobody_took_costs_nothing_of_the_rate() {
    let turnstile = Turnstile::new(&paced("10/s", 1)).unwrap();
    drop(enter_now(&turnstile, &place(1)));
    let gone = queue_up(&turnstile, &place(1));
    sleep(ms(102)).await;
    assert_eq!(turnstile.report().under_way, 1, "it was given the turn");
    drop(gone);
    drop(enter_now(&turnstile, &place(1)));
}

#[tokio::test(start_paused = true)]
async fn when_only_a_rate_holds_up_the_time_to_come_back_is_exact() {
    let mut rule = paced("10/s", 1);
    rule.per_flow = 3;
    let turnstile = Turnstile::new(&rule).unwrap();
    drop(enter_now(&turnstile, &place(1)));
    let _waiting: Vec<_> = (0..3).map(|_| queue_up(&turnstile, &place(1))).collect();
    let turned = refused(&turnstile, &place(1));
    assert_eq!(turned.retry_after, Span::from_millis(300));
    turnstile.set_scale(Scale::from_q16(65_536 / 2));
    let turned = refused(&turnstile, &place(1));
    assert_eq!(turned.retry_after, Span::from_millis(600));
}

#[tokio::test(start_paused = true)]
async fn the_time_to_come_back_follows_how_turns_were_lately_given() {
    let mut rule = rule(1);
    rule.per_flow = 20;
    let turnstile = Turnstile::new(&rule).unwrap();
    let mut held = enter_now(&turnstile, &place(1));
    let mut waiting: Vec<_> = (0..20).map(|_| queue_up(&turnstile, &place(1))).collect();
    let turned = refused(&turnstile, &place(1));
    assert_eq!(turned.retry_after, rule.max_wait, "nothing is known yet");
    for _ in 0..10 {
        sleep(ms(50)).await;
        held.finish(Outcome::Answered);
        let Poll::Ready(Ok(turn)) = poll(&mut waiting.remove(0)) else {
            panic!("its turn has come")
        };
        held = turn;
        waiting.push(queue_up(&turnstile, &place(1)));
    }
    let told = refused(&turnstile, &place(1)).retry_after;
    let near = Span::from_millis(990)..=Span::from_millis(1030);
    assert!(near.contains(&told), "20 times 50 ms, not {told:?}");
}

#[tokio::test(start_paused = true)]
async fn pressure_takes_places_and_gives_them_back() {
    let turnstile = Turnstile::new(&rule(10)).unwrap();
    let mut held: Vec<_> = (0..10).map(|_| enter_now(&turnstile, &place(1))).collect();
    turnstile.set_scale(Scale::from_q16(65_536 / 2));
    assert_eq!(turnstile.report().at_once, Some(5));
    assert_eq!(turnstile.report().under_way, 10, "nobody is stopped");
    let mut waiting = queue_up(&turnstile, &place(1));
    held.truncate(5);
    assert!(poll(&mut waiting).is_pending());
    held.truncate(4);
    assert!(poll(&mut waiting).is_ready());
    turnstile.set_scale(Scale::from_q16(0));
    assert_eq!(turnstile.report().at_once, Some(1), "never a stop");
    held.truncate(1);
    let mut waiting = queue_up(&turnstile, &place(1));
    turnstile.set_scale(Scale::ONE);
    assert!(poll(&mut waiting).is_ready());
    assert_eq!(turnstile.report().at_once, Some(10));
}

#[tokio::test(start_paused = true)]
async fn under_pressure_the_rate_is_slower_and_then_as_before() {
    let turnstile = Turnstile::new(&paced("10/s", 1)).unwrap();
    drop(enter_now(&turnstile, &place(1)));
    turnstile.set_scale(Scale::from_q16(65_536 / 4));
    let begin = Instant::now();
    drop(turnstile.enter(&place(1)).await);
    assert!((ms(400)..=ms(402)).contains(&begin.elapsed()));
    // A change while somebody waits counts from then on.
    let entering = tokio::spawn(turnstile.enter(&place(1)));
    sleep(ms(200)).await;
    turnstile.set_scale(Scale::ONE);
    drop(entering.await.unwrap());
    assert!(
        (ms(648)..=ms(656)).contains(&begin.elapsed()),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn another_rule_lets_more_go_and_who_waits_keeps_waiting() {
    let before = QueueSet::new(&[rule(1)], None).unwrap();
    let turnstile = before.get(0).unwrap().clone();
    let _held = enter_now(&turnstile, &place(1));
    let mut first = queue_up(&turnstile, &place(1));
    let mut second = queue_up(&turnstile, &place(1));
    let mut more = rule(2);
    (more.per_flow, more.total) = (1, 1);
    let after = QueueSet::new(&[more.clone()], Some(&before)).unwrap();
    assert!(poll(&mut first).is_pending(), "not in force yet");
    after.put_in_force();
    let Poll::Ready(Ok(first)) = poll(&mut first) else {
        panic!("there are two places now")
    };
    assert!(poll(&mut second).is_pending());
    assert_eq!(refused(&turnstile, &place(1)).why, Why::FlowFull);
    // A rate on top, and then nothing but a rate.
    more.rate = Some(("10/s".parse().unwrap(), 1));
    turnstile.change(&more);
    first.finish(Outcome::Answered);
    assert!(poll(&mut second).is_ready(), "the new bucket is full");
    more.at_once = None;
    turnstile.change(&more);
    assert_eq!(turnstile.report().at_once, None);
    let mut third = queue_up(&turnstile, &place(1));
    more.rate = None;
    more.at_once = Some(QueueConcurrency::Fixed(0));
    turnstile.change(&more);
    assert!(
        poll(&mut third).is_ready(),
        "a width of 0 is not obeyed, no rate is"
    );
}

#[tokio::test(start_paused = true)]
async fn less_patience_holds_for_those_who_wait_already() {
    let mut patient = rule(1);
    let turnstile = Turnstile::new(&patient).unwrap();
    let _held = enter_now(&turnstile, &place(1));
    let begin = Instant::now();
    let waiting = tokio::spawn(turnstile.enter(&place(1)));
    sleep(ms(50)).await;
    patient.max_wait = Span::from_millis(200);
    turnstile.change(&patient);
    assert_eq!(waiting.await.unwrap().unwrap_err().why, Why::TooLong);
    assert!((ms(200)..=ms(202)).contains(&begin.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn what_was_served_is_counted_by_class() {
    let mut rule = rule(10);
    rule.weights = Some(TierWeights {
        source: Source::Header("plan".into()),
        tiers: vec![(Arc::from("free"), 1), (Arc::from("paid"), 4)],
    });
    let turnstile = Turnstile::new(&rule).unwrap();
    for (tier, cost) in [
        (Some(0), 1),
        (Some(1), 7),
        (Some(1), 8),
        (None, 3),
        (Some(9), 1),
    ] {
        drop(enter_now(
            &turnstile,
            &QueuePlace {
                tier,
                ..costing(cost)
            },
        ));
    }
    let report = turnstile.report();
    let served: Vec<_> = report.served.iter().map(|s| (s.turns, s.cost)).collect();
    assert_eq!(served, [(1, 1), (2, 15)]);
    assert_eq!(
        (report.served_of_none.turns, report.served_of_none.cost),
        (2, 4)
    );
}

#[tokio::test(start_paused = true)]
async fn a_class_keeps_its_count_wherever_the_next_rule_names_it() {
    let weighted = |names: &[&str]| {
        let mut rule = rule(1);
        rule.weights = Some(TierWeights {
            source: Source::Header("plan".into()),
            tiers: names.iter().map(|name| (Arc::from(*name), 1)).collect(),
        });
        rule
    };
    let of = |tier| QueuePlace {
        tier: Some(tier),
        ..costing(1)
    };
    let turns = |turnstile: &Turnstile| -> Vec<u64> {
        let report = turnstile.report();
        report.served.iter().map(|served| served.turns).collect()
    };
    let turnstile = Turnstile::new(&weighted(&["free", "paid"])).unwrap();
    drop(enter_now(&turnstile, &of(0)));
    let held = enter_now(&turnstile, &of(1));
    let waiting = tokio::spawn(turnstile.enter(&of(1)));
    tokio::task::yield_now().await;
    turnstile.change(&weighted(&["new", "paid", "free"]));
    assert_eq!(turns(&turnstile), [0, 1, 1]);
    // Whoever came as the second of two is counted as what it was.
    drop(held);
    drop(waiting.await.unwrap().unwrap());
    assert_eq!(turns(&turnstile), [0, 2, 1]);
    turnstile.change(&weighted(&["paid"]));
    assert_eq!(turns(&turnstile), [2]);
    turnstile.change(&weighted(&["free", "paid"]));
    assert_eq!(turns(&turnstile), [1, 2]);
}

#[test]
fn a_queue_that_could_not_be_is_not_built() {
    let told = |rule: &QueueRule| match Turnstile::new(rule).unwrap_err() {
        QueueError::Unusable { name, why } => {
            assert_eq!(&*name, "api");
            why
        }
        other => panic!("{other}"),
    };
    assert!(told(&rule(0)).contains("`depth` is 0"));
    let mut neither = rule(1);
    neither.at_once = None;
    assert!(told(&neither).contains("neither `at_once` nor `rate`"));
    assert!(
        told(&paced("1/s", 0)).contains("burst"),
        "{}",
        told(&paced("1/s", 0))
    );
    let adaptive = Adaptive {
        by: Estimator::Aimd,
        min: 5,
        max: 4,
        initial: 4,
        timeout: Span::from_secs(1),
    };
    assert!(
        told(&QueueRule::new("api", QueueConcurrency::Adaptive(adaptive))).contains("`min` is 5")
    );
}

#[test]
fn a_pacer_whose_runtime_ends_is_replaced_by_that_of_another() {
    let mut rule = rule(1);
    rule.max_wait = Span::from_millis(150);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    };
    let turnstile = Turnstile::new(&rule).unwrap();
    let _held = enter_now(&turnstile, &place(1));
    let (first, second) = (runtime(), runtime());
    let abandoned = first.spawn(turnstile.enter(&place(1)));
    first.block_on(async { sleep(ms(5)).await });
    let waiting = second.spawn(turnstile.enter(&place(2)));
    second.block_on(async { sleep(ms(5)).await });
    assert_eq!(turnstile.report().waiting, 2);
    drop(first);
    let told = second.block_on(async {
        let limit = Duration::from_secs(5);
        tokio::time::timeout(limit, waiting).await.unwrap().unwrap()
    });
    assert_eq!(told.unwrap_err().why, Why::TooLong);
    drop(abandoned);
}

#[tokio::test(start_paused = true)]
async fn a_future_polled_after_its_end_says_nothing_more() {
    let turnstile = Turnstile::new(&rule(1)).unwrap();
    let mut entering = pin!(turnstile.enter(&place(1)));
    let turn = entering.as_mut().await;
    assert!(
        entering
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    drop(turn);
    assert_eq!(turnstile.report().under_way, 0);
}
