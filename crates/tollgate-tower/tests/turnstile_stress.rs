//! Many tasks on several threads that come, wait, go away at any moment, and are never lost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use fastrand::Rng;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::{Scale, Span};
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule};
use tollgate_tower::turnstile::{Entering, Outcome, Turn, Turned, Turnstile};

const TASKS: u64 = 100;
const EACH: u64 = 1000;
const AT_ONCE: usize = 7;
const FLOWS: usize = 12;

/// What the test counts for itself.
#[derive(Default)]
struct Counts {
    /// How many one flow may have under way.
    of_one: usize,
    under_way: AtomicUsize,
    under_way_of: [AtomicUsize; FLOWS],
    turns: AtomicU64,
    gone: AtomicU64,
    turned: AtomicU64,
}

impl Counts {
    async fn use_turn(&self, turn: Turn, flow: u64, rng: &mut Rng) {
        let others = self.under_way.fetch_add(1, SeqCst);
        assert!(others < AT_ONCE, "{} under way", others + 1);
        let of_flow = &self.under_way_of[flow as usize];
        let others = of_flow.fetch_add(1, SeqCst);
        assert!(others < self.of_one, "{} of flow {flow}", others + 1);
        self.turns.fetch_add(1, SeqCst);
        for _ in 0..rng.u64(..4) {
            tokio::task::yield_now().await;
        }
        if rng.u64(..50) == 0 {
            sleep(Duration::from_micros(rng.u64(..1500))).await;
        }
        // Before it ends: afterwards the next may already have begun.
        of_flow.fetch_sub(1, SeqCst);
        self.under_way.fetch_sub(1, SeqCst);
        match rng.u64(..3) {
            0 => drop(turn),
            1 => turn.finish(Outcome::Failed),
            _ => turn.finish(Outcome::Answered),
        }
    }

    async fn told(&self, told: Result<Turn, Turned>, flow: u64, rng: &mut Rng) {
        match told {
            Ok(turn) => self.use_turn(turn, flow, rng).await,
            Err(_) => {
                self.turned.fetch_add(1, SeqCst);
                // Whoever is refused comes back a little later, or the others never get on.
                sleep(Duration::from_micros(rng.u64(..500))).await;
            }
        }
    }
}

async fn poll_once(entering: &mut Entering) -> Poll<Result<Turn, Turned>> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *entering).poll(cx))).await
}

/// One request that goes away at a rng moment, if it does.
async fn request(turnstile: &Turnstile, counts: &Counts, rng: &mut Rng) {
    let place = QueuePlace {
        queue: 0,
        flow: rng.u64(..FLOWS as u64),
        tier: None,
        weight: 1 + rng.u64(..5) as u32,
        cost: 1 + rng.u64(..9),
    };
    let mut entering = turnstile.enter(&place);
    match rng.u64(..6) {
        // Before it has come.
        0 => {}
        // After it has come, and perhaps after its turn was given and before it was taken.
        1 | 2 => match poll_once(&mut entering).await {
            Poll::Ready(told) => counts.told(told, place.flow, rng).await,
            Poll::Pending => {
                for _ in 0..rng.u64(..6) {
                    tokio::task::yield_now().await;
                }
                drop(entering);
                counts.gone.fetch_add(1, SeqCst);
            }
        },
        3 => match timeout(Duration::from_micros(rng.u64(..3000)), entering).await {
            Ok(told) => counts.told(told, place.flow, rng).await,
            Err(_) => {
                counts.gone.fetch_add(1, SeqCst);
            }
        },
        _ => counts.told(entering.await, place.flow, rng).await,
    }
}

/// Runs all requests, and `meanwhile` beside them; then nothing may be left over.
async fn stress(rule: &QueueRule, seed: u64, meanwhile: fn(&Turnstile, &mut Rng)) -> Turnstile {
    let turnstile = Turnstile::new(rule).unwrap();
    let counts = Arc::new(Counts {
        of_one: rule
            .at_once_per_flow
            .map_or(AT_ONCE, |of_one| of_one as usize),
        ..Counts::default()
    });
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (turnstile, counts) = (turnstile.clone(), Arc::clone(&counts));
            tokio::spawn(async move {
                let mut rng = Rng::with_seed(seed ^ (task << 32));
                for _ in 0..EACH {
                    request(&turnstile, &counts, &mut rng).await;
                }
            })
        })
        .collect();
    let meddler = {
        let turnstile = turnstile.clone();
        tokio::spawn(async move {
            let mut rng = Rng::with_seed(seed);
            loop {
                meanwhile(&turnstile, &mut rng);
                sleep(Duration::from_millis(1)).await;
            }
        })
    };
    for task in tasks {
        let done = timeout(Duration::from_secs(60), task).await;
        let report = turnstile.report();
        let done = done.unwrap_or_else(|_| panic!("somebody waits for ever: {report:?}"));
        done.unwrap();
    }
    meddler.abort();
    let _ = meddler.await;

    turnstile.set_scale(Scale::ONE);
    turnstile.change(rule);
    let report = turnstile.report();
    assert_eq!((report.waiting, report.under_way), (0, 0), "{report:?}");
    assert_eq!(counts.under_way.load(SeqCst), 0);
    let unserved = report.unserved;
    assert_eq!(report.served_of_none.turns, counts.turns.load(SeqCst));
    // Whoever was turned away and went before hearing it counts as turned away there, as gone here.
    let all: u64 = unserved.by_name().iter().map(|(_, count)| count).sum();
    let here = counts.gone.load(SeqCst) + counts.turned.load(SeqCst);
    assert_eq!(all, here, "{unserved:?}");
    assert!(unserved.gone > 1000, "{unserved:?}");
    assert!(report.served_of_none.turns > 5_000, "{report:?}");
    turnstile
}

fn rule() -> QueueRule {
    let mut rule = QueueRule::new("api", QueueConcurrency::Fixed(AT_ONCE as u32));
    rule.max_wait = Span::from_secs(50);
    rule
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_goes_away_whenever_no_place_and_no_wake_is_lost() {
    let turnstile = stress(&rule(), 1, |_, _| {}).await;
    // Every place can be had again at once.
    let mut turns = Vec::new();
    for _ in 0..AT_ONCE {
        let place = QueuePlace {
            queue: 0,
            flow: 1,
            tier: None,
            weight: 1,
            cost: 1,
        };
        match poll_once(&mut turnstile.enter(&place)).await {
            Poll::Ready(Ok(turn)) => turns.push(turn),
            other => panic!("a place was lost: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn full_queues_impatience_rates_and_pressure_lose_nobody_either() {
    let mut rule = rule();
    (rule.per_flow, rule.total) = (6, 30);
    rule.max_wait = Span::from_millis(3);
    rule.rate = Some(("400000/s".parse().unwrap(), 2000));
    stress(&rule, 2, |turnstile, rng| {
        let q16 = 20_000 + rng.u64(..50_000) as u32;
        turnstile.set_scale(Scale::from_q16(q16));
        let mut other = self::rule();
        other.at_once = Some(QueueConcurrency::Fixed(
            1 + rng.u64(..AT_ONCE as u64) as u32,
        ));
        (other.per_flow, other.total) = (1 + rng.u64(..6) as usize, 30);
        other.max_wait = Span::from_millis(1 + rng.u64(..4));
        other.rate = Some(("400000/s".parse().unwrap(), 1 + rng.u64(..2000)));
        other.at_once_per_flow = (rng.u64(..2) == 0).then_some(1 + rng.u64(..3) as u32);
        turnstile.change(&other);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bound_on_what_one_flow_holds_is_kept_and_loses_nobody() {
    let mut rule = rule();
    rule.at_once_per_flow = Some(2);
    stress(&rule, 3, |turnstile, rng| {
        let mut other = self::rule();
        other.at_once_per_flow = Some(1 + rng.u64(..2) as u32);
        turnstile.change(&other);
    })
    .await;
}
