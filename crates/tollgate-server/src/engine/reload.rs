//! Reloads the policy.
//!
//! # Theory
//!
//! A reload reads and hashes the file, and stops if that is the active policy. Otherwise it parses and validates it, builds its
//! gate beside the active one (unchanged limits keep their counts), and swaps. Each step can fail, and none before the
//! last changes anything.
//!
//! The file is checked every few seconds. An error is logged once, and again when the content changes.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_config::import::ReadError;
use tollgate_config::{GatewaySpec, Loaded, Problems, Severity};
use tollgate_policy::{Policy, PolicyError, Privacy};
use tollgate_tower::admission::QueueError;
use tollgate_tower::admission::QueueSet;

use super::health::HealthFault;
use super::overrides::{StoredOverride, resolve, unfit};
use super::start::{PolicyOrigin, ReadPolicy, log_problems, log_restarted};
use super::{ActivePolicy, Commit, Engine, EngineGate, locked, seconds};

/// The cause of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadCause {
    /// The file changed, or may have.
    Watch,
    /// A signal.
    Signal,
    /// An operator at this address.
    Admin(IpAddr),
}

impl fmt::Display for ReloadCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadCause::Watch => f.write_str("watch"),
            ReloadCause::Signal => f.write_str("signal"),
            ReloadCause::Admin(peer) => write!(f, "{peer}"),
        }
    }
}

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// The file is the active policy.
    Unchanged {
        /// The active version.
        version: u64,
    },
    /// Another policy is active.
    Changed {
        /// Its version.
        version: u64,
        /// What is probably not meant in it, as text; empty if there is nothing.
        warnings: String,
    },
}

/// Why the active policy stays.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReloadError {
    /// There is no file.
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// It is no policy.
    Invalid(Problems),
    /// The files of Envoy's rate limit service are no policy.
    Envoy(ReadError),
    /// The policy is valid, but cannot become active.
    Refused(PolicyError),
    /// A queue of it is invalid.
    Queue(QueueError),
    /// The gateway cannot use it.
    Gateway(String),
    /// It names another store than the one in use.
    OtherStore,
}

impl ReloadError {
    /// A stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "policy-missing",
            Self::Unreadable { .. } => "policy-unreadable",
            Self::Envoy(ReadError::Unreadable { .. }) => "policy-unreadable",
            Self::Envoy(ReadError::Empty { .. }) => "policy-missing",
            Self::Invalid(_) | Self::Envoy(_) | Self::Refused(_) | Self::Queue(_) => {
                "policy-invalid"
            }
            Self::Gateway(_) => "policy-gateway",
            Self::OtherStore => "policy-other-store",
        }
    }

    /// One line without any text of the policy, for health reports, which need no token.
    pub(super) fn summary(&self) -> String {
        match self {
            Self::Missing { .. } => "the policy file does not exist".into(),
            Self::Unreadable { cause, .. } => {
                format!("the policy file cannot be read: {}", cause.kind())
            }
            Self::Invalid(problems) => {
                let errors = problems.iter().filter(|p| p.severity == Severity::Error);
                let first = errors
                    .map(|p| format!("{} in line {}", p.code, p.line))
                    .next();
                let first = first.unwrap_or_default();
                format!("the policy file has {} ({first})", problems.summary())
            }
            Self::Envoy(_) => "the files of Envoy's rate limit service are invalid".into(),
            Self::Refused(_) | Self::Queue(_) => "the policy cannot become active".into(),
            Self::Gateway(_) => "the gateway cannot use the policy".into(),
            Self::OtherStore => "the policy has another store, which needs a restart".into(),
        }
    }
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path } => write!(
                f,
                "the policy file `{}` does not exist\nhint: restore it; the last valid policy stays active",
                path.display()
            ),
            Self::Unreadable { path, cause } => write!(
                f,
                "the policy file `{}` cannot be read: {cause}\nhint: grant this process read permission",
                path.display()
            ),
            Self::Invalid(problems) => problems.fmt(f),
            Self::Envoy(error) => error.fmt(f),
            Self::Refused(cause) => write!(
                f,
                "the policy cannot become active: {cause}\nhint: lower the numbers of that limit, or `max_keys` if memory is short"
            ),
            Self::Queue(cause) => write!(
                f,
                "{cause}\nhint: see `queues` in the policy"
            ),
            Self::Gateway(why) => write!(f, "the gateway cannot use the policy: {why}"),
            Self::OtherStore => f.write_str(
                "the policy has another `store` than the one in use: another address, or another setting of it\nhint: restore `store`, or restart; usage does not move from one store to another",
            ),
        }
    }
}

impl std::error::Error for ReloadError {}

/// State that changes together with the active policy.
#[derive(Debug)]
pub(super) struct PolicyState {
    /// The hash of the policy text.
    pub(super) content: blake3::Hash,
    /// The hash of the last text whose error was logged.
    pub(super) logged: Option<blake3::Hash>,
    pub(super) overrides: Vec<StoredOverride>,
}

/// What becomes active together.
pub(super) struct NextPolicy {
    pub(super) gate: EngineGate,
    pub(super) queues: Arc<QueueSet>,
    pub(super) gateway: Arc<GatewaySpec>,
}

/// Reads at most the maximum size of a policy and one byte, so that a larger file is refused.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ReloadError> {
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::NotFound => ReloadError::Missing { path: path.into() },
        _ => ReloadError::Unreadable {
            path: path.into(),
            cause,
        },
    };
    // Checked before the file is opened: opening a pipe blocks until another process writes to it.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(tollgate_config::FILE_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

impl Engine {
    /// Reads the policy and activates it if it changed. After an error the active policy stays. Decisions continue
    /// meanwhile. Reads files, so it must not run on a thread that serves requests.
    ///
    /// # Errors
    /// The policy cannot be read or is invalid.
    pub fn reload(&self, cause: ReloadCause) -> Result<Reloaded, ReloadError> {
        if let PolicyOrigin::Text { .. } = &self.source {
            let version = self.active().version;
            return Ok(Reloaded::Unchanged { version });
        }
        let mut state = self.state();
        let ReadPolicy { text, notes } = match self.source.read() {
            Ok(read) => read,
            Err(error) => {
                let seen = blake3::hash(error.code().as_bytes());
                return Err(self.failed(&mut state, seen, cause, error));
            }
        };
        let content = blake3::hash(&text);
        if content == state.content {
            self.clear_error(&mut state);
            let version = self.active().version;
            if cause != ReloadCause::Watch {
                tracing::info!(target: "tollgate_policy", reason = %cause, version, "policy file unchanged");
            }
            return Ok(Reloaded::Unchanged { version });
        }
        notes.iter().for_each(log_problems);
        let next = tollgate_config::parse(&self.source.name(), &text)
            .map_err(ReloadError::Invalid)
            .and_then(|loaded| self.prepare(loaded, &mut state));
        match next {
            Ok((next, commit, warnings)) => {
                let reloaded = self.activate(&mut state, next, &warnings, content, cause);
                if let Some(commit) = commit {
                    commit();
                }
                Ok(reloaded)
            }
            Err(error) => Err(self.failed(&mut state, content, cause, error)),
        }
    }

    /// Builds the gate. The overrides in `state` are parsed again for the new rules.
    fn prepare(
        &self,
        loaded: Loaded,
        state: &mut PolicyState,
    ) -> Result<(NextPolicy, Option<Commit>, Problems), ReloadError> {
        let Loaded {
            policy,
            warnings,
            store,
            gateway,
            ..
        } = loaded;
        if store != self.spec {
            return Err(ReloadError::OtherStore);
        }
        let mut overrides = state.overrides.clone();
        let live = resolve(&policy, &mut overrides, self.now());
        let active = self.active();
        let queues = QueueSet::new(&policy.queues, Some(&active.queues));
        let queues = Arc::new(queues.map_err(ReloadError::Queue)?);
        let listener = self.listener.get();
        let commit = listener.map(|listener| listener.prepare(&policy, &gateway));
        let commit = commit.transpose().map_err(ReloadError::Gateway)?;
        // Last, because limits that stay use their new numbers from here on.
        let gate = active.gate.reload(policy, live);
        let gate = gate.map_err(ReloadError::Refused)?;
        state.overrides = overrides;
        let gateway = Arc::new(gateway);
        let next = NextPolicy {
            gate,
            queues,
            gateway,
        };
        Ok((next, commit, warnings))
    }

    fn activate(
        &self,
        state: &mut PolicyState,
        next: NextPolicy,
        warnings: &Problems,
        content: blake3::Hash,
        cause: ReloadCause,
    ) -> Reloaded {
        let old = std::mem::replace(&mut state.content, content);
        state.logged = None;
        let version = self.active().version + 1;
        let hide = next.gate.policy().privacy == Privacy::Hashed;
        // Nothing can fail any more.
        next.queues.apply();
        log_restarted(&next.gate);
        self.swap(version, next);
        if hide {
            self.refusals.clear();
        }
        let unfit = unfit(&state.overrides);
        {
            let mut health = locked(&self.policy_health);
            health.version = version;
            health.content = content.to_hex().to_string();
            health.loaded_at = seconds(self.now());
            health.warnings = warnings.count(Severity::Warning);
            health.last_error = None;
            health.overrides_unfit = unfit;
        }
        tracing::info!(
            target: "tollgate::audit", actor = %cause, action = "reload",
            old = %old.to_hex(), new = %content.to_hex(), version, "policy reloaded"
        );
        log_problems(warnings);
        let warnings = match warnings.is_empty() {
            true => String::new(),
            false => warnings.to_string(),
        };
        if unfit > 0 {
            tracing::warn!(
                target: "tollgate_policy", unfit,
                "overrides do not fit the policy and have no effect"
            );
        }
        Reloaded::Changed { version, warnings }
    }

    /// Activates a gate.
    pub(super) fn swap(&self, version: u64, next: NextPolicy) {
        let NextPolicy {
            gate,
            queues,
            gateway,
        } = next;
        let names: Vec<Arc<str>> = gate.rules().map(|rule| Arc::clone(&rule.name)).collect();
        let handles = self.metrics.handles(names.iter(), gate.policy());
        self.active.store(Arc::new(ActivePolicy {
            version,
            gate,
            queues,
            gateway,
            handles,
        }));
        self.changed.send_replace(());
    }

    fn failed(
        &self,
        state: &mut PolicyState,
        seen: blake3::Hash,
        cause: ReloadCause,
        error: ReloadError,
    ) -> ReloadError {
        {
            let mut health = locked(&self.policy_health);
            let since = match &health.last_error {
                Some(before) if before.code == error.code() => before.since,
                _ => seconds(self.now()),
            };
            health.last_error = Some(HealthFault {
                code: error.code(),
                message: error.summary(),
                since,
            });
        }
        // The file watcher finds the same file every two seconds. Other causes expect a log line each time.
        if state.logged.replace(seen) != Some(seen) || cause != ReloadCause::Watch {
            tracing::error!(
                target: "tollgate_policy", reason = %cause, code = error.code(), content = %seen.to_hex(),
                "policy not reloaded, the last valid one stays active: {error}"
            );
        }
        error
    }

    /// The file is the active policy. An earlier error no longer applies.
    fn clear_error(&self, state: &mut PolicyState) {
        state.logged = None;
        if locked(&self.policy_health).last_error.take().is_some() {
            tracing::info!(
                target: "tollgate_policy",
                "policy file is the active policy again"
            );
        }
    }
}

/// The rules of a policy, that of its default among them.
pub(super) fn rules(policy: &Policy) -> impl Iterator<Item = &tollgate_policy::LimitRule> {
    let default = match &policy.default {
        tollgate_policy::DefaultAction::Limit(rule) => Some(&**rule),
        _ => None,
    };
    policy.limits.iter().chain(default)
}
