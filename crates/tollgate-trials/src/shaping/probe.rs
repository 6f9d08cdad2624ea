//! An honest client beside the others: it asks now and then, over a connection that it keeps and over a new one, and writes
//! down whether it was answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::panicked;
use super::wire::{Wire, get};
use tollgate_testkit::Result;
use tollgate_testkit::now;

/// How often it asks.
const EVERY: Duration = Duration::from_millis(40);
/// How long an answer may take until it counts as none.
const DEADLINE: Duration = Duration::from_secs(10);

/// A client that asks until it is ended.
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Probed>,
}

/// What it saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Probed {
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

    pub(super) async fn end(self) -> Result<Probed> {
        // Only the flag itself is shared.
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.map_err(panicked)
    }
}

async fn ask(port: u16, stop: Arc<AtomicBool>) -> Probed {
    let mut probed = Probed::default();
    let mut kept: Option<Wire> = None;
    while !stop.load(Ordering::Relaxed) {
        // Every other time over a new connection.
        let fresh = probed.asked % 2 == 0;
        let start = now();
        let outcome = once(port, if fresh { None } else { kept.take() }).await;
        probed.asked += 1;
        match outcome {
            Ok(wire) => {
                probed.answered += 1;
                probed.times.push(start.elapsed());
                kept = Some(wire);
            }
            Err(error) => {
                probed.first_error.get_or_insert(error);
            }
        }
        sleep(EVERY).await;
    }
    probed
}

/// Asks once; the connection if the answer was 200.
pub(super) async fn once(port: u16, wire: Option<Wire>) -> std::result::Result<Wire, String> {
    let said = |error: std::io::Error| error.to_string();
    let mut wire = match wire {
        Some(wire) => wire,
        None => Wire::open(port).await.map_err(said)?,
    };
    let request = get("/honest", &[("x-api-key", "honest")]);
    let answer = wire.ask_within(&request, DEADLINE).await.map_err(said)?;
    match answer.status {
        200 => Ok(wire),
        other => Err(format!("status {other}")),
    }
}
