//! Starts an engine.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tollgate::MonotonicClock;
use tollgate_config::import::envoy_folder;
use tollgate_config::{Loaded, Problems, Severity, SharedSpec, StoreSpec};
use tollgate_policy::PriorState;
use tollgate_policy::shared::SharedStore;
use tollgate_tower::admission::QueueSet;

use super::health::PolicyHealth;
use super::observe::Refusals;
use super::overrides::{StoredOverride, resolve, unfit};
use super::reload::{self, PolicyState, ReloadError};
use super::state::{Flaw, State, StateError};
use super::state_file::{self, StateFile};
use super::{ActivePolicy, Engine, EngineGate, pressure, seconds};
use crate::metrics::Metrics;

/// Where the policy comes from.
#[derive(Clone, Debug)]
pub enum PolicyOrigin {
    /// A text that does not change.
    Text {
        /// Its name in reports.
        name: String,
        /// The policy.
        text: String,
    },
    /// A file, which is read again when it changes.
    File(PathBuf),
    /// Files of Envoy's rate limit service, which are read again when they change.
    Envoy {
        /// The folder that they are in.
        folder: PathBuf,
        /// The address of the shared store, as in `store` of a policy.
        store: Option<String>,
    },
}

/// The text of a policy.
pub(super) struct ReadPolicy {
    pub(super) text: Vec<u8>,
    /// Notes of the import of another limiter's files.
    pub(super) notes: Vec<Problems>,
}

impl PolicyOrigin {
    /// The built-in example policy.
    pub fn built_in() -> PolicyOrigin {
        PolicyOrigin::Text {
            name: "built-in example".into(),
            text: tollgate_config::EXAMPLE.into(),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            PolicyOrigin::Text { name, .. } => name.clone(),
            PolicyOrigin::File(path) | PolicyOrigin::Envoy { folder: path, .. } => {
                path.display().to_string()
            }
        }
    }

    /// Reads the policy.
    pub(super) fn read(&self) -> Result<ReadPolicy, ReloadError> {
        let plain = |text| ReadPolicy {
            text,
            notes: Vec::new(),
        };
        match self {
            PolicyOrigin::Text { text, .. } => Ok(plain(text.clone().into_bytes())),
            PolicyOrigin::File(path) => reload::read(path).map(plain),
            PolicyOrigin::Envoy { folder, store } => {
                let converted = envoy_folder(folder).map_err(ReloadError::Envoy)?;
                let mut text = converted.policy;
                if let Some(address) = store {
                    let address = address.replace('\'', "''");
                    text.push_str(&format!("\nstore: '{address}'\non_store_error: local\n"));
                }
                Ok(ReadPolicy {
                    text: text.into_bytes(),
                    notes: converted.notes,
                })
            }
        }
    }
}

/// Logs the problems of a policy, at the level of the worst.
pub(super) fn log_problems(problems: &Problems) {
    if problems.count(Severity::Warning) > 0 {
        tracing::warn!(target: "tollgate_policy", "{problems}");
    } else if !problems.is_empty() {
        tracing::info!(target: "tollgate_policy", "{problems}");
    }
}

/// Logs the limits that start without usage, and why.
pub(super) fn log_restarted(gate: &EngineGate) {
    let names: Vec<&str> = gate.restarted().collect();
    if !names.is_empty() {
        tracing::warn!(
            target: "tollgate_policy", limits = names.join(", "),
            "limits restarted with no usage because their algorithm or calendar changed"
        );
    }
}

/// Where state is kept.
#[derive(Clone, Debug)]
pub struct StateSettings {
    /// The file.
    pub path: PathBuf,
    /// Interval of writes. A crash loses at most this much.
    pub every: Duration,
}

impl StateSettings {
    /// State in this file, written every five seconds.
    pub fn at(path: impl Into<PathBuf>) -> StateSettings {
        StateSettings {
            path: path.into(),
            every: Duration::from_secs(5),
        }
    }
}

/// What an engine needs to start.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Where the policy comes from.
    pub source: PolicyOrigin,
    /// Where state is kept. Without it, a restart begins without usage.
    pub state: Option<StateSettings>,
    /// Opens the shared store, if a policy may name one.
    pub open_store: Option<OpenStore>,
}

/// Opens a shared store, without waiting for a connection. The binary provides it, so that this crate does not depend on a
/// Redis client.
#[derive(Clone)]
pub struct OpenStore(pub Arc<Opens>);

/// The function that opens a store. It fails for invalid settings, not for a store that does not respond.
pub type Opens = dyn Fn(&SharedSpec) -> Result<Arc<dyn SharedStore>, String> + Send + Sync;

impl fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenStore")
    }
}

/// Why an engine does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The policy cannot be read, or is wrong.
    Policy(ReloadError),
    /// The state file cannot be used.
    State(StateError),
    /// The store that the policy names cannot be used.
    Store(String),
    /// The operating system gives no random numbers.
    NoRandom(getrandom::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(ReloadError::Missing { path }) => write!(
                f,
                "the policy file `{}` does not exist\nhint: name an existing file, or none to use the built-in example",
                path.display()
            ),
            Self::Policy(error) => error.fmt(f),
            Self::State(error) => error.fmt(f),
            Self::Store(error) => f.write_str(error),
            Self::NoRandom(error) => write!(
                f,
                "the operating system gives no random numbers: {error}\nhint: allow `getrandom` in the sandbox"
            ),
        }
    }
}

impl std::error::Error for StartError {}

impl From<ReloadError> for StartError {
    fn from(error: ReloadError) -> StartError {
        StartError::Policy(error)
    }
}

impl From<StateError> for StartError {
    fn from(error: StateError) -> StartError {
        StartError::State(error)
    }
}

impl Engine {
    /// Reads the policy and the state, and activates both. Reads files, so it must not run on a thread that serves
    /// requests.
    ///
    /// # Errors
    /// The policy or the state is invalid or cannot be read.
    pub fn start(settings: EngineSettings) -> Result<Arc<Engine>, StartError> {
        let EngineSettings {
            source,
            state,
            open_store,
        } = settings;
        let clock = MonotonicClock::with_unix_time();
        let now = tollgate::Clock::now(&clock);
        let ReadPolicy { text, notes } = source.read()?;
        let content = blake3::hash(&text);
        let loaded = tollgate_config::parse(&source.name(), &text).map_err(ReloadError::Invalid)?;
        let Loaded {
            policy,
            warnings,
            store: spec,
            gateway,
            ..
        } = loaded;
        let queues = QueueSet::new(&policy.queues, None).map_err(ReloadError::Queue)?;
        let store = opened(&spec, open_store.as_ref())?;
        let sharing = |prior: PriorState| match &store {
            Some(store) => prior.with_store(Arc::clone(store)),
            None => prior,
        };
        let lock = state
            .as_ref()
            .map(|state| state_file::take(&state.path))
            .transpose()?;
        let restored = match &state {
            Some(state) => {
                state_file::load(&state.path)?.map(|found| (found, state.path.as_path()))
            }
            None => None,
        };
        let mut overrides = Vec::new();
        let (gate, secret) = match restored {
            None => {
                let nothing = sharing(PriorState::new());
                let gate = EngineGate::with_prior(policy, Vec::new(), clock.clone(), nothing)
                    .map_err(ReloadError::Refused)?;
                (gate, random()?)
            }
            Some((found, path)) => {
                let State {
                    written,
                    changed,
                    counted,
                } = found;
                if written > now {
                    tracing::warn!(
                        target: "tollgate::state", path = %path.display(),
                        "state file was written in the future; the system clock was set back"
                    );
                }
                overrides.extend(changed.overrides.into_iter().map(StoredOverride::restored));
                let live = resolve(&policy, &mut overrides, now);
                let prior = PriorState::from_saved(&counted).map_err(|cause| {
                    StateError::flawed(path, &Flaw::Contents(cause.to_string()))
                })?;
                let gate = EngineGate::with_prior(policy, live, clock.clone(), sharing(prior))
                    .map_err(ReloadError::Refused)?;
                gate.switch_off(changed.switched_off);
                if changed.switched_off {
                    tracing::warn!(
                        target: "tollgate::state", path = %path.display(),
                        "limiting is switched off, as it was when the state was written; \
                         POST /switch {{\"limiting\":\"on\"}} on the admin port switches it on"
                    );
                }
                (gate, changed.secret)
            }
        };
        log_problems(&warnings);
        notes.iter().for_each(log_problems);
        log_restarted(&gate);
        let health = initial_health(&source, content, seconds(now), &warnings, unfit(&overrides));
        let metrics = Metrics::default();
        let names: Vec<Arc<str>> = gate.rules().map(|rule| Arc::clone(&rule.name)).collect();
        let handles = metrics.handles(names.iter(), gate.policy());
        let under_pressure = pressure::PressureState::new(gate.pressure_rule().into_owned());
        let active = ActivePolicy {
            version: 1,
            gate,
            queues: Arc::new(queues),
            gateway: Arc::new(gateway),
            handles,
        };
        Ok(Arc::new(Engine {
            active: ArcSwap::from_pointee(active),
            changed: watch::Sender::new(()),
            listener: OnceLock::new(),
            collectors: Mutex::default(),
            served: AtomicU8::new(0),
            logs_requests: AtomicBool::new(false),
            clock,
            source,
            spec,
            change: Mutex::new(PolicyState {
                content,
                logged: None,
                overrides,
            }),
            policy_health: Mutex::new(health),
            metrics,
            last_walk: Mutex::default(),
            refusals: Refusals::new(),
            pressure: Mutex::new(under_pressure),
            state_file: state
                .zip(lock)
                .map(|(state, lock)| StateFile::new(state.path, state.every, lock)),
            secret,
        }))
    }
}

/// Opens the store of a policy, if it has one.
fn opened(
    spec: &StoreSpec,
    open: Option<&OpenStore>,
) -> Result<Option<Arc<dyn SharedStore>>, StartError> {
    let StoreSpec::Shared(spec) = spec else {
        return Ok(None);
    };
    match open {
        Some(OpenStore(open)) => open(spec).map(Some).map_err(StartError::Store),
        None => Err(StartError::Store(
            "the policy names a shared store, which this program does not support\nhint: write `store: memory`"
                .into(),
        )),
    }
}

fn initial_health(
    source: &PolicyOrigin,
    content: blake3::Hash,
    loaded_at: u64,
    warnings: &Problems,
    overrides_unfit: usize,
) -> PolicyHealth {
    PolicyHealth {
        version: 1,
        source: source.name(),
        content: content.to_hex().to_string(),
        loaded_at,
        warnings: warnings.count(Severity::Warning),
        last_error: None,
        overrides_unfit,
    }
}

fn random() -> Result<[u8; 32], StartError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(StartError::NoRandom)?;
    Ok(secret)
}

/// An engine for tests with this policy and without a state file.
///
/// # Panics
/// If the policy is invalid.
#[doc(hidden)]
#[expect(
    clippy::panic,
    reason = "for tests: an invalid policy is an error of the test"
)]
pub fn for_tests(policy: &str) -> Arc<Engine> {
    let settings = EngineSettings {
        source: PolicyOrigin::Text {
            name: "test".into(),
            text: policy.into(),
        },
        state: None,
        open_store: None,
    };
    match Engine::start(settings) {
        Ok(engine) => engine,
        Err(error) => panic!("{error}"),
    }
}
