//! The port of a proxy: open, or as if nobody had ever listened there.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::connection::carry;
use super::sky::Sky;
use super::tally::Tally;

/// Connections that may be open at once. More are closed as soon as they are accepted.
const CONNECTIONS: u64 = 10_000;
/// How long to rest if the port cannot be had again, or nothing can be accepted.
const REST: Duration = Duration::from_millis(5);

/// Which weather the port obeys: written by who listens, read by who changed the weather.
#[derive(Debug, Default)]
pub(super) struct Door {
    obeyed: Mutex<u64>,
    changed: Condvar,
}

impl Door {
    fn obeys(&self, number: u64) {
        let mut obeyed = self.obeyed.lock().unwrap_or_else(PoisonError::into_inner);
        *obeyed = number;
        self.changed.notify_all();
    }

    /// Whether it obeyed the weather of this number, or a later one, within `patience`.
    pub(super) fn wait(&self, number: u64, patience: Duration) -> bool {
        let obeyed = self.obeyed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(obeyed, patience, |obeyed| *obeyed < number);
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
    pub(super) sky: Arc<Sky>,
    pub(super) tally: Arc<Tally>,
    pub(super) door: Arc<Door>,
}

/// Accepts connections as the weather allows. Never comes back.
pub(super) async fn listen(parts: Parts, first: TcpListener) {
    let mut sky = parts.sky.watch();
    let mut listener = Some(first);
    let mut guests = Guests { parts, number: 0 };
    loop {
        let forecast = *sky.borrow_and_update();
        let refuse = forecast.refuse;
        if refuse && let Some(open) = listener.take() {
            guests.welcome_the_last(open);
        } else if !refuse && listener.is_none() {
            listener = TcpListener::bind(guests.parts.address).await.ok();
        }
        if refuse != listener.is_some() {
            guests.parts.door.obeys(forecast.number);
        }
        let Some(open) = &listener else {
            // Refusing, or somebody else has the port: the weather decides, or another try.
            tokio::select! {
                _ = sky.changed() => {}
                () = sleep(REST), if !refuse => {}
            }
            continue;
        };
        tokio::select! {
            _ = sky.changed() => {}
            accepted = open.accept() => match accepted {
                Ok((client, _)) => guests.welcome(client),
                // No more file descriptors, say: that passes.
                Err(_) => sleep(REST).await,
            },
        }
    }
}

/// Who came through the door.
struct Guests {
    parts: Parts,
    number: u64,
}

impl Guests {
    fn welcome(&mut self, client: TcpStream) {
        let parts = self.parts.clone();
        if parts.tally.open() >= CONNECTIONS {
            return;
        }
        // The lowest two bits tell the dice of one connection apart.
        self.number = self.number.wrapping_add(4);
        let seed = parts.seed ^ self.number;
        parts.tally.opened();
        tokio::spawn(async move {
            carry(
                client,
                (Ipv4Addr::LOCALHOST, parts.upstream.load(Ordering::Relaxed)).into(),
                parts.sky,
                Arc::clone(&parts.tally),
                seed,
            )
            .await;
            parts.tally.closed();
        });
    }

    /// Those who were connected before the door closed, but not accepted yet, think that they are in.
    fn welcome_the_last(&mut self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else {
            return;
        };
        while let Ok((client, _)) = listener.accept() {
            if client.set_nonblocking(true).is_ok()
                && let Ok(client) = TcpStream::from_std(client)
            {
                self.welcome(client);
            }
        }
    }
}
