//! `kill -9` of one primary of a cluster. Its slots are decided without the store until its replica has them; all
//! others go on as if nothing had happened.
//!
//! The cluster is told to serve what it has (`cluster-require-full-coverage no`): as it comes, all of it refuses to
//! work while a slot has no primary.

use super::Setting;
use super::reshard::slots_of;
use super::worlds::{DEADLINE, back_soon, little_too_much, usual_guests};
use crate::policy::{PATIENT, Policy, in_cluster};
use crate::service::Service;
use crate::verdicts::{Verdicts, time};
use tollgate_testkit::Result;
use tollgate_testkit::servers::Cluster;
use tollgate_testkit::sleep;

/// Who dies.
const VICTIM: usize = 1;
pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Result<()> {
    let options = [("cluster-require-full-coverage", "no")];
    let cluster = Cluster::start_with(setting.kind, 3, 1, &options)?;
    // Above what a busy machine delays, so that an answer without the store says that it was away and not late.
    let policy = Policy::on(in_cluster(&cluster)).deadline(PATIENT);
    let service = Service::start(&policy)?;
    let guests = usual_guests();
    let slots = slots_of(&cluster, &guests)?;
    let mut is_hit = Vec::new();
    for &slot in &slots {
        is_hit.push(cluster.owner(slot, 0)? == VICTIM);
    }
    let hit_slot = slots.iter().zip(&is_hit).find(|(_, hit)| **hit);
    let hit_slot = hit_slot.map_or(0, |(slot, _)| *slot);
    let crowd = setting.crowd(service.port(), guests.clone())?;
    sleep(setting.span(1_000, 5_000));
    let killed = crowd.elapsed();
    cluster.kill_primary(VICTIM)?;
    cluster.wait_for_another_owner(hit_slot, VICTIM, DEADLINE)?;
    let switched = crowd.elapsed();
    back_soon(verdicts, &crowd, switched, "after the replica took over");
    sleep(setting.span(500, 5_000));
    let seen = crowd.end()?;
    verdicts.all_answered(&seen);
    verdicts.in_time(&seen);
    let of_hit = |guest: usize| is_hit.get(guest) == Some(&true);
    let others = seen.count(|record| record.degraded && !of_hit(record.guest));
    verdicts.promise(
        "no other slot is decided without the store",
        others == 0,
        format!("{others} requests are"),
    );
    let hit = seen.count(|record| record.degraded && of_hit(record.guest));
    verdicts.promise("its own slots really were without it", hit > 0, hit);
    little_too_much(verdicts, &seen, &guests, 1);
    verdicts.figures_of(&seen);
    verdicts.figure("from the kill to the switch", time(switched - killed));
    Ok(())
}
