//! Health reports. They contain no keys and no limits, so reading them needs no token.

use serde::Serialize;
use tollgate::Moment;

use super::pressure::PressureHealth;
use super::store::StoreHealth;
use super::{Engine, locked, seconds};

/// The health of the server.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// `ok`, `degraded` or `unavailable`. A degraded server still decides. An unavailable one refuses or fails requests that
    /// another node may serve.
    pub status: &'static str,
    /// Whether limiting is `on` or `off`.
    pub limiting: &'static str,
    /// The scale of all limits. A lowered scale is not a fault.
    pub pressure: PressureHealth,
    /// The policy.
    pub policy: PolicyHealth,
    /// The state file, if there is one.
    pub state: Option<StateHealth>,
    /// The shared store, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreHealth>,
    /// Upstreams of a gateway whose servers are all down. Requests are still sent to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unavailable_upstreams: Vec<String>,
}

/// The health of the policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyHealth {
    /// Counts the policies since the start, from 1.
    pub version: u64,
    /// Its file or name.
    pub source: String,
    /// A hash of its text.
    pub content: String,
    /// When it became active, in seconds since 1970.
    pub loaded_at: u64,
    /// Number of warnings of its file.
    pub warnings: usize,
    /// The error of the policy file, if the file is not the active policy.
    pub last_error: Option<HealthFault>,
    /// Number of overrides made at run time that do not fit the active policy.
    pub overrides_unfit: usize,
}

/// A failure that lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthFault {
    /// A stable name for this kind of fault: `policy-missing`, `policy-unreadable`, `policy-invalid`,
    /// `policy-gateway`, `state-write`.
    pub code: &'static str,
    /// The fault in one line, without any text of the policy.
    pub message: String,
    /// When it began, in seconds since 1970.
    pub since: u64,
}

/// The health of the state file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StateHealth {
    /// When it was last written, in seconds since 1970.
    pub written_at: Option<u64>,
    /// Its size at that time.
    pub bytes: u64,
    /// The error of the last write, if it failed.
    pub last_error: Option<HealthFault>,
}

impl HealthFault {
    pub(super) fn new(code: &'static str, message: String, since: Moment) -> HealthFault {
        HealthFault {
            code,
            message,
            since: seconds(since),
        }
    }
}

impl Health {
    /// The status of a server that cannot serve requests: no upstream of the gateway is up, or the store is away and a limit
    /// says `on_store_error: deny`.
    pub const UNAVAILABLE: &'static str = "unavailable";
}

impl Engine {
    /// The health of the server.
    pub fn health(&self) -> Health {
        let policy = locked(&self.policy_health).clone();
        let state = self
            .state_file
            .as_ref()
            .map(|state_file| state_file.health());
        let state_fails = state.as_ref().is_some_and(|s| s.last_error.is_some());
        let store = self.store_health();
        let store_fails = store.as_ref().is_some_and(StoreHealth::is_degraded);
        let is_store_missing =
            self.needs_store() && store.as_ref().is_some_and(|store| store.status == "away");
        let (unavailable_upstreams, is_none_up) = self.unavailable_backends();
        let degraded = policy.last_error.is_some()
            || policy.overrides_unfit > 0
            || state_fails
            || store_fails
            || !unavailable_upstreams.is_empty();
        Health {
            status: match degraded {
                _ if is_store_missing || is_none_up => Health::UNAVAILABLE,
                true => "degraded",
                false => "ok",
            },
            limiting: if self.is_switched_off() { "off" } else { "on" },
            pressure: self.pressure_health(),
            policy,
            state,
            store,
            unavailable_upstreams,
        }
    }
}
