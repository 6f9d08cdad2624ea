//! The listener of a proxy: open, or closed while connections are refused.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::connection::forward;
use super::counters::Counters;
use super::state::FaultState;

/// Connections that may be open at once. More are closed as soon as they are accepted.
const CONNECTIONS: u64 = 10_000;
/// Pause after the port could not be bound or a connection not accepted.
const RETRY: Duration = Duration::from_millis(5);

/// Number of the faults that the listener obeys: written by the listener, awaited by [`super::Proxy::set`].
#[derive(Debug, Default)]
pub(super) struct ListenerState {
    obeyed: Mutex<u64>,
    changed: Condvar,
}

impl ListenerState {
    fn obeys(&self, number: u64) {
        let mut obeyed = self.obeyed.lock().unwrap_or_else(PoisonError::into_inner);
        *obeyed = number;
        self.changed.notify_all();
    }

    /// Whether it obeyed the faults of this number, or a later one, within `deadline`.
    pub(super) fn wait(&self, number: u64, deadline: Duration) -> bool {
        let obeyed = self.obeyed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(obeyed, deadline, |obeyed| *obeyed < number);
        let (obeyed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *obeyed >= number
    }
}

/// What a proxy is made of.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) address: SocketAddr,
    /// The port of the server that the next connection goes to.
    pub(super) upstream: Arc<AtomicU16>,
    pub(super) seed: u64,
    pub(super) state: Arc<FaultState>,
    pub(super) counters: Arc<Counters>,
    pub(super) listener_state: Arc<ListenerState>,
}

/// Accepts connections as the faults allow. Never returns.
pub(super) async fn listen(parts: Parts, first: TcpListener) {
    let mut state = parts.state.watch();
    let mut listener = Some(first);
    let mut acceptor = Acceptor { parts, number: 0 };
    loop {
        let active = *state.borrow_and_update();
        let refuse = active.refuse;
        if refuse && let Some(open) = listener.take() {
            acceptor.drain(open);
        } else if !refuse && listener.is_none() {
            listener = TcpListener::bind(acceptor.parts.address).await.ok();
        }
        if refuse != listener.is_some() {
            acceptor.parts.listener_state.obeys(active.number);
        }
        let Some(open) = &listener else {
            // Refusing, or another process has the port: wait for other faults, or try again.
            tokio::select! {
                _ = state.changed() => {}
                () = sleep(RETRY), if !refuse => {}
            }
            continue;
        };
        tokio::select! {
            _ = state.changed() => {}
            accepted = open.accept() => match accepted {
                Ok((client, _)) => acceptor.accept(client),
                // No more file descriptors, say: that passes.
                Err(_) => sleep(RETRY).await,
            },
        }
    }
}

/// Starts a task for each connection.
struct Acceptor {
    parts: Parts,
    number: u64,
}

impl Acceptor {
    fn accept(&mut self, client: TcpStream) {
        let parts = self.parts.clone();
        if parts.counters.open() >= CONNECTIONS {
            return;
        }
        // The lowest two bits distinguish the generators of one connection.
        self.number = self.number.wrapping_add(4);
        let seed = parts.seed ^ self.number;
        parts.counters.opened();
        tokio::spawn(async move {
            forward(
                client,
                (Ipv4Addr::LOCALHOST, parts.upstream.load(Ordering::Relaxed)).into(),
                parts.state,
                Arc::clone(&parts.counters),
                seed,
            )
            .await;
            parts.counters.closed();
        });
    }

    /// Accepts the connections that were established, but not accepted, when the listener closed.
    fn drain(&mut self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else {
            return;
        };
        while let Ok((client, _)) = listener.accept() {
            if client.set_nonblocking(true).is_ok()
                && let Ok(client) = TcpStream::from_std(client)
            {
                self.accept(client);
            }
        }
    }
}
