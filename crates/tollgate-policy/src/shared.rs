//! A store that several processes share: what is asked of it, and what it answers.
//!
//! # Theory
//!
//! Whoever holds the state decides. A shared store holds it elsewhere, so a request's charges are sent
//! there together, in one round trip, and come back as outcomes; the policy makes an answer of them as it
//! does of its own decisions. Spans cross the wire, moments never do, except that a charge remembers the
//! store's own moment so that it can be given back strictly.
//!
//! Limits are made known once, when a policy is put in force ([`SharedStore::prepare`]); a request then
//! names them by their place.
//!
//! # Invariant
//!
//! A store answers in time or says that it does not ([`StoreFault`]), whatever happens to it: it knows its
//! deadline. What then becomes of a request is for the policy to say, limit by limit
//! ([`crate::OnStoreError`]).
//!
//! # What it does not know
//!
//! Sockets and protocols. A crate that does implements these traits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::Quota;
use tollgate::LimitError;
use tollgate::LimitId;
use tollgate::{Moment, Span};
use tollgate::{QuotaStatus, Verdict};

/// Parts of a key at the most.
pub const KEY_PARTS_MAX: usize = 8;

/// Entries of a sliding log in a shared store at the most: a refund may have to rewrite half of them, and the server does
/// nothing else meanwhile (on a Redis about 1.3 ms for ten thousand, 7 ms for this many).
pub const LOG_MAX: u64 = 50_000;

/// What a shared store promises to answer later, in time.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreFault>> + Send + 'a>>;

/// A store that several processes share.
pub trait SharedStore: fmt::Debug + Send + Sync + 'static {
    /// Makes the limits of a policy chargeable. Asks nobody: it works without the store.
    ///
    /// # Errors
    /// The place of the first limit that this store cannot enforce, and why.
    fn prepare(
        &self,
        limits: &[SharedLimit<'_>],
    ) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)>;

    /// Over how many nodes a limit is spread while the store is away: all that share it, as far as this
    /// one knows. At least one.
    fn nodes(&self) -> u32;

    /// How it is doing.
    fn report(&self) -> StoreReport;

    /// Tells the others that this node is gone: when it ends. It waits for a moment at the most.
    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// The limits of one policy, as a shared store charges them.
pub trait SharedLimits: fmt::Debug + Send + Sync + 'static {
    /// Decides all charges together, in order. Enforced ones are taken all or none; those that are only
    /// counted are taken one by one ([`SharedCharge::with_next`] excepted), and only if all enforced ones are. One outcome for each charge.
    fn charge<'a>(&'a self, request: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>>;

    /// Corrects what was taken. Returns the units that could not be taken because nothing was left.
    fn settle<'a>(&'a self, settle: &'a SharedSettle) -> Answering<'a, u64>;
}

/// A limit that is to be made known.
#[derive(Clone, Copy, Debug)]
pub struct SharedLimit<'a> {
    /// What it is known by from one policy to the next, on every node: `rule`, `rule@tier`,
    /// `rule+candidate`, or `rule!` and the numbers of an override.
    pub id: &'a str,
    /// How much.
    pub quota: &'a Quota,
    /// What it was under the policies before, the last first: the same algorithm with other numbers. A key's
    /// usage counts on.
    pub before: &'a [Quota],
    /// May keys be written as they are? Otherwise only as a hash.
    pub plain: bool,
}

/// What is asked of the store for one request.
#[derive(Clone, Debug)]
pub struct SharedRequest {
    /// Take, or only tell what taking would come to?
    pub take: bool,
    /// How long whoever asks has waited already: the deadline of the store is for all of it.
    pub waited: Span,
    /// The charges, in the order of the policy.
    pub charges: Vec<SharedCharge>,
}

/// One charge.
#[derive(Clone, Debug)]
pub struct SharedCharge {
    /// The limit, by its place among those that were prepared.
    pub limit: LimitId,
    /// Whom it is for.
    pub key: SharedKey,
    /// How much.
    pub cost: u64,
    /// How many fit into the limit for this charge, if that came with the request: the limit is then a
    /// fixed window, and its own number is only a bound.
    pub most: Option<u32>,
    /// Can it refuse the request, or is it only counted?
    pub enforced: bool,
    /// If it is only counted: is it with the next charge, so that both are taken or none? Both then say what they say
    /// together. Neither is on a sliding log.
    pub with_next: bool,
    /// Units that this node let pass while the store was away: taken first, as far as they fit.
    pub owed: u64,
}

/// What became of one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedOutcome {
    /// What this limit says, whatever the others do.
    pub verdict: Verdict,
    /// What is left: afterwards if it was taken (or would be, if only asked), otherwise as it stands.
    pub status: QuotaStatus,
    /// The store's own moment, to be shown when settling.
    pub issued: Moment,
    /// Of what was told as owed, units for which there was no room.
    pub unpaid: u64,
}

/// A correction of a charge.
#[derive(Clone, Debug)]
pub struct SharedSettle {
    /// The limit.
    pub limit: LimitId,
    /// Whom it was for.
    pub key: SharedKey,
    /// When it was taken, by the store's clock.
    pub issued: Moment,
    /// What was taken.
    pub taken: u64,
    /// What was used. All that was taken is given back if it is 0.
    pub used: u64,
}

/// What a key is made of, so that a fallback is never mistaken for somebody's own key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// The parts that the rule names.
    #[default]
    Own,
    /// The client's address instead.
    Address,
    /// Nothing: everybody who lacks a part.
    Shared,
}

/// A key by its parts, the same on every node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SharedKey {
    kind: KeyKind,
    bytes: Vec<u8>,
    /// Where each part ends.
    ends: [u32; KEY_PARTS_MAX],
    count: u8,
}

impl SharedKey {
    /// A key of this kind without parts.
    pub fn new(kind: KeyKind) -> SharedKey {
        SharedKey {
            kind,
            ..SharedKey::default()
        }
    }

    /// Adds a part. What comes after [`KEY_PARTS_MAX`] of them is not part of the key.
    pub fn push(&mut self, part: &[u8]) {
        if let Some(end) = self.ends.get_mut(usize::from(self.count)) {
            self.bytes.extend_from_slice(part);
            *end = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
            self.count += 1;
        }
    }

    /// The kind.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        self.ends
            .iter()
            .take(usize::from(self.count))
            .map(move |end| {
                let end = *end as usize;
                let part = self.bytes.get(from..end).unwrap_or_default();
                from = end;
                part
            })
    }
}

/// Why a shared store gave no answer. In every case the request is decided without it; a charge whose
/// answer was lost may have been taken, and is never sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFault {
    /// Of which kind.
    pub kind: FaultKind,
    /// In the words of whoever noticed.
    pub detail: Arc<str>,
}

/// Kinds of faults of a store; labels in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// There is no connection: it is being made in the background.
    Away,
    /// No answer in time.
    Late,
    /// More is in flight than may be.
    Busy,
    /// The connection broke before the answer came.
    Broken,
    /// The answer is not one to this question.
    Garbled,
    /// The server is there and cannot: it loads, is out of memory, is no primary any more.
    Unable,
    /// The server refuses, and somebody has to change something: password, permissions, a foreign key.
    Refused,
}

impl FaultKind {
    /// All of them, in order.
    pub const ALL: [FaultKind; 7] = [
        FaultKind::Away,
        FaultKind::Late,
        FaultKind::Busy,
        FaultKind::Broken,
        FaultKind::Garbled,
        FaultKind::Unable,
        FaultKind::Refused,
    ];

    /// What it is called in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Away => "away",
            FaultKind::Late => "late",
            FaultKind::Busy => "busy",
            FaultKind::Broken => "broken",
            FaultKind::Garbled => "garbled",
            FaultKind::Unable => "unable",
            FaultKind::Refused => "refused",
        }
    }
}

impl StoreFault {
    /// A fault of this kind.
    pub fn new(kind: FaultKind, detail: impl Into<Arc<str>>) -> StoreFault {
        StoreFault {
            kind,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.detail)
    }
}

impl std::error::Error for StoreFault {}

/// How a shared store is doing.
#[derive(Clone, Debug, Default)]
pub struct StoreReport {
    /// Every server that it talks to.
    pub servers: Vec<ServerReport>,
    /// Nodes that share the store, this one included, as far as it knows.
    pub nodes: u32,
    /// What is wrong with the store and somebody should change: code and words.
    pub warnings: Vec<(&'static str, String)>,
    /// Decisions that it answered, by how long that took.
    pub answered: Latencies,
    /// Decisions that it did not answer, by [`FaultKind::ALL`].
    pub faults: [u64; FaultKind::ALL.len()],
    /// Scripts that were sent whole because the server did not know them.
    pub reloaded_scripts: u64,
    /// Errors that a script gave, and answers that our own arithmetic does not agree with.
    pub script_errors: u64,
    /// Questions that were sent on to another server of a cluster.
    pub redirects: u64,
    /// Charges that were given back because another server refused its part.
    pub compensated: u64,
}

/// One server of a shared store.
#[derive(Clone, Debug, Default)]
pub struct ServerReport {
    /// Where it is.
    pub address: String,
    /// Is it asked? Otherwise requests are decided without it, and it is tried in the background.
    pub is_up: bool,
    /// Times that it was given up.
    pub broken: u64,
    /// Times that a connection to it was made.
    pub connected: u64,
    /// How far its replicas are behind, in seconds; none if it has none or does not tell.
    pub replica_lag: Option<u64>,
    /// Why it is not asked; `None` if it is, or if the first connection attempt has not ended.
    pub last_fault: Option<String>,
}

/// How long answers took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// For each of [`Latencies::BOUNDS_US`], how many took at most as long; not added up. One more for the
    /// rest.
    pub counts: [u64; Latencies::BOUNDS_US.len() + 1],
    /// All of them together, in microseconds.
    pub sum_us: u64,
}

impl Latencies {
    /// Upper bounds in microseconds.
    pub const BOUNDS_US: [u64; 11] = [
        50, 100, 200, 400, 800, 1_500, 3_000, 5_000, 8_000, 15_000, 50_000,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_parts_apart() {
        let mut key = SharedKey::new(KeyKind::Own);
        key.push(b"ab");
        key.push(b"");
        key.push(b"c");
        let parts: Vec<&[u8]> = key.parts().collect();
        assert_eq!(parts, [&b"ab"[..], b"", b"c"]);
        let mut other = SharedKey::new(KeyKind::Own);
        other.push(b"a");
        other.push(b"b");
        other.push(b"c");
        assert_ne!(key, other);
    }

    #[test]
    fn parts_beyond_the_most_are_left_out() {
        let mut key = SharedKey::new(KeyKind::Own);
        for _ in 0..KEY_PARTS_MAX + 2 {
            key.push(b"x");
        }
        assert_eq!(key.parts().count(), KEY_PARTS_MAX);
    }
}
