//! Open reservations by name.
//!
//! # Theory
//!
//! Without a shared store, or where it took nothing, a reservation is known at this node only. Otherwise its name is a
//! [`token`], which every node of the fleet can settle. This node stores its own tokens, too: units that a lease paid go back to
//! the lease. Such entries linger when another node settles, so they take at most half of the room.
//!
//! A reservation lives until it is settled, at most ten minutes. Then it is dropped, and its charge stays. All have the
//! same lifetime, so they expire in the order of insertion: each shard has a queue of names, and an insertion first drops the
//! expired ones at its front. Names of settled reservations stay in the queue, which is swept when they are more than half of
//! it. Both are O(1) amortised.
//!
//! A name is a capability to refund units. So names are 128 bits from the operating system, and only the response to the
//! caller contains one.
//!
//! # Invariant
//!
//! A reservation is settled at most once. There are never more than [`MOST`]; without room a reservation is not stored, and the
//! decision is unchanged.

pub(super) mod token;

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{Moment, MonotonicClock, Span};
use tollgate_policy::Reservation;

/// Maximum number of reservations.
pub(super) const MOST: usize = 100_000;
/// Their lifetime.
pub(super) const LIFE: Span = Span::from_secs(600);
const SHARDS: usize = 16;

type OpenReservation = Reservation<MonotonicClock>;

/// The reservations that are open.
#[derive(Debug)]
pub(super) struct Reservations {
    shards: [Mutex<Shard>; SHARDS],
    most_each: usize,
}

#[derive(Debug, Default)]
struct Shard {
    open: HashMap<u128, (Moment, OpenReservation)>,
    /// Names in the order of coming, with when they are over.
    order: VecDeque<(Moment, u128)>,
}

impl Reservations {
    /// Room for this many.
    pub(super) fn new(most: usize) -> Reservations {
        Reservations {
            shards: Default::default(),
            most_each: most / SHARDS,
        }
    }

    /// Stores a reservation. `false` without room; one with a token has half of it.
    pub(super) fn insert(
        &self,
        name: u128,
        reservation: OpenReservation,
        has_token: bool,
        now: Moment,
    ) -> bool {
        let Some(mut shard) = self.shard(name) else {
            return false;
        };
        shard.drop_over(now);
        let most = match has_token {
            true => self.most_each / 2,
            false => self.most_each,
        };
        if shard.open.len() >= most {
            return false;
        }
        let over = now.plus(LIFE);
        shard.open.insert(name, (over, reservation));
        shard.order.push_back((over, name));
        true
    }

    /// Takes it out, if it is there and not over.
    pub(super) fn take(&self, name: u128, now: Moment) -> Option<OpenReservation> {
        let mut shard = self.shard(name)?;
        let (over, reservation) = shard.open.remove(&name)?;
        shard.sweep();
        (now < over).then_some(reservation)
    }

    fn shard(&self, name: u128) -> Option<MutexGuard<'_, Shard>> {
        // A half-done change is a name in the queue without a reservation: harmless.
        let shard = self.shards.get(name as usize % SHARDS)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shard {
    fn drop_over(&mut self, now: Moment) {
        while let Some((over, name)) = self.order.front().copied() {
            if now < over && self.open.contains_key(&name) {
                break;
            }
            self.order.pop_front();
            self.open.remove(&name);
        }
    }

    fn sweep(&mut self) {
        if self.order.len() > 64 + 2 * self.open.len() {
            let open = &self.open;
            self.order.retain(|(_, name)| open.contains_key(name));
        }
    }
}

/// A new name. `None` if the operating system gives no random numbers.
pub(super) fn new_name() -> Option<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(u128::from_ne_bytes(bytes))
}

/// A name as it was written: 32 hexadecimal digits.
pub(super) fn read_name(text: &str) -> Option<u128> {
    let is_one = text.len() == 32
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    is_one
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Clock, Limit};
    use tollgate_policy::{Facts, LimitRule, Policy, PolicyGate, Quota};

    fn gate() -> PolicyGate<MonotonicClock> {
        let quota = Quota::plain(Limit::token_bucket("1/s".parse().unwrap(), 1_000_000).unwrap());
        let policy = Policy {
            limits: vec![LimitRule::new("x", quota)],
            ..Policy::default()
        };
        PolicyGate::new(policy, MonotonicClock::with_unix_time()).unwrap()
    }

    fn insert(kept: &Reservations, reservation: OpenReservation, now: Moment) -> Option<u128> {
        let name = new_name().unwrap();
        let is_kept = kept.insert(name, reservation, false, now);
        is_kept.then_some(name)
    }

    fn taken(gate: &PolicyGate<MonotonicClock>) -> OpenReservation {
        gate.reserve(&gate.admit(&Facts::default()))
    }

    #[test]
    fn a_reservation_is_settled_once() {
        let (gate, kept) = (gate(), Reservations::new(MOST));
        let now = gate.clock().now();
        let name = insert(&kept, taken(&gate), now).unwrap();
        assert!(kept.take(name ^ 1, now).is_none());
        assert!(kept.take(name, now).is_some());
        assert!(kept.take(name, now).is_none());
    }

    #[test]
    fn expired_reservations_are_dropped_and_make_room() {
        let (gate, kept) = (gate(), Reservations::new(SHARDS));
        let now = gate.clock().now();
        let mut names = Vec::new();
        // One for each shard, by trying.
        for _ in 0..1_000 {
            names.extend(insert(&kept, taken(&gate), now));
        }
        assert_eq!(names.len(), SHARDS);
        let later = now.plus(LIFE);
        assert!(kept.take(names[0], later).is_none());
        let fresh = (0..1_000).filter_map(|_| insert(&kept, taken(&gate), later));
        assert_eq!(fresh.count(), SHARDS);
    }

    #[test]
    fn names_of_settled_reservations_do_not_accumulate() {
        let (gate, kept) = (gate(), Reservations::new(MOST));
        let now = gate.clock().now();
        let oldest = insert(&kept, taken(&gate), now).unwrap();
        for _ in 0..20_000 {
            let name = insert(&kept, taken(&gate), now).unwrap();
            assert!(kept.take(name, now).is_some());
        }
        let queued: usize = kept
            .shards
            .iter()
            .map(|s| s.lock().unwrap().order.len())
            .sum();
        assert!(queued < SHARDS * 80, "{queued}");
        assert!(kept.take(oldest, now).is_some());
    }

    #[test]
    fn reservations_with_a_token_leave_half_of_the_room() {
        let (gate, kept) = (gate(), Reservations::new(4 * SHARDS));
        let now = gate.clock().now();
        let stored = |has_token| {
            let names = (0..1_000_u128).map(|name| 1_000 * u128::from(has_token) + name);
            let stored = names.filter(|name| kept.insert(*name, taken(&gate), has_token, now));
            stored.count()
        };
        assert_eq!(stored(true), 2 * SHARDS);
        assert_eq!(stored(false), 2 * SHARDS);
    }

    #[test]
    fn names_survive_a_round_trip() {
        for name in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let text = format!("{name:032x}");
            assert_eq!(read_name(&text), Some(name));
        }
        for text in [
            "",
            "0",
            "+0000000000000000000000000000001",
            "ABCDEF00ABCDEF00ABCDEF00ABCDEF00",
            "0123456789abcdef0123456789abcdeg",
        ] {
            assert_eq!(read_name(text), None, "{text}");
        }
    }
}
