//! The common interface of the oracle and the product, so that the same driver runs both and compares their
//! [`OracleDecision`]s.
//!
//! | trait | one value is | implemented by |
//! |---|---|---|
//! | [`KeyModel`] | one limit, one key | the oracle's models, the product's pure steps |
//! | [`Model`] | one limit, all its keys | [`KeyedModel`] over those, the product's limiters |
//! | [`GroupModel`] | several limits charged all or none | the oracle's hierarchy, buckets by pure steps, the product's gate |
//! | [`PermitModel`] | a concurrency limit with named permits | the oracle's, the product's limiter |

use crate::oracle::OracleDecision;
use std::collections::HashMap;
use std::fmt;

/// A change of a limiter's state or limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelChange {
    /// Gives back units that were charged earlier.
    Refund {
        /// How many.
        cost: u64,
        /// When they were charged.
        issued: u64,
    },
    /// Charges units that are known afterwards, into debt if need be.
    Late {
        /// How many.
        cost: u64,
    },
    /// Another capacity or limit, for all keys.
    SetCap {
        /// The new one.
        cap: u64,
    },
    /// Another rate, for all keys.
    SetRate {
        /// Units in every period.
        n: u64,
        /// The period.
        p_ns: u64,
    },
}

impl ModelChange {
    /// The error of a limiter that has no such change.
    pub fn unsupported(self) -> String {
        format!("this limiter has no `{self}`")
    }
}

impl fmt::Display for ModelChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refund { cost, issued } => write!(f, "refund {cost} issued {issued}"),
            Self::Late { cost } => write!(f, "late {cost}"),
            Self::SetCap { cap } => write!(f, "set_cap {cap}"),
            Self::SetRate { n, p_ns } => write!(f, "set_rate {n} per {p_ns} ns"),
        }
    }
}

/// A limiter for one key.
pub trait KeyModel: Clone + fmt::Debug {
    /// Takes `cost` at `t` if it may pass.
    fn check(&mut self, t: u64, cost: u64) -> OracleDecision;

    /// What [`KeyModel::check`] would answer.
    fn peek(&self, t: u64, cost: u64) -> OracleDecision {
        self.clone().check(t, cost)
    }

    /// Applies `change` at `t` and reports what is left then.
    ///
    /// # Errors
    ///
    /// If this limiter has no such change, or the numbers make no limit.
    fn change(&mut self, t: u64, change: ModelChange) -> Result<OracleDecision, String>;
}

/// A limiter for many keys.
pub trait Model: fmt::Debug {
    /// Takes `cost` of `key` at `t` if it may pass.
    fn check(&mut self, key: &str, t: u64, cost: u64) -> OracleDecision;

    /// What [`Model::check`] would answer.
    fn peek(&self, key: &str, t: u64, cost: u64) -> OracleDecision;

    /// Applies `change` at `t`, to `key` or to all keys, and reports what is left of `key` then.
    ///
    /// # Errors
    ///
    /// If this limiter has no such change, or the numbers make no limit.
    fn change(&mut self, key: &str, t: u64, change: ModelChange) -> Result<OracleDecision, String>;
}

/// One [`KeyModel`] for each key.
#[derive(Clone, Debug)]
pub struct KeyedModel<M> {
    /// A model never charged: what a key not seen yet starts from. Changes of the limit reach it, too.
    pub(crate) fresh: M,
    by_key: HashMap<String, M>,
}

impl<M: KeyModel> KeyedModel<M> {
    /// All keys start as `fresh`.
    pub fn new(fresh: M) -> Self {
        Self {
            fresh,
            by_key: HashMap::new(),
        }
    }

    fn of_key(&mut self, key: &str) -> &mut M {
        let fresh = &self.fresh;
        self.by_key
            .entry(key.to_owned())
            .or_insert_with(|| fresh.clone())
    }
}

impl<M: KeyModel> Model for KeyedModel<M> {
    fn check(&mut self, key: &str, t: u64, cost: u64) -> OracleDecision {
        self.of_key(key).check(t, cost)
    }

    fn peek(&self, key: &str, t: u64, cost: u64) -> OracleDecision {
        self.by_key.get(key).unwrap_or(&self.fresh).peek(t, cost)
    }

    fn change(&mut self, key: &str, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        if matches!(
            change,
            ModelChange::Refund { .. } | ModelChange::Late { .. }
        ) {
            return self.of_key(key).change(t, change);
        }
        for model in self.by_key.values_mut() {
            model.change(t, change)?;
        }
        self.fresh.change(t, change)?;
        Ok(self.peek(key, t, 0))
    }
}

/// The charge of one limit in a request that falls under several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelCharge<'a> {
    /// The limit, by name.
    pub limit: &'a str,
    /// The key.
    pub key: &'a str,
    /// How much. Zero is not charged, but the limit is reported as for one.
    pub cost: u64,
}

/// The answer of the reported limit, and which one that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDecision {
    /// The answer of the reported limit; its verdict is that of the whole request.
    pub answer: OracleDecision,
    /// The name of the reported limit.
    pub reported: String,
}

/// Several limits, charged all or none.
pub trait GroupModel: fmt::Debug {
    /// Charges every limit named at `t`, or none; only computes the answer unless `take`.
    ///
    /// # Errors
    ///
    /// If the charges do not name distinct, configured limits, or there are none.
    fn charge(
        &mut self,
        t: u64,
        charges: &[ModelCharge<'_>],
        take: bool,
    ) -> Result<GroupDecision, String>;
}

/// An operation on the permit of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitOp {
    /// Takes a permit, or renews the one that the holder has.
    Acquire,
    /// The answer to an acquire by a holder without a permit; takes nothing.
    Peek,
    /// Extends the permit. Refused without a wait if it is lost.
    Renew,
    /// Releases the permit. Refused without a wait if there is none.
    Release,
    /// Another limit from now on; permits above it stay until they are released or expire.
    SetLimit(u64),
}

/// A concurrency limit: its state is by holder, not by key.
pub trait PermitModel {
    /// Applies `op` for the holder `id` at `t`.
    ///
    /// # Errors
    ///
    /// If a new limit is none.
    fn apply(&mut self, t: u64, op: PermitOp, id: &str) -> Result<OracleDecision, String>;
}
