//! A well-behaved client beside the others: it sends requests over a kept connection and over new ones, and records
//! whether they are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::panicked;
use crate::http::{HttpConnection, get};
use tollgate_testkit::Result;
use tollgate_testkit::now;

/// Time between two requests.
const EVERY: Duration = Duration::from_millis(40);
/// The longest wait for an answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// A client that sends requests until it is ended.
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    task: JoinHandle<ProbeResult>,
}

/// Its results.
#[derive(Clone, Debug, Default)]
pub(super) struct ProbeResult {
    pub(super) sent: usize,
    pub(super) answered: usize,
    /// Of those that were answered.
    pub(super) times: Vec<Duration>,
    /// The first error.
    pub(super) first_error: Option<String>,
}

impl Probe {
    pub(super) fn start(port: u16) -> Probe {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(probe(port, Arc::clone(&stop)));
        Probe { stop, task }
    }

    pub(super) async fn end(self) -> Result<ProbeResult> {
        // Only the flag itself is shared.
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.map_err(panicked)
    }
}

async fn probe(port: u16, stop: Arc<AtomicBool>) -> ProbeResult {
    let mut probe_result = ProbeResult::default();
    let mut kept: Option<HttpConnection> = None;
    while !stop.load(Ordering::Relaxed) {
        // Every other request uses a new connection.
        let fresh = probe_result.sent % 2 == 0;
        let start = now();
        let outcome = once(port, if fresh { None } else { kept.take() }).await;
        probe_result.sent += 1;
        match outcome {
            Ok(connection) => {
                probe_result.answered += 1;
                probe_result.times.push(start.elapsed());
                kept = Some(connection);
            }
            Err(error) => {
                probe_result.first_error.get_or_insert(error);
            }
        }
        sleep(EVERY).await;
    }
    probe_result
}

/// Sends one request; returns the connection if the answer is 200.
pub(super) async fn once(
    port: u16,
    connection: Option<HttpConnection>,
) -> std::result::Result<HttpConnection, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut connection = match connection {
        Some(connection) => connection,
        None => HttpConnection::open(port).await.map_err(text)?,
    };
    let request = get("/well-behaved", &[("x-api-key", "well-behaved")]);
    let answer = connection
        .exchange_within(&request, DEADLINE)
        .await
        .map_err(text)?;
    match answer.status {
        200 => Ok(connection),
        other => Err(format!("status {other}")),
    }
}
