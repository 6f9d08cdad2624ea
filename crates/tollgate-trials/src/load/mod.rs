//! Load on the service: decisions at a fixed rate, however slow the answers are.
//!
//! # Theory
//!
//! A client that waits for its answer before the next request is slowed down by a slow server, and then measures an idle
//! server. So the load is an open loop: every request has a scheduled time, is sent then or as soon as a connection is
//! free, and its latency counts from its *scheduled* time. A server that stops for a second shows as a second in every
//! request of that second.
//!
//! # Invariant
//!
//! Every request has exactly one [`Record`], in the order of their times. None is sent twice.
//!
//! # What it does not know
//!
//! Whether a delay is the service's or that of a busy machine, which makes its figures worse, never better. The report
//! prints the lateness of the load itself beside them. `tollgate-load` reports totals by target; a trial needs every
//! request with its key, because it checks single answers against the faults of that moment.

mod record;
mod responses;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tollgate_sim::rng::Rng;

use crate::http::ConnectionPool;
use tollgate_testkit::{Error, Result};
use tollgate_testkit::{now, sleep};

pub use self::record::{CheckResponse, Record};
pub use self::responses::{Allowance, Responses};

/// Connections to the service.
const CONNECTIONS: usize = 64;
/// Requests in flight or waiting for a connection. More are not sent, and count as not answered.
const IN_FLIGHT_MAX: usize = 100_000;
/// How long the last answers may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// Time between two checks whether the degraded answers have ended.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// The longest that a load runs.
const LONGEST: Duration = Duration::from_secs(3600);

/// A client: a key, and the cost of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The header `x-org`.
    pub key: String,
    /// What a request costs.
    pub cost: u64,
}

impl Client {
    /// The body of its request.
    pub fn body(&self) -> String {
        // Keys are made here, of letters and digits.
        format!(
            r#"{{"path":"/","headers":{{"x-org":"{}"}},"cost":{}}}"#,
            self.key, self.cost
        )
    }
}

/// The plan of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The port of the service, or of a proxy in front of it.
    pub port: u16,
    /// Requests per second, all clients together.
    pub rate: u64,
    /// Each sends one request before any sends another.
    pub clients: Vec<Client>,
    /// The seed of their order.
    pub seed: u64,
}

/// A load that runs until it is ended or dropped.
#[derive(Debug)]
pub struct Load {
    start: Instant,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    records: Mutex<Vec<Record>>,
    stop: AtomicBool,
}

impl Shared {
    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Starts a load.
    pub fn start(plan: Plan) -> Result<Load> {
        if plan.rate == 0 || plan.clients.is_empty() {
            return Err(Error::Invalid(
                "a load needs clients and a rate above 0".into(),
            ));
        }
        let shared = Arc::new(Shared::default());
        let start = now() + Duration::from_millis(100);
        let thread = thread::Builder::new()
            .name("load".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let runtime = Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .map_err(Error::io("start the load"))?;
                    runtime.block_on(send(plan, start, &shared));
                    Ok(())
                }
            })
            .map_err(Error::io("start the thread of the load"))?;
        Ok(Load {
            start,
            shared,
            thread: Some(thread),
        })
    }

    /// How long it has been running.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// How long after another one it started.
    pub fn started_after(&self, other: &Load) -> Duration {
        self.start.saturating_duration_since(other.start)
    }

    /// Waits until answers are no longer degraded, and returns how long after `event` that was; none if it is not
    /// within `deadline`.
    pub fn recovered_after(&self, event: Duration, deadline: Duration) -> Option<Duration> {
        let began = now();
        loop {
            let back = {
                let records = self.shared.records();
                let from = records.partition_point(|record| record.scheduled < event);
                Responses::recovered_after(records.get(from..).unwrap_or_default(), event)
            };
            if back.is_some() || began.elapsed() >= deadline {
                return back;
            }
            sleep(POLL_EVERY);
        }
    }

    /// Stops, waits for the last answers, and returns all responses.
    pub fn end(mut self) -> Result<Responses> {
        self.stop()?;
        let records = std::mem::take(&mut *self.shared.records());
        Ok(Responses::new(records))
    }

    fn stop(&mut self) -> Result<()> {
        // Only the flag itself is shared.
        self.shared.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(Error::Invalid("the load panicked".into())),
            None => Ok(()),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // The caller dropped it, so an error changes nothing.
        let _ = self.stop();
    }
}

/// Sends the requests of the plan at their times until `stop` is set.
async fn send(plan: Plan, start: Instant, shared: &Arc<Shared>) {
    let pool = Arc::new(ConnectionPool::new(plan.port, CONNECTIONS));
    let bodies = plan.clients.iter().map(Client::body);
    let requests: Vec<Arc<[u8]>> = bodies.map(|body| check_request(plan.port, &body)).collect();
    let order = shuffled(plan.clients.len(), plan.seed);
    let mut in_flight = JoinSet::new();
    for (number, &client) in order.iter().cycle().enumerate() {
        let at = scheduled_at(number, plan.rate);
        if at > LONGEST || shared.stop.load(Ordering::Relaxed) {
            break;
        }
        if start.elapsed() < at || now() < start {
            sleep_until((start + at).into()).await;
        }
        shared.records().push(Record {
            client,
            scheduled: at,
            sent: start.elapsed(),
            ..Record::default()
        });
        while in_flight.try_join_next().is_some() {}
        // A request without room stays without an answer.
        if let Some(request) = requests.get(client)
            && in_flight.len() < IN_FLIGHT_MAX
        {
            let exchange = exchange(pool.clone(), request.clone(), start, shared.clone(), number);
            in_flight.spawn(exchange);
        }
    }
    // A request that is not answered by then stays without an answer; its connection closes with the runtime.
    let all = async { while in_flight.join_next().await.is_some() {} };
    let _ = timeout(DEADLINE, all).await;
}

/// Sends one request and records its answer. After an error the request is not repeated.
async fn exchange(
    pool: Arc<ConnectionPool>,
    request: Arc<[u8]>,
    start: Instant,
    shared: Arc<Shared>,
    number: usize,
) {
    let Ok(answer) = pool.exchange(0, &request).await else {
        return;
    };
    let at = start.elapsed();
    if let Some(record) = shared.records().get_mut(number) {
        record.answered = Some(at);
        record.status = answer.status;
        if let Some(response) = CheckResponse::read(&answer.body) {
            record.admitted = response.admitted;
            record.degraded = response.degraded;
            record.remaining = response.remaining;
        }
    }
}

fn check_request(port: u16, body: &str) -> Arc<[u8]> {
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
    .into()
}

/// The scheduled time of the request of this number.
fn scheduled_at(number: usize, rate: u64) -> Duration {
    let nanos = u128::try_from(number).unwrap_or(u128::MAX) * 1_000_000_000 / u128::from(rate);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The numbers below `count` in an order that follows from the seed.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut rng = Rng::new(seed);
    for last in (1..count).rev() {
        let sides = u64::try_from(last + 1).unwrap_or(u64::MAX);
        let other = usize::try_from(rng.below(sides)).unwrap_or_default();
        order.swap(last, other);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_scheduled_at_their_rate() {
        assert_eq!(scheduled_at(0, 2000), Duration::ZERO);
        assert_eq!(scheduled_at(3, 2000), Duration::from_micros(1500));
        assert_eq!(scheduled_at(2000, 2000), Duration::from_secs(1));
    }

    #[test]
    fn a_shuffle_keeps_all_and_repeats_with_its_seed() {
        let order = shuffled(50, 7);
        assert_eq!(order, shuffled(50, 7));
        assert_ne!(order, shuffled(50, 8));
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
