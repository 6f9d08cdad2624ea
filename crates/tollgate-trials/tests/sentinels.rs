//! Sentinels over real servers choose another primary, again and again.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use tollgate_trials::servers::{Kind, Sentinels};

const PATIENCE: Duration = Duration::from_secs(30);

/// Kills the primary, lets it come back, then freezes the next one.
fn two_failovers(kind: Kind) {
    let world = Sentinels::start(kind, 2, 3, 1_000).unwrap();
    assert_eq!(world.sentinel_addresses().len(), 3);
    let first = world.kill_primary().unwrap();
    assert_eq!(first, world.servers()[0].port());
    let second = world.wait_for_another_primary(first, PATIENCE).unwrap();
    assert_ne!(second.port(), first);
    // Who comes back is told that it is a replica now.
    world.servers()[0].restart().unwrap();
    world.wait_until_they_see_each_other().unwrap();
    let role = world.servers()[0].info("replication", "role").unwrap();
    assert_eq!(role, "slave");
    // What no replica has would be lost with the primary.
    let mut connection = second.access().client().unwrap().get_connection().unwrap();
    redis::cmd("SET")
        .arg("a")
        .arg("1")
        .exec(&mut connection)
        .unwrap();
    let replicas: usize = redis::cmd("WAIT")
        .arg(2)
        .arg(5000)
        .query(&mut connection)
        .unwrap();
    assert_eq!(replicas, 2);
    // A primary that hangs is as good as dead.
    second.freeze().unwrap();
    let third = world
        .wait_for_another_primary(second.port(), PATIENCE)
        .unwrap();
    assert_eq!(third.ask_text(&["GET", "a"]).unwrap(), "1");
}

#[test]
fn a_redis_primary_that_dies_or_hangs_is_replaced() {
    two_failovers(Kind::Redis);
}

#[test]
fn a_valkey_primary_that_dies_or_hangs_is_replaced() {
    two_failovers(Kind::Valkey);
}
