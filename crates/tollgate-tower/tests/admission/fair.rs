//! Fairness as clients see it: many tasks in front of one queue, on a clock that moves by itself
//! whenever all of them wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule};
use tollgate_tower::admission::{AdmissionQueue, BackendOutcome};

fn queue(at_once: u32) -> AdmissionQueue {
    AdmissionQueue::new(&QueueRule::new("api", QueueConcurrency::Fixed(at_once))).unwrap()
}

fn place(flow: u64, weight: u32) -> QueuePlace {
    QueuePlace {
        queue: 0,
        flow,
        tier: None,
        weight,
        cost: 1,
    }
}

/// A tenant with `clients` clients, each of which asks again as soon as it was served.
struct Tenant {
    served: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Tenant {
    fn start(queue: &AdmissionQueue, flow: u64, weight: u32, clients: usize) -> Tenant {
        let served = Arc::new(AtomicU64::new(0));
        let client = |_| {
            let (queue, served) = (queue.clone(), Arc::clone(&served));
            tokio::spawn(async move {
                loop {
                    let permit = queue.acquire(&place(flow, weight)).await.unwrap();
                    served.fetch_add(1, Relaxed);
                    sleep(Duration::from_millis(5)).await;
                    permit.finish(BackendOutcome::Answered);
                }
            })
        };
        let clients = (0..clients).map(client).collect();
        Tenant { served, clients }
    }

    fn served(&self) -> u64 {
        self.served.load(Relaxed)
    }

    async fn stop(self) -> u64 {
        for client in &self.clients {
            client.abort();
        }
        for client in self.clients {
            assert!(
                client.await.unwrap_err().is_cancelled(),
                "a client was refused"
            );
        }
        self.served.load(Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn weights_of_1_4_and_16_are_served_1_to_4_to_16() {
    let queue = queue(4);
    let tenants = [1, 4, 16].map(|weight| Tenant::start(&queue, weight, weight as u32, 60));
    sleep(Duration::from_secs(30)).await;
    let [one, four, sixteen] = tenants.map(|tenant| tenant.served());
    let all = one + four + sixteen;
    assert!(all > 18_000, "{all}");
    for (served, weight) in [(one, 1), (four, 4), (sixteen, 16)] {
        let share = all * weight / 21;
        assert!(served.abs_diff(share) * 50 <= share, "{served} of {share}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_or_single_tenant_has_neither_debt_nor_credit() {
    let queue = queue(2);
    let always = Tenant::start(&queue, 1, 1, 20);
    sleep(Duration::from_secs(20)).await;
    let mut before = always.served();
    assert!(before > 7000, "{before}");
    for _ in 0..3 {
        let now_and_then = Tenant::start(&queue, 2, 1, 20);
        sleep(Duration::from_secs(1)).await;
        let theirs = now_and_then.stop().await;
        let ours = always.served() - before;
        assert!(theirs > 150, "{theirs}");
        assert!(ours.abs_diff(theirs) <= 6, "{ours} and {theirs}");
        sleep(Duration::from_secs(5)).await;
        before = always.served();
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_at_fifty_times_the_load_takes_no_share_of_another() {
    // 100 a second can be served. One asks for 20, the other for 1000, and does not wait to ask.
    let queue = queue(1);
    let noise = {
        let queue = queue.clone();
        tokio::spawn(async move {
            loop {
                let acquire = queue.acquire(&place(1, 1));
                tokio::spawn(async move {
                    if let Ok(permit) = acquire.await {
                        sleep(Duration::from_millis(9)).await;
                        permit.finish(BackendOutcome::Answered);
                    }
                });
                sleep(Duration::from_millis(1)).await;
            }
        })
    };
    sleep(Duration::from_secs(5)).await;
    let mut longest = Duration::ZERO;
    let begin = Instant::now();
    for asked in 1..=400_u32 {
        let permit = queue.acquire(&place(2, 1)).await.unwrap();
        longest = longest.max(permit.waited());
        sleep(Duration::from_millis(9)).await;
        permit.finish(BackendOutcome::Answered);
        tokio::time::sleep_until(begin + Duration::from_millis(50) * asked).await;
    }
    noise.abort();
    // What is being served when it comes, and perhaps one that came before.
    assert!(longest <= Duration::from_millis(24), "{longest:?}");
    let report = queue.stats();
    assert!(report.unserved.flow_full > 15_000, "{:?}", report.unserved);
    assert!(report.waiting <= 100);
}
