//! The policy in force, and everything that outlives a request.
//!
//! # Theory
//!
//! Requests read, operators write, and the two must not meet. What decides is one value, an [`Epoch`],
//! replaced whole: a request takes the one it finds and ends with it. Whoever changes something
//! (a reload, an override) holds a lock that no request ever takes, builds the next epoch beside the one
//! in force, and swaps it in only when nothing can fail any more.
//!
//! # Invariant
//!
//! There is a good policy in force from [`Engine::start`] on. What is wrong with a later one is told (in
//! [`Engine::health`], in the log, in metrics) and changes nothing.
//!
//! # Rooms
//!
//! | file | what |
//! |---|---|
//! | `start` | from settings to an engine |
//! | `reload`, `watch` | another policy, and when to look for one |
//! | `overrides` | what operators change while running |
//! | `state`, `keep` | what survives a restart: as bytes, and as a file |
//! | `observe`, `top` | what is counted, and who is refused most |
//! | `pressure` | how much of all limits is left while a backend is in trouble |
//! | `store` | the store that a fleet shares, as operators see it |
//! | `decide` | the engine as front ends ask it |
//! | `health`, `scrape` | what is told about all this |
//!
//! It does not know HTTP.

mod collect;
mod decide;
mod health;
mod keep;
mod observe;
mod overrides;
mod pressure;
mod reload;
mod start;
mod state;
mod store;
mod top;
pub mod watch;

pub use decide::{Decide, EngineSource};
pub use health::{Fault, Health, PolicyHealth, StateHealth};
pub(crate) use keep::write_every;
pub use overrides::{OVERRIDES_MAX, OverrideChanged, OverrideError, OverrideListed};
pub(crate) use pressure::step_every;
pub use pressure::{Backends, Observed, PressureHealth, PressureTold};
pub use reload::{ReloadError, Reloaded, Why};
pub use start::{
    EngineSettings, OpenStore, Opens, PolicySource, StartError, StateSettings, for_tests,
};
pub use state::StateError;
pub use store::{ServerHealth, StoreHealth, StoreWarning};
pub(crate) use store::{divide_every, tend_every};
pub use top::TopKey;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch as watch_channel;
use tollgate::{Clock, Moment, MonotonicClock};
use tollgate_config::{GatewaySpec, StoreSpec};
use tollgate_policy::{Policy, PolicyGate};
use tollgate_tower::admission::QueueSet;

use crate::metrics::{Collector, Handles, Metrics};

/// The gate as this server runs it.
pub type Gate = PolicyGate<MonotonicClock>;

/// One policy in force. Replaced whole; whoever has begun with one ends with it.
#[derive(Debug)]
pub struct Epoch {
    /// Counts the policies since the start, from 1.
    pub version: u64,
    /// The policy and its state.
    pub gate: Gate,
    /// The queues, in the order of the policy. Those that stay go on from policy to policy.
    pub queues: Arc<QueueSet>,
    /// How a gateway behaves under it.
    pub gateway: Arc<GatewaySpec>,
    /// The counters of its rules.
    handles: Handles,
}

/// The protocol of a front end; a label in metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Decisions over HTTP: `/v1/check` and its like.
    Http,
    /// Forward-auth.
    Auth,
    /// The reverse proxy.
    Gateway,
    /// Envoy's rate limit service.
    Rls,
    /// Redis clients.
    Resp,
}

impl Protocol {
    /// All of them, in order.
    pub const ALL: [Protocol; 5] = [
        Protocol::Http,
        Protocol::Auth,
        Protocol::Gateway,
        Protocol::Rls,
        Protocol::Resp,
    ];

    /// Its name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Auth => "auth",
            Protocol::Gateway => "gateway",
            Protocol::Rls => "rls",
            Protocol::Resp => "resp",
        }
    }
}

/// Whoever runs by the policy beside the gate, and may find that it cannot: a gateway whose servers need a
/// file that is not there.
pub(crate) trait Follower: fmt::Debug + Send + Sync {
    /// Does everything for the next policy that can fail, and changes nothing. What it returns is called
    /// when that policy is put in force.
    ///
    /// # Errors
    /// Why this policy cannot be followed; it is not put in force then.
    fn prepare(&self, policy: &Policy, gateway: &GatewaySpec) -> Result<Follows, String>;
}

/// Follows a policy that everything is ready for. Cannot fail.
pub(crate) type Follows = Box<dyn FnOnce() + Send>;

/// Everything that outlives a request.
#[derive(Debug)]
pub struct Engine {
    epoch: ArcSwap<Epoch>,
    /// Told whenever another epoch is in force.
    changed: watch_channel::Sender<()>,
    /// Who has to agree to a policy before it is in force, if anybody has.
    follower: OnceLock<Arc<dyn Follower>>,
    /// Metrics of front ends.
    collectors: Mutex<Vec<Arc<dyn Collector>>>,
    clock: MonotonicClock,
    source: PolicySource,
    /// The store that the policy named at the start.
    spec: StoreSpec,
    /// Held by whoever changes what is in force. No decision takes it.
    change: Mutex<reload::InForce>,
    /// What is told about the policy; locked for moments only, so that health never waits for a reload.
    told: Mutex<PolicyHealth>,
    metrics: Metrics,
    last_walk: Mutex<collect::LastWalk>,
    refusals: observe::Refusals,
    /// How much of all limits is left. Locked after `change`, never before it.
    pressure: Mutex<pressure::UnderPressure>,
    keeper: Option<keep::Keeper>,
    /// What keys that must not be shown are hashed with.
    secret: [u8; 32],
}

impl Engine {
    /// The policy in force.
    pub fn epoch(&self) -> Guard<Arc<Epoch>> {
        self.epoch.load()
    }

    /// The policy in force, for whoever waits for something while using it.
    pub fn epoch_for_long(&self) -> Arc<Epoch> {
        self.epoch.load_full()
    }

    /// Switches limiting off or on again, now and over restarts if there is a state file. Whoever is on
    /// the deny list stays out. Returns whether it was off before.
    pub fn switch(&self, off: bool) -> bool {
        let was = {
            let _in_order = self.in_force();
            let epoch = self.epoch();
            let was = epoch.gate.is_switched_off();
            epoch.gate.switch_off(off);
            was
        };
        if was != off {
            self.persist();
        }
        was
    }

    /// Is limiting switched off?
    pub fn is_switched_off(&self) -> bool {
        self.epoch().gate.is_switched_off()
    }

    /// Hears whenever another epoch is in force.
    pub fn changes(&self) -> watch_channel::Receiver<()> {
        self.changed.subscribe()
    }

    /// Has somebody be asked before a policy is put in force, from the next one on. The first that asks is
    /// the one.
    pub(crate) fn follow_by(&self, follower: Arc<dyn Follower>) {
        let _ = self.follower.set(follower);
    }

    /// Adds the metrics of a front end.
    pub(crate) fn add_collector(&self, collector: Arc<dyn Collector>) {
        locked(&self.collectors).push(collector);
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn in_force(&self) -> MutexGuard<'_, reload::InForce> {
        locked(&self.change)
    }
}

/// A lock that is never poisoned for good: what it guards is replaced whole, never left half-changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds since 1970.
fn seconds(moment: Moment) -> u64 {
    moment.as_nanos() / 1_000_000_000
}
