//! Every interleaving of two threads on the steps that need no lock, by loom.
//!
//! Here a segment is one line of four slots and a table starts with one segment, so that a handful of
//! keys fills it. Run with `make loom`.

use std::sync::Arc;

use loom::thread;

use super::key_table::{KeyTable, Keys};
use super::layout::Intent;
use super::op::KeyOp;
use super::packed_table::PackedTable;
use super::{ResolvedCharge, all_or_none};
use crate::algorithm::PackedAlgorithm;
use crate::algorithm::bucket::Bucket;
use crate::clock::ManualClock;
use crate::decision::Verdict;
use crate::time::Moment;

/// `burst` units, one a second.
fn bucket(burst: u64) -> Bucket {
    Bucket::new("1/s".parse().unwrap(), burst).unwrap()
}

fn at(s: u64) -> Moment {
    Moment::from_nanos(s * 1_000_000_000)
}

/// A hash that lies in the first base segment and in the half that moves when the table is doubled,
/// or in the half that stays.
fn hash(i: u64, moves: bool) -> u64 {
    i << 24 | u64::from(moves) << 16
}

fn check(table: &PackedTable<Bucket>, hash: u64, now: Moment) -> bool {
    take(table, hash, now, 1)
}

/// Charges on the fast path, and on the general path where that does not decide.
fn take(table: &PackedTable<Bucket>, hash: u64, now: Moment, cost: u64) -> bool {
    let home = table.fetch_home(hash).unwrap();
    let verdict = match table.check_fast::<true>(hash, home, now, cost) {
        Some(verdict) => verdict,
        None => table.check_general(hash, now, || now, cost),
    };
    assert_ne!(verdict, Verdict::Never);
    verdict.is_admitted()
}

fn remaining(table: &PackedTable<Bucket>, hash: u64, now: Moment) -> u64 {
    let peeked = table.apply_step(
        hash,
        Intent::Read,
        now,
        || now,
        |limit, word, now| (limit.status(word, now).remaining, None),
    );
    peeked.result
}

/// Every interleaving there is.
fn exhaust(test: impl Fn() + Sync + Send + 'static) {
    exhaust_within(None, test);
}

fn exhaust_within(bound: Option<usize>, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = bound;
    model.max_branches = 20_000;
    model.check(test);
}

#[test]
fn two_threads_adding_one_key_share_its_slot() {
    exhaust(|| {
        let table = Arc::new(PackedTable::new(bucket(1), 3).unwrap());
        let other = table.clone();
        let thread = thread::spawn(move || check(&other, hash(1, false), at(1)));
        let mine = check(&table, hash(1, false), at(1));
        assert!(mine ^ thread.join().unwrap(), "exactly one");
        assert_eq!(table.live_keys(at(1)), 1);
    });
}

#[test]
fn the_last_unit_is_taken_once() {
    exhaust(|| {
        let table = Arc::new(PackedTable::new(bucket(2), 3).unwrap());
        assert!(check(&table, hash(1, false), at(1)));
        let other = table.clone();
        let thread = thread::spawn(move || check(&other, hash(1, false), at(1)));
        let mine = check(&table, hash(1, false), at(1));
        assert!(mine ^ thread.join().unwrap(), "exactly one");
    });
}

#[test]
fn a_slot_taken_over_is_not_charged_for_the_old_key() {
    exhaust(|| {
        let table = Arc::new(PackedTable::new(bucket(20), 3).unwrap());
        // One key that is as if never used at 10 s, and three that are in use then: the line is full.
        assert!(take(&table, hash(1, false), at(1), 1));
        for i in 2..5 {
            assert!(take(&table, hash(i, false), at(1), 15));
        }
        // The old key comes back while a new one needs its slot.
        let other = table.clone();
        let thread = thread::spawn(move || take(&other, hash(9, false), at(10), 20));
        let old = take(&table, hash(1, false), at(10), 20);
        let new = thread.join().unwrap();
        assert!(old && new, "both are within their limit");
        assert!(
            !take(&table, hash(1, false), at(10), 1),
            "the old key has used its units"
        );
        assert!(
            !take(&table, hash(9, false), at(10), 1),
            "the new key has used its units"
        );
        for i in 2..5 {
            assert!(
                !take(&table, hash(i, false), at(10), 15),
                "no other key was dropped"
            );
        }
    });
}

#[test]
fn a_charge_is_not_lost_while_its_segment_is_split() {
    for moves in [false, true] {
        exhaust(move || {
            let table = Arc::new(PackedTable::new(bucket(2), 6).unwrap());
            assert!(check(&table, hash(1, moves), at(1)));
            let other = table.clone();
            let thread = thread::spawn(move || other.grow(true));
            assert!(check(&table, hash(1, moves), at(1)));
            thread.join().unwrap();
            assert!(!check(&table, hash(1, moves), at(1)), "both units are used");
        });
    }
}

#[test]
fn a_key_is_not_added_twice_while_its_segment_is_split() {
    exhaust(|| {
        let table = Arc::new(PackedTable::new(bucket(1), 6).unwrap());
        let other = table.clone();
        let thread = thread::spawn(move || other.grow(true));
        assert!(check(&table, hash(1, true), at(1)));
        thread.join().unwrap();
        assert!(!check(&table, hash(1, true), at(1)));
    });
}

#[test]
fn usage_is_kept_while_the_limit_changes() {
    exhaust(|| {
        let table = Arc::new(PackedTable::new(bucket(3), 3).unwrap());
        assert!(check(&table, hash(1, false), at(1)));
        let other = table.clone();
        let faster = Bucket::new("4/s".parse().unwrap(), 3).unwrap();
        let thread = thread::spawn(move || other.change(faster, at(1)));
        assert!(check(&table, hash(1, false), at(1)));
        thread.join().unwrap();
        assert_eq!(remaining(&table, hash(1, false), at(1)), 1);
    });
}

#[test]
fn a_refund_and_a_charge_do_not_undo_each_other() {
    exhaust(|| {
        let table = Arc::new(PackedTable::new(bucket(3), 3).unwrap());
        assert!(check(&table, hash(1, false), at(1)));
        let other = table.clone();
        let thread = thread::spawn(move || {
            other.apply_step(
                hash(1, false),
                Intent::Write,
                at(1),
                || at(1),
                |limit, word, now| ((), word.and_then(|w| limit.refund(w, now, 1, at(1)))),
            );
        });
        assert!(check(&table, hash(1, false), at(1)));
        thread.join().unwrap();
        assert_eq!(remaining(&table, hash(1, false), at(1)), 2);
    });
}

fn both<'a>(first: &'a KeyTable, second: &'a KeyTable) -> [ResolvedCharge<'a>; 2] {
    [first, second].map(|table| ResolvedCharge {
        table,
        hash: hash(1, false),
        cost: 1,
        max: None,
    })
}

fn left(table: &KeyTable) -> u64 {
    let now = at(1);
    let peek = KeyOp::Peek { cost: 0, max: None };
    let peeked = table.apply(&peek, hash(1, false), now, || now);
    peeked.decision.remaining()
}

/// Two limits with one unit left each.
fn two_tables() -> (Arc<[KeyTable; 2]>, ManualClock) {
    let clock = ManualClock::new();
    clock.set(at(1));
    let table = || KeyTable::from(Keys::Bucket(PackedTable::new(bucket(2), 3).unwrap()));
    let tables = Arc::new([table(), table()]);
    let now = at(1);
    for table in tables.iter() {
        assert!(table.check(hash(1, false), || now, || now, 1).is_admitted());
    }
    (tables, clock)
}

#[test]
fn all_or_none_against_a_competing_charge() {
    exhaust(|| {
        let (tables, clock) = two_tables();
        let other = tables.clone();
        let now = at(1);
        let thread = thread::spawn(move || {
            other[0]
                .check(hash(1, false), || now, || now, 1)
                .is_admitted()
        });
        let mine = all_or_none(&both(&tables[1], &tables[0]), &clock)
            .decision
            .is_admitted();
        let theirs = thread.join().unwrap();
        assert!(mine ^ theirs, "one unit, one winner");
        assert_eq!(left(&tables[0]), 0);
        assert_eq!(
            left(&tables[1]),
            u64::from(!mine),
            "a refused request leaves no trace"
        );
    });
}

#[test]
fn two_requests_over_two_limits_in_opposite_order_leave_nothing_half_charged() {
    // Twice as many steps as the others: every interleaving with up to four preemptions.
    exhaust_within(Some(4), || {
        let (tables, clock) = two_tables();
        let (other, their_clock) = (tables.clone(), clock.clone());
        let thread = thread::spawn(move || {
            let parts = both(&other[1], &other[0]);
            all_or_none(&parts, &their_clock).decision.is_admitted()
        });
        let mine = all_or_none(&both(&tables[0], &tables[1]), &clock)
            .decision
            .is_admitted();
        let admitted = u64::from(mine) + u64::from(thread.join().unwrap());
        assert!(admitted <= 1);
        assert_eq!(left(&tables[0]), 1 - admitted);
        assert_eq!(left(&tables[1]), 1 - admitted);
    });
}
