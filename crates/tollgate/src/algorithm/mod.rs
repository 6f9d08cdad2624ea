//! The algorithms, as pure steps: state in, decision and new state out.
//!
//! Nothing here knows keys, threads, stores or clocks; time is an argument and all of it is integers.
//! A state that fits one `u64` implements [`PackedAlgorithm`], which is what the memory store runs in a
//! compare-and-swap loop and what scripts in shared stores must imitate. The sliding log does not fit
//! and has its own ring ([`log`]).
//!
//! # Rules that all of them keep
//!
//! - *An absent state is a key never used.* [`PackedAlgorithm::is_unused`] decides whether a word means the same, and
//!   then it may be forgotten; nothing else is needed for expiry.
//! - *A refusal changes nothing*, so a flood of refused requests writes nothing; the one exception is
//!   a repair (below). A cost of zero asks and takes nothing.
//! - *A cost above what the limit ever holds is [`Verdict::Never`]*, and changes nothing.
//! - *Refunds are strict.* What was refilled while the units were out is not given a second time.
//! - *The clock may step back.* By a little (a thread read the clock, was preempted, and comes late):
//!   the state is read conservatively and no allowance is created. By a lot (the clock was set): the
//!   state would lock the key out until the clock catches up, so it is *repaired*: moved to now without
//!   giving anything away. A repair is written even if the request is refused.

#![deny(clippy::float_arithmetic)]

pub mod bucket;
pub mod concurrency;
pub mod inline_quota;
pub mod log;
pub mod queue;
pub mod scale;
pub mod sliding;
pub mod window;

use crate::decision::{QuotaStatus, Verdict};
use crate::time::{Moment, Span};
use scale::Scale;

/// How far a clock may step back before a bucket is repaired: longer than any preemption, shorter than a
/// noticeable lock-out.
pub(crate) const CLOCK_STEP_NS: u64 = 1_000_000_000;

/// A word that no algorithm writes. A store may use it for its own purposes.
pub const RESERVED: u64 = u64::MAX;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The verdict.
    pub verdict: Verdict,
    /// The new state, if it is to be written.
    pub write: Option<u64>,
}

impl Step {
    #[inline]
    pub(crate) const fn never() -> Step {
        Step {
            verdict: Verdict::Never,
            write: None,
        }
    }
}

/// A refund: the charge, and how much of it was used.
///
/// ```
/// use tollgate::{KeyOp, Limiter, ManualClock, Refund, Span};
///
/// let limiter = Limiter::with_clock("1/s burst 10".parse()?, ManualClock::new())?;
/// let decision = limiter.charge("a", 8);
/// let refund = Refund { charged: 8, kept: 3, issued: decision.issued, delay: Span::ZERO };
/// let _ = limiter.apply(limiter.key_hash("a"), &KeyOp::Refund(refund));
/// assert_eq!(limiter.peek("a", 0).remaining(), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    /// Units that the charge took.
    pub charged: u64,
    /// Units of them that were used.
    pub kept: u64,
    /// When the charge was made.
    pub issued: Moment,
    /// How long the charge had to wait for its slot in a leaky bucket; zero elsewhere.
    pub delay: Span,
}

/// A limiter whose whole state for a key is one word. `None` is a key never used.
pub trait PackedAlgorithm: Copy + Send + Sync + 'static {
    /// Decides `cost` at `now` and returns what to write.
    fn charge(&self, word: Option<u64>, now: Moment, cost: u64) -> Step;

    /// Gives back `cost` that was charged at `issued`; `now` must be read after deciding to do so.
    /// Nothing to write if nothing comes back.
    fn refund(&self, word: u64, now: Moment, cost: u64, issued: Moment) -> Option<u64>;

    /// Gives back what a charge took beyond what was used. A queue needs to know of the wait as well.
    fn refund_charge(&self, word: u64, now: Moment, refund: &Refund) -> Option<u64> {
        let cost = refund.charged.saturating_sub(refund.kept);
        self.refund(word, now, cost, refund.issued)
    }

    /// Moves `count` permits that were granted at `issued` to `now`, so that they live a whole `ttl` again. `None`
    /// if they were lost, or if this is no concurrency limit.
    fn renew(&self, word: u64, now: Moment, count: u64, issued: Moment) -> Option<u64> {
        let _ = (word, now, count, issued);
        None
    }

    /// This limit with room for at most `max` in its window, for a number that comes with the call. The same for
    /// all but the fixed window.
    #[must_use]
    fn with_max(&self, max: u32) -> Self {
        let _ = max;
        *self
    }

    /// Takes `cost` that was used already, whatever is left, and beyond that into debt if the limit has one. Also returns how
    /// much could not be taken.
    fn charge_saturating(&self, word: Option<u64>, now: Moment, cost: u64) -> (Option<u64>, u64);

    /// Units that were used and not earned back, rounded up.
    fn usage(&self, word: Option<u64>, now: Moment) -> u64 {
        let left = self.status(word, now).remaining;
        self.capacity().saturating_sub(left)
    }

    /// What is left at `now`.
    fn status(&self, word: Option<u64>, now: Moment) -> QuotaStatus;

    /// Does the word mean "as if never used" at `now`?
    fn is_unused(&self, word: u64, now: Moment) -> bool;

    /// The epoch that `now` lies in.
    ///
    /// Words wrap: they keep the low bits of a moment or an index. A word can be read correctly only
    /// near the time that it was written, so time is cut into epochs, each longer than a word can stay
    /// live and at most a quarter of what the bits can distinguish. A store notes the epoch beside the
    /// word: written in this epoch or the one next to it, the bits are unambiguous; longer ago, the
    /// word is fresh; further ahead, the clock was set back and the word needs [`PackedAlgorithm::repair_after_clock_step`].
    fn epoch(&self, now: Moment) -> Epoch;

    /// The state to continue with when the clock was set back by more than an epoch, or by so much that a capacity
    /// no longer fits. The repair gives nothing away and locks no key out for longer than the limit itself would.
    fn repair_after_clock_step(&self, word: u64, now: Moment) -> u64;

    /// This limit as the successor of `old`: the same, but laid out so that no usage is
    /// lost where both can be had.
    #[must_use]
    fn keeping_layout_of(self, old: &Self) -> Self {
        let _ = old;
        self
    }

    /// This state under a new limit of the same kind: usage is kept, rounded against the client.
    /// `None` if that is a key never used.
    fn convert(&self, old: &Self, word: u64, now: Moment) -> Option<u64>;

    /// This limit with only `scale` of it left ([`scale`]). It reads and writes the same words. Of a limit
    /// under a scale only what decides may be asked (`charge`, `refund`, `charge_saturating`, `status`); what keeps
    /// words (epochs, repairing, conversion, parameters) is for the limit itself.
    #[must_use]
    fn scaled(&self, scale: Scale) -> Self;

    /// The greatest cost that can ever pass, under whatever scale.
    fn capacity(&self) -> u64;

    /// The limit itself as words, so that a store can change it while it is in use.
    fn encode(&self) -> EncodedLimit;

    /// The limit that these words stand for; they come from [`PackedAlgorithm::encode`].
    fn from_encoded(params: &EncodedLimit) -> Self;
}

/// A compiled limit as words.
pub type EncodedLimit = [u64; 4];

/// A stretch of time in which wrapped words are unambiguous; see [`PackedAlgorithm::epoch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Its number.
    pub number: u64,
    /// Its first nanosecond.
    pub from: u64,
    /// How many nanoseconds it lasts; it may run beyond the end of the clock.
    pub lasts: u64,
}

impl Epoch {
    /// The epoch of `2^bits` parts of length `part`, the first of which begins at `start`, that part
    /// number `index` lies in.
    pub(crate) fn from_parts(index: u64, bits: u32, part: u64, start: u64) -> Epoch {
        let number = index >> bits;
        let from = u128::from(number << bits) * u128::from(part) + u128::from(start);
        Epoch {
            number,
            from: u64::try_from(from).unwrap_or(u64::MAX),
            lasts: u64::try_from(u128::from(part) << bits).unwrap_or(u64::MAX),
        }
    }
}

/// `a * b / c`, rounded up, if it fits.
pub(crate) fn mul_div_ceil(a: u64, b: u64, c: u64) -> Option<u64> {
    u64::try_from((u128::from(a) * u128::from(b)).div_ceil(u128::from(c))).ok()
}

/// Why numbers do not make a limit. The one catalogue for all algorithms.
///
/// ```
/// use tollgate::{LimitError, Limiter};
///
/// let limiter = Limiter::new("5/s".parse()?)?;
/// let error = limiter.change("fixed window 5/s".parse()?).unwrap_err();
/// assert_eq!(error, LimitError::DifferentAlgorithm);
/// println!("{error}; {}", error.hint());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A capacity, limit, burst or queue of zero.
    ZeroCapacity {
        /// What it is called for this algorithm.
        what: &'static str,
    },
    /// A window, lease or period of no time.
    ZeroSpan {
        /// What it is called for this algorithm.
        what: &'static str,
    },
    /// Filling the bucket takes longer than 73 years.
    TooSlow,
    /// More than the word can count.
    TooLarge {
        /// What it is called for this algorithm.
        what: &'static str,
        /// The most that fits.
        most: u64,
    },
    /// A multiple that is no burst.
    NoMultiple,
    /// `max_keys` of zero, or more than can be addressed.
    MaxKeys {
        /// What was asked for.
        asked: usize,
    },
    /// The memory for `max_keys` could not be had.
    NoMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The new limit is of another kind than the one it replaces.
    DifferentAlgorithm,
    /// Calendar periods with a limit that is not a fixed window.
    CalendarWithoutWindow,
    /// A debt on an algorithm that cannot earn it back.
    NoDebt,
}

impl std::fmt::Display for LimitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ZeroCapacity { what } => write!(f, "a {what} of 0 would refuse every request"),
            Self::ZeroSpan { what } => write!(f, "a {what} of 0 has no duration"),
            Self::TooSlow => f.write_str("filling this limit would take longer than 73 years"),
            Self::TooLarge { what, most } => write!(f, "the {what} is above {most}"),
            Self::NoMultiple => f.write_str("a burst multiple below 2 is no burst"),
            Self::MaxKeys { asked: 0 } => f.write_str("`max_keys` of 0 leaves room for no key"),
            Self::MaxKeys { asked } => write!(f, "`max_keys` of {asked} cannot be addressed"),
            Self::NoMemory { bytes } => {
                write!(f, "{bytes} bytes for `max_keys` could not be reserved")
            }
            Self::DifferentAlgorithm => {
                f.write_str("a limit can only be changed to one of the same algorithm")
            }
            Self::CalendarWithoutWindow => {
                f.write_str("only a fixed window follows the periods of a calendar")
            }
            Self::NoDebt => f.write_str("only a token bucket or a GCRA meter can have a debt"),
        }
    }
}

impl LimitError {
    /// What the writer can do now.
    pub fn hint(&self) -> String {
        match self {
            Self::ZeroCapacity { what } => {
                format!(
                    "write a {what} of at least 1; to block requests, refuse them before they are limited"
                )
            }
            Self::ZeroSpan { what } => format!("write a {what} such as `1s` or `1min`"),
            Self::TooSlow => "lower the burst, or raise the rate".into(),
            Self::TooLarge { what, most } => format!("write a {what} of at most {most}"),
            Self::NoMultiple => {
                "write a multiple of at least 2, or use a plain token bucket".into()
            }
            Self::MaxKeys { asked: 0 } => "write at least 1; the default is 1000000".into(),
            Self::MaxKeys { .. } | Self::NoMemory { .. } => "lower `max_keys`".into(),
            Self::DifferentAlgorithm => "build a new limiter for the new algorithm".into(),
            Self::CalendarWithoutWindow => "use `Limit::fixed_window`".into(),
            Self::NoDebt => "write a token bucket, or remove the debt".into(),
        }
    }
}

impl std::error::Error for LimitError {}
