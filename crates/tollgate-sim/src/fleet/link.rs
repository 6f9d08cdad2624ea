//! The way from a node to the store: late, lossy, out of order, sometimes cut.
//!
//! # Theory
//!
//! A message travels, is answered, and the answer travels back; each way takes a time of its own, so two messages
//! may overtake each other. Either may be lost. A node waits for its deadline and not longer; what arrives at the
//! store later is done there all the same.
//!
//! Now and then a message that charges comes twice, the second time later: a question, and a correction that takes more.
//! Nodes themselves tell again what may not have been heard, rather twice than not at all, so the store must bear it: it
//! errs on the strict side, by what the message carried.
//!
//! A correction that gives back never comes twice. It names no grant that the store could tick off, so the second one would
//! give what nobody had taken, and the limit would not hold ([`Planted::RefundsTwice`]). So whoever sends it sends it once: if
//! the answer is lost, it stays lost.
//!
//! # Faults on purpose
//!
//! [`Planted`] breaks a promise that the rest relies on, so that a test can see that the checks find it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tollgate::{LimitError, Span};
use tollgate_policy::shared::{
    Answering, FaultKind, SharedLimit, SharedLimits, SharedOutcome, SharedRequest, SharedSettle,
    SharedStore, StoreFault, StoreReport,
};

use super::clockwork::{Clockwork, lock};
use super::depot::{Depot, Meter};
use crate::rng::Rng;

/// A promise that is broken on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// None.
    #[default]
    Nothing,
    /// The store tells a node that it granted a block, and charges the request alone.
    GrantsWithoutCharging,
    /// The store gives back twice what is given back to it.
    RefundsTwice,
    /// Every node takes itself for the only one.
    SharesNothing,
}

/// How bad the network is.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// A way takes from this long ...
    pub fast_ns: u64,
    /// ... to this long.
    pub slow_ns: u64,
    /// One message in so many is lost; none if 0.
    pub lost_one_in: u64,
    /// One message that charges in so many comes twice; none if 0.
    pub twice_one_in: u64,
    /// How long a node waits.
    pub deadline_ns: u64,
}

/// What all nodes have in common.
#[derive(Debug)]
pub struct Network {
    pub(super) world: Clockwork,
    pub(super) depot: Arc<Mutex<Depot>>,
    pub(super) weather: Weather,
    pub(super) rng: Mutex<Rng>,
    /// Nodes that are alive.
    pub(super) alive: AtomicU32,
    /// The store answers nobody.
    pub(super) is_cut: AtomicBool,
    /// Nothing is lost or slow any more.
    pub(super) is_fine: AtomicBool,
    pub(super) planted: Planted,
    /// Answers that were lost or late, and messages that came twice: each may cost a block.
    pub(super) mishaps: AtomicU64,
}

impl Network {
    fn one_in(&self, times: u64) -> bool {
        times > 0 && !self.is_fine.load(Relaxed) && lock(&self.rng).one_in(times)
    }

    fn way(&self) -> u64 {
        if self.is_fine.load(Relaxed) {
            return self.weather.fast_ns;
        }
        lock(&self.rng).between(self.weather.fast_ns, self.weather.slow_ns)
    }

    /// Sends a message and waits for what the store makes of it.
    async fn send<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl Fn(&mut Depot) -> Option<T> + Send + 'static,
        may_come_twice: bool,
        waited: Span,
    ) -> Result<T, StoreFault> {
        let left = self.weather.deadline_ns.saturating_sub(waited.as_nanos());
        if self.is_cut.load(Relaxed) {
            self.mishaps.fetch_add(1, Relaxed);
            self.world.sleep(self.weather.fast_ns.min(left)).await;
            return Err(StoreFault::new(FaultKind::Away, "cut off"));
        }
        let deadline = self.world.now() + left;
        let (there, back) = (self.way(), self.way());
        let arrives = !self.one_in(self.weather.lost_one_in);
        let returns = !self.one_in(self.weather.lost_one_in);
        let twice = may_come_twice && self.one_in(self.weather.twice_one_in);
        let later = twice.then(|| self.way());
        let answer = Arc::new(Mutex::new(None));
        if arrives {
            let (network, answer) = (Arc::clone(self), Arc::clone(&answer));
            self.world.spawn(async move {
                network.world.sleep(there).await;
                if !network.is_cut.load(Relaxed) {
                    *lock(&answer) = question(&mut lock(&network.depot));
                }
                if let Some(later) = later {
                    network.world.sleep(later).await;
                    if !network.is_cut.load(Relaxed) {
                        question(&mut lock(&network.depot));
                    }
                }
            });
        }
        let comes = self.world.now() + there + back;
        let in_time = arrives && returns && comes <= deadline;
        let mishaps = u64::from(!in_time) + u64::from(twice);
        self.mishaps.fetch_add(mishaps, Relaxed);
        self.world.until(comes.min(deadline)).await;
        let answer = lock(&answer).take();
        match answer {
            Some(answer) if in_time => Ok(answer),
            _ => {
                if in_time {
                    self.mishaps.fetch_add(1, Relaxed);
                }
                self.world.until(deadline).await;
                Err(StoreFault::new(FaultKind::Late, "no answer"))
            }
        }
    }
}

/// A node's way to the store.
#[derive(Clone, Debug)]
pub(super) struct Link(pub(super) Arc<Network>);

impl SharedStore for Link {
    fn prepare(
        &self,
        limits: &[SharedLimit<'_>],
    ) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)> {
        let meters = limits.iter().enumerate().map(|(place, limit)| {
            let meter = Meter::of(limit.quota).map_err(|error| (place, error))?;
            Ok((Arc::from(limit.id), meter))
        });
        Ok(Arc::new(Limits {
            network: Arc::clone(&self.0),
            meters: Arc::new(meters.collect::<Result<_, _>>()?),
        }))
    }

    fn nodes(&self) -> u32 {
        match self.0.planted {
            Planted::SharesNothing => 1,
            _ => self.0.alive.load(Relaxed).max(1),
        }
    }

    fn report(&self) -> StoreReport {
        StoreReport::default()
    }
}

#[derive(Debug)]
struct Limits {
    network: Arc<Network>,
    meters: Arc<Vec<(Arc<str>, Meter)>>,
}

impl SharedLimits for Limits {
    fn charge<'a>(&'a self, request: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>> {
        let (meters, mut asked) = (Arc::clone(&self.meters), request.clone());
        let waited = request.waited;
        if self.network.planted == Planted::GrantsWithoutCharging {
            for charge in &mut asked.charges {
                charge.cost = charge.cost.min(1);
            }
        }
        Box::pin(
            self.network
                .send(move |depot| depot.charge(&meters, &asked), true, waited),
        )
    }

    fn settle<'a>(&'a self, settle: &'a SharedSettle) -> Answering<'a, u64> {
        let (meters, settle) = (Arc::clone(&self.meters), settle.clone());
        let strictly = self.network.planted != Planted::RefundsTwice;
        let charges = settle.used > settle.taken;
        Box::pin(self.network.send(
            move |depot| depot.settle(&meters, &settle, strictly),
            charges,
            Span::ZERO,
        ))
    }
}
