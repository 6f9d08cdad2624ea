//! Interface of a store that several processes share.
//!
//! # Theory
//!
//! The holder of the state decides. A shared store holds it elsewhere, so a request's charges are sent there
//! together, in one round trip, and come back as outcomes. The policy builds a decision of them as it does of its
//! own. Spans cross the wire, moments never do, except that a charge carries the store's own moment so that it can
//! be refunded strictly.
//!
//! Limits are prepared once, when a policy is activated ([`SharedStore::prepare`]). A request then names them by
//! index.
//!
//! # Invariant
//!
//! A store answers in time or reports a fault ([`StoreFault`]), in every situation: it has its own deadline. The
//! policy then decides the request, limit by limit ([`crate::OnStoreError`]).
//!
//! # Implementations
//!
//! This module contains no socket and no protocol. `tollgate-redis` implements these traits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::Quota;
use tollgate::LimitError;
use tollgate::LimitId;
use tollgate::{Moment, Span};
use tollgate::{QuotaStatus, Verdict};

/// Most parts of a key.
pub const KEY_PARTS_MAX: usize = 8;

/// Most entries of a sliding log in a shared store. A refund may have to rewrite half of them, which blocks the
/// server (a Redis about 1.3 ms for ten thousand, 7 ms for this many).
pub const LOG_MAX: u64 = 50_000;

/// The pending answer of a shared store.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreFault>> + Send + 'a>>;

/// A store that several processes share.
pub trait SharedStore: fmt::Debug + Send + Sync + 'static {
    /// Makes the limits of a policy chargeable. Sends nothing: it works without a connection.
    ///
    /// # Errors
    /// The index of the first limit that this store cannot enforce, and why.
    fn prepare(
        &self,
        limits: &[SharedLimit<'_>],
    ) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)>;

    /// The number of nodes that divide a limit while the store is down: all that share it, as far as this one
    /// knows. At least one.
    fn nodes(&self) -> u32;

    /// The state of the store.
    fn report(&self) -> StoreReport;

    /// A secret that all nodes of this store have, once it is known. It authenticates what one node issues and another one
    /// accepts.
    fn fleet_secret(&self) -> Option<[u8; 32]> {
        None
    }

    /// Records that an identifier is used, for at least `ttl`. The answer is `false` if it was recorded before.
    fn record_use(&self, _id: u128, _ttl: Span) -> Answering<'_, bool> {
        let fault = StoreFault::new(FaultKind::Unable, "this store records no identifiers");
        Box::pin(std::future::ready(Err(fault)))
    }

    /// Reports to the other nodes that this node stops. It waits only briefly.
    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// The limits of one policy, as a shared store charges them.
pub trait SharedLimits: fmt::Debug + Send + Sync + 'static {
    /// Decides all charges together, in order. Enforced ones are taken all or none. Those that are only counted
    /// are taken one by one ([`SharedCharge::with_next`] excepted), and only if all enforced ones are. Returns one
    /// outcome for each charge.
    fn charge<'a>(&'a self, request: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>>;

    /// Corrects what was taken. Returns the units that could not be taken because nothing was left.
    fn settle<'a>(&'a self, settle: &'a SharedSettle) -> Answering<'a, u64>;

    /// Forgets everything that is counted for a key of one limit.
    fn forget<'a>(&'a self, _limit: LimitId, _key: &'a SharedKey) -> Answering<'a, ()> {
        let fault = StoreFault::new(FaultKind::Unable, "this store forgets no keys");
        Box::pin(std::future::ready(Err(fault)))
    }
}

/// A limit to prepare.
#[derive(Clone, Copy, Debug)]
pub struct SharedLimit<'a> {
    /// The stable name on every node and under every policy: `rule`, `rule@tier`, `rule+candidate`, or `rule!` and
    /// the numbers of an override.
    pub id: &'a str,
    /// The quota.
    pub quota: &'a Quota,
    /// Its quotas under the previous policies, the latest first: the same algorithm with other numbers. A key's
    /// usage carries over.
    pub before: &'a [Quota],
    /// Whether keys may be written in plain. Otherwise only as a hash.
    pub plain: bool,
}

/// One request to the store.
#[derive(Clone, Debug)]
pub struct SharedRequest {
    /// Whether units are taken, or only the result is reported.
    pub take: bool,
    /// How long the caller has waited already. The store's deadline includes it.
    pub waited: Span,
    /// The charges, in the order of the policy.
    pub charges: Vec<SharedCharge>,
}

/// One charge.
#[derive(Clone, Debug)]
pub struct SharedCharge {
    /// The limit, by its index among the prepared ones.
    pub limit: LimitId,
    /// The key.
    pub key: SharedKey,
    /// The cost.
    pub cost: u64,
    /// The limit's number for this charge, if it came with the request. The limit is then a fixed window, and its
    /// own number is only a bound.
    pub most: Option<u32>,
    /// Whether it can refuse the request; otherwise it is only counted.
    pub enforced: bool,
    /// For counted charges: whether it is taken together with the next charge or not at all. Both then have the
    /// common verdict. Neither is on a sliding log.
    pub with_next: bool,
    /// Debt: units that this node admitted while the store was down. They are taken first, as far as they fit.
    pub owed: u64,
}

/// The outcome of one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedOutcome {
    /// The verdict of this limit by itself.
    pub verdict: Verdict,
    /// The status: after the charge if it was taken (or would be, if only asked), otherwise as it is.
    pub status: QuotaStatus,
    /// The store's own moment. Settling needs it.
    pub issued: Moment,
    /// Units of the reported debt for which there was no room.
    pub unpaid: u64,
}

/// A correction of a charge.
#[derive(Clone, Debug)]
pub struct SharedSettle {
    /// The limit.
    pub limit: LimitId,
    /// The key.
    pub key: SharedKey,
    /// When it was taken, by the store's clock.
    pub issued: Moment,
    /// Units that were taken.
    pub taken: u64,
    /// Units that were used. With 0 all that was taken is refunded.
    pub used: u64,
}

/// The kind of a key, so that a fallback key never equals a key of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// The parts that the rule names.
    #[default]
    Own,
    /// The client's address instead.
    Address,
    /// None: all requests that lack a part share it.
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

    /// Adds a part. Parts beyond [`KEY_PARTS_MAX`] are ignored.
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

/// Why a shared store did not answer. In every case the request is decided without it. A charge whose answer was
/// lost may have been taken, and is never sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFault {
    /// The kind.
    pub kind: FaultKind,
    /// Details, as reported by the client library or server.
    pub detail: Arc<str>,
}

/// Kinds of faults of a store; labels in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// No connection; the background is connecting.
    Away,
    /// No answer in time.
    Late,
    /// Too many operations are in flight.
    Busy,
    /// The connection broke before the answer came.
    Broken,
    /// The reply does not match the request.
    Garbled,
    /// The server is up but cannot serve: it loads, is out of memory, or is no primary any more.
    Unable,
    /// The server refuses until an operator changes something: password, permissions, a foreign key.
    Refused,
}

impl FaultKind {
    /// All kinds, in order.
    pub const ALL: [FaultKind; 7] = [
        FaultKind::Away,
        FaultKind::Late,
        FaultKind::Busy,
        FaultKind::Broken,
        FaultKind::Garbled,
        FaultKind::Unable,
        FaultKind::Refused,
    ];

    /// The name in metrics and logs.
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

/// The state of a shared store.
#[derive(Clone, Debug, Default)]
pub struct StoreReport {
    /// The servers that it uses.
    pub servers: Vec<ServerReport>,
    /// Nodes that share the store, this one included, as far as it knows.
    pub nodes: u32,
    /// A fault of the store that an operator should fix: code and text.
    pub warnings: Vec<(&'static str, String)>,
    /// Decisions that it answered, by latency.
    pub answered: Latencies,
    /// Decisions that it did not answer, by [`FaultKind::ALL`].
    pub faults: [u64; FaultKind::ALL.len()],
    /// Scripts that were sent in full because the server did not know them.
    pub reloaded_scripts: u64,
    /// Errors of a script, and replies that disagree with the core's arithmetic.
    pub script_errors: u64,
    /// Operations that were redirected to another server of a cluster.
    pub redirects: u64,
    /// Charges that were refunded because another server refused its part.
    pub compensated: u64,
}

/// One server of a shared store.
#[derive(Clone, Debug, Default)]
pub struct ServerReport {
    /// Its address.
    pub address: String,
    /// Whether it is used. Otherwise requests are decided without it, and it is probed in the background.
    pub is_up: bool,
    /// Times that it was marked down.
    pub broken: u64,
    /// Connections made.
    pub connected: u64,
    /// Replication lag in seconds; `None` if it has no replicas or does not report it.
    pub replica_lag: Option<u64>,
    /// Why it is down; `None` if it is up, or if the first connection attempt has not ended.
    pub last_fault: Option<String>,
}

/// A histogram of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// For each of [`Latencies::BOUNDS_US`], the number within the bound and above the previous one. One more for
    /// the rest.
    pub counts: [u64; Latencies::BOUNDS_US.len() + 1],
    /// The sum, in microseconds.
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
