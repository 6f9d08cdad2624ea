//! Slots of a cluster move from primary to primary all the time, and every count is exact.
//!
//! These limits earn nothing while the trial runs, so the oracle is simple: of the requests of a key exactly its limit
//! passes. Some keys send more than that, some less.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::TrialOptions;
use super::common::{Promises, slots_of};
use crate::policy::{LONG_DEADLINE, TrialPolicy, in_cluster, once, plain};
use crate::service::Service;
use crate::verdicts::Verdicts;
use tollgate_testkit::servers::Cluster;
use tollgate_testkit::sleep;
use tollgate_testkit::{Error, Result};

/// How many keys there are.
const CLIENTS: u64 = 60;
/// How many primaries share the slots.
const PRIMARIES: usize = 3;

pub(super) fn run(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let cluster = Cluster::start(options.kind, PRIMARIES, options.quick_or_full(0, 1))?;
    let span = options.span(4_000, 30_000);
    let clients = plain(CLIENTS);
    // About what each will send.
    let sent = u64::try_from(span.as_millis()).unwrap_or(u64::MAX) * options.rate / CLIENTS / 1000;
    let limit = |number: u64| 1 + number * sent * 3 / 2 / CLIENTS;
    let limits: Vec<u64> = (0..CLIENTS).map(limit).collect();
    let policy = TrialPolicy::on(in_cluster(&cluster)).deadline(LONG_DEADLINE);
    let except = |policy: TrialPolicy, (client, &limit)| policy.except(client, once(limit));
    let policy = clients.iter().zip(&limits).fold(policy, except);
    let service = Service::start(&policy)?;
    let slots = slots_of(&cluster, &clients)?;
    let load = options.load(service.port(), clients.clone())?;
    let stop = AtomicBool::new(false);
    let (moved, responses) = thread::scope(|scope| {
        let mover = scope.spawn(|| keep_moving(&cluster, &slots, &stop));
        sleep(span);
        stop.store(true, Ordering::Relaxed);
        let moved = mover.join();
        (moved, load.end())
    });
    let moved = moved.unwrap_or_else(|_| Err(Error::Invalid("the mover panicked".into())))?;
    let responses = responses?;
    let promises = Promises::with_store().with_limits(&limits);
    promises.check(verdicts, &responses, &clients);
    let redirects = service.metric("tollgate_store_redirects_total")?;
    verdicts.promise("slots really moved", moved > 0 && redirects > 0, moved);
    verdicts.figure("slots moved", moved);
    verdicts.figure("redirected calls", redirects);
    Ok(())
}

/// Moves one slot after the other to the next primary, and returns how many.
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
