//! A TCP proxy that injects network faults.
//!
//! ```text
//! client --> [listener] --> [connection] --> [pipe] --to the server--> server
//!             open or         two directions   delays, slices, black holes
//!             refused                         [pipe] <--to the client-- server
//!                                             [shaper] applies faults to replies, which `resp` delimits
//!            [state] holds the faults that all of them read; [counters] counts
//! ```
//!
//! A proxy runs on a thread of its own, so that its faults hold while a test blocks.
//!
//! # Invariant
//!
//! Without one-time faults every byte arrives, in order: lasting faults only delay. A one-time fault loses, repeats or
//! corrupts exactly the bytes that it names.
//!
//! # Limits
//!
//! The proxy sees no packets. The system establishes a connection before the proxy learns of it, so an unanswered
//! `SYN` cannot be injected. The system also decides how a stream is cut into reads: with one seed the n-th piece has
//! the same jitter, but a piece may be another one.

mod connection;
mod counters;
mod faults;
mod listener;
mod pipe;
mod shaper;
mod state;

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task;
use tokio::time::{Instant, sleep_until};

use self::counters::Counters;
use self::listener::{ListenerState, Parts, listen};
use self::pipe::later;
use self::state::FaultState;
use crate::error::{Error, Result};
use crate::ports::free_port;

pub use self::counters::ProxyCounts;
pub use self::faults::{Direction, Fault, Faults, Link, Slices, Then};

/// How long the port may take to open or close.
const DEADLINE: Duration = Duration::from_secs(5);
/// Attempts to find a free port.
const PORTS_TRIED: u32 = 20;

/// A proxy in front of a server. Dropped, it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    parts: Parts,
    handle: Handle,
    /// The script that runs.
    script: Mutex<Option<task::JoinHandle<()>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy before the server at this port, without faults. Its seed is random and printed.
    pub fn start(upstream: u16) -> Result<Proxy> {
        let seed = RandomState::new().hash_one(upstream);
        Proxy::start_seeded(upstream, seed)
    }

    /// The same with a given seed.
    pub fn start_seeded(upstream: u16, seed: u64) -> Result<Proxy> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("start the proxy"))?;
        let (listener, address) = bind()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener).map_err(Error::io("listen"))?
        };
        eprintln!("proxy at {address} before port {upstream}: seed {seed}");
        let parts = Parts {
            address,
            upstream: Arc::new(AtomicU16::new(upstream)),
            seed,
            state: Arc::new(FaultState::clear()),
            counters: Arc::new(Counters::new()),
            listener_state: Arc::new(ListenerState::default()),
        };
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("proxy".into())
            .spawn({
                let parts = parts.clone();
                move || run(&runtime, parts, listener, stopped)
            })
            .map_err(Error::io("start the thread of the proxy"))?;
        Ok(Proxy {
            parts,
            handle,
            script: Mutex::default(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The port it listens at.
    pub fn port(&self) -> u16 {
        self.parts.address.port()
    }

    /// Seed of its random numbers.
    pub fn seed(&self) -> u64 {
        self.parts.seed
    }

    /// Replaces all faults, for all connections, and ends a script. Returns when the port is open or closed as the faults
    /// say.
    pub fn set(&self, faults: impl Into<Faults>) -> Result<()> {
        let faults = faults.into();
        self.replace_script(None);
        let number = self.parts.state.set(&faults);
        if self.parts.listener_state.wait(number, DEADLINE) {
            return Ok(());
        }
        let what = if faults.refuse { "close" } else { "open" };
        Err(Error::Invalid(format!(
            "the port {} of the proxy does not {what}: another process may have taken it",
            self.port()
        )))
    }

    /// Sends new connections to another server, as an address that moves does. Open connections stay where they are.
    pub fn set_upstream(&self, upstream: u16) {
        // Only the number itself is shared.
        self.parts.upstream.store(upstream, Ordering::Relaxed);
    }

    /// Injects a one-time fault; the lasting ones stay.
    pub fn inject(&self, fault: Fault) {
        self.parts.state.inject(fault);
    }

    /// Runs a script: sets each of these faults at this time from now. A later script or [`Proxy::set`] ends it.
    pub fn timeline(&self, script: Vec<(Duration, Faults)>) {
        let state = Arc::clone(&self.parts.state);
        let start = Instant::now();
        self.replace_script(Some(self.handle.spawn(async move {
            for (after, faults) in script {
                sleep_until(later(start, after)).await;
                state.set(&faults);
            }
        })));
    }

    /// Whether no script runs.
    pub fn timeline_is_over(&self) -> bool {
        let script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        script.as_ref().is_none_or(task::JoinHandle::is_finished)
    }

    /// Its counts so far.
    pub fn observed(&self) -> ProxyCounts {
        self.parts.counters.counts()
    }

    /// Replaces the script that runs.
    fn replace_script(&self, script: Option<task::JoinHandle<()>>) {
        let mut current = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = std::mem::replace(&mut *current, script) {
            old.abort();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Both may be gone if the thread panicked.
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(runtime: &Runtime, parts: Parts, listener: TcpListener, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async {
        tokio::select! {
            () = listen(parts, listener) => {}
            _ = stopped => {}
        }
    });
}

/// Listens on a free port.
///
/// Without the runtime: the caller may be inside a runtime of its own and must not block on another.
fn bind() -> Result<(StdListener, SocketAddr)> {
    let mut tries = 1;
    loop {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let opened = StdListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        match opened {
            Ok(listener) => return Ok((listener, address)),
            Err(error) if tries == PORTS_TRIED => {
                return Err(Error::io("open a port for the proxy")(error));
            }
            Err(_) => tries += 1,
        }
    }
}
