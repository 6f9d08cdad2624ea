//! Tasks on several threads that arrive, wait and are cancelled at any moment: no permit and no wake-up is lost.

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
use tollgate_tower::admission::{Acquire, AdmissionQueue, BackendOutcome, QueuePermit, Rejected};

const TASKS: u64 = 100;
const EACH: u64 = 1000;
const AT_ONCE: usize = 7;
const FLOWS: usize = 12;

/// What the test counts for itself.
#[derive(Default)]
struct Counts {
    /// How many one flow may have in flight.
    of_one: usize,
    in_flight: AtomicUsize,
    in_flight_of: [AtomicUsize; FLOWS],
    requests: AtomicU64,
    cancelled: AtomicU64,
    rejected: AtomicU64,
}

impl Counts {
    async fn use_permit(&self, permit: QueuePermit, flow: u64, rng: &mut Rng) {
        let others = self.in_flight.fetch_add(1, SeqCst);
        assert!(others < AT_ONCE, "{} in flight", others + 1);
        let of_flow = &self.in_flight_of[flow as usize];
        let others = of_flow.fetch_add(1, SeqCst);
        assert!(others < self.of_one, "{} of flow {flow}", others + 1);
        self.requests.fetch_add(1, SeqCst);
        for _ in 0..rng.u64(..4) {
            tokio::task::yield_now().await;
        }
        if rng.u64(..50) == 0 {
            sleep(Duration::from_micros(rng.u64(..1500))).await;
        }
        // Before it ends: afterwards the next may already have begun.
        of_flow.fetch_sub(1, SeqCst);
        self.in_flight.fetch_sub(1, SeqCst);
        match rng.u64(..3) {
            0 => drop(permit),
            1 => permit.finish(BackendOutcome::Overloaded),
            _ => permit.finish(BackendOutcome::Answered),
        }
    }

    async fn finish(&self, result: Result<QueuePermit, Rejected>, flow: u64, rng: &mut Rng) {
        match result {
            Ok(permit) => self.use_permit(permit, flow, rng).await,
            Err(_) => {
                self.rejected.fetch_add(1, SeqCst);
                // A rejected client retries a little later, or the others make no progress.
                sleep(Duration::from_micros(rng.u64(..500))).await;
            }
        }
    }
}

async fn poll_once(acquire: &mut Acquire) -> Poll<Result<QueuePermit, Rejected>> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *acquire).poll(cx))).await
}

/// One request, possibly cancelled at a random moment.
async fn request(queue: &AdmissionQueue, counts: &Counts, rng: &mut Rng) {
    let place = QueuePlace {
        queue: 0,
        flow: rng.u64(..FLOWS as u64),
        tier: None,
        weight: 1 + rng.u64(..5) as u32,
        cost: 1 + rng.u64(..9),
    };
    let mut acquire = queue.acquire(&place);
    match rng.u64(..6) {
        // Before it has come.
        0 => {}
        // After it has come, and perhaps after its permit was given and before it was taken.
        1 | 2 => match poll_once(&mut acquire).await {
            Poll::Ready(result) => counts.finish(result, place.flow, rng).await,
            Poll::Pending => {
                for _ in 0..rng.u64(..6) {
                    tokio::task::yield_now().await;
                }
                drop(acquire);
                counts.cancelled.fetch_add(1, SeqCst);
            }
        },
        3 => match timeout(Duration::from_micros(rng.u64(..3000)), acquire).await {
            Ok(result) => counts.finish(result, place.flow, rng).await,
            Err(_) => {
                counts.cancelled.fetch_add(1, SeqCst);
            }
        },
        _ => counts.finish(acquire.await, place.flow, rng).await,
    }
}

/// Runs all requests, and `meanwhile` beside them; then nothing may be left over.
async fn stress(
    rule: &QueueRule,
    seed: u64,
    meanwhile: fn(&AdmissionQueue, &mut Rng),
) -> AdmissionQueue {
    let queue = AdmissionQueue::new(rule).unwrap();
    let counts = Arc::new(Counts {
        of_one: rule
            .at_once_per_flow
            .map_or(AT_ONCE, |of_one| of_one as usize),
        ..Counts::default()
    });
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (queue, counts) = (queue.clone(), Arc::clone(&counts));
            tokio::spawn(async move {
                let mut rng = Rng::with_seed(seed ^ (task << 32));
                for _ in 0..EACH {
                    request(&queue, &counts, &mut rng).await;
                }
            })
        })
        .collect();
    let meddler = {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut rng = Rng::with_seed(seed);
            loop {
                meanwhile(&queue, &mut rng);
                sleep(Duration::from_millis(1)).await;
            }
        })
    };
    for task in tasks {
        let done = timeout(Duration::from_secs(60), task).await;
        let report = queue.stats();
        let done = done.unwrap_or_else(|_| panic!("a request waits forever: {report:?}"));
        done.unwrap();
    }
    meddler.abort();
    let _ = meddler.await;

    queue.set_scale(Scale::ONE);
    queue.change(rule);
    let report = queue.stats();
    assert_eq!((report.waiting, report.in_flight), (0, 0), "{report:?}");
    assert_eq!(counts.in_flight.load(SeqCst), 0);
    let unserved = report.unserved;
    assert_eq!(
        report.served_without_tier.requests,
        counts.requests.load(SeqCst)
    );
    // A client that left before it took its rejection counts as rejected in the queue and as cancelled here.
    let all: u64 = unserved.by_reason().iter().map(|(_, count)| count).sum();
    let here = counts.cancelled.load(SeqCst) + counts.rejected.load(SeqCst);
    assert_eq!(all, here, "{unserved:?}");
    assert!(unserved.cancelled > 1000, "{unserved:?}");
    assert!(report.served_without_tier.requests > 5_000, "{report:?}");
    queue
}

fn rule() -> QueueRule {
    let mut rule = QueueRule::new("api", QueueConcurrency::Fixed(AT_ONCE as u32));
    rule.max_wait = Span::from_secs(50);
    rule
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancellations_at_any_time_lose_no_permit_and_no_wake_up() {
    let queue = stress(&rule(), 1, |_, _| {}).await;
    // Every place can be had again at once.
    let mut permits = Vec::new();
    for _ in 0..AT_ONCE {
        let place = QueuePlace {
            queue: 0,
            flow: 1,
            tier: None,
            weight: 1,
            cost: 1,
        };
        match poll_once(&mut queue.acquire(&place)).await {
            Poll::Ready(Ok(permit)) => permits.push(permit),
            other => panic!("a place was lost: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn full_queues_cancellations_rates_and_scaling_lose_no_permit() {
    let mut rule = rule();
    (rule.per_flow, rule.total) = (6, 30);
    rule.max_wait = Span::from_millis(3);
    rule.rate = Some(("400000/s".parse().unwrap(), 2000));
    stress(&rule, 2, |queue, rng| {
        let q16 = 20_000 + rng.u64(..50_000) as u32;
        queue.set_scale(Scale::from_q16(q16));
        let mut other = self::rule();
        other.at_once = Some(QueueConcurrency::Fixed(
            1 + rng.u64(..AT_ONCE as u64) as u32,
        ));
        (other.per_flow, other.total) = (1 + rng.u64(..6) as usize, 30);
        other.max_wait = Span::from_millis(1 + rng.u64(..4));
        other.rate = Some(("400000/s".parse().unwrap(), 1 + rng.u64(..2000)));
        other.at_once_per_flow = (rng.u64(..2) == 0).then_some(1 + rng.u64(..3) as u32);
        queue.change(&other);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_limit_of_a_flow_holds_and_loses_no_permit() {
    let mut rule = rule();
    rule.at_once_per_flow = Some(2);
    stress(&rule, 3, |queue, rng| {
        let mut other = self::rule();
        other.at_once_per_flow = Some(1 + rng.u64(..2) as u32);
        queue.change(&other);
    })
    .await;
}
