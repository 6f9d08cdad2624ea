//! The secret that all nodes of a store share.
//!
//! # Theory
//!
//! Every heartbeat offers the secret that this node would use and returns the one that the store has. So the first node
//! decides, the others take its secret over, and a store that lost its data gets it back from the next heartbeat.
//!
//! # Invariant
//!
//! A secret counts only after the store has returned it: until then other nodes may have another one.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The secret, as this node knows it.
pub(crate) struct FleetSecret(Mutex<State>);

#[derive(Clone, Copy)]
struct State {
    /// `None` if the operating system gives no random numbers.
    offered: Option<[u8; 32]>,
    is_shared: bool,
}

impl FleetSecret {
    pub(crate) fn new() -> FleetSecret {
        let mut bytes = [0; 32];
        let offered = getrandom::fill(&mut bytes).ok().map(|()| bytes);
        FleetSecret(Mutex::new(State {
            offered,
            is_shared: false,
        }))
    }

    /// What the next heartbeat offers, in hexadecimal digits. Empty if there is nothing.
    pub(crate) fn offer(&self) -> String {
        let offered = self.state().offered;
        offered.map_or_else(String::new, |secret| {
            blake3::Hash::from_bytes(secret).to_hex().to_string()
        })
    }

    /// The store has this one.
    pub(crate) fn observe(&self, secret: [u8; 32]) {
        *self.state() = State {
            offered: Some(secret),
            is_shared: true,
        };
    }

    /// The secret, once the store has it.
    pub(crate) fn get(&self) -> Option<[u8; 32]> {
        let state = *self.state();
        state.offered.filter(|_| state.is_shared)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_counts_once_the_store_has_it() {
        let (one, other) = (FleetSecret::new(), FleetSecret::new());
        assert_ne!(one.offer(), other.offer());
        assert_eq!(one.get(), None);
        one.observe([7; 32]);
        assert_eq!(one.get(), Some([7; 32]));
        assert_eq!(one.offer(), "07".repeat(32));
    }
}
