//! Snapshots of a policy: every limiter, its stable name, and the secret of the keys.
//!
//! Limits are written with their numbers, so that a restart with another policy acts like a reload: a changed
//! number keeps usage, a changed algorithm starts fresh.

use std::collections::HashMap;
use std::sync::Arc;

use super::build::PriorState;
use super::gate::PolicyGate;
use tollgate::Clock;
use tollgate::KeySecret;
use tollgate::snapshot::{RestoreError, RestoredLimiter, SnapshotReader, SnapshotWriter};

/// Most limits in a snapshot.
const LIMITERS_MAX: usize = 1 << 20;

impl<C: Clock> PolicyGate<C> {
    /// All usage, as bytes for [`PriorState::from_saved`]. Decisions continue meanwhile. Keep the bytes secret
    /// like a password: they hold the secret that keys are hashed with.
    pub fn save(&self) -> Vec<u8> {
        let mut to = SnapshotWriter::default();
        self.secret.save(&mut to);
        to.size(self.variants.len());
        for (id, limiter) in self.limiters() {
            to.bytes(id.as_bytes());
            limiter.save(&mut to);
        }
        to.into_bytes()
    }
}

impl PriorState {
    /// Reads what [`PolicyGate::save`] wrote.
    ///
    /// # Errors
    /// Other bytes.
    pub fn from_saved(bytes: &[u8]) -> Result<PriorState, RestoreError> {
        let mut from = SnapshotReader::new(bytes);
        let secret = KeySecret::restored(&mut from)?;
        let mut limiters = HashMap::new();
        for _ in 0..from.size_up_to(LIMITERS_MAX)? {
            let id: Arc<str> = Arc::from(from.text()?);
            let limiter = RestoredLimiter::read(&mut from)?;
            limiters.insert(id, limiter);
        }
        from.end()?;
        Ok(PriorState {
            secret,
            limiters,
            store: None,
        })
    }
}
