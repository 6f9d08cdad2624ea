//! The active policy, and all state that outlives a request.
//!
//! # Theory
//!
//! Requests read, operators write, and neither waits for the other. A decision is made by one value, an [`ActivePolicy`], which is
//! replaced whole: a request ends with the one that it began with. A change (a reload, an override) holds a lock that no request
//! takes, builds the next value beside the active one, and swaps it in when nothing can fail any more.
//!
//! # Invariant
//!
//! There is a valid active policy from [`Engine::start`] on. An error in a later one is reported (health, log, metrics) and
//! changes nothing.
//!
//! | file | content |
//! |---|---|
//! | `start` | starting an engine |
//! | `reload`, `watch` | reloading the policy, and watching its file |
//! | `overrides` | overrides made at run time |
//! | `state`, `state_file` | what survives a restart: the format, and the file |
//! | `observe`, `top` | counting of decisions, and the most refused keys |
//! | `pressure` | load shedding |
//! | `store` | health and metrics of the shared store |
//! | `wall_clock` | calendars follow the wall clock |
//! | `decide` | the engine as front ends call it |
//! | `health`, `collect` | health and metrics |
//!
//! Nothing here depends on HTTP.

mod collect;
mod decide;
mod health;
mod observe;
mod overrides;
mod pressure;
mod reload;
mod start;
mod state;
mod state_file;
mod store;
mod top;
mod wall_clock;
pub mod watch;

pub use decide::{Decide, EngineSource};
pub use health::{Health, HealthFault, PolicyHealth, StateHealth};
pub use overrides::{OVERRIDES_MAX, OverrideChanged, OverrideError, OverrideListed};
pub(crate) use pressure::step_every;
pub use pressure::{BackendTotals, Backends, PressureHealth, PressureReport};
pub use reload::{ReloadCause, ReloadError, Reloaded};
pub use start::{
    EngineSettings, OpenStore, Opens, PolicyOrigin, StartError, StateSettings, for_tests,
};
pub use state::StateError;
pub(crate) use state_file::write_every;
pub use store::{ServerHealth, StoreHealth, StoreWarning};
pub(crate) use store::{rebalance_every, sync_leases_every};
pub use top::TopKey;
pub(crate) use wall_clock::follow_wall_clock;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch as watch_channel;
use tollgate::{Clock, Moment, MonotonicClock};
use tollgate_config::{GatewaySpec, StoreSpec};
use tollgate_policy::{Policy, PolicyGate};
use tollgate_tower::admission::QueueSet;

use crate::metrics::{Collector, Handles, Metrics};

/// The gate as this server runs it.
pub type EngineGate = PolicyGate<MonotonicClock>;

/// An active policy. Replaced whole; a request ends with the one that it began with.
#[derive(Debug)]
pub struct ActivePolicy {
    /// Counts the policies since the start, from 1.
    pub version: u64,
    /// The policy and its state.
    pub gate: EngineGate,
    /// The queues, in the order of the policy. Unchanged queues are kept from policy to policy.
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

/// Validates a policy before it becomes active. The gateway implements it: its upstreams may need a certificate
/// file that is missing.
pub(crate) trait PolicyListener: fmt::Debug + Send + Sync {
    /// Does everything for the next policy that can fail, and changes nothing. The engine calls the returned value
    /// when that policy is active.
    ///
    /// # Errors
    /// The policy cannot be used. The active policy stays.
    fn prepare(&self, policy: &Policy, gateway: &GatewaySpec) -> Result<Commit, String>;
}

/// Completes the change to a prepared policy. Cannot fail.
pub(crate) type Commit = Box<dyn FnOnce() + Send>;

/// Everything that outlives a request.
#[derive(Debug)]
pub struct Engine {
    active: ArcSwap<ActivePolicy>,
    /// Notified when another policy becomes active.
    changed: watch_channel::Sender<()>,
    /// Validates policies before they become active.
    listener: OnceLock<Arc<dyn PolicyListener>>,
    /// Metrics of front ends.
    collectors: Mutex<Vec<Arc<dyn Collector>>>,
    /// The protocols that are served, as bits.
    served: AtomicU8,
    /// Logged refusals show method, path and client address.
    logs_requests: AtomicBool,
    clock: MonotonicClock,
    source: PolicyOrigin,
    /// The store of the first policy.
    spec: StoreSpec,
    /// Held during a change of the policy. No decision takes it.
    change: Mutex<reload::PolicyState>,
    /// The health of the policy; locked briefly, so that health never waits for a reload.
    policy_health: Mutex<PolicyHealth>,
    metrics: Metrics,
    last_walk: Mutex<collect::LastWalk>,
    refusals: observe::Refusals,
    /// The scale of all limits. Locked after `change`, never before it.
    pressure: Mutex<pressure::PressureState>,
    state_file: Option<state_file::StateFile>,
    /// The secret of the hash that replaces keys under `privacy: hashed`.
    secret: [u8; 32],
}

impl Engine {
    /// The active policy.
    pub fn active(&self) -> Guard<Arc<ActivePolicy>> {
        self.active.load()
    }

    /// The active policy, for use across an `await`. [`Engine::active`] is cheaper and not `Send`.
    pub fn active_owned(&self) -> Arc<ActivePolicy> {
        self.active.load_full()
    }

    /// Switches limiting off or on. The state is kept over restarts if there is a state file. Deny lists still
    /// apply. Returns whether limiting was off before.
    pub fn switch(&self, off: bool) -> bool {
        let was = {
            let _in_order = self.state();
            let active = self.active();
            let was = active.gate.is_switched_off();
            active.gate.switch_off(off);
            was
        };
        if was != off {
            self.persist();
        }
        was
    }

    /// Returns `true` if limiting is switched off.
    pub fn is_switched_off(&self) -> bool {
        self.active().gate.is_switched_off()
    }

    /// A receiver that is notified when another policy becomes active.
    pub fn changes(&self) -> watch_channel::Receiver<()> {
        self.changed.subscribe()
    }

    /// Registers the listener that validates policies, from the next one on. Later registrations are ignored.
    pub(crate) fn set_listener(&self, listener: Arc<dyn PolicyListener>) {
        let _ = self.listener.set(listener);
    }

    /// Registers a protocol that is served. The others have no series of their own.
    pub(crate) fn set_served(&self, protocol: Protocol) {
        self.served.fetch_or(1 << protocol as u8, Relaxed);
    }

    pub(crate) fn is_served(&self, protocol: Protocol) -> bool {
        self.served.load(Relaxed) & 1 << protocol as u8 != 0
    }

    /// Lets logged refusals show method, path and client address, unless the policy hides keys.
    pub(crate) fn log_requests(&self) {
        self.logs_requests.store(true, Relaxed);
    }

    /// Adds the metrics of a front end.
    pub(crate) fn add_collector(&self, collector: Arc<dyn Collector>) {
        locked(&self.collectors).push(collector);
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn state(&self) -> MutexGuard<'_, reload::PolicyState> {
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
