//! The operations on one key, and what each does to a word.

use super::layout::Intent;
use crate::algorithm::scale::Scale;
use crate::algorithm::{PackedAlgorithm, Refund};
use crate::decision::{Decision, Verdict};
use crate::time::Moment;

/// An operation on one key of one limit: the argument of [`Limiter::apply`](crate::Limiter::apply).
///
/// `max` replaces the number of a fixed window for this call ([`PackedAlgorithm::with_max`]); other algorithms ignore it.
///
/// | operation | verdict | `units` of the outcome |
/// |---|---|---|
/// | `Charge` | of the charge | 0 |
/// | `Peek` | that a charge would get; nothing is taken | 0 |
/// | `Refund` | pass | 0 |
/// | `ChargeRemaining` | pass | what could not be taken, because nothing was left, and the debt is at its bound |
/// | `Usage` | pass | used and not earned back |
/// | `AddUsage` | pass | what was taken |
/// | `RemoveUsage` | pass | what the key had used |
/// | `Renew` | pass if the permit is still held, else never | 0 |
///
/// Usage is counted in units without pressure ([`crate::algorithm::scale`]), because it moves between limits under
/// different scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOp {
    /// Takes `cost` if it may pass.
    Charge {
        /// Units to take.
        cost: u64,
        /// The number of this window, if it comes with the request.
        max: Option<u32>,
    },
    /// Reports what a charge would come to.
    Peek {
        /// Units that the charge would take.
        cost: u64,
        /// The number of this window, if it comes with the request.
        max: Option<u32>,
    },
    /// Gives back what a charge took beyond what was used, strictly.
    Refund(Refund),
    /// Takes up to `cost` that was used already, whatever is left, and beyond that into debt if the limit has one
    /// ([`Limit::with_max_debt`](crate::Limit::with_max_debt)).
    ChargeRemaining {
        /// Units that were used.
        cost: u64,
    },
    /// Reports how much of its allowance the key has used.
    Usage,
    /// Takes units that were used under another limit, as far as there is room.
    AddUsage {
        /// Units that were used there.
        units: u64,
    },
    /// Forgets the key and reports what it had used. Usage that a key shares with others in the overflow stays.
    RemoveUsage,
    /// Restarts the `ttl` of a permit.
    Renew {
        /// When the permit was granted or last renewed.
        issued: Moment,
    },
}

/// The result of a [`KeyOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct KeyOutcome {
    /// The verdict, and the status after the operation. `issued` is the moment of the operation.
    pub decision: Decision,
    /// Units; the table at [`KeyOp`] states which.
    pub units: u64,
}

impl KeyOp {
    /// Does the operation need a reading of the clock that is no older than what other threads wrote? A refund or
    /// a permit is measured against moments that other threads have seen.
    pub(crate) const fn needs_fresh_clock(&self) -> bool {
        !matches!(
            self,
            KeyOp::Charge { .. } | KeyOp::Peek { .. } | KeyOp::Usage
        )
    }

    /// Does it take units, so that a new key gets a slot?
    pub(super) const fn takes_units(&self) -> bool {
        match self {
            KeyOp::Charge { cost, .. } => *cost > 0,
            KeyOp::ChargeRemaining { .. } | KeyOp::AddUsage { .. } => true,
            _ => false,
        }
    }

    pub(super) const fn intent(&self) -> Intent {
        match *self {
            KeyOp::Peek { .. } | KeyOp::Usage => Intent::Read,
            KeyOp::Charge { cost, .. } => Intent::Charge(cost),
            _ => Intent::Write,
        }
    }
}

/// What an operation does to one word.
pub(super) struct OpStep {
    pub(super) verdict: Verdict,
    pub(super) units: u64,
    /// The state that the status is read from: the word afterwards, or what it would be.
    pub(super) word: Option<u64>,
}

/// The limit with the number that came with the call, if one did.
#[inline(always)]
pub(super) fn with_max<A: PackedAlgorithm>(limit: &A, max: Option<u32>) -> A {
    max.map_or(*limit, |max| limit.with_max(max))
}

/// Units that a word has used, whatever the pressure. Rounded up.
pub(super) fn usage<A: PackedAlgorithm>(limit: &A, word: Option<u64>, now: Moment) -> u64 {
    limit.scaled(Scale::ONE).usage(word, now)
}

/// Applies an operation to a word: the result, and the word to write. To forget a key is for the table.
pub(super) fn op_step<A: PackedAlgorithm>(
    op: &KeyOp,
    limit: &A,
    word: Option<u64>,
    now: Moment,
) -> (OpStep, Option<u64>) {
    let (verdict, units, write) = match *op {
        KeyOp::Charge { cost, max } => {
            let step = with_max(limit, max).charge(word, now, cost);
            (step.verdict, 0, step.write)
        }
        KeyOp::Peek { cost, max } => {
            let step = with_max(limit, max).charge(word, now, cost);
            let peeked = OpStep {
                verdict: step.verdict,
                units: 0,
                word: step.write.or(word),
            };
            return (peeked, None);
        }
        KeyOp::Refund(ref refund) => {
            let write = word.and_then(|word| limit.refund_charge(word, now, refund));
            (Verdict::Pass, 0, write)
        }
        KeyOp::ChargeRemaining { cost } => {
            let (write, unpaid) = limit.charge_saturating(word, now, cost);
            (Verdict::Pass, unpaid, write)
        }
        KeyOp::Usage | KeyOp::RemoveUsage => (Verdict::Pass, usage(limit, word, now), None),
        KeyOp::AddUsage { units } => {
            let (write, untaken) = limit.scaled(Scale::ONE).charge_saturating(word, now, units);
            (Verdict::Pass, units.saturating_sub(untaken), write)
        }
        KeyOp::Renew { issued } => {
            let write = word.and_then(|word| limit.renew(word, now, 1, issued));
            let verdict = write.map_or(Verdict::Never, |_| Verdict::Pass);
            (verdict, 0, write)
        }
    };
    let word = write.or(word);
    let step = OpStep {
        verdict,
        units,
        word,
    };
    (step, write)
}
