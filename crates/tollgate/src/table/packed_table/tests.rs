//! Tests of the table: two threads, growth, and words that wrap.

use super::*;
use crate::algorithm::bucket::Bucket;
use crate::algorithm::sliding::{Estimate, Sliding};
use crate::key::KeySecret;
use crate::time::Span;

fn at(ns: u64) -> Moment {
    Moment::from_nanos(ns)
}

fn check<A: PackedAlgorithm>(table: &PackedTable<A>, hash: u64, now: Moment) -> bool {
    let verdict = table.check_general(hash, now, || now, 1);
    verdict.is_admitted()
}

/// Small enough for Miri, which looks for undefined behaviour in every step.
#[test]
fn two_threads_share_a_small_table() {
    let bucket = Bucket::new("1/h".parse().unwrap(), 3).unwrap();
    let table = PackedTable::new(bucket, 1000).unwrap();
    let secret = KeySecret::from_seed(1);
    let keys = if cfg!(miri) { 12 } else { 1000 };
    let admitted: usize = std::thread::scope(|scope| {
        let charge = || {
            (0..keys * 4u64)
                .filter(|i| check(&table, secret.hash(&(i % keys)), at(1)))
                .count()
        };
        let threads = [scope.spawn(charge), scope.spawn(charge)];
        threads.map(|t| t.join().unwrap()).iter().sum()
    });
    assert_eq!(admitted, 3 * keys as usize);
    if !cfg!(miri) {
        assert_eq!(table.live_keys(at(1)), keys as usize);
    }
}

#[test]
fn growing_moves_keys_and_loses_none() {
    let bucket = Bucket::new("1/h".parse().unwrap(), 1).unwrap();
    let table = PackedTable::new(bucket, 100_000).unwrap();
    let secret = KeySecret::from_seed(2);
    let keys = if cfg!(miri) { 8 } else { 30_000 };
    for key in 0..keys {
        assert!(check(&table, secret.hash(&key), at(1)));
        if cfg!(miri) {
            table.grow(true);
        }
    }
    while table.shape().segments < table.extent.most && !cfg!(miri) {
        table.grow(true);
    }
    for key in 0..keys {
        assert!(
            !check(&table, secret.hash(&key), at(1)),
            "key {key} is known"
        );
    }
    assert_eq!(table.live_keys(at(1)), keys as usize);
}

#[test]
fn words_that_wrap_are_distinguished_by_their_epoch() {
    // Eight bits number the parts, so words repeat every 256 s and epochs change every 64.
    let limit = Sliding::new(65_535, Span::from_secs(1), Estimate::Span).unwrap();
    let table = PackedTable::new(limit, 100).unwrap();
    let use_up = |s: u64| {
        let now = at(s * 1_000_000_000);
        table.check_general(7, now, || now, 65_535).is_admitted()
    };
    let mut now = 1_000;
    assert!(use_up(now));
    for seconds in [
        64,
        128,
        192,
        256,
        512,
        64 << 11,
        64 << 13,
        64 << 14,
        (64 << 14) + 64,
        64 << 20,
    ] {
        assert!(!use_up(now), "just used up");
        now += seconds;
        assert!(use_up(now), "fresh after {seconds} s");
    }
    now -= 64 << 19;
    assert!(
        !use_up(now),
        "a clock that was set back creates no allowance"
    );
    assert!(use_up(now + 3), "and locks no key out");
}
