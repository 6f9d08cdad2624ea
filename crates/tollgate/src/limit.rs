//! A limit: how much, in how long, by which algorithm.

mod text;

pub use text::ParseLimitError;

use std::sync::Arc;

use crate::algorithm::LimitError;
use crate::algorithm::bucket::Bucket;
use crate::algorithm::concurrency::Permits;
use crate::algorithm::log::Log;
use crate::algorithm::queue::Queue;
pub use crate::algorithm::sliding::Estimate;
use crate::algorithm::sliding::Sliding;
use crate::algorithm::window::Window;
use crate::rate::Rate;
use crate::time::Span;

/// The default for [`Limit::with_max_keys`]: 22 MB.
pub const DEFAULT_MAX_KEYS: usize = 1_000_000;
/// The default memory of the logs of a sliding log. A large limit then has room for fewer keys.
const DEFAULT_LOG_BYTES: usize = 256 << 20;

/// How a limit decides. The modules of [`crate::algorithm`] explain each.
///
/// ```
/// use tollgate::{Algorithm, Limit};
///
/// let limit: Limit = "5/s burst 10".parse()?;
/// if let Algorithm::TokenBucket { rate, burst } = *limit.algorithm() {
///     assert_eq!((rate.units(), burst), (5, 10));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// `burst` at once, then `rate`. The default choice.
    TokenBucket {
        /// Rate at which units are earned.
        rate: Rate,
        /// Units that can accumulate.
        burst: u64,
    },
    /// One every `1/rate`, up to `tolerance` early.
    Gcra {
        /// Rate at which requests may come.
        rate: Rate,
        /// How much earlier than due a request still conforms.
        tolerance: Span,
    },
    /// A queue that drains at a constant `rate`; callers learn how long to wait.
    LeakyBucket {
        /// Rate at which work leaves.
        rate: Rate,
        /// Most units waiting or in service.
        queue: u64,
        /// The longest wait that is still worth queueing for.
        max_wait: Option<Span>,
    },
    /// `limit` in each `window` of the clock.
    FixedWindow {
        /// How many.
        limit: u64,
        /// In how long.
        window: Span,
        /// Start of the first window, after the clock's origin.
        anchor: Span,
    },
    /// Exactly `limit` in any `window`, at eight bytes a unit.
    SlidingLog {
        /// How many.
        limit: u64,
        /// In how long.
        window: Span,
    },
    /// About `limit` in any `window`, in one word.
    SlidingWindow {
        /// How many.
        limit: u64,
        /// In how long.
        window: Span,
        /// How the oldest part of the window is counted.
        estimate: Estimate,
    },
    /// `limit` at once; a permit that is not given back expires after `ttl`.
    Concurrency {
        /// How many at once.
        limit: u64,
        /// How long a permit counts if its holder does not return.
        ttl: Span,
    },
}

/// A validated limit that can be enforced: an algorithm and its numbers.
///
/// It is read from text, and prints as the text that is read back as the same limit:
///
/// ```
/// use tollgate::Limit;
///
/// let limit: Limit = "5/s burst 10".parse()?;
/// assert_eq!(limit, Limit::token_bucket("5/s".parse()?, 10)?);
/// assert_eq!(limit.to_string(), "token bucket 5/s burst 10");
///
/// // A rate alone is a token bucket that can save up the units of the rate.
/// assert_eq!("100/min".parse::<Limit>()?, "token bucket 100/min burst 100".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// | text | constructor |
/// |---|---|
/// | `5/s burst 10`, `5 per second burst 30s` | [`Limit::token_bucket`] |
/// | `gcra 10/s tolerance 250ms` | [`Limit::gcra`] |
/// | `leaky bucket 5/s queue 20`, `leaky bucket 5/s queue 20 max wait 2s` | [`Limit::leaky_bucket`] |
/// | `fixed window 100/min`, `fixed window 100 in 1m anchor 5s` | [`Limit::fixed_window`] |
/// | `sliding log 3/min` | [`Limit::sliding_log`] |
/// | `sliding window 1000/h`, `sliding window 1000/h strict` | [`Limit::sliding_window`] |
/// | `concurrency 20 ttl 30s` | [`Limit::concurrency`] |
///
/// `rides: 5/s` is a limit with a name ([`Limit::with_name`]); `5/s max keys 5000` has room for that many keys
/// ([`Limit::with_max_keys`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    name: Arc<str>,
    algorithm: Algorithm,
    max_keys: usize,
    /// Units that it takes beyond empty for costs that are known afterwards.
    max_debt: u64,
    /// Units that a limit that it replaces may have left.
    backlog: u64,
}

/// A limit compiled to what the store runs.
pub(crate) enum Compiled {
    Bucket(Bucket),
    Queue(Queue),
    Window(Window),
    Sliding(Sliding),
    Permits(Permits),
    Log(Log),
}

impl Compiled {
    fn default_max_keys(&self) -> usize {
        match self {
            Compiled::Log(log) => {
                (DEFAULT_LOG_BYTES / (8 * log.cells())).clamp(64, DEFAULT_MAX_KEYS)
            }
            _ => DEFAULT_MAX_KEYS,
        }
    }
}

impl Limit {
    /// A limit by this algorithm.
    ///
    /// # Errors
    /// Numbers that make no limit; the error states which and how to fix them.
    pub fn new(algorithm: Algorithm) -> Result<Limit, LimitError> {
        let max_keys = compile(&algorithm)?.default_max_keys();
        Ok(Limit {
            name: Arc::from(""),
            algorithm,
            max_keys,
            max_debt: 0,
            backlog: 0,
        })
    }

    /// How many keys such a limit has room for, if its program does not say.
    fn default_max_keys(&self) -> usize {
        compile(&self.algorithm).map_or(DEFAULT_MAX_KEYS, |compiled| compiled.default_max_keys())
    }

    /// `burst` at once, then `rate`.
    ///
    /// ```
    /// use tollgate::Limit;
    /// let limit = Limit::token_bucket("5/s".parse()?, 10)?;
    /// assert_eq!(limit.to_string(), "token bucket 5/s burst 10");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A burst of zero, or one that takes more than 73 years to earn.
    pub fn token_bucket(rate: Rate, burst: u64) -> Result<Limit, LimitError> {
        Limit::new(Algorithm::TokenBucket { rate, burst })
    }

    /// One every `1/rate`, up to `tolerance` early.
    ///
    /// # Errors
    /// A tolerance of more than 73 years.
    pub fn gcra(rate: Rate, tolerance: impl Into<Span>) -> Result<Limit, LimitError> {
        Limit::new(Algorithm::Gcra {
            rate,
            tolerance: tolerance.into(),
        })
    }

    /// A queue of `queue` that leaves at `rate`.
    ///
    /// # Errors
    /// A queue of zero, or one that takes more than 73 years to drain.
    pub fn leaky_bucket(rate: Rate, queue: u64) -> Result<Limit, LimitError> {
        Limit::new(Algorithm::LeakyBucket {
            rate,
            queue,
            max_wait: None,
        })
    }

    /// A number of units in each window of the clock.
    ///
    /// # Errors
    /// A limit above 2^32 - 2.
    pub fn fixed_window(rate: Rate) -> Result<Limit, LimitError> {
        Limit::new(Algorithm::FixedWindow {
            limit: rate.units(),
            window: rate.per(),
            anchor: Span::ZERO,
        })
    }

    /// Exactly a number of units in any window.
    ///
    /// # Errors
    /// A limit above 2^24.
    pub fn sliding_log(rate: Rate) -> Result<Limit, LimitError> {
        Limit::new(Algorithm::SlidingLog {
            limit: rate.units(),
            window: rate.per(),
        })
    }

    /// An estimate of a number of units in any window, in one word.
    ///
    /// # Errors
    /// A limit above 2^24 - 1.
    pub fn sliding_window(rate: Rate) -> Result<Limit, LimitError> {
        Limit::new(Algorithm::SlidingWindow {
            limit: rate.units(),
            window: rate.per(),
            estimate: Estimate::default(),
        })
    }

    /// `limit` at once; a permit that is not given back expires after `ttl`.
    ///
    /// # Errors
    /// A limit of zero or above 65 535, or a `ttl` of zero.
    pub fn concurrency(limit: u64, ttl: impl Into<Span>) -> Result<Limit, LimitError> {
        Limit::new(Algorithm::Concurrency {
            limit,
            ttl: ttl.into(),
        })
    }

    /// The same limit with a name, by which decisions refer to it.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Limit {
        self.name = Arc::from(name);
        self
    }

    /// The same limit with room for at least `max_keys` keys that are in use at once. Unused keys take no room.
    #[must_use]
    pub fn with_max_keys(mut self, max_keys: usize) -> Limit {
        self.max_keys = max_keys;
        self
    }

    /// The same limit, which takes up to `units` more than it holds for costs that are known only afterwards
    /// ([`KeyOp::ChargeRemaining`](crate::KeyOp::ChargeRemaining)). Nothing passes until they are earned. Of numbers above
    /// 524 287 nineteen binary digits are kept.
    ///
    /// # Errors
    /// An algorithm that does not earn units one by one, or a debt that takes more than 73 years to earn.
    pub fn with_max_debt(self, units: u64) -> Result<Limit, LimitError> {
        let max_debt = match compile(&self.algorithm)? {
            _ if units == 0 => 0,
            Compiled::Bucket(bucket) => bucket.with_debt(units)?.debt(),
            _ => return Err(LimitError::NoDebt),
        };
        Ok(Limit { max_debt, ..self })
    }

    /// The same limit, to replace `old`: what a key used there beyond the capacity of this one is not forgiven. Nothing of that
    /// key passes until it is earned, and a capacity that grows again gives nothing away. Without this the key starts empty.
    ///
    /// Only buckets make the difference. Windows, logs and permits keep their counts in any case.
    #[must_use]
    pub fn keeping_usage_of(self, old: &Limit) -> Limit {
        let units = old.most_used().max(old.backlog);
        if units <= self.most_used() {
            return self;
        }
        Limit {
            backlog: self.backlog.max(units),
            ..self
        }
    }

    /// Units that a key of a bucket has used at the most, with its debt; 0 for other algorithms.
    fn most_used(&self) -> u64 {
        let units = match self.algorithm {
            Algorithm::TokenBucket { burst, .. } => burst,
            Algorithm::LeakyBucket { queue, .. } => queue,
            // One, what it earns in the tolerance, and less than one more.
            Algorithm::Gcra { rate, tolerance } => rate.earned_in(tolerance).saturating_add(2),
            _ => 0,
        };
        units.saturating_add(self.max_debt)
    }

    /// Units that it takes beyond empty for costs that are known afterwards.
    pub const fn max_debt(&self) -> u64 {
        self.max_debt
    }

    /// Units that a limit that it replaces may have left.
    pub const fn backlog(&self) -> u64 {
        self.backlog
    }

    /// The same limit with these numbers, from a snapshot.
    pub(crate) fn restored_with(self, max_debt: u64, backlog: u64) -> Result<Limit, LimitError> {
        Limit { backlog, ..self }.with_max_debt(max_debt)
    }

    /// Does it decide as `other`? Their names and `max_keys` may differ.
    pub fn decides_as(&self, other: &Limit) -> bool {
        self.algorithm == other.algorithm && self.max_debt == other.max_debt
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it decides.
    pub const fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// How many keys there is room for.
    pub const fn max_keys(&self) -> usize {
        self.max_keys
    }

    pub(crate) fn compiled(&self) -> Result<Compiled, LimitError> {
        match compile(&self.algorithm)? {
            Compiled::Bucket(bucket) => Ok(Compiled::Bucket(
                bucket.with_debt(self.max_debt)?.with_backlog(self.backlog),
            )),
            _ if self.max_debt > 0 => Err(LimitError::NoDebt),
            Compiled::Queue(queue) => Ok(Compiled::Queue(queue.with_backlog(self.backlog))),
            other => Ok(other),
        }
    }
}

fn compile(algorithm: &Algorithm) -> Result<Compiled, LimitError> {
    Ok(match *algorithm {
        Algorithm::TokenBucket { rate, burst } => Compiled::Bucket(Bucket::new(rate, burst)?),
        Algorithm::Gcra { rate, tolerance } => Compiled::Bucket(Bucket::gcra(rate, tolerance)?),
        Algorithm::LeakyBucket {
            rate,
            queue,
            max_wait,
        } => Compiled::Queue(Queue::new(rate, queue, max_wait)?),
        Algorithm::FixedWindow {
            limit,
            window,
            anchor,
        } => Compiled::Window(Window::new(limit, window, anchor)?),
        Algorithm::SlidingLog { limit, window } => Compiled::Log(Log::new(limit, window)?),
        Algorithm::SlidingWindow {
            limit,
            window,
            estimate,
        } => Compiled::Sliding(Sliding::new(limit, window, estimate)?),
        Algorithm::Concurrency { limit, ttl } => Compiled::Permits(Permits::new(limit, ttl)?),
    })
}
