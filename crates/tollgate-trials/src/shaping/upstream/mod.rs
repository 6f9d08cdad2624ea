//! The upstream: a server on a thread of its own that records every request that reaches it, with the time.
//!
//! The path selects the response:
//!
//! | path | answer |
//! |---|---|
//! | `/pool...` | after one of a few workers had time for it ([`Workers`]); 503 at once if the backlog is full |
//! | `/work/MS...` | after this many milliseconds |
//! | `/stream...` | in pieces, with a pause after each |
//! | `/echo...` | with `upgrade: websocket`: every message is echoed |
//! | anything else | at once, with the length of the received body |
//!
//! # Invariant
//!
//! A request is recorded once, when its head is complete, before it is processed.

mod connection;
mod workers;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use tokio::sync::oneshot;

use self::workers::Workers;
use super::runtime;
use crate::http::HttpConnection;
use tollgate_testkit::{Error, Result};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// The sizes of the pool of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) workers: usize,
    /// The time that a worker needs for one request.
    pub(super) work: Duration,
    /// How many may wait for a worker.
    pub(super) backlog: usize,
}

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceivedRequest {
    /// When, on the clock of the trial.
    pub(super) at: Duration,
    /// The header `x-id`, or nothing.
    pub(super) id: String,
    /// The header `x-plan`, or nothing.
    pub(super) plan: String,
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Upstream {
    port: u16,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    seen: Mutex<Vec<ReceivedRequest>>,
    workers: Mutex<Workers>,
}

impl Upstream {
    /// Starts it. Moments count from `start`.
    pub(super) fn start(start: Instant, pool: Pool) -> Result<Upstream> {
        let listener = listen().map_err(Error::io("listen"))?;
        let address = listener.local_addr().map_err(Error::io("listen"))?;
        let shared = Arc::new(Shared {
            start,
            seen: Mutex::default(),
            workers: Mutex::new(Workers::new(pool)),
        });
        let (stop, stopped) = oneshot::channel();
        let runtime = runtime()?;
        let thread = thread::Builder::new()
            .name("upstream".into())
            .spawn({
                let shared = Arc::clone(&shared);
                // Requests in flight end with the runtime.
                move || runtime.block_on(serve(listener, &shared, stopped))
            })
            .map_err(Error::io("start the thread of the upstream"))?;
        Ok(Upstream {
            port: address.port(),
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// One that responds at once.
    pub(super) fn quick(start: Instant) -> Result<Upstream> {
        let pool = Pool {
            workers: 1,
            work: Duration::ZERO,
            backlog: 0,
        };
        Upstream::start(start, pool)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// How many requests were received.
    pub(super) fn count(&self) -> usize {
        self.shared.seen().len()
    }

    /// All received requests, in order.
    pub(super) fn seen(&self) -> Vec<ReceivedRequest> {
        self.shared.seen().clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, its responses are missing in the results.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Vec<ReceivedRequest>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens with a long backlog: the queue of the system is not under test.
fn listen() -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

async fn serve(listener: TcpListener, shared: &Arc<Shared>, stopped: oneshot::Receiver<()>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    let shared = Arc::clone(shared);
                    tokio::spawn(async move {
                        // Some trials break connections on purpose.
                        let _ = connection::serve(HttpConnection::new(stream), &shared).await;
                    });
                }
                // Out of descriptors, most likely, until other connections close.
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::select! {
        () = accept => {}
        _ = stopped => {}
    }
}
