//! Slots of a cluster move from primary to primary all the time, and every count is exact.
//!
//! Nothing is earned in these limits while the trial runs, so the oracle is simple: of what a key offered, exactly as
//! much passes as its limit holds. Some offer more than that, some less.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::Setting;
use crate::crowd::{Guest, Seen};
use crate::policy::{PATIENT, Policy, in_cluster, once, plain};
use crate::service::Service;
use crate::verdicts::Verdicts;
use tollgate_testkit::servers::Cluster;
use tollgate_testkit::sleep;
use tollgate_testkit::{Error, Result};

/// How many keys there are.
const GUESTS: u64 = 60;
/// How many primaries share the slots.
const PRIMARIES: usize = 3;

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Result<()> {
    let cluster = Cluster::start(setting.kind, PRIMARIES, setting.either(0, 1))?;
    let span = setting.span(4_000, 30_000);
    let guests = plain(GUESTS);
    // What each will offer, about.
    let offered =
        u64::try_from(span.as_millis()).unwrap_or(u64::MAX) * setting.rate / GUESTS / 1000;
    let limit = |number: u64| 1 + number * offered * 3 / 2 / GUESTS;
    let limits: Vec<u64> = (0..GUESTS).map(limit).collect();
    let policy = Policy::on(in_cluster(&cluster)).deadline(PATIENT);
    let except = |policy: Policy, (guest, &limit)| policy.except(guest, once(limit));
    let policy = guests.iter().zip(&limits).fold(policy, except);
    let service = Service::start(&policy)?;
    let slots = slots_of(&cluster, &guests)?;
    let crowd = setting.crowd(service.port(), guests)?;
    let stop = AtomicBool::new(false);
    let (moved, seen) = thread::scope(|scope| {
        let mover = scope.spawn(|| keep_moving(&cluster, &slots, &stop));
        sleep(span);
        stop.store(true, Ordering::Relaxed);
        let moved = mover.join();
        (moved, crowd.end())
    });
    let moved = moved.unwrap_or_else(|_| Err(Error::Invalid("the mover panicked".into())))?;
    let seen = seen?;
    verdicts.all_answered(&seen);
    let degraded = seen.degraded();
    verdicts.promise(
        "no request is decided without the store",
        degraded == 0,
        format!("{degraded} are"),
    );
    exact(verdicts, &seen, &limits);
    let redirects = service.metric("tollgate_store_redirects_total")?;
    verdicts.promise("slots really moved", moved > 0 && redirects > 0, moved);
    verdicts.figures_of(&seen);
    verdicts.figure("slots moved", moved);
    verdicts.figure("questions sent on", redirects);
    Ok(())
}

/// Promises that of what each guest offered exactly its limit passed, or all if it is less.
pub(super) fn exact(verdicts: &mut Verdicts, seen: &Seen, limits: &[u64]) {
    let (mut wrong, mut bound, mut first) = (0, 0, String::new());
    for (guest, &limit) in limits.iter().enumerate() {
        let (offered, passed) = seen.of_guest(guest);
        let should = offered.min(limit);
        bound += u32::from(offered > limit);
        if passed != should {
            wrong += 1;
            first = format!("; guest {guest}: {passed} of {offered} instead of {should}");
        }
    }
    let of = limits.len();
    verdicts.promise(
        "exactly the limit passes, for every key",
        wrong == 0 && bound > 0,
        format!("{wrong} of {of} keys differ, {bound} came to their limit{first}"),
    );
}

/// The slots of the keys. The key of a limit is tagged with its first part.
pub(super) fn slots_of(cluster: &Cluster, guests: &[Guest]) -> Result<Vec<u16>> {
    let node = cluster.node(0)?;
    let slot = |guest: &Guest| {
        let asked = node.ask(&["CLUSTER", "KEYSLOT", &guest.key])?;
        redis::from_redis_value(asked).map_err(|error| Error::Unexpected {
            asked: "the slot of a key".into(),
            answer: error.to_string(),
        })
    };
    guests.iter().map(slot).collect()
}

/// Moves one slot after the other to the next primary, and says how many.
fn keep_moving(cluster: &Cluster, slots: &[u16], stop: &AtomicBool) -> Result<u32> {
    let mut moved = 0;
    for &slot in slots.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let from = cluster.owner(slot, 0)?;
        cluster.move_slot(slot, from, (from + 1) % PRIMARIES)?;
        moved += 1;
    }
    Ok(moved)
}
