//! Errors: why an item or a configuration is rejected.

use std::error::Error;
use std::fmt;

/// An item that was not taken, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejected<T> {
    /// What was to be enqueued.
    pub item: T,
    /// Why it was not.
    pub reason: RejectReason,
}

impl<T> Rejected<T> {
    /// What can be done about it, in one imperative sentence.
    pub fn hint(&self) -> String {
        self.reason.hint()
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T: fmt::Debug> Error for Rejected<T> {}

/// Why an item was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectReason {
    /// Its flow has as many items waiting as one flow may.
    FlowFull {
        /// How many one flow may have waiting.
        max: usize,
    },
    /// The queue is full, and no other flow has more queued cost/weight than this one would.
    TotalFull {
        /// How many may wait in all.
        max: usize,
    },
    /// A weight of zero would wait for ever.
    ZeroWeight,
    /// An item of cost zero would move no tag, and its flow would always go first.
    ZeroCost,
    /// The cost is beyond [`MAX_COST_PER_WEIGHT`](super::MAX_COST_PER_WEIGHT) for this weight.
    CostAboveMax {
        /// The cost asked for.
        cost: u64,
        /// The most this weight may ask for.
        max: u64,
    },
}

impl RejectReason {
    /// What can be done about it, in one imperative sentence.
    pub fn hint(&self) -> String {
        match self {
            Self::FlowFull { .. } => {
                "refuse the request and let the client retry later, or raise `max_queued_per_flow`"
                    .into()
            }
            Self::TotalFull { .. } => {
                "refuse the request and let the client retry later, or raise `max_queued_total`"
                    .into()
            }
            Self::ZeroWeight => {
                "give the flow a `weight` of at least 1; to block it, deny it before the queue"
                    .into()
            }
            Self::ZeroCost => {
                "charge at least 1, or do not queue requests that cost nothing".into()
            }
            Self::CostAboveMax { .. } => {
                "count cost in a larger unit (KiB instead of bytes), or scale all weights up".into()
            }
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FlowFull { max } => {
                write!(
                    f,
                    "this flow already has {max} waiting, the most one flow may"
                )
            }
            Self::TotalFull { max } => write!(
                f,
                "{max} are waiting, the most there may be, and no flow has more queued than this one"
            ),
            Self::ZeroWeight => write!(f, "`weight` is 0, so the item would wait forever"),
            Self::ZeroCost => {
                write!(f, "`cost` is 0, so this flow would go first forever")
            }
            Self::CostAboveMax { cost, max } => {
                write!(
                    f,
                    "`cost` is {cost}, but this weight may ask for at most {max}"
                )
            }
        }
    }
}

impl Error for RejectReason {}

/// Why a queue cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FairQueueError {
    /// A depth of zero runs nothing.
    ZeroDepth,
    /// A bound of zero per flow runs nothing.
    ZeroRunningPerFlow,
    /// Zero waiting items per flow: no item could be enqueued, not even for a moment.
    ZeroQueuedPerFlow,
    /// Zero waiting items in all: no item could be enqueued, not even for a moment.
    ZeroQueuedTotal,
}

impl FairQueueError {
    /// What the operator can do now, in one imperative sentence.
    pub fn hint(&self) -> String {
        match self {
            Self::ZeroDepth => {
                "set `depth` to the number of requests the backend serves at once".into()
            }
            Self::ZeroRunningPerFlow => {
                "set `max_running_per_flow` to at least 1, or to `usize::MAX` for no bound".into()
            }
            Self::ZeroQueuedPerFlow => "set `max_queued_per_flow` to at least 1".into(),
            Self::ZeroQueuedTotal => "set `max_queued_total` to at least 1".into(),
        }
    }
}

impl fmt::Display for FairQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroDepth => write!(f, "`depth` is 0, so nothing would ever run"),
            Self::ZeroRunningPerFlow => {
                write!(f, "`max_running_per_flow` is 0, so nothing would ever run")
            }
            Self::ZeroQueuedPerFlow => write!(
                f,
                "`max_queued_per_flow` is 0, so every request would be refused"
            ),
            Self::ZeroQueuedTotal => write!(
                f,
                "`max_queued_total` is 0, so every request would be refused"
            ),
        }
    }
}

impl Error for FairQueueError {}
