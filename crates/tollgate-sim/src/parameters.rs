//! The numbers of one limit, as timelines and random histories name them.

use crate::model::ModelChange;
use crate::timeline::{TimelineCase, numbers_of};
use serde::{Deserialize, Deserializer, de::Error};

/// An algorithm and its numbers.
///
/// Both sides of a comparison are made from these: the oracle's model and the product's limit. A name
/// that the algorithm does not have is an error, because an ignored parameter would make every
/// expected answer after it meaningless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are those of the timelines")]
pub enum Parameters {
    /// `cap` tokens, `n` more every `p_ns`.
    TokenBucket { cap: u64, n: u64, p_ns: u64 },
    /// The same, which takes up to `debt` more for costs that are known afterwards.
    TokenDebt {
        cap: u64,
        n: u64,
        p_ns: u64,
        debt: u64,
    },
    /// `n` cells every `p_ns`, each up to `tau_ns` early.
    Gcra { n: u64, p_ns: u64, tau_ns: u64 },
    /// At most `queue` units waiting or in service, `n` leave every `p_ns`.
    LeakyQueue {
        queue: u64,
        n: u64,
        p_ns: u64,
        max_wait_ns: Option<u64>,
    },
    /// `limit` units in each window; one window starts at `anchor_ns`.
    FixedWindow {
        limit: u64,
        window_ns: u64,
        #[serde(default)]
        anchor_ns: u64,
    },
    /// `limit` units in any window.
    SlidingLog { limit: u64, window_ns: u64 },
    /// `limit` units in any window by the estimate of `sub` sub-windows; the oldest counts in full if `strict`.
    SlidingCounter {
        limit: u64,
        window_ns: u64,
        #[serde(default = "one")]
        sub: u32,
        #[serde(default, deserialize_with = "flag")]
        strict: bool,
    },
    /// The same, with the oldest sub-window spread over the part that was used, in `span`-ths.
    SpanCounter {
        limit: u64,
        window_ns: u64,
        sub: u32,
        span: u32,
    },
    /// `mult` times the rate for `dur_ns`, then the rate.
    BurstCredits {
        n: u64,
        p_ns: u64,
        mult: u32,
        dur_ns: u64,
        slack: u64,
    },
    /// At most `limit` permits, each for at least `ttl_ns`.
    Concurrency { limit: u64, ttl_ns: u64 },
    /// An adaptive limit; `backoff_pct` must be the product's.
    Aimd {
        initial: u32,
        min: u32,
        max: u32,
        backoff_pct: Option<u32>,
        timeout_ns: Option<u64>,
    },
    /// An adaptive limit.
    Gradient2 { initial: u32, min: u32, max: u32 },
}

fn one() -> u32 {
    1
}

/// Zero or one as a flag.
pub(crate) fn flag<'de, D: Deserializer<'de>>(number: D) -> Result<bool, D::Error> {
    match u64::deserialize(number)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(D::Error::custom(format!("{other} is neither 0 nor 1"))),
    }
}

impl Parameters {
    /// The numbers of `case`.
    ///
    /// # Errors
    ///
    /// If the algorithm is unknown, or a number is missing, malformed or unknown.
    pub fn from_case(case: &TimelineCase) -> Result<Self, String> {
        if let Some(word) = case.words.iter().find(|word| !word.contains('=')) {
            return Err(format!("`{word}` is no `name=value`"));
        }
        numbers_of(&case.algorithm, &case.params)
    }

    /// The numbers after a change of the limit.
    ///
    /// # Errors
    ///
    /// If the algorithm has no such change.
    pub fn with(mut self, change: ModelChange) -> Result<Self, String> {
        match (&mut self, change) {
            (Self::TokenBucket { cap: to, .. }, ModelChange::SetCap { cap })
            | (Self::LeakyQueue { queue: to, .. }, ModelChange::SetCap { cap })
            | (Self::FixedWindow { limit: to, .. }, ModelChange::SetCap { cap })
            | (Self::SlidingLog { limit: to, .. }, ModelChange::SetCap { cap })
            | (Self::SlidingCounter { limit: to, .. }, ModelChange::SetCap { cap })
            | (Self::SpanCounter { limit: to, .. }, ModelChange::SetCap { cap }) => *to = cap,
            (Self::TokenBucket { n, p_ns, .. }, ModelChange::SetRate { n: to, p_ns: per })
            | (Self::Gcra { n, p_ns, .. }, ModelChange::SetRate { n: to, p_ns: per })
            | (Self::LeakyQueue { n, p_ns, .. }, ModelChange::SetRate { n: to, p_ns: per }) => {
                (*n, *p_ns) = (to, per);
            }
            _ => return Err(change.unsupported()),
        }
        Ok(self)
    }

    /// A slot of a queue is not refundable: a later arrival would be promised the slot of another.
    pub fn is_queue(&self) -> bool {
        matches!(self, Self::LeakyQueue { .. })
    }
}
