//! A real cluster: slots that move while they are used, and primaries that die.

use std::time::Duration;

use tollgate_testkit::Error;
use tollgate_testkit::servers::{Cluster, Kind};

/// The slot of the tag `{a}`.
const SLOT: u16 = 15_495;
/// Who has it of three primaries.
const OWNER: usize = 2;

fn key(number: usize) -> String {
    format!("{{a}}{number}")
}

fn code_of<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    outcome.unwrap_err().code().unwrap_or_default().into()
}

/// Moves a slot and stops in the middle to look.
fn a_slot_moves(kind: Kind) {
    let cluster = Cluster::start(kind, 3, 0).unwrap();
    let (old, new) = (&cluster.nodes()[OWNER], &cluster.nodes()[0]);
    for number in 0..250 {
        old.ask(&["SET", &key(number), &number.to_string()])
            .unwrap();
    }
    assert_eq!(code_of(new.ask(&["GET", &key(0)])), "MOVED");
    let migration = cluster.migration(SLOT, OWNER, 0).unwrap();
    migration.begin().unwrap();
    assert_eq!(migration.move_some(200).unwrap(), 200);
    // In the middle the old primary sends for what it does not have, and keeps what it has.
    let (mut here, mut sent) = (0, 0);
    for number in 0..250 {
        match old.ask_text(&["GET", &key(number)]) {
            Ok(value) => {
                assert_eq!(value, number.to_string());
                here += 1;
            }
            Err(error) => {
                assert_eq!(error.code(), Some("ASK"), "{error}");
                sent += 1;
            }
        }
    }
    assert_eq!((here, sent), (50, 200));
    while migration.move_some(20).unwrap() > 0 {}
    migration.finish().unwrap();
    for number in 0..250 {
        assert_eq!(
            new.ask_text(&["GET", &key(number)]).unwrap(),
            number.to_string()
        );
    }
    assert_eq!(code_of(old.ask(&["GET", &key(0)])), "MOVED");
    // And back in one go.
    cluster.move_slot(SLOT, 0, OWNER).unwrap();
    assert_eq!(old.ask_text(&["GET", &key(7)]).unwrap(), "7");
    assert!(matches!(
        cluster.move_slot(SLOT, 0, OWNER),
        Err(Error::Invalid(_))
    ));
    cluster.wait_until_ok().unwrap();
}

/// Kills a primary; its replica has its slots and what was in them.
fn a_replica_takes_over(kind: Kind) {
    let cluster = Cluster::start(kind, 3, 1).unwrap();
    let primary = &cluster.nodes()[OWNER];
    primary.ask(&["SET", &key(0), "1"]).unwrap();
    // What no replica has would be lost with the primary.
    let mut connection = primary.access().client().unwrap().get_connection().unwrap();
    redis::cmd("SET")
        .arg(key(1))
        .arg("2")
        .exec(&mut connection)
        .unwrap();
    let replicas: usize = redis::cmd("WAIT")
        .arg(1)
        .arg(5000)
        .query(&mut connection)
        .unwrap();
    assert_eq!(replicas, 1);
    cluster.kill_primary(OWNER).unwrap();
    let owner = cluster
        .wait_for_another_owner(SLOT, OWNER, Duration::from_secs(30))
        .unwrap();
    assert_eq!(owner, 3 + OWNER);
    cluster.wait_until_ok().unwrap();
    assert_eq!(
        cluster.nodes()[owner].ask_text(&["GET", &key(1)]).unwrap(),
        "2"
    );
    // Who comes back finds its place taken.
    primary.restart().unwrap();
    cluster.wait_until_ok().unwrap();
    assert_eq!(cluster.owner(SLOT, 0).unwrap(), owner);
}

#[test]
fn a_slot_of_a_redis_cluster_moves_while_it_is_used() {
    a_slot_moves(Kind::Redis);
}

#[test]
fn a_slot_of_a_valkey_cluster_moves_while_it_is_used() {
    a_slot_moves(Kind::Valkey);
}

#[test]
fn a_replica_takes_over_from_a_dead_primary_of_a_redis_cluster() {
    a_replica_takes_over(Kind::Redis);
}

#[test]
fn a_replica_takes_over_from_a_dead_primary_of_a_valkey_cluster() {
    a_replica_takes_over(Kind::Valkey);
}
