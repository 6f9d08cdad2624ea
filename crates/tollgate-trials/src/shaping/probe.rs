//! An honest client beside the others: it asks now and then, over a connection that it keeps and over a new one, and writes
//! down whether it was answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::panicked;
use crate::http::{HttpConnection, get};
use tollgate_testkit::Result;
use tollgate_testkit::now;

/// How often it asks.
const EVERY: Duration = Duration::from_millis(40);
/// How long an answer may take until it counts as none.
const DEADLINE: Duration = Duration::from_secs(10);

/// A client that asks until it is ended.
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    task: JoinHandle<ProbeResult>,
}

/// What it saw.
#[derive(Clone, Debug, Default)]
pub(super) struct ProbeResult {
    pub(super) asked: usize,
    pub(super) answered: usize,
    /// Of those that were answered.
    pub(super) times: Vec<Duration>,
    /// The first thing that went wrong.
    pub(super) first_error: Option<String>,
}

impl Probe {
    pub(super) fn start(port: u16) -> Probe {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(ask(port, Arc::clone(&stop)));
        Probe { stop, task }
    }

    pub(super) async fn end(self) -> Result<ProbeResult> {
        // Only the flag itself is shared.
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.map_err(panicked)
    }
}

async fn ask(port: u16, stop: Arc<AtomicBool>) -> ProbeResult {
    let mut probe_result = ProbeResult::default();
    let mut kept: Option<HttpConnection> = None;
    while !stop.load(Ordering::Relaxed) {
        // Every other time over a new connection.
        let fresh = probe_result.asked % 2 == 0;
        let start = now();
        let outcome = once(port, if fresh { None } else { kept.take() }).await;
        probe_result.asked += 1;
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

/// Asks once; the connection if the answer was 200.
pub(super) async fn once(
    port: u16,
    connection: Option<HttpConnection>,
) -> std::result::Result<HttpConnection, String> {
    let said = |error: std::io::Error| error.to_string();
    let mut connection = match connection {
        Some(connection) => connection,
        None => HttpConnection::open(port).await.map_err(said)?,
    };
    let request = get("/honest", &[("x-api-key", "honest")]);
    let answer = connection
        .exchange_within(&request, DEADLINE)
        .await
        .map_err(said)?;
    match answer.status {
        200 => Ok(connection),
        other => Err(format!("status {other}")),
    }
}
