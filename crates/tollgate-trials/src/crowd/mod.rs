//! A crowd: requests at a fixed rate, whatever the answers do.
//!
//! # Theory
//!
//! A client that waits for its answer before it asks again is slowed down by a slow server, and then measures
//! how fast the server is while nobody asks it. So a crowd is an open loop: every request has its time before the
//! crowd begins, it is sent then or as soon as there is a connection, and its latency counts from *its time*. A
//! server that stands still for a second shows as a second, in every request of that second.
//!
//! # Invariant
//!
//! Every request has exactly one [`Record`], in the order of their times. None is sent twice.
//!
//! # What it does not know
//!
//! Whether a delay is the service's or that of a busy machine, which makes its figures worse, never better. How late
//! the crowd itself was is told beside them.

mod line;
mod record;
mod seen;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;
use tollgate_sim::rng::Rng;

use self::line::{Line, question};
use tollgate_testkit::{Error, Result};
use tollgate_testkit::{now, sleep};

pub use self::record::{Record, Told};
pub use self::seen::{Allowance, Seen};

/// Connections to the service.
const LINES: usize = 64;
/// Requests that may wait for a connection. More are not sent, and count as not answered.
const WAITING: usize = 100_000;
/// How long the last answers may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// How often is looked whether the degraded answers have ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The longest that a crowd sends.
const LONGEST: Duration = Duration::from_secs(3600);

/// Who asks: a key, and what its requests cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The header `x-org`.
    pub key: String,
    /// What a request costs.
    pub cost: u64,
}

impl Guest {
    /// The body of its question.
    pub fn body(&self) -> String {
        // Keys are made here, of letters and digits.
        format!(
            r#"{{"path":"/","headers":{{"x-org":"{}"}},"cost":{}}}"#,
            self.key, self.cost
        )
    }
}

/// What a crowd does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The port of the service, or of what stands before it.
    pub port: u16,
    /// Requests in a second, all guests together.
    pub rate: u64,
    /// Each of them asks once before one of them asks again.
    pub guests: Vec<Guest>,
    /// In which order.
    pub seed: u64,
}

/// A crowd that asks until it is ended or dropped.
#[derive(Debug)]
pub struct Crowd {
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

/// A request that is due: its number and its guest.
struct Due {
    number: usize,
    guest: usize,
}

impl Crowd {
    /// Begins to ask.
    pub fn start(plan: Plan) -> Result<Crowd> {
        if plan.rate == 0 || plan.guests.is_empty() {
            return Err(Error::Invalid(
                "a crowd needs guests and a rate above 0".into(),
            ));
        }
        let shared = Arc::new(Shared::default());
        let start = now() + Duration::from_millis(100);
        let thread = thread::Builder::new()
            .name("crowd".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let runtime = Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .map_err(Error::io("start the crowd"))?;
                    runtime.block_on(ask(plan, start, &shared));
                    Ok(())
                }
            })
            .map_err(Error::io("start the thread of the crowd"))?;
        Ok(Crowd {
            start,
            shared,
            thread: Some(thread),
        })
    }

    /// How long it has been asking.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// How long after another one it began.
    pub fn began_after(&self, other: &Crowd) -> Duration {
        self.start.saturating_duration_since(other.start)
    }

    /// Waits until answers are no longer degraded, and says how long after `event` that was; nothing if it is not
    /// within `deadline`.
    pub fn back_after(&self, event: Duration, deadline: Duration) -> Option<Duration> {
        let began = now();
        loop {
            let back = {
                let records = self.shared.records();
                let from = records.partition_point(|record| record.scheduled < event);
                Seen::back_after(records.get(from..).unwrap_or_default(), event)
            };
            if back.is_some() || began.elapsed() >= deadline {
                return back;
            }
            sleep(LOOK_EVERY);
        }
    }

    /// Asks nothing more, waits for the last answers, and says what was seen.
    pub fn end(mut self) -> Result<Seen> {
        self.stop()?;
        let records = std::mem::take(&mut *self.shared.records());
        Ok(Seen::new(records))
    }

    fn stop(&mut self) -> Result<()> {
        // Only the flag itself is shared.
        self.shared.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(Error::Invalid("the crowd panicked".into())),
            None => Ok(()),
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Whoever drops it does not want to know.
        let _ = self.stop();
    }
}

/// Asks at the times of the plan until it is told to stop.
async fn ask(plan: Plan, start: Instant, shared: &Arc<Shared>) {
    let (send, due) = channel(WAITING);
    let due = Arc::new(tokio::sync::Mutex::new(due));
    let questions: Vec<Vec<u8>> = plan
        .guests
        .iter()
        .map(|guest| question(plan.port, &guest.body()))
        .collect();
    let questions = Arc::new(questions);
    let mut lines = JoinSet::new();
    for _ in 0..LINES {
        let mut line = Line::new(plan.port);
        // If it cannot be opened, its first question will say so.
        let _ = line.open().await;
        let (due, questions, shared) = (due.clone(), questions.clone(), shared.clone());
        lines.spawn(serve(line, start, due, questions, shared));
    }
    let order = shuffled(plan.guests.len(), plan.seed);
    let mut turns = order.iter().cycle();
    let mut number = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let at = due_at(number, plan.rate);
        if at > LONGEST {
            break;
        }
        if start.elapsed() < at || now() < start {
            tokio::time::sleep_until((start + at).into()).await;
        }
        let guest = turns.next().copied().unwrap_or_default();
        shared.records().push(Record {
            guest,
            scheduled: at,
            sent: start.elapsed(),
            ..Record::default()
        });
        // If there is no room, it stays without an answer.
        let _ = send.try_send(Due { number, guest });
        number += 1;
    }
    drop(send);
    let all = async { while lines.join_next().await.is_some() {} };
    // Who is not done by then has no answer; its connection is closed with the runtime.
    let _ = tokio::time::timeout(DEADLINE, all).await;
}

/// Sends what is due over one connection.
async fn serve(
    mut line: Line,
    start: Instant,
    due: Arc<tokio::sync::Mutex<Receiver<Due>>>,
    questions: Arc<Vec<Vec<u8>>>,
    shared: Arc<Shared>,
) {
    loop {
        let next = due.lock().await.recv().await;
        let Some(Due { number, guest }) = next else {
            return;
        };
        let Some(question) = questions.get(guest) else {
            continue;
        };
        let Ok((status, body)) = line.ask(question).await else {
            continue;
        };
        let at = start.elapsed();
        let told = Told::read(&body);
        if let Some(record) = shared.records().get_mut(number) {
            record.answered = Some(at);
            record.status = status;
            if let Some(told) = told {
                record.admitted = told.admitted;
                record.degraded = told.degraded;
                record.remaining = told.remaining;
            }
        }
    }
}

/// When the request of this number is due.
fn due_at(number: usize, rate: u64) -> Duration {
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
    fn requests_are_due_at_their_rate() {
        assert_eq!(due_at(0, 2000), Duration::ZERO);
        assert_eq!(due_at(3, 2000), Duration::from_micros(1500));
        assert_eq!(due_at(2000, 2000), Duration::from_secs(1));
    }

    #[test]
    fn a_shuffle_loses_nobody_and_repeats_with_its_seed() {
        let order = shuffled(50, 7);
        assert_eq!(order, shuffled(50, 7));
        assert_ne!(order, shuffled(50, 8));
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
