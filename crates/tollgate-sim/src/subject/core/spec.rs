//! The numbers of each one-word limiter, as timelines name them, and the limit they compile to.

use super::super::given::Given;
use super::told::{rate, span};
use crate::model::{Change, has_no};
use crate::timeline::Case;
use tollgate::algorithm::OneWord;
use tollgate::algorithm::bucket::Bucket;
use tollgate::algorithm::queue::Queue;
use tollgate::algorithm::sliding::{Layout, Sliding, Tail};
use tollgate::algorithm::window::Window;

/// The numbers of a limiter.
pub trait Spec: Clone + std::fmt::Debug {
    /// What they compile to.
    type Limit: OneWord + std::fmt::Debug;

    /// The limit.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    fn compile(&self) -> Result<Self::Limit, String>;

    /// The numbers after `change`.
    ///
    /// # Errors
    ///
    /// If there is no such change.
    fn changed(&self, change: Change) -> Result<Self, String>;

    /// Whether units can be given back.
    ///
    /// # Errors
    ///
    /// If they cannot.
    fn allow_refund(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether a request can be refused for its wait alone.
    fn has_max_wait(&self) -> bool {
        false
    }
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucketSpec {
    /// Tokens in a full bucket.
    pub cap: u64,
    /// Tokens earned every `p_ns`.
    pub n: u64,
    /// The period.
    pub p_ns: u64,
}

impl TokenBucketSpec {
    /// The numbers of `case`.
    ///
    /// # Errors
    ///
    /// If one is missing, malformed or not understood.
    pub fn of(case: &Case) -> Result<Self, String> {
        let given = Given::of_case(case, &["cap", "n", "p_ns"])?;
        Ok(Self {
            cap: given.need("cap")?,
            n: given.need("n")?,
            p_ns: given.need("p_ns")?,
        })
    }
}

impl Spec for TokenBucketSpec {
    type Limit = Bucket;

    fn compile(&self) -> Result<Bucket, String> {
        Bucket::new(rate(self.n, self.p_ns)?, self.cap).map_err(|error| error.to_string())
    }

    fn changed(&self, change: Change) -> Result<Self, String> {
        match change {
            Change::SetCap { cap } => Ok(Self { cap, ..*self }),
            Change::SetRate { n, p_ns } => Ok(Self { n, p_ns, ..*self }),
            _ => Err(has_no(change)),
        }
    }
}

/// A GCRA meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcraSpec {
    /// Cells every `p_ns`.
    pub n: u64,
    /// The period.
    pub p_ns: u64,
    /// How much earlier than due still conforms.
    pub tau_ns: u64,
}

impl GcraSpec {
    /// The numbers of `case`.
    ///
    /// # Errors
    ///
    /// If one is missing, malformed or not understood.
    pub fn of(case: &Case) -> Result<Self, String> {
        let given = Given::of_case(case, &["n", "p_ns", "tau_ns"])?;
        Ok(Self {
            n: given.need("n")?,
            p_ns: given.need("p_ns")?,
            tau_ns: given.need("tau_ns")?,
        })
    }
}

impl Spec for GcraSpec {
    type Limit = Bucket;

    fn compile(&self) -> Result<Bucket, String> {
        Bucket::gcra(rate(self.n, self.p_ns)?, span(self.tau_ns)).map_err(|error| error.to_string())
    }

    fn changed(&self, change: Change) -> Result<Self, String> {
        match change {
            Change::SetRate { n, p_ns } => Ok(Self { n, p_ns, ..*self }),
            _ => Err(has_no(change)),
        }
    }
}

/// A leaky queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Units waiting or in service at the most.
    pub queue: u64,
    /// Units that leave every `p_ns`.
    pub n: u64,
    /// The period.
    pub p_ns: u64,
    /// The longest wait that is still accepted.
    pub max_wait_ns: Option<u64>,
}

impl QueueSpec {
    /// The numbers of `case`.
    ///
    /// # Errors
    ///
    /// If one is missing, malformed or not understood.
    pub fn of(case: &Case) -> Result<Self, String> {
        let given = Given::of_case(case, &["queue", "n", "p_ns", "max_wait_ns"])?;
        Ok(Self {
            queue: given.need("queue")?,
            n: given.need("n")?,
            p_ns: given.need("p_ns")?,
            max_wait_ns: given.find("max_wait_ns")?,
        })
    }
}

impl Spec for QueueSpec {
    type Limit = Queue;

    fn compile(&self) -> Result<Queue, String> {
        let max_wait = self.max_wait_ns.map(span);
        Queue::new(rate(self.n, self.p_ns)?, self.queue, max_wait)
            .map_err(|error| error.to_string())
    }

    fn changed(&self, change: Change) -> Result<Self, String> {
        match change {
            Change::SetCap { cap } => Ok(Self {
                queue: cap,
                ..*self
            }),
            Change::SetRate { n, p_ns } => Ok(Self { n, p_ns, ..*self }),
            _ => Err(has_no(change)),
        }
    }

    /// A place in a queue cannot be given back: a later arrival would be promised the slot of another.
    fn allow_refund(&self) -> Result<(), String> {
        Err("a place in a queue cannot be given back".to_owned())
    }

    fn has_max_wait(&self) -> bool {
        self.max_wait_ns.is_some()
    }
}

/// The limits that count, which have a limit for their capacity and no rate.
macro_rules! limit_only {
    ($self:ident, $change:ident) => {
        match $change {
            Change::SetCap { cap } => Ok(Self {
                limit: cap,
                ..*$self
            }),
            _ => Err(has_no($change)),
        }
    };
}

/// A fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSpec {
    /// Units in each window.
    pub limit: u64,
    /// Length of a window.
    pub window_ns: u64,
    /// A moment at which a window starts.
    pub anchor_ns: u64,
}

impl WindowSpec {
    /// The numbers of `case`.
    ///
    /// # Errors
    ///
    /// If one is missing, malformed or not understood.
    pub fn of(case: &Case) -> Result<Self, String> {
        let given = Given::of_case(case, &["limit", "window_ns", "anchor_ns"])?;
        Ok(Self {
            limit: given.need("limit")?,
            window_ns: given.need("window_ns")?,
            anchor_ns: given.find("anchor_ns")?.unwrap_or(0),
        })
    }
}

impl Spec for WindowSpec {
    type Limit = Window;

    fn compile(&self) -> Result<Window, String> {
        Window::new(self.limit, span(self.window_ns), span(self.anchor_ns))
            .map_err(|error| error.to_string())
    }

    fn changed(&self, change: Change) -> Result<Self, String> {
        limit_only!(self, change)
    }
}

/// A sliding counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterSpec {
    /// Units in any window, by estimate.
    pub limit: u64,
    /// Length of a window.
    pub window_ns: u64,
    /// Parts of a window.
    pub sub: u32,
    /// Whether the oldest part counts in full.
    pub is_strict: bool,
}

impl CounterSpec {
    /// The numbers of `case`.
    ///
    /// # Errors
    ///
    /// If one is missing, malformed or not understood.
    pub fn of(case: &Case) -> Result<Self, String> {
        let given = Given::of_case(case, &["limit", "window_ns", "sub", "strict"])?;
        Ok(Self {
            limit: given.need("limit")?,
            window_ns: given.need("window_ns")?,
            sub: given.find("sub")?.unwrap_or(1),
            is_strict: given.flag("strict")?,
        })
    }

    /// How a word is divided.
    pub fn layout(&self) -> Layout {
        Layout {
            parts: self.sub,
            divisions: 1,
            tail: if self.is_strict {
                Tail::Whole
            } else {
                Tail::Even
            },
        }
    }
}

impl Spec for CounterSpec {
    type Limit = Sliding;

    fn compile(&self) -> Result<Sliding, String> {
        Sliding::with_layout(self.limit, span(self.window_ns), self.layout())
            .map_err(|error| error.to_string())
    }

    fn changed(&self, change: Change) -> Result<Self, String> {
        limit_only!(self, change)
    }
}

/// A span counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanSpec {
    /// Units in any window, by estimate.
    pub limit: u64,
    /// Length of a window.
    pub window_ns: u64,
    /// Parts of a window.
    pub sub: u32,
    /// Divisions of a part.
    pub span: u32,
}

impl SpanSpec {
    /// The numbers of `case`.
    ///
    /// # Errors
    ///
    /// If one is missing, malformed or not understood.
    pub fn of(case: &Case) -> Result<Self, String> {
        let given = Given::of_case(case, &["limit", "window_ns", "sub", "span"])?;
        Ok(Self {
            limit: given.need("limit")?,
            window_ns: given.need("window_ns")?,
            sub: given.need("sub")?,
            span: given.need("span")?,
        })
    }

    /// How a word is divided.
    pub fn layout(&self) -> Layout {
        Layout {
            parts: self.sub,
            divisions: self.span,
            tail: Tail::Span,
        }
    }
}

impl Spec for SpanSpec {
    type Limit = Sliding;

    fn compile(&self) -> Result<Sliding, String> {
        Sliding::with_layout(self.limit, span(self.window_ns), self.layout())
            .map_err(|error| error.to_string())
    }

    fn changed(&self, change: Change) -> Result<Self, String> {
        limit_only!(self, change)
    }
}
