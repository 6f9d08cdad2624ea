//! Threads that borrow, spend, cancel, synchronise and reload at once: none hangs, and every unit is accounted for.

#![allow(
    clippy::disallowed_methods,
    reason = "threads take the time of the machine"
)]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, RwLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::kit::{Counting, begin};
use tollgate::{Limit, LimitError, ManualClock, Span};
use tollgate_policy::shared::{
    Answering, SharedLimit, SharedLimits, SharedOutcome, SharedRequest, SharedSettle, SharedStore,
    StoreReport,
};
use tollgate_policy::{
    Decide, KeyPart, LimitRule, Policy, PolicyGate, PriorState, Quota, Settlement, Sharing, Source,
};

struct Thread(thread::Thread);
impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>, timeout: Duration) -> Option<T> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Thread(thread::current())));
    let began = Instant::now();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        if began.elapsed() >= timeout {
            return None;
        }
        thread::park_timeout(
            timeout
                .saturating_sub(began.elapsed())
                .max(Duration::from_micros(1)),
        );
    }
}

#[derive(Debug)]
struct Later {
    inner: Arc<Counting>,
    wakes: Mutex<mpsc::Sender<Waker>>,
}
#[derive(Debug)]
struct LaterLimits {
    inner: Arc<dyn SharedLimits>,
    wakes: Mutex<mpsc::Sender<Waker>>,
}
impl SharedStore for Later {
    fn prepare(
        &self,
        limits: &[SharedLimit<'_>],
    ) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)> {
        Ok(Arc::new(LaterLimits {
            inner: self.inner.prepare(limits)?,
            wakes: Mutex::new(self.wakes.lock().unwrap().clone()),
        }))
    }
    fn nodes(&self) -> u32 {
        1
    }
    fn report(&self) -> StoreReport {
        StoreReport::default()
    }
}
struct Once<'a>(&'a Mutex<mpsc::Sender<Waker>>, bool);
impl Future for Once<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.1 {
            return Poll::Ready(());
        }
        self.1 = true;
        self.0
            .lock()
            .unwrap()
            .send(context.waker().clone())
            .unwrap();
        Poll::Pending
    }
}
impl SharedLimits for LaterLimits {
    fn charge<'a>(&'a self, request: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>> {
        Box::pin(async move {
            Once(&self.wakes, false).await;
            let answer = self.inner.charge(request).await;
            Once(&self.wakes, false).await;
            answer
        })
    }
    fn settle<'a>(&'a self, settle: &'a SharedSettle) -> Answering<'a, u64> {
        Box::pin(async move {
            Once(&self.wakes, false).await;
            self.inner.settle(settle).await
        })
    }
}

fn policy(sharing: Sharing) -> Policy {
    let limit = Limit::fixed_window("100000000/1000s".parse().unwrap()).unwrap();
    let mut rule = LimitRule::new("a", Quota::plain(limit));
    rule.key = vec![KeyPart::new(Source::Header("x-org".into()))];
    rule.sharing = sharing;
    Policy {
        limits: vec![rule],
        ..Policy::default()
    }
}

fn run(sharing: Sharing, drops: bool, reloads: bool) {
    let clock = ManualClock::new();
    clock.advance(Span::from_secs(5));
    let counting = Counting::new(&clock, 1);
    let (wakes, woken) = mpsc::channel::<Waker>();
    let waking = thread::spawn(move || {
        for waker in woken {
            for _ in 0..200 {
                std::hint::spin_loop();
            }
            waker.wake();
        }
    });
    let store = Arc::new(Later {
        inner: counting.clone(),
        wakes: Mutex::new(wakes),
    });
    let prior = PriorState::new().with_store(store.clone());
    let gate = PolicyGate::with_prior(policy(sharing), Vec::new(), clock.clone(), prior).unwrap();
    let gate = Arc::new(RwLock::new(Arc::new(gate)));
    let (over, passed, gone, hung) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let long = Duration::from_secs(5);
    let mut workers = Vec::new();
    for number in 0..4_u64 {
        let (gate, over, passed, gone, hung, clock) = (
            gate.clone(),
            over.clone(),
            passed.clone(),
            gone.clone(),
            hung.clone(),
            clock.clone(),
        );
        workers.push(thread::spawn(move || {
            let mut random = number * 7919 + 1;
            while !over.load(SeqCst) {
                random = random
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let roll = random >> 33;
                let cost = 1 + roll % 3;
                let now = gate.read().unwrap().clone();
                let answer = match begin(&now, "acme", cost) {
                    Decide::Ready(answer) => answer,
                    Decide::Pending(asking) => {
                        if drops && roll % 5 == 0 {
                            let _ = block_on(asking, Duration::from_micros(roll % 40));
                            gone.fetch_add(1, SeqCst);
                            continue;
                        }
                        match block_on(asking, long) {
                            Some(answer) => answer,
                            None => {
                                hung.fetch_add(1, SeqCst);
                                continue;
                            }
                        }
                    }
                };
                clock.advance(Span::from_nanos(2_000));
                if !answer.is_admitted() {
                    continue;
                }
                if roll % 7 == 0 {
                    let how = if roll % 2 == 0 {
                        Settlement::Cancelled
                    } else {
                        Settlement::Actual(cost)
                    };
                    if block_on(now.reserve(&answer).settle_everywhere(how), long).is_none() {
                        hung.fetch_add(1, SeqCst);
                    }
                    if how == Settlement::Cancelled {
                        continue;
                    }
                }
                passed.fetch_add(cost, SeqCst);
            }
        }));
    }
    let tender = {
        let (gate, over) = (gate.clone(), over.clone());
        thread::spawn(move || {
            let mut round = 0_u64;
            while !over.load(SeqCst) {
                round += 1;
                let now = gate.read().unwrap().clone();
                if drops {
                    // Cancelled at an arbitrary point.
                    let _ = block_on(
                        now.run_background(std::future::pending()),
                        Duration::from_micros(300 + round % 500),
                    );
                } else {
                    let until = Instant::now() + Duration::from_micros(500);
                    let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
                    let its = waker.clone();
                    let alarm = thread::spawn(move || {
                        thread::sleep(Duration::from_micros(600));
                        if let Some(waker) = its.lock().unwrap().take() {
                            waker.wake();
                        }
                    });
                    let ends = std::future::poll_fn(|context| {
                        *waker.lock().unwrap() = Some(context.waker().clone());
                        if Instant::now() >= until {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        }
                    });
                    assert!(
                        block_on(now.run_background(ends), Duration::from_secs(5)).is_some(),
                        "maintenance hangs"
                    );
                    alarm.join().unwrap();
                }
            }
        })
    };
    let settler = {
        let (gate, over) = (gate.clone(), over.clone());
        thread::spawn(move || {
            while !over.load(SeqCst) {
                let now = gate.read().unwrap().clone();
                assert!(
                    block_on(now.sync_leases(), Duration::from_secs(5)).is_some(),
                    "settling hangs"
                );
                if reloads {
                    let next = now.reload(policy(sharing), Vec::new()).unwrap();
                    *gate.write().unwrap() = Arc::new(next);
                }
                thread::sleep(Duration::from_millis(2));
            }
        })
    };
    thread::sleep(Duration::from_secs(1));
    over.store(true, SeqCst);
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());
    tender.join().unwrap();
    settler.join().unwrap();
    let last = gate.read().unwrap().clone();
    for _ in 0..3 {
        block_on(last.release_leases(), long).unwrap();
    }
    let prior = PriorState::new().with_store(counting);
    let exact = PolicyGate::with_prior(policy(Sharing::Exact), Vec::new(), clock, prior);
    let exact = Arc::new(exact.unwrap());
    let Decide::Pending(asking) = begin(&exact, "acme", 0) else {
        panic!()
    };
    let answer = block_on(asking, long).unwrap();
    let taken = 100_000_000 - answer.status.remaining;
    let (passed, gone, hung) = (passed.load(SeqCst), gone.load(SeqCst), hung.load(SeqCst));
    assert_eq!(hung, 0, "of {passed}");
    match (drops, sharing) {
        // Units of a cancelled request that are lost were taken.
        (true, _) => assert!(taken >= passed, "{gone} left"),
        // A refund before the push of its units may be lost.
        (false, Sharing::Sync) => {
            let allowed = passed..=passed + passed / 10_000 + 20;
            assert!(allowed.contains(&taken), "{taken} taken, {passed} passed");
        }
        (false, _) => assert_eq!(taken, passed),
    }
    drop((store, last, exact, gate));
    drop(waking);
}

#[test]
fn leased_units_are_taken_once_under_threads() {
    run(Sharing::Lease, false, false);
}
#[test]
fn leased_units_are_taken_once_over_changes_of_policy() {
    run(Sharing::Lease, false, true);
}
#[test]
fn a_cancelled_caller_hangs_no_borrow() {
    run(Sharing::Lease, true, true);
}
#[test]
fn usage_of_synced_counters_is_pushed_under_threads() {
    run(Sharing::Sync, false, false);
}
#[test]
fn usage_of_synced_counters_is_pushed_over_changes_of_policy() {
    run(Sharing::Sync, false, true);
}
#[test]
fn a_cancelled_caller_hangs_no_synced_counter() {
    run(Sharing::Sync, true, false);
}
