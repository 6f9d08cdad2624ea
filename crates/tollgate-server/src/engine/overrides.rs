//! Overrides made at run time.
//!
//! # Theory
//!
//! An override is stored as it was sent and parsed again for every active policy: a part of it ("100/s") has a meaning
//! only with its limit. An override that does not fit (its limit is gone, or has another key) has no effect, but is kept for a
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

/// Most overrides besides those of the policy.
pub const OVERRIDES_MAX: usize = 10_000;
/// Largest override as JSON.
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
    pub in_force: bool,
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
        /// What was asked for.
        name: String,
        /// What it may have meant.
        near: Option<String>,
    },
    /// It is invalid.
    Invalid(Problems),
    /// It is longer than one can be.
    TooLong,
    /// `expires` lies in the past.
    Over,
    /// There are as many as allowed.
    Full,
    /// There is none for this key.
    NotThere,
    /// It cannot be put in force.
    Refused(PolicyError),
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchLimit { name, near } => {
                write!(f, "there is no limit `{}`", name.escape_debug())?;
                match near {
                    Some(near) => write!(f, "; did you mean `{near}`?"),
                    None => write!(f, "; see `GET /policy` for those that there are"),
                }
            }
            Self::Invalid(problems) => problems.fmt(f),
            Self::TooLong => write!(f, "an override has at most {BODY_MAX} bytes as JSON"),
            Self::Over => f.write_str("`expires` lies in the past"),
            Self::Full => write!(
                f,
                "there are {OVERRIDES_MAX} overrides already; remove some, or write them into the policy as tiers"
            ),
            Self::NotThere => f.write_str("there is no override for this key, made while running"),
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

/// Reads every override anew for the rules of this policy; those that fit are returned, those that have
/// expired are dropped.
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

/// How many are not in force.
pub(super) fn unfit(stored: &[StoredOverride]) -> usize {
    stored.iter().filter(|over| over.problem.is_some()).count()
}

/// What an override asks for, as the reader of policies takes it.
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
    /// Gives a key something else than its limit does, in place of an override it may have. `change` is
    /// as in the policy: `{"allow": "100/s"}`, `{"unlimited": true}`, `{"blocked": true}`, with `expires`
    /// if it should end. In force when this returns.
    ///
    /// # Errors
    /// No such limit, or what is wrong with the override; nothing has changed then.
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

    /// Takes an override back. What the key has used meanwhile counts.
    ///
    /// # Errors
    /// There is none.
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
            // As it is counted, if the limit is there to say how.
            let counted = rule_of(policy, limit)
                .ok()
                .and_then(|rule| as_counted(rule, key));
            let at = counted
                .and_then(|read| place_of(&overrides, limit, &read.key))
                .or_else(|| place_of(&overrides, limit, key));
            let removed = overrides.remove(at.ok_or(OverrideError::NotThere)?);
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

    /// The overrides that were made while running and have not expired.
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
                in_force: over.problem.is_none(),
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
