//! The weather as all connections see it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::weather::{Lane, Strike, Way, Weather};

/// How many strikes may wait. More are forgotten.
const STRIKES: usize = 10_000;

/// What is read by every connection whenever it changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Forecast {
    pub(super) to_server: Lane,
    pub(super) to_client: Lane,
    pub(super) refuse: bool,
    /// How many weathers there were.
    pub(super) number: u64,
    /// How often all connections were reset. A connection that sees another number than at its beginning was there.
    pub(super) resets: u64,
    /// How often a direction was closed, likewise.
    pub(super) closes_to_server: u64,
    pub(super) closes_to_client: u64,
}

impl Forecast {
    pub(super) fn lane(&self, way: Way) -> Lane {
        match way {
            Way::ToServer => self.to_server,
            Way::ToClient => self.to_client,
        }
    }

    /// What hits every connection at once.
    fn strike(&mut self, strike: Strike) {
        match strike {
            Strike::Reset => self.resets += 1,
            Strike::HalfClose(Way::ToServer) => self.closes_to_server += 1,
            Strike::HalfClose(Way::ToClient) => self.closes_to_client += 1,
            _ => {}
        }
    }

    pub(super) fn closes(&self, way: Way) -> u64 {
        match way {
            Way::ToServer => self.closes_to_server,
            Way::ToClient => self.closes_to_client,
        }
    }
}

#[derive(Debug)]
pub(super) struct Sky {
    forecast: watch::Sender<Forecast>,
    /// Strikes that wait for a reply or for bytes, oldest first.
    armed: Mutex<VecDeque<Strike>>,
}

impl Sky {
    pub(super) fn clear() -> Sky {
        Sky {
            forecast: watch::Sender::new(Forecast::default()),
            armed: Mutex::default(),
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<Forecast> {
        self.forecast.subscribe()
    }

    /// Another weather. Its strikes are armed before anybody sees it, so that nobody lives in it without them.
    /// Says the number of the weather.
    pub(super) fn set(&self, weather: &Weather) -> u64 {
        let now = |strike: &Strike| matches!(strike, Strike::Reset | Strike::HalfClose(_));
        let (at_once, waiting): (Vec<Strike>, Vec<Strike>) =
            weather.strikes.iter().partition(|s| now(s));
        *self.armed() = waiting.into_iter().take(STRIKES).collect();
        let mut number = 0;
        self.forecast.send_modify(|forecast| {
            forecast.number += 1;
            number = forecast.number;
            forecast.to_server = weather.to_server;
            forecast.to_client = weather.to_client;
            forecast.refuse = weather.refuse;
            for strike in at_once {
                forecast.strike(strike);
            }
        });
        number
    }

    /// Something happens once, and the weather stays as it is.
    pub(super) fn strike(&self, strike: Strike) {
        if let Strike::Reset | Strike::HalfClose(_) = strike {
            self.forecast
                .send_modify(|forecast| forecast.strike(strike));
            return;
        }
        let mut armed = self.armed();
        if armed.len() < STRIKES {
            armed.push_back(strike);
        }
    }

    /// The strike for a reply that begins now.
    pub(super) fn for_reply(&self) -> Option<Strike> {
        self.take(|strike| !matches!(strike, Strike::ResetAfter { .. }))
    }

    /// The number of bytes after which whoever asks is reset.
    pub(super) fn for_bytes(&self) -> Option<u64> {
        match self.take(|strike| matches!(strike, Strike::ResetAfter { .. })) {
            Some(Strike::ResetAfter { bytes }) => Some(bytes),
            _ => None,
        }
    }

    /// A strike that did not find what it waits for waits on, before all others.
    pub(super) fn give_back(&self, strike: Strike) {
        self.armed().push_front(strike);
    }

    fn take(&self, fits: impl Fn(&Strike) -> bool) -> Option<Strike> {
        let mut armed = self.armed();
        let place = armed.iter().position(fits)?;
        armed.remove(place)
    }

    fn armed(&self) -> MutexGuard<'_, VecDeque<Strike>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
