//! Guarantees of limits that come with each call, through the table.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tollgate::{InlineQuota, ManualClock, OutOfRange, Span, Throttle, ThrottleResult};

fn quota(burst: i64, count: i64, period: i64) -> InlineQuota {
    InlineQuota::new(burst, count, period).unwrap()
}

fn on_hand(max_keys: usize) -> (Throttle<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Span::from_secs(1_000));
    let throttle = Throttle::with_clock(max_keys, clock.clone()).unwrap();
    (throttle, clock)
}

#[test]
fn each_key_has_its_own_tat_and_the_quota_of_each_call_applies() {
    let (throttle, clock) = on_hand(1_000);
    let slow = quota(0, 1, 60);
    assert!(!throttle.throttle("a", slow, 1).unwrap().is_limited);
    assert!(throttle.throttle("a", slow, 1).unwrap().is_limited);
    assert!(!throttle.throttle("b", slow, 1).unwrap().is_limited);
    let generous = throttle.throttle("a", quota(99, 1, 1), 1).unwrap();
    assert_eq!((generous.is_limited, generous.remaining), (false, 39));
    clock.advance(Span::from_secs(61));
    let result = throttle.throttle("a", slow, 0).unwrap();
    assert_eq!((result.remaining, result.reset_after), (1, Span::ZERO));
}

#[test]
fn keys_are_bytes_of_any_kind() {
    let (throttle, _) = on_hand(1_000);
    let once = quota(0, 1, 60);
    for key in [&b""[..], b"\0", b"\0\0", b"\xff\xfe", &[0; 70_000]] {
        assert!(!throttle.throttle(key, once, 1).unwrap().is_limited);
        assert!(throttle.throttle(key, once, 1).unwrap().is_limited);
    }
}

#[test]
fn an_expired_key_makes_room_whatever_its_quota_was() {
    let (throttle, clock) = on_hand(768);
    for round in 0..20u64 {
        for key in 0..700u64 {
            // Keys of all rates, so that no single rate says which have expired.
            let period = i64::try_from(key % 7 + 1).unwrap();
            let result = throttle.throttle(&(round, key), quota(0, 1, period), 1);
            assert!(!result.unwrap().is_limited);
        }
        assert_eq!(throttle.live_keys(), 700);
        clock.advance(Span::from_secs(8));
        assert_eq!(throttle.live_keys(), 0);
    }
    assert_eq!(throttle.overflowed(), 0);
}

#[test]
fn a_flood_of_keys_frees_no_throttled_key_and_stays_within_its_memory() {
    let (throttle, _) = on_hand(1_000);
    let once = quota(0, 1, 3_600);
    assert!(!throttle.throttle("victim", once, 1).unwrap().is_limited);
    let flood = (0..200_000u64).filter(|key| !throttle.throttle(key, once, 1).unwrap().is_limited);
    let admitted = flood.count();
    assert!(throttle.overflowed() > 0, "there was no room");
    assert!(admitted < 50_000, "{admitted} of 200000 passed");
    assert!(throttle.throttle("victim", once, 1).unwrap().is_limited);
    assert!(throttle.memory_cap() < 4 << 20, "{}", throttle.memory_cap());
}

#[test]
fn threads_that_share_a_key_get_exactly_what_it_holds() {
    let (throttle, _) = on_hand(1_000);
    let quota = quota(9_999, 1, 3_600);
    let (passed, limited) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    let result = throttle.throttle("one", quota, 1).unwrap();
                    let counter = if result.is_limited { &limited } else { &passed };
                    counter.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), 10_000);
    assert_eq!(limited.into_inner(), 30_000);
}

#[test]
fn calls_decided_together_come_to_the_same_as_one_by_one() {
    let ((batched, _), (alone, _)) = (on_hand(10_000), on_hand(10_000));
    let mut calls = Vec::new();
    let mut expected: Vec<Result<ThrottleResult, OutOfRange>> = Vec::new();
    for at in 0..500i64 {
        // Some keys often, some once; all kinds of quantities.
        let (key, quantity) = (at % 37 * (at % 3), at % 7 - 2);
        let quota = quota(at % 11, at % 5 + 1, at % 13 + 1);
        expected.push(alone.throttle(&key, quota, quantity));
        calls.push(batched.call(&key, quota, quantity));
    }
    let mut result = Vec::new();
    batched.decide(&calls, |one| result.push(one));
    assert_eq!(result, expected);
    assert!(result.iter().any(|one| one.is_err()));
    assert!(result.iter().flatten().any(|one| one.is_limited));
}

#[test]
fn an_error_takes_nothing_and_makes_no_key() {
    let (throttle, _) = on_hand(1_000);
    let quota = quota(15, 30, 60);
    assert_eq!(
        throttle.throttle("a", quota, -1),
        Err(OutOfRange::NothingOut)
    );
    assert_eq!(
        throttle.throttle("a", quota, i64::MAX),
        Err(OutOfRange::TooFar)
    );
    let _ = throttle.throttle("a", quota, 0).unwrap();
    assert_eq!(throttle.live_keys(), 0);
}
