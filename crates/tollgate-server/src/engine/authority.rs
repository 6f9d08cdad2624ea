//! The engine as the layers of a gateway ask it.
//!
//! A layer wants to know which policy is in force, and tells what was decided under it. Everything else
//! about an engine is none of its business.

use std::sync::Arc;
use std::time::Duration;

use tollgate::MonotonicClock;
use tollgate::policy::{Answer, Facts};
use tollgate_tower::{Authority, QueueSet, Slots};

use super::{Door, Engine, Epoch, Gate};

/// An engine behind layers. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Front {
    // One count for both: it is cloned for every request.
    shared: Arc<(Arc<Engine>, Slots<MonotonicClock>)>,
}

impl Front {
    /// An engine with nobody waiting in front of it.
    pub fn new(engine: Arc<Engine>) -> Front {
        Front {
            shared: Arc::new((engine, Slots::new())),
        }
    }
}

impl tollgate_tower::Epoch for Epoch {
    type Clock = MonotonicClock;

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn queues(&self) -> &QueueSet {
        &self.queues
    }
}

impl Authority for Front {
    type Epoch = Epoch;

    fn epoch(&self) -> Arc<Epoch> {
        self.shared.0.epoch_for_long()
    }

    fn slots(&self) -> &Slots<MonotonicClock> {
        &self.shared.1
    }

    fn decided(&self, epoch: &Epoch, facts: &Facts<'_>, answer: &Answer, took: Duration) {
        self.shared
            .0
            .observe(epoch, Door::Gateway, facts, answer, took);
    }
}
