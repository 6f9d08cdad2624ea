//! A proxy that fails as networks do.
//!
//! # The road
//!
//! ```text
//! client --> [door] --> [connection] --> [pipe] --to the server--> server
//!             open,       two directions   delays, pieces, holes
//!             refused                    [pipe] <-to the client--- server
//!                                          [shaper] strikes replies, which [frames] finds
//!            [sky] holds the weather that all of them obey; [tally] counts what they saw
//! ```
//!
//! A proxy lives on a thread of its own, so that it keeps its weather while a test blocks.
//!
//! # Invariant
//!
//! Without strikes every byte arrives, in order: weather only delays. What a strike loses, repeats or spoils is
//! exactly what it says.
//!
//! # What it does not know
//!
//! Packets. A connection to the proxy is established by the system before the proxy hears of it, so a `SYN` that
//! nobody answers cannot be played. How a stream is cut into reads is up to the system too: with the same seed the
//! n-th piece has the same luck, but a piece may be another one.

mod connection;
mod door;
mod frames;
mod pipe;
mod shaper;
mod sky;
mod tally;
mod weather;

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

use self::door::{Door, Parts, listen};
use self::pipe::later;
use self::sky::Sky;
use self::tally::Tally;
use crate::servers::next_port;
use crate::trouble::{Outcome, Trouble};

pub use self::frames::{Frame, Frames, NotResp};
pub use self::tally::Seen;
pub use self::weather::{Lane, Slices, Strike, Then, Way, Weather};

/// How long the port may take to open or close.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many ports may turn out to be taken.
const PORTS_TRIED: u32 = 20;

/// A proxy before a server, until this is dropped. Then its connections are closed.
#[derive(Debug)]
pub struct Proxy {
    parts: Parts,
    handle: Handle,
    /// The script that runs now.
    script: Mutex<Option<task::JoinHandle<()>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy before the server at this port, with a clear sky. Its seed is drawn, and printed.
    pub fn start(upstream: u16) -> Outcome<Proxy> {
        let seed = RandomState::new().hash_one(upstream);
        Proxy::start_seeded(upstream, seed)
    }

    /// The same with a seed of an earlier one.
    pub fn start_seeded(upstream: u16, seed: u64) -> Outcome<Proxy> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Trouble::system("start the proxy"))?;
        let (listener, address) = open_somewhere()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener).map_err(Trouble::system("listen"))?
        };
        eprintln!("proxy at {address} before port {upstream}: seed {seed}");
        let parts = Parts {
            address,
            upstream: Arc::new(AtomicU16::new(upstream)),
            seed,
            sky: Arc::new(Sky::clear()),
            tally: Arc::new(Tally::new()),
            door: Arc::new(Door::default()),
        };
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("proxy".into())
            .spawn({
                let parts = parts.clone();
                move || run(&runtime, parts, listener, stopped)
            })
            .map_err(Trouble::system("start the thread of the proxy"))?;
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

    /// What its randomness comes from.
    pub fn seed(&self) -> u64 {
        self.parts.seed
    }

    /// Another weather, from now on and for all connections. A script that runs ends. Comes back when the port is
    /// open or closed as the weather wants.
    pub fn set(&self, weather: impl Into<Weather>) -> Outcome<()> {
        let weather = weather.into();
        self.follow(None);
        let number = self.parts.sky.set(&weather);
        if self.parts.door.wait(number, PATIENCE) {
            return Ok(());
        }
        let what = if weather.refuse { "close" } else { "open" };
        Err(Trouble::Impossible(format!(
            "the port {} of the proxy does not {what}: somebody else may have taken it",
            self.port()
        )))
    }

    /// Connections from now on go to the server at this port; those that are open stay where they are. So does an
    /// address that moves from one server to another.
    pub fn lead_to(&self, upstream: u16) {
        // Only the number itself is shared.
        self.parts.upstream.store(upstream, Ordering::Relaxed);
    }

    /// Something happens once, and the weather stays as it is.
    pub fn strike(&self, strike: Strike) {
        self.parts.sky.strike(strike);
    }

    /// Runs a script: each weather begins so long after now. A script or weather that is set later ends it.
    pub fn timeline(&self, script: Vec<(Duration, Weather)>) {
        let sky = Arc::clone(&self.parts.sky);
        let start = Instant::now();
        self.follow(Some(self.handle.spawn(async move {
            for (after, weather) in script {
                sleep_until(later(start, after)).await;
                sky.set(&weather);
            }
        })));
    }

    /// Whether no script runs any more.
    pub fn timeline_is_over(&self) -> bool {
        let script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        script.as_ref().is_none_or(task::JoinHandle::is_finished)
    }

    /// What it saw so far.
    pub fn seen(&self) -> Seen {
        self.parts.tally.seen()
    }

    /// Ends the script that runs, and another one takes its place.
    fn follow(&self, script: Option<task::JoinHandle<()>>) {
        let mut current = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = std::mem::replace(&mut *current, script) {
            old.abort();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Both may be gone if the thread panicked, which it has said itself.
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

/// A port that is ours from now on, except while connections are refused.
///
/// It is not asked of the runtime: who starts a proxy may be in a runtime of its own and must not wait in it for
/// another.
fn open_somewhere() -> Outcome<(StdListener, SocketAddr)> {
    let mut tries = 1;
    loop {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, next_port()?));
        let opened = StdListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        match opened {
            Ok(listener) => return Ok((listener, address)),
            Err(error) if tries == PORTS_TRIED => {
                return Err(Trouble::system("open a port for the proxy")(error));
            }
            Err(_) => tries += 1,
        }
    }
}
