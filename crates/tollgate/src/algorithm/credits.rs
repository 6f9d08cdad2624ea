//! Burst credits: a multiple of the rate for a while, then the rate.
//!
//! # Theory
//!
//! Two token buckets, charged together or not at all. *Peak* earns at `multiple * rate` and is
//! shallow (`slack`): it bounds how fast a burst may run. *Credit* earns at `rate` and holds
//! `(multiple - 1) * rate * duration + slack`: it bounds how long. From full credit a key runs at
//! `multiple * rate` for exactly `duration`, then at `rate`, and the credit is full again after
//! `(multiple - 1) * duration` of idleness.
//!
//! # Invariant
//!
//! Any window of length `w` admits at most the lesser of `slack + multiple*rate*w` and
//! `(multiple-1)*rate*duration + slack + rate*w`.
//!
//! # Why not one bucket of `multiple * rate * duration`
//!
//! It would be spent in an instant, and at the multiple it would last longer than promised, because
//! it is refilled meanwhile.

use super::bucket::Bucket;
use super::{LimitError, OneWord};
use crate::decision::{Standing, Verdict};
use crate::rate::Rate;
use crate::time::{Moment, Span};

/// Compiled burst credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    peak: Bucket,
    credit: Bucket,
}

/// The state of a key: the words of its two buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditWords {
    /// The bucket that bounds how fast.
    pub peak: Option<u64>,
    /// The bucket that bounds how long.
    pub credit: Option<u64>,
}

impl Credits {
    /// `multiple` times `rate` for `duration`, then `rate`. `slack` is what may come at once; by
    /// default what a tenth of a second of the multiple earns, at least one.
    ///
    /// # Errors
    /// A multiple below 2, a duration of zero, or numbers that need more than 73 years to fill.
    pub fn new(
        rate: Rate,
        multiple: u32,
        duration: Span,
        slack: Option<u64>,
    ) -> Result<Credits, LimitError> {
        if multiple < 2 {
            return Err(LimitError::NoMultiple);
        }
        if duration.is_zero() {
            return Err(LimitError::ZeroSpan {
                what: "burst duration",
            });
        }
        let times = |k: u32| -> Result<Rate, LimitError> {
            let units = rate
                .units()
                .checked_mul(u64::from(k))
                .ok_or(LimitError::TooSlow)?;
            Rate::new(units, rate.per()).map_err(|_| LimitError::TooSlow)
        };
        let peak_rate = times(multiple)?;
        let slack = slack.unwrap_or_else(|| peak_rate.earned_in(Span::from_millis(100)).max(1));
        let more = duration
            .as_nanos()
            .checked_mul(u64::from(multiple) - 1)
            .ok_or(LimitError::TooSlow)?;
        Ok(Credits {
            peak: Bucket::new(peak_rate, slack)?,
            credit: Bucket::holding(rate, slack, Span::from_nanos(more))?,
        })
    }

    /// Burst credits on two buckets that were compiled elsewhere.
    pub const fn of(peak: Bucket, credit: Bucket) -> Credits {
        Credits { peak, credit }
    }

    /// The two buckets: peak, credit. A store charges them all or none.
    pub const fn buckets(&self) -> (Bucket, Bucket) {
        (self.peak, self.credit)
    }

    /// Decides `cost` at `now` on both buckets and says what to write: both or neither.
    pub fn charge(&self, words: CreditWords, now: Moment, cost: u64) -> (Verdict, CreditWords) {
        let peak = self.peak.charge(words.peak, now, cost);
        let credit = self.credit.charge(words.credit, now, cost);
        let verdict = stricter(peak.verdict, credit.verdict);
        // A refused request writes nothing but heals, which give nothing away.
        let kept = |step: super::Step, word| {
            if verdict.is_admitted() || !step.verdict.is_admitted() {
                step.write.or(word)
            } else {
                word
            }
        };
        let words = CreditWords {
            peak: kept(peak, words.peak),
            credit: kept(credit, words.credit),
        };
        (verdict, words)
    }

    /// Gives back `cost` that was charged at `issued`.
    #[must_use]
    pub fn refund(
        &self,
        words: CreditWords,
        now: Moment,
        cost: u64,
        issued: Moment,
    ) -> CreditWords {
        let back = |b: &Bucket, word: Option<u64>| {
            word.map(|w| b.refund(w, now, cost, issued).unwrap_or(w))
        };
        CreditWords {
            peak: back(&self.peak, words.peak),
            credit: back(&self.credit, words.credit),
        }
    }

    /// What is left: the tighter of the two.
    pub fn standing(&self, words: CreditWords, now: Moment) -> Standing {
        tighter(
            self.peak.standing(words.peak, now),
            self.credit.standing(words.credit, now),
        )
    }
}

/// Both must pass, so the stricter verdict holds, and the longer wait.
pub(crate) fn stricter(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::Never, _) | (_, Verdict::Never) => Verdict::Never,
        (Verdict::Refuse { retry_after: x }, Verdict::Refuse { retry_after: y }) => {
            Verdict::Refuse {
                retry_after: x.max(y),
            }
        }
        (refused @ Verdict::Refuse { .. }, _) | (_, refused @ Verdict::Refuse { .. }) => refused,
        (Verdict::Wait { delay: x }, Verdict::Wait { delay: y }) => {
            Verdict::Wait { delay: x.max(y) }
        }
        (wait @ Verdict::Wait { .. }, _) | (_, wait @ Verdict::Wait { .. }) => wait,
        (Verdict::Pass, Verdict::Pass) => Verdict::Pass,
    }
}

/// What is left of two purses that are charged together.
pub(crate) fn tighter(a: Standing, b: Standing) -> Standing {
    let binding = if b.remaining < a.remaining { b } else { a };
    let at_most = a.next_after.is_zero() || b.next_after.is_zero();
    Standing {
        remaining: binding.remaining,
        full_after: a.full_after.max(b.full_after),
        next_after: match a.remaining == b.remaining {
            false => binding.next_after,
            // Equally tight: more is left only when both have more, and never if one has all it can.
            true if at_most => Span::ZERO,
            true => a.next_after.max(b.next_after),
        },
    }
}
