//! Sentinels over real servers choose another primary, again and again.

use std::time::Duration;

use tollgate_testkit::servers::{Kind, Sentinels};

const DEADLINE: Duration = Duration::from_secs(30);

/// A machine that stalls for this long makes the sentinels choose once more than the test asked for.
const DOWN_AFTER_MS: u32 = 2_500;

/// Kills the primary, lets it come back, then freezes the next one.
fn two_failovers(kind: Kind) {
    let world = Sentinels::start(kind, 2, 3, DOWN_AFTER_MS).unwrap();
    assert_eq!(world.sentinel_addresses().len(), 3);
    let first = world.kill_primary().unwrap();
    assert_eq!(first, world.servers()[0].port());
    let second = world.wait_for_another_primary(first, DEADLINE).unwrap();
    assert_ne!(second.port(), first);
    // A restarted server is reconfigured as a replica, so that there is one primary again.
    world.servers()[0].restart().unwrap();
    world.wait_until_connected().unwrap();
    // What no replica has would be lost with the primary.
    let primary = world.write_everywhere("a", "1", DEADLINE).unwrap();
    // A primary that hangs is as good as dead.
    primary.freeze().unwrap();
    let third = world
        .wait_for_another_primary(primary.port(), DEADLINE)
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
