//! Positions of drivers: 50,000 a second arrive, 3,000 a second are written to the database.
//!
//! ```sh
//! cargo run --release -p tollgate-tower --example gps_ingestion -- 5
//! ```
//!
//! A [`LeakyQueue`] holds what waits and says when the next item may go; the worker sleeps on tokio's timer. The timer
//! is late by up to a millisecond, three items at this rate, so the queue makes good lateness of up to
//! [`CATCH_UP`]: any window of length `w` then sees at most `1 + (w + CATCH_UP) * rate` items go. Without it the rate
//! would never be exceeded, and about a quarter of it would be reached.
//!
//! Prints what came in, went out and was refused in each second, and the most that went out in any window, measured
//! when items were handed out.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tollgate::shape::LeakyQueue;
use tollgate::{Clock, MonotonicClock, Span};

const CATCH_UP: Span = Span::from_millis(5);

struct Position {
    driver: u64,
}

struct Ingestion {
    clock: MonotonicClock,
    waiting: Mutex<LeakyQueue<Position>>,
    /// A position came, or none will come any more.
    changed: Notify,
    is_closed: AtomicBool,
    out: AtomicU64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let queue = LeakyQueue::new("3000/s".parse().unwrap(), 5000, None).unwrap();
    let ingestion = Arc::new(Ingestion {
        clock: MonotonicClock::new(),
        waiting: Mutex::new(queue.catch_up(CATCH_UP)),
        changed: Notify::new(),
        is_closed: AtomicBool::new(false),
        out: AtomicU64::new(0),
    });
    let worker = tokio::spawn(write(Arc::clone(&ingestion)));
    receive(&ingestion, seconds.unwrap_or(5)).await;
    let times = worker.await.unwrap();
    for (window, name) in [
        (1_000_000_000, "1 s"),
        (100_000_000, "100 ms"),
        (10_000_000, "10 ms"),
    ] {
        let allowed = 1 + (window + CATCH_UP.as_nanos()) * 3_000 / 1_000_000_000;
        let most = most_within(&times, window);
        println!("most in any {name:>6}: {most:>5} (promised: {allowed})");
    }
}

/// Offers a batch of 50 each millisecond, as a network gives them.
async fn receive(ingestion: &Ingestion, seconds: u64) {
    println!(" second       in      out  refused    level");
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut refused, mut went) = (0_u64, 0);
    for ms in 0..seconds * 1_000 {
        ticks.tick().await;
        for driver in 0..50 {
            let now = ingestion.clock.now();
            let offered = ingestion
                .waiting
                .lock()
                .unwrap()
                .offer(now, 1, Position { driver });
            // A server would answer with `retry_after` of the error.
            refused += u64::from(offered.is_err());
        }
        ingestion.changed.notify_one();
        if ms % 1_000 == 999 {
            let (second, out) = (ms / 1_000, ingestion.out.load(Relaxed));
            let level = ingestion
                .waiting
                .lock()
                .unwrap()
                .level(ingestion.clock.now());
            println!(
                "{second:>7} {:>8} {:>8} {refused:>8} {level:>8}",
                50_000,
                out - went
            );
            (refused, went) = (0, out);
        }
    }
    ingestion.is_closed.store(true, Relaxed);
    ingestion.changed.notify_one();
}

/// Writes to the database what may go, and returns when each item was sent.
async fn write(ingestion: Arc<Ingestion>) -> Vec<u64> {
    let (mut times, mut drivers) = (Vec::new(), 0);
    loop {
        let now = ingestion.clock.now();
        let (due, next_at) = {
            let mut waiting = ingestion.waiting.lock().unwrap();
            (waiting.due(now), waiting.next_at())
        };
        match (due, next_at) {
            (Some(position), _) => {
                times.push(now.as_nanos());
                drivers = drivers.max(position.driver);
                ingestion.out.fetch_add(1, Relaxed);
            }
            (None, Some(at)) => sleep(at.since(now).into()).await,
            (None, None) if ingestion.is_closed.load(Relaxed) => return times,
            (None, None) => ingestion.changed.notified().await,
        }
    }
}

/// The most of these moments that lie in any half-open window.
fn most_within(times: &[u64], window: u64) -> usize {
    let (mut first, mut most) = (0, 0);
    for (last, time) in times.iter().enumerate() {
        while time - times[first] >= window {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}
