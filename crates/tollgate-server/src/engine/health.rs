//! How it goes, told to whoever asks. No keys, no limits: nobody needs a token to read it.

use serde::Serialize;
use tollgate::Moment;

use super::pressure::PressureHealth;
use super::store::StoreHealth;
use super::{Engine, locked, seconds};

/// How it goes.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// `ok` or `degraded`. A degraded server decides all the same.
    pub status: &'static str,
    /// Is limiting `on` or `off`?
    pub limiting: &'static str,
    /// Is there less for everybody? Not a fault: it decides as it should.
    pub pressure: PressureHealth,
    /// The policy.
    pub policy: PolicyHealth,
    /// The state file, if there is one.
    pub state: Option<StateHealth>,
    /// The store that a fleet shares, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreHealth>,
    /// Upstreams of a gateway whose servers are all down. Requests are still sent to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unavailable_upstreams: Vec<String>,
}

/// How it goes with the policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyHealth {
    /// Counts the policies since the start, from 1.
    pub version: u64,
    /// Where it comes from.
    pub source: String,
    /// A hash of its text.
    pub content: String,
    /// Since when it is in force, in seconds since 1970.
    pub loaded_at: u64,
    /// How many things in it are probably not meant.
    pub warnings: usize,
    /// What is wrong with what is there now, if it is not what is in force.
    pub last_error: Option<HealthFault>,
    /// Overrides that were made while running and do not fit the policy in force.
    pub overrides_unfit: usize,
}

/// Something that failed and has not worked since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthFault {
    /// A stable name for this kind of fault: `policy-missing`, `policy-unreadable`, `policy-invalid`,
    /// `policy-gateway`, `state-write`.
    pub code: &'static str,
    /// What is wrong, in one line. It quotes nothing of the policy.
    pub message: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

/// How it goes with the state file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StateHealth {
    /// When it was last written, in seconds since 1970.
    pub written_at: Option<u64>,
    /// How large it then was.
    pub bytes: u64,
    /// Why it could not be written, if the last try failed.
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

impl Engine {
    /// How it goes.
    pub fn health(&self) -> Health {
        let policy = locked(&self.policy_health).clone();
        let state = self
            .state_file
            .as_ref()
            .map(|state_file| state_file.health());
        let state_fails = state.as_ref().is_some_and(|s| s.last_error.is_some());
        let store = self.store_health();
        let store_fails = store.as_ref().is_some_and(StoreHealth::is_degraded);
        let unavailable_upstreams = self.unavailable_backends();
        let degraded = policy.last_error.is_some()
            || policy.overrides_unfit > 0
            || state_fails
            || store_fails
            || !unavailable_upstreams.is_empty();
        Health {
            status: if degraded { "degraded" } else { "ok" },
            limiting: if self.is_switched_off() { "off" } else { "on" },
            pressure: self.pressure_health(),
            policy,
            state,
            store,
            unavailable_upstreams,
        }
    }
}
