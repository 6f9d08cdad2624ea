//! Overrides made at run time.
//!
//! # Theory
//!
//! An override is stored as it was sent and parsed again for every active policy: a part of it ("100/s") has a meaning
//! only with its limit. An override that does not fit (its limit was removed, or has another key) has no effect, but is kept for a
//! policy that it fits.
//!
//! # Invariant
//!
//! There are at most [`OVERRIDES_MAX`], and at most one for each limit and key.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use tollgate::Moment;
use tollgate_config::{Problems, override_from};
use tollgate_policy::{LimitRule, Override, Policy, PolicyError, RuntimeOverride};

use super::reload::{NextPolicy, PolicyState, rules};
use super::state::SavedOverride;
use super::{Engine, locked, seconds};

/// Maximum number of overrides made at run time.
pub const OVERRIDES_MAX: usize = 10_000;
/// Maximum size of an override as JSON.
const BODY_MAX: usize = 4096;

/// A stored override.
#[derive(Clone, Debug)]
pub(super) struct StoredOverride {
    limit: Arc<str>,
    /// The key as the limit counts it.
    key: Vec<String>,
    /// The JSON object that was sent.
    body: String,
    expires: Option<Moment>,
    made: Moment,
    /// Why it has no effect.
    problem: Option<String>,
}

/// A listed override.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverrideListed {
    /// The limit.
    pub limit: Arc<str>,
    /// The key, part by part.
    pub key: Vec<String>,
    /// The change, without the key.
    pub change: Map<String, Value>,
    /// When it was made, in seconds since 1970.
    pub made_at: u64,
    /// It has effect.
    pub active: bool,
    /// Why it has no effect.
    pub problem: Option<String>,
}

/// The result of setting or removing an override.
#[derive(Clone, Debug, PartialEq)]
pub struct OverrideChanged {
    /// The key, as it is counted.
    pub key: Vec<String>,
    /// The previous override of the key.
    pub old: Option<Map<String, Value>>,
    /// It survives a restart.
    pub persisted: bool,
}

/// An error of setting or removing an override.
#[derive(Debug)]
#[non_exhaustive]
pub enum OverrideError {
    /// There is no such limit.
    NoSuchLimit {
        /// The name in the request.
        name: String,
        /// A similar name of the policy.
        near: Option<String>,
    },
    /// It is invalid.
    Invalid(Problems),
    /// It exceeds the maximum size.
    TooLong,
    /// `expires` lies in the past.
    Over,
    /// The maximum number is reached.
    Full,
    /// The key has no override.
    NotFound,
    /// The policy with it cannot become active.
    Refused(PolicyError),
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchLimit { name, near } => {
                write!(f, "there is no limit `{}`", name.escape_debug())?;
                match near {
                    Some(near) => write!(f, "; did you mean `{near}`?"),
                    None => write!(f, "; `GET /policy` lists the limits"),
                }
            }
            Self::Invalid(problems) => problems.fmt(f),
            Self::TooLong => write!(f, "an override has at most {BODY_MAX} bytes as JSON"),
            Self::Over => f.write_str("`expires` lies in the past"),
            Self::Full => write!(
                f,
                "the maximum of {OVERRIDES_MAX} overrides is reached; remove some, or write them into the policy as tiers"
            ),
            Self::NotFound => f.write_str("this key has no override made at run time"),
            Self::Refused(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for OverrideError {}

impl StoredOverride {
    pub(super) fn saved(&self) -> SavedOverride {
        SavedOverride {
            limit: self.limit.to_string(),
            key: self.key.clone(),
            body: self.body.clone(),
            expires: self.expires.map(Moment::as_nanos),
            made: self.made.as_nanos(),
        }
    }

    pub(super) fn restored(saved: SavedOverride) -> StoredOverride {
        StoredOverride {
            limit: Arc::from(saved.limit),
            key: saved.key,
            body: saved.body,
            expires: saved.expires.map(Moment::from_nanos),
            made: Moment::from_nanos(saved.made),
            problem: None,
        }
    }

    fn change(&self) -> Map<String, Value> {
        let mut change: Map<String, Value> = serde_json::from_str(&self.body).unwrap_or_default();
        change.remove("key");
        change
    }
}

/// Parses every override again for the rules of this policy. Returns those that fit and drops those that have expired.
pub(super) fn resolve(
    policy: &Policy,
    stored: &mut Vec<StoredOverride>,
    now: Moment,
) -> Vec<RuntimeOverride> {
    let by_name: HashMap<&str, &LimitRule> = rules(policy).map(|r| (&*r.name, r)).collect();
    stored.retain(|over| over.expires.is_none_or(|end| now < end));
    let mut live = Vec::new();
    for over in stored {
        let Some(rule) = by_name.get(&*over.limit) else {
            over.problem = Some("the policy has no such limit".into());
            continue;
        };
        match override_from(rule, over.body.as_bytes()) {
            Ok(change) => {
                over.problem = None;
                over.key = change.key.clone();
                over.expires = change.expires;
                let limit = Arc::clone(&over.limit);
                live.push(RuntimeOverride { limit, change });
            }
            Err(problems) => over.problem = Some(problems.to_string()),
        }
    }
    live
}

/// Number of overrides without effect.
pub(super) fn unfit(stored: &[StoredOverride]) -> usize {
    stored.iter().filter(|over| over.problem.is_some()).count()
}

/// An override in the form of the policy file.
fn body_of(key: &[String], change: &Map<String, Value>) -> String {
    let mut body = change.clone();
    let key = match key {
        [one] => Value::from(one.as_str()),
        parts => Value::from(parts),
    };
    body.insert("key".into(), key);
    Value::Object(body).to_string()
}

impl Engine {
    /// Sets the override of a key, in place of an earlier one. `change` has the form of the policy:
    /// `{"allow": "100/s"}`, `{"unlimited": true}`, `{"blocked": true}`, with an optional `expires`. It applies when
    /// this returns.
    ///
    /// # Errors
    /// The limit is unknown or the override is invalid. Nothing has changed.
    pub fn set_override(
        &self,
        limit: &str,
        key: &[String],
        change: &Map<String, Value>,
    ) -> Result<OverrideChanged, OverrideError> {
        let body = body_of(key, change);
        if body.len() > BODY_MAX {
            return Err(OverrideError::TooLong);
        }
        let (key, old) = {
            let mut state = self.state();
            let active = self.active();
            let policy = active.gate.policy();
            let rule = rule_of(policy, limit)?;
            let read = override_from(rule, body.as_bytes()).map_err(OverrideError::Invalid)?;
            if read.expires.is_some_and(|end| end <= self.now()) {
                return Err(OverrideError::Over);
            }
            let mut overrides = state.overrides.clone();
            let at = place_of(&overrides, limit, &read.key);
            let old = at.map(|at| overrides.remove(at).change());
            overrides.push(StoredOverride {
                limit: Arc::clone(&rule.name),
                key: read.key.clone(),
                body,
                expires: read.expires,
                made: self.now(),
                problem: None,
            });
            self.put_overrides(&mut state, policy, overrides)?;
            (read.key, old)
        };
        let persisted = self.persist();
        Ok(OverrideChanged {
            key,
            old,
            persisted,
        })
    }

    /// Removes an override. The usage of the key is kept.
    ///
    /// # Errors
    /// The key has no override.
    pub fn remove_override(
        &self,
        limit: &str,
        key: &[String],
    ) -> Result<OverrideChanged, OverrideError> {
        let (key, old) = {
            let mut state = self.state();
            let active = self.active();
            let policy = active.gate.policy();
            let mut overrides = state.overrides.clone();
            // In the normalised form if the limit exists, as sent otherwise.
            let counted = rule_of(policy, limit)
                .ok()
                .and_then(|rule| as_counted(rule, key));
            let at = counted
                .and_then(|read| place_of(&overrides, limit, &read.key))
                .or_else(|| place_of(&overrides, limit, key));
            let removed = overrides.remove(at.ok_or(OverrideError::NotFound)?);
            self.put_overrides(&mut state, policy, overrides)?;
            let old = removed.change();
            (removed.key, Some(old))
        };
        let persisted = self.persist();
        Ok(OverrideChanged {
            key,
            old,
            persisted,
        })
    }

    /// The overrides made at run time that have not expired.
    pub fn overrides(&self) -> Vec<OverrideListed> {
        let now = self.now();
        let state = self.state();
        let live = |over: &&StoredOverride| over.expires.is_none_or(|end| now < end);
        let listed = state
            .overrides
            .iter()
            .filter(live)
            .map(|over| OverrideListed {
                limit: Arc::clone(&over.limit),
                key: over.key.clone(),
                change: over.change(),
                made_at: seconds(over.made),
                active: over.problem.is_none(),
                problem: over.problem.clone(),
            });
        listed.collect()
    }

    /// A key as logs show it under the active policy.
    pub fn log_key(&self, key: &[String]) -> Vec<String> {
        let privacy = self.active().gate.policy().privacy;
        self.printable_key(key.to_vec(), privacy)
    }

    fn put_overrides(
        &self,
        state: &mut PolicyState,
        policy: &Policy,
        mut overrides: Vec<StoredOverride>,
    ) -> Result<(), OverrideError> {
        let live = resolve(policy, &mut overrides, self.now());
        if overrides.len() > OVERRIDES_MAX {
            return Err(OverrideError::Full);
        }
        let active = self.active();
        let gate = active.gate.with_overrides(live);
        let gate = gate.map_err(OverrideError::Refused)?;
        let next = NextPolicy {
            gate,
            queues: Arc::clone(&active.queues),
            gateway: Arc::clone(&active.gateway),
        };
        self.swap(active.version, next);
        locked(&self.policy_health).overrides_unfit = unfit(&overrides);
        state.overrides = overrides;
        Ok(())
    }
}

fn rule_of<'p>(policy: &'p Policy, name: &str) -> Result<&'p LimitRule, OverrideError> {
    rules(policy)
        .find(|rule| *rule.name == *name)
        .ok_or_else(|| {
            let names = rules(policy).map(|rule| &*rule.name);
            OverrideError::NoSuchLimit {
                name: name.chars().take(64).collect(),
                near: tollgate_config::suggest::suggest(name, names).map(str::to_owned),
            }
        })
}

fn place_of(overrides: &[StoredOverride], limit: &str, key: &[String]) -> Option<usize> {
    let this = |over: &StoredOverride| *over.limit == *limit && over.key == key;
    overrides.iter().position(this)
}

/// The key as the limit counts it: read as if it were blocked.
fn as_counted(rule: &LimitRule, key: &[String]) -> Option<Override> {
    let mut change = Map::new();
    change.insert("blocked".into(), true.into());
    override_from(rule, body_of(key, &change).as_bytes()).ok()
}
