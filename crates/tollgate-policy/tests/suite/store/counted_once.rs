//! The store counts once what a node decides alone, refunds, or reports with a refused request.

use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Waker};

use super::kit::{
    Counting, Gate, Slow, Started, admit, admit_without_time, begin, bucket, left, node, now,
    now_or_later, of, shared, window,
};
use tollgate::{ManualClock, Origin, Span};
use tollgate_policy::shared::FaultKind;
use tollgate_policy::{Decide, NoHost, Op, PendingDecision, Settlement, Sharing, decide_batch};

fn asks(started: Started) -> PendingDecision<NoHost<ManualClock>> {
    match started {
        Decide::Pending(asking) => asking,
        Decide::Ready(answer) => panic!("{answer:?}"),
    }
}

/// How many requests pass in fifty seconds, of ten a second.
fn in_fifty_seconds(clock: &ManualClock, gate: &Gate) -> usize {
    let passes = |_: &u32| {
        clock.advance(Span::from_millis(100));
        now(gate.sync_leases());
        admit(gate, 1).is_admitted()
    };
    (0..500).filter(passes).count()
}

/// The store is away for more than half a second, as in a failover: copies are too old then.
fn fail_over(clock: &ManualClock, store: &Counting, gate: &Gate) {
    store.go_away(true);
    for _ in 0..6 {
        clock.advance(Span::from_millis(100));
        now(gate.sync_leases());
    }
    store.go_away(false);
}

#[test]
fn a_caller_without_time_during_an_outage_counts_once() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let limit = window("100000/1d");
    let rules = vec![shared("a", Sharing::Lease, limit.clone())];
    let gate = node(&clock, store.clone(), rules);
    for _ in 0..20 {
        assert!(admit(&gate, 1).is_admitted());
        clock.advance(Span::from_secs(1));
        now(gate.sync_leases());
    }
    let before = left(&clock, &store, limit.clone());
    store.go_away(true);
    for _ in 0..10 {
        // As a service does for a caller whose deadline has passed: it decides locally, and the call continues.
        let carried = asks(begin(&gate, "acme", 1));
        let alone = admit_without_time(&gate, &of(&[("x-org", "acme")], 1));
        assert!(alone.is_admitted());
        let late = now(carried);
        assert!(late.is_admitted());
        now(gate.reserve(&late).settle_everywhere(Settlement::Cancelled));
        clock.advance(Span::from_secs(1));
    }
    store.go_away(false);
    clock.advance(Span::from_secs(2));
    assert!(admit(&gate, 1).is_admitted());
    clock.advance(Span::from_secs(2));
    now(gate.sync_leases());
    now(gate.sync_leases());
    let after = left(&clock, &store, limit);
    assert_eq!(before - after, 11, "ten alone, and one");
}

#[test]
fn a_local_charge_that_was_cancelled_is_not_reported_to_the_store() {
    for sharing in [Sharing::Exact, Sharing::Lease] {
        let clock = ManualClock::new();
        let store = Counting::new(&clock, 1);
        let limit = window("100000/1d");
        let rules = vec![shared("a", sharing, limit.clone())];
        let gate = node(&clock, store.clone(), rules);
        assert!(admit(&gate, 1000).is_admitted());
        clock.advance(Span::from_secs(2));
        now(gate.sync_leases());
        let before = left(&clock, &store, limit.clone());
        store.go_away(true);
        let answer = admit(&gate, 500);
        assert!(answer.is_admitted());
        now(gate
            .reserve(&answer)
            .settle_everywhere(Settlement::Cancelled));
        store.go_away(false);
        clock.advance(Span::from_secs(2));
        assert!(admit(&gate, 1).is_admitted());
        clock.advance(Span::from_secs(2));
        now(gate.sync_leases());
        now(gate.sync_leases());
        let after = left(&clock, &store, limit);
        assert_eq!(before - after, 1, "{sharing:?}");
    }
}

#[test]
fn debt_reported_by_a_refused_request_is_not_reported_again() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let limit = bucket("1/1s", 100);
    let rules = vec![shared("a", Sharing::Sync, limit)];
    let gate = node(&clock, store.clone(), rules);
    assert!((0..100).all(|_| admit(&gate, 1).is_admitted()));
    fail_over(&clock, &store, &gate);
    // It reports the 99, which the store takes, and is rightly refused: all hundred are used.
    assert!(!admit(&gate, 1).is_admitted());
    // One a second is earned.
    let passed = in_fifty_seconds(&clock, &gate);
    assert!((45..=50).contains(&passed), "{passed} in fifty seconds");
}

#[test]
fn debt_reported_by_a_refused_request_without_room_stays_owed() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let limit = bucket("1/1s", 100);
    let rules = || vec![shared("a", Sharing::Sync, limit.clone())];
    let (one, other) = (
        node(&clock, store.clone(), rules()),
        node(&clock, store.clone(), rules()),
    );
    // Each takes itself for the only one: both let a hundred pass.
    assert!((0..100).all(|_| admit(&one, 1).is_admitted()));
    assert!((0..100).all(|_| admit(&other, 1).is_admitted()));
    now(one.sync_leases());
    fail_over(&clock, &store, &other);
    assert!(!admit(&other, 1).is_admitted());
    // The other node has its own overshoot to report first.
    assert_eq!(in_fifty_seconds(&clock, &other), 0);
}

#[test]
fn requests_on_a_stale_counter_join_one_push_and_are_decided_locally_if_it_fails() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let slow = Slow::new(&store, &clock, 1_000, 1_000);
    let rules = vec![shared("a", Sharing::Sync, bucket("1/1h", 100))];
    let gate = node(&clock, slow, rules);
    let _ = now_or_later(&clock, asks(begin(&gate, "acme", 1)));
    assert!((0..89).all(|_| admit(&gate, 1).is_admitted()));
    // What the store said is too old.
    clock.advance(Span::from_secs(1));
    for fails in [true, false] {
        store.fail(fails.then_some(FaultKind::Late));
        let before = store.asked.load(SeqCst);
        let context = &mut Context::from_waker(Waker::noop());
        let mut asked: Vec<_> = (0..3)
            .map(|_| Box::pin(asks(begin(&gate, "acme", 1))))
            .collect();
        assert!(
            asked
                .iter_mut()
                .all(|a| a.as_mut().poll(context).is_pending())
        );
        // A caller that leaves does not cancel the push for the others.
        drop(asked.remove(0));
        for asked in asked {
            let answer = now_or_later(&clock, asked);
            let origin = match fails {
                true => Origin::Degraded,
                false => Origin::Leased,
            };
            assert_eq!(answer.origin, origin);
        }
        assert_eq!(store.asked.load(SeqCst) - before, 1, "one push for all");
    }
    now_or_later(&clock, gate.sync_leases());
    // 90, and two that passed; two more were decided alone.
    let exact = vec![shared("a", Sharing::Exact, bucket("1/1h", 100))];
    let exact = node(&clock, store, exact);
    assert_eq!(admit(&exact, 0).status.remaining, 6);
}

#[test]
fn a_peek_of_two_limits_reports_the_remainder_of_one_though_the_other_refuses() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let rules = vec![shared("a", Sharing::Exact, window("10/1d"))];
    let gate = node(&clock, store, rules);
    assert!(admit(&gate, 10).is_admitted());
    let (acme, other) = ([("x-org", "acme")], [("x-org", "other")]);
    for cost in [1, 5] {
        let asked = [of(&acme, 1), of(&other, cost)];
        let (started, parts) = decide_batch(&NoHost::new(), &gate, &asked, Op::Peek, None);
        let answer = now(asks(started));
        assert!(!answer.is_admitted());
        let at = parts[1].charges[0];
        let (_, status) = gate.charge_outcome(&answer, at, false).unwrap();
        assert_eq!(status.remaining, 10, "of ten");
    }
}
