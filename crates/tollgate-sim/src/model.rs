//! One limiter for one key, whoever computes it.
//!
//! The oracle's models and the core's pure steps both are a [`Model`], so that whatever drives one can
//! drive the other, and their [`Answer`]s can be compared as they are.

use crate::oracle::Answer;
use std::fmt;

/// Something done to a limiter other than asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Gives back units that were charged earlier.
    Refund {
        /// How many.
        cost: u64,
        /// When they were charged.
        issued: u64,
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

impl Change {
    /// Whether it concerns the limit, and so every key, or only one key's state.
    pub fn is_for_all_keys(self) -> bool {
        !matches!(self, Self::Refund { .. })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refund { cost, issued } => write!(f, "refund {cost} issued {issued}"),
            Self::SetCap { cap } => write!(f, "set_cap {cap}"),
            Self::SetRate { n, p_ns } => write!(f, "set_rate {n} per {p_ns} ns"),
        }
    }
}

/// A limiter for one key.
pub trait Model: Clone {
    /// Takes `cost` at `t` if it may pass.
    fn check(&mut self, t: u64, cost: u64) -> Answer;

    /// What [`Model::check`] would answer.
    fn peek(&self, t: u64, cost: u64) -> Answer {
        self.clone().check(t, cost)
    }

    /// Does what `change` says at `t` and tells what is left then.
    ///
    /// # Errors
    ///
    /// If this limiter has no such change, or the numbers make no limit.
    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String>;

    /// Why a request of `cost` at `t` is refused, where the answer alone does not tell.
    fn reason(&self, _t: u64, _cost: u64) -> Option<&'static str> {
        None
    }
}

/// The error of a limiter that has no such change.
pub(crate) fn has_no(change: Change) -> String {
    format!("this limiter has no `{change}`")
}

/// A concurrency limit: its state is by lease, not by key.
pub trait LeaseModel {
    /// Takes a place for `id`, or renews the one it has.
    fn acquire(&mut self, t: u64, id: &str) -> Answer;

    /// What [`LeaseModel::acquire`] would answer to a holder that has no place.
    fn peek(&self, t: u64) -> Answer;

    /// Extends the lease `id`. Refused without a wait if it is lost.
    fn renew(&mut self, t: u64, id: &str) -> Answer;

    /// Gives the place of `id` back. Refused without a wait if it has none.
    fn release(&mut self, t: u64, id: &str) -> Answer;

    /// Another limit from `t` on.
    ///
    /// # Errors
    ///
    /// If the number makes no limit.
    fn set_limit(&mut self, t: u64, limit: u64) -> Result<Answer, String>;
}
