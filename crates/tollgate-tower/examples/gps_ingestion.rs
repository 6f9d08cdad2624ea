//! Positions of drivers: 50,000 a second come in, 3,000 a second go on to the database, never more.
//!
//! ```sh
//! cargo run --release -p tollgate-tower --example gps_ingestion -- 5
//! ```
//!
//! Prints what came in, went out and was refused in each second, and the most that went out in any window,
//! measured from the moments at which items were really handed out; and how exact the timer is beside the
//! runtime's own.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate::{Clock, MonotonicClock};
use tollgate_tower::channel::{Settings, channel_on};
use tollgate_tower::slots::sleep;

struct Position {
    driver: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let seconds: u64 = seconds.unwrap_or(5);
    precision().await;
    let strict = Settings::new("3000/s".parse().unwrap(), 5000);
    ingest(seconds, "never more", 0, &strict).await;
    let spinning = strict.clone().spin("60us".parse().unwrap());
    ingest(
        seconds,
        "never more, watching the clock for 60 us",
        0,
        &spinning,
    )
    .await;
    let catching_up = strict.catch_up("1ms".parse().unwrap());
    ingest(seconds, "catching up 1 ms", 1_000_000, &catching_up).await;
}

async fn ingest(seconds: u64, name: &str, forgiven: u64, settings: &Settings) {
    println!("\n{name}\n second       in      out  refused    level");
    let clock = MonotonicClock::new();
    let (sender, mut receiver) = channel_on::<Position, _>(settings, clock.clone()).unwrap();
    let out = Arc::new(AtomicU64::new(0));
    let worker = tokio::spawn({
        let (clock, out) = (clock.clone(), Arc::clone(&out));
        async move {
            let (mut times, mut drivers) = (Vec::new(), 0_u64);
            while let Some(position) = receiver.recv().await {
                times.push(clock.now().as_nanos());
                drivers = drivers.max(position.driver);
                out.fetch_add(1, Relaxed);
            }
            times
        }
    });
    // A batch of 50 each millisecond, as a network gives them.
    let began = clock.now();
    let (mut spent, mut offered) = (0, 0_u64);
    let (mut came, mut refused, mut went) = (0_u64, 0_u64, 0);
    for ms in 0..seconds * 1_000 {
        let due = Duration::from_millis(ms);
        sleep(due.saturating_sub(clock.now().since(began).into())).await;
        let before = clock.now();
        for driver in 0..50 {
            refused += u64::from(sender.try_send(Position { driver }).is_err());
        }
        spent += clock.now().since(before).as_nanos();
        (came, offered) = (came + 50, offered + 50);
        if ms % 1_000 == 999 {
            let so_far = out.load(Relaxed);
            let level = sender.level();
            println!(
                "{:>7} {came:>8} {:>8} {refused:>8} {level:>8}",
                ms / 1_000,
                so_far - went
            );
            (came, refused, went) = (0, 0, so_far);
        }
    }
    drop(sender);
    let times = worker.await.unwrap();
    println!("an offer took {} ns", spent / offered);
    for (window, name) in [
        (1_000_000_000, "1 s"),
        (100_000_000, "100 ms"),
        (10_000_000, "10 ms"),
    ] {
        let allowed = 1 + (window + forgiven) * 3_000 / 1_000_000_000;
        println!(
            "most in any {name:>6}: {:>5} (promised: {allowed})",
            most_within(&times, window)
        );
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

/// How late 333 microseconds are.
async fn precision() {
    let clock = MonotonicClock::new();
    let length = Duration::from_micros(333);
    let late = |mut late: Vec<u64>| {
        late.sort_unstable();
        let at = |percent: usize| late[(late.len() - 1) * percent / 100] / 1_000;
        println!(
            "late by (us): median {}, 90% {}, 99% {}, most {}",
            at(50),
            at(90),
            at(99),
            at(100)
        );
    };
    let count = 2_000;
    let mut exact = Vec::with_capacity(count);
    for _ in 0..count {
        let before = clock.now();
        sleep(length).await;
        exact.push(clock.now().since(before).as_nanos().saturating_sub(333_000));
    }
    print!("333 us, this timer:    ");
    late(exact);
    let mut runtime = Vec::with_capacity(count);
    for _ in 0..count {
        let before = clock.now();
        tokio::time::sleep(length).await;
        runtime.push(clock.now().since(before).as_nanos().saturating_sub(333_000));
    }
    print!("333 us, tokio's timer: ");
    late(runtime);
}
