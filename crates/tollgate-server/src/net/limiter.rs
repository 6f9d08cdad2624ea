//! Bounds connections by address: how many at once, how fast, and how many places are left for known addresses.
//!
//! # Theory
//!
//! One address must not take all places. IPv6 addresses count by their /64, which is what one customer usually has. A
//! trusted proxy forwards for many clients, so only the total bounds it.
//!
//! A port with a token keeps a part of its places for loopback and for addresses that have shown the token. All other
//! addresses together can take only the rest.
//!
//! # Invariant
//!
//! The table has entries only for addresses with open connections, so it is never larger than their number.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::{Limit, Limiter, Rate};
use tollgate_config::AcceptSpec;
use tollgate_policy::address::{CidrSet, masked};

/// Addresses that have shown the token, at most; the oldest is forgotten first.
const KNOWN_ADDRESSES: usize = 64;

/// How fast one address may connect.
#[derive(Clone, Debug)]
struct ConnectRate {
    spec: (Rate, u64),
    limiter: Limiter,
}

impl ConnectRate {
    fn new(spec: (Rate, u64)) -> Option<ConnectRate> {
        let limit = Limit::token_bucket(spec.0, spec.1).ok()?;
        let limiter = Limiter::new(limit).ok()?;
        Some(ConnectRate { spec, limiter })
    }
}

/// Open connections.
#[derive(Debug, Default)]
struct Counts {
    by_address: HashMap<IpAddr, usize>,
    /// Those that hold no reserved place.
    unreserved: usize,
    known: VecDeque<IpAddr>,
}

/// Bounds the connections of each address. Shared by all threads of a listener.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    per_address: usize,
    rate: Option<ConnectRate>,
    /// Connections of addresses that are not known, at most.
    unreserved: usize,
    trusted: CidrSet,
    counts: Arc<Mutex<Counts>>,
}

/// An admitted connection, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct AddressPermit {
    address: IpAddr,
    is_reserved: bool,
    counts: Arc<Mutex<Counts>>,
}

/// Why a connection is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionRejected {
    /// Too many connections of its address are open, or too many of addresses that are not known.
    TooMany,
    /// Its address connects too fast.
    TooFast,
}

impl ConnectionLimiter {
    /// Bounds addresses by `spec`; those in `trusted` are exempt.
    pub(crate) fn new(spec: &AcceptSpec, trusted: CidrSet) -> ConnectionLimiter {
        ConnectionLimiter {
            per_address: spec.per_address,
            rate: spec.rate.and_then(ConnectRate::new),
            unreserved: usize::MAX,
            trusted,
            counts: Arc::default(),
        }
    }

    /// Leaves addresses that are not known `unreserved` places in all, and each address `per_address`.
    pub(crate) fn with_reserve(per_address: usize, unreserved: usize) -> ConnectionLimiter {
        ConnectionLimiter {
            per_address,
            rate: None,
            unreserved,
            trusted: CidrSet::default(),
            counts: Arc::default(),
        }
    }

    /// The limiter with other bounds. Open connections keep counting, and so do recent ones while the rate stays.
    pub(crate) fn with_spec(&self, spec: &AcceptSpec, trusted: CidrSet) -> ConnectionLimiter {
        let known = self.rate.as_ref();
        let same = known.filter(|known| Some(known.spec) == spec.rate);
        ConnectionLimiter {
            per_address: spec.per_address,
            rate: same
                .cloned()
                .or_else(|| spec.rate.and_then(ConnectRate::new)),
            unreserved: self.unreserved,
            trusted,
            counts: Arc::clone(&self.counts),
        }
    }

    /// Gives an address a claim to the reserved places from now on.
    pub(crate) fn remember(&self, peer: IpAddr) {
        let address = masked(peer, 32, 64);
        let mut counts = lock(&self.counts);
        if !counts.known.contains(&address) {
            if counts.known.len() >= KNOWN_ADDRESSES {
                counts.known.pop_front();
            }
            counts.known.push_back(address);
        }
    }

    /// Counts a connection, or rejects it. `None`: a trusted one, which is not counted.
    pub(crate) fn admit(&self, peer: IpAddr) -> Result<Option<AddressPermit>, ConnectionRejected> {
        if self.trusted.contains(peer) {
            return Ok(None);
        }
        let address = masked(peer, 32, 64);
        let mut counts = lock(&self.counts);
        let count = counts.by_address.get(&address).copied().unwrap_or(0);
        let is_reserved = peer.is_loopback() || counts.known.contains(&address);
        if count >= self.per_address || (!is_reserved && counts.unreserved >= self.unreserved) {
            return Err(ConnectionRejected::TooMany);
        }
        if let Some(rate) = &self.rate
            && !rate.limiter.check(&address).is_admitted()
        {
            return Err(ConnectionRejected::TooFast);
        }
        counts.by_address.insert(address, count + 1);
        counts.unreserved += usize::from(!is_reserved);
        Ok(Some(AddressPermit {
            address,
            is_reserved,
            counts: Arc::clone(&self.counts),
        }))
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        let unreserved = usize::from(!self.is_reserved);
        counts.unreserved = counts.unreserved.saturating_sub(unreserved);
        if let Entry::Occupied(mut count) = counts.by_address.entry(self.address) {
            match *count.get() {
                0 | 1 => drop(count.remove()),
                more => *count.get_mut() = more - 1,
            }
        }
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(per_address: usize, trusted: CidrSet) -> ConnectionLimiter {
        let spec = AcceptSpec {
            per_address,
            ..AcceptSpec::default()
        };
        ConnectionLimiter::new(&spec, trusted)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_its_share_and_gets_it_back() {
        let limiter = limiter(2, CidrSet::default());
        let here = address("203.0.113.7");
        let first = limiter.admit(here).unwrap();
        let _second = limiter.admit(here).unwrap();
        assert_eq!(
            limiter.admit(here).unwrap_err(),
            ConnectionRejected::TooMany
        );
        let _other = limiter.admit(address("203.0.113.8")).unwrap();
        drop(first);
        limiter.admit(here).unwrap();
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_count() {
        let limiter = limiter(1, CidrSet::default());
        let _first = limiter.admit(address("2001:db8::1"));
        let second = limiter.admit(address("2001:db8::2"));
        assert_eq!(second.unwrap_err(), ConnectionRejected::TooMany);
        limiter.admit(address("2001:db8:0:1::1")).unwrap();
    }

    #[test]
    fn a_trusted_proxy_is_bounded_only_by_the_total() {
        let trusted = CidrSet::new(vec!["10.0.0.0/8".parse().unwrap()]);
        let limiter = limiter(1, trusted);
        let all: Vec<_> = (0..50)
            .map(|_| limiter.admit(address("10.0.0.1")))
            .collect();
        assert!(all.iter().all(Result::is_ok));
    }

    #[test]
    fn a_rate_bounds_how_fast_an_address_connects() {
        let spec = AcceptSpec {
            rate: Some(("1/h".parse().unwrap(), 3)),
            ..AcceptSpec::default()
        };
        let limiter = ConnectionLimiter::new(&spec, CidrSet::default());
        let admitted = (0..5).filter(|_| limiter.admit(address("203.0.113.7")).is_ok());
        assert_eq!(admitted.count(), 3);
    }

    #[test]
    fn recent_connections_count_under_the_next_policy_unless_the_rate_changes() {
        let rate = |text: &str| AcceptSpec {
            rate: Some((text.parse().unwrap(), 3)),
            ..AcceptSpec::default()
        };
        let is_admitted =
            |limiter: &ConnectionLimiter| limiter.admit(address("203.0.113.7")).is_ok();
        let first = ConnectionLimiter::new(&rate("1/h"), CidrSet::default());
        assert!((0..3).all(|_| is_admitted(&first)));
        let mut next = rate("1/h");
        next.per_address = 7;
        let same = first.with_spec(&next, CidrSet::default());
        assert!(!is_admitted(&same), "it has connected three times already");
        let other = same.with_spec(&rate("2/h"), CidrSet::default());
        assert!(is_admitted(&other));
        let unlimited = other.with_spec(&AcceptSpec::default(), CidrSet::default());
        assert!((0..9).all(|_| is_admitted(&unlimited)));
    }

    #[test]
    fn reserved_places_are_for_loopback_and_known_addresses() {
        let limiter = ConnectionLimiter::with_reserve(3, 4);
        let connections: Vec<_> = (0..6)
            .map(|n| limiter.admit(address(&format!("203.0.113.{n}"))))
            .collect();
        assert_eq!(connections.iter().filter(|place| place.is_ok()).count(), 4);
        limiter.admit(address("127.0.0.1")).unwrap();
        let operator = address("198.51.100.1");
        assert_eq!(
            limiter.admit(operator).unwrap_err(),
            ConnectionRejected::TooMany
        );
        limiter.remember(operator);
        let places: Vec<_> = (0..5).map(|_| limiter.admit(operator)).collect();
        assert_eq!(places.iter().filter(|place| place.is_ok()).count(), 3);
        drop(connections);
        limiter.admit(address("203.0.113.9")).unwrap();
    }
}
