//! Who may connect: so many at once in all, so many from one address, so fast.
//!
//! # Theory
//!
//! One address must not take all the room there is. IPv6 addresses are counted by their /64, which is what
//! one customer usually has. A trusted proxy speaks for many clients, so it is bounded only by the whole.
//!
//! # Invariant
//!
//! There is an entry only for addresses with open connections: the table is never larger than their number.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;
use tollgate::{Limit, Limiter, Rate};
use tollgate_config::AcceptSpec;
use tollgate_policy::address::{CidrSet, masked};

/// Open connections by address.
type Counts = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// How fast one address may connect, and who did lately.
#[derive(Clone, Debug)]
struct Paced {
    by: (Rate, u64),
    limiter: Limiter,
}

impl Paced {
    fn new(by: (Rate, u64)) -> Option<Paced> {
        let (rate, burst) = by;
        let limit = Limit::token_bucket(rate, burst).ok()?;
        let limiter = Limiter::new(limit).ok()?;
        Some(Paced { by, limiter })
    }
}

/// Counts connections by address; shared by all threads.
#[derive(Debug)]
pub(crate) struct Doorkeeper {
    per_address: usize,
    rate: Option<Paced>,
    trusted: CidrSet,
    counts: Counts,
}

/// A connection that was let in. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    counted: Option<(IpAddr, Counts)>,
    _room: OwnedSemaphorePermit,
}

/// Why a connection is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    /// Too many from its address are open.
    TooMany,
    /// Too many from its address came lately.
    TooFast,
}

impl Doorkeeper {
    /// By these bounds; what `trusted` holds is exempt.
    pub(crate) fn new(spec: &AcceptSpec, trusted: CidrSet) -> Doorkeeper {
        Doorkeeper {
            per_address: spec.per_address,
            rate: spec.rate.and_then(Paced::new),
            trusted,
            counts: Arc::default(),
        }
    }

    /// The same under other bounds; who is inside stays and counts. So does who came lately, unless the
    /// rate is another one.
    pub(crate) fn changed(&self, spec: &AcceptSpec, trusted: CidrSet) -> Doorkeeper {
        let known = self.rate.as_ref();
        let same = known.filter(|known| Some(known.by) == spec.rate);
        Doorkeeper {
            per_address: spec.per_address,
            rate: same.cloned().or_else(|| spec.rate.and_then(Paced::new)),
            trusted,
            counts: Arc::clone(&self.counts),
        }
    }

    /// May it come in?
    pub(super) fn admit(
        &self,
        peer: IpAddr,
        room: OwnedSemaphorePermit,
    ) -> Result<Admitted, TurnedAway> {
        if self.trusted.contains(peer) {
            return Ok(Admitted {
                counted: None,
                _room: room,
            });
        }
        let address = masked(peer, 32, 64);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get(&address).copied().unwrap_or(0);
        if count >= self.per_address {
            return Err(TurnedAway::TooMany);
        }
        if let Some(rate) = &self.rate
            && !rate.limiter.check(&address).is_admitted()
        {
            return Err(TurnedAway::TooFast);
        }
        counts.insert(address, count + 1);
        Ok(Admitted {
            counted: Some((address, Arc::clone(&self.counts))),
            _room: room,
        })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let Some((address, counts)) = self.counted.take() else {
            return;
        };
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = counts.entry(address) {
            match *count.get() {
                0 | 1 => drop(count.remove()),
                more => *count.get_mut() = more - 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Semaphore;

    fn keeper(per_address: usize, trusted: CidrSet) -> (Doorkeeper, Arc<Semaphore>) {
        let spec = AcceptSpec {
            per_address,
            ..AcceptSpec::default()
        };
        (
            Doorkeeper::new(&spec, trusted),
            Arc::new(Semaphore::new(100)),
        )
    }

    #[test]
    fn one_address_has_its_share_and_gets_it_back() {
        let (keeper, room) = keeper(2, CidrSet::default());
        let permit = || Arc::clone(&room).try_acquire_owned().unwrap();
        let here: IpAddr = "203.0.113.7".parse().unwrap();
        let first = keeper.admit(here, permit()).unwrap();
        let _second = keeper.admit(here, permit()).unwrap();
        assert_eq!(
            keeper.admit(here, permit()).unwrap_err(),
            TurnedAway::TooMany
        );
        let _other = keeper
            .admit("203.0.113.8".parse().unwrap(), permit())
            .unwrap();
        drop(first);
        keeper.admit(here, permit()).unwrap();
        assert_eq!(room.available_permits(), 98);
    }

    #[test]
    fn neighbours_in_one_network_of_ipv6_are_one() {
        let (keeper, room) = keeper(1, CidrSet::default());
        let permit = || Arc::clone(&room).try_acquire_owned().unwrap();
        let _first = keeper.admit("2001:db8::1".parse().unwrap(), permit());
        let second = keeper.admit("2001:db8::2".parse().unwrap(), permit());
        assert_eq!(second.unwrap_err(), TurnedAway::TooMany);
        keeper
            .admit("2001:db8:0:1::1".parse().unwrap(), permit())
            .unwrap();
    }

    #[test]
    fn a_trusted_proxy_is_bounded_only_by_the_whole() {
        let trusted = CidrSet::new(vec!["10.0.0.0/8".parse().unwrap()]);
        let (keeper, room) = keeper(1, trusted);
        let permit = || Arc::clone(&room).try_acquire_owned().unwrap();
        let all: Vec<_> = (0..50)
            .map(|_| keeper.admit("10.0.0.1".parse().unwrap(), permit()))
            .collect();
        assert!(all.iter().all(Result::is_ok));
    }

    #[test]
    fn a_rate_bounds_how_fast_one_address_comes() {
        let spec = AcceptSpec {
            rate: Some(("1/h".parse().unwrap(), 3)),
            ..AcceptSpec::default()
        };
        let keeper = Doorkeeper::new(&spec, CidrSet::default());
        let room = Arc::new(Semaphore::new(100));
        let here: IpAddr = "203.0.113.7".parse().unwrap();
        let came = (0..5).map(|_| {
            let permit = Arc::clone(&room).try_acquire_owned().unwrap();
            keeper.admit(here, permit).is_ok()
        });
        assert_eq!(came.filter(|came| *came).count(), 3);
    }

    #[test]
    fn who_came_lately_is_remembered_by_the_next_policy_unless_the_rate_is_another_one() {
        let rate = |text: &str| AcceptSpec {
            rate: Some((text.parse().unwrap(), 3)),
            ..AcceptSpec::default()
        };
        let room = Arc::new(Semaphore::new(100));
        let here: IpAddr = "203.0.113.7".parse().unwrap();
        let comes = |keeper: &Doorkeeper| {
            let permit = Arc::clone(&room).try_acquire_owned().unwrap();
            keeper.admit(here, permit).is_ok()
        };
        let first = Doorkeeper::new(&rate("1/h"), CidrSet::default());
        assert!((0..3).all(|_| comes(&first)));
        let mut next = rate("1/h");
        next.per_address = 7;
        let same = first.changed(&next, CidrSet::default());
        assert!(!comes(&same), "it has come three times already");
        let other = same.changed(&rate("2/h"), CidrSet::default());
        assert!(comes(&other));
        let free = other.changed(&AcceptSpec::default(), CidrSet::default());
        assert!((0..9).all(|_| comes(&free)));
    }
}
