//! The store calls of a fleet of sixty-four nodes: they follow keys and nodes, not requests, unless the store decides
//! every one of them. `tollgate-sim load` prints the whole table.

use tollgate_policy::Sharing;
use tollgate_sim::command::run;
use tollgate_sim::fleet::load::{Load, REQUESTS_GROW, Room, Series};

const FLEET: Series = Series {
    nodes: 64,
    keys: 1,
    lasts_ns: 1_000_000_000,
    seed: 1,
};

/// The load of one fleet of the series, which must keep what is stated of it.
fn load(room: Room, sharing: Sharing, varies: &str) -> Load {
    let points = FLEET.points();
    let point = points.iter().find(|point| point.varies == varies).unwrap();
    let load = FLEET.measure(point, &FLEET.limit(room).unwrap(), sharing);
    let load = load.unwrap();
    assert_eq!(load.violation(&FLEET, (room, sharing, point)), None);
    load
}

/// By how many hundredths questions and decisions grow from the fewest requests to the most.
fn growth(room: Room, sharing: Sharing) -> (u64, u64) {
    let (fewest, most) = (
        load(room, sharing, "requests x1"),
        load(room, sharing, "requests x16"),
    );
    (
        most.questions * 100 / fewest.questions,
        most.asked * 100 / fewest.asked,
    )
}

#[test]
fn sixteen_times_the_requests_cause_few_more_calls_with_leases() {
    let (questions, requests) = growth(Room::Wide, Sharing::Lease);
    assert!(requests >= 1500, "{requests} hundredths of the requests");
    assert!(questions <= 150, "{questions} hundredths of the questions");
    let (questions, requests) = growth(Room::Narrow, Sharing::Lease);
    assert!(requests >= 1500, "{requests} hundredths of the requests");
    // A refused request may cause three calls; with few requests not all of them do.
    assert!(questions <= 200, "{questions} hundredths of the questions");
}

#[test]
fn sixteen_times_the_requests_cause_no_more_calls_with_copies() {
    let (questions, requests) = growth(Room::Wide, Sharing::Sync);
    assert!(requests >= 1500, "{requests} hundredths of the requests");
    assert!(questions <= 105, "{questions} hundredths of the questions");
    // At the limit a copy in debt makes a second call with its push, and never a third.
    let pushes = load(Room::Wide, Sharing::Sync, "requests x16").questions;
    let at_the_limit = load(Room::Narrow, Sharing::Sync, "requests x16").questions;
    assert!(at_the_limit <= 2 * pushes, "{at_the_limit} of {pushes}");
}

#[test]
fn sixteen_times_the_requests_are_sixteen_times_the_calls_where_the_store_decides() {
    let (questions, requests) = growth(Room::Wide, Sharing::Exact);
    assert!(questions.abs_diff(requests) <= 10);
    assert!(questions.abs_diff(REQUESTS_GROW * 100) <= 50);
}

#[test]
fn the_calls_with_leases_follow_keys_and_nodes() {
    let of = |varies| load(Room::Wide, Sharing::Lease, varies).questions;
    let base = of("requests x16");
    let (more_keys, fewer_nodes) = (of("keys x4"), of("nodes / 16"));
    assert!((3 * base..=5 * base).contains(&more_keys));
    assert!((base / 24..=base / 8).contains(&fewer_nodes));
}

#[test]
fn the_same_seed_is_the_same_load() {
    let once = load(Room::Narrow, Sharing::Lease, "requests x1");
    assert_eq!(once, load(Room::Narrow, Sharing::Lease, "requests x1"));
    let other = Series { seed: 2, ..FLEET };
    let limit = other.limit(Room::Narrow).unwrap();
    let other = other.measure(&other.points()[0], &limit, Sharing::Lease);
    assert_ne!(once, other.unwrap());
}

#[test]
fn the_command_prints_a_line_for_every_fleet_and_counts_what_holds() {
    let args = ["load", "--quick", "--json", "--nodes", "16"].map(str::to_owned);
    let (mut out, mut progress) = (Vec::new(), Vec::new());
    let tally = run(&args, &mut out, &mut progress).unwrap();
    let messages = String::from_utf8(progress).unwrap();
    assert!(tally.is_good(), "{messages}");
    // Two limits, three ways to share, six fleets and what they come to.
    assert_eq!(tally.passed, 2 * 3 * 7);
    let out = String::from_utf8(out).unwrap();
    let lines = out.lines().filter(|line| line.starts_with("{\"limit\":"));
    assert_eq!(lines.count(), 2 * 3 * 6);
}
