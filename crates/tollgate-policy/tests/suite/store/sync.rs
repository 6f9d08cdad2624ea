//! Synced counters under faults: late cancellations, large costs, changes of policy, and stopped maintenance.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::kit::{
    Counting, Slow, admit, admit_for, begin, bucket, context, left, node, now, now_or_later,
    passes, shared, window,
};
use tollgate::{ManualClock, Span};
use tollgate_policy::{
    Decide, KeyPart, Policy, PolicyDecision, Quota, Settlement, Sharing, Source,
};

#[test]
fn a_cancellation_from_an_older_window_adds_nothing_to_this_one() {
    for sharing in [Sharing::Exact, Sharing::Lease, Sharing::Sync] {
        let clock = ManualClock::new();
        let store = Counting::new(&clock, 1);
        let gate = node(
            &clock,
            store.clone(),
            vec![shared("a", sharing, window("1000/10s"))],
        );
        clock.advance(Span::from_millis(1));
        let old: Vec<PolicyDecision> = (0..900)
            .map(|_| admit(&gate, 1))
            .filter(PolicyDecision::is_admitted)
            .collect();
        now(gate.sync_leases());
        clock.advance(Span::from_secs(10));
        now(gate.sync_leases());
        let mut passed = 0;
        for _ in 0..30 {
            passed += passes(&gate, 100);
            clock.advance(Span::from_millis(60));
        }
        for answer in &old {
            now(gate
                .reserve(answer)
                .settle_everywhere(Settlement::Cancelled));
        }
        for _ in 0..30 {
            passed += passes(&gate, 100);
            clock.advance(Span::from_millis(60));
        }
        println!("{sharing:?}: {passed} of 1000");
        assert!(
            passed <= 1000,
            "{sharing:?}: {passed} of 1000 in one window"
        );
    }
}

#[test]
fn a_late_cancellation_refunds_a_synced_bucket_no_more_than_the_store_would() {
    for sharing in [Sharing::Exact, Sharing::Sync] {
        let clock = ManualClock::new();
        let store = Counting::new(&clock, 1);
        let gate = node(
            &clock,
            store.clone(),
            vec![shared("a", sharing, bucket("100/s", 1_000))],
        );
        let old: Vec<PolicyDecision> = (0..1000)
            .map(|_| admit(&gate, 1))
            .filter(PolicyDecision::is_admitted)
            .collect();
        now(gate.sync_leases());
        clock.advance(Span::from_secs(20));
        let passed = passes(&gate, 1100);
        for answer in &old {
            now(gate
                .reserve(answer)
                .settle_everywhere(Settlement::Cancelled));
        }
        let more = passes(&gate, 1100);
        println!("{sharing:?}: {passed} and {more}");
        assert!(
            passed + more <= 1_000,
            "{sharing:?}: {passed} and {more} at one moment, of 1000"
        );
    }
}

#[test]
fn overshoot_of_one_window_is_not_missing_in_the_next() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let limit = || vec![shared("a", Sharing::Sync, window("1000/100s"))];
    let (one, two) = (
        node(&clock, store.clone(), limit()),
        node(&clock, store.clone(), limit()),
    );
    clock.advance(Span::from_secs(99));
    let passed = passes(&one, 1000) + passes(&two, 1000);
    now(one.sync_leases());
    now(two.sync_leases());
    println!("{passed} passed");
    // The window ends, and only maintenance runs.
    for _ in 0..20 {
        clock.advance(Span::from_millis(100));
        now(one.sync_leases());
        now(two.sync_leases());
    }
    assert_eq!(left(&clock, &store, window("1000/100s")), 1000);
}

#[test]
fn a_synced_counter_does_not_refuse_for_ever_what_fits_the_limit() {
    for sharing in [Sharing::Exact, Sharing::Sync] {
        let clock = ManualClock::new();
        let store = Counting::new(&clock, 8);
        let gate = node(
            &clock,
            store.clone(),
            vec![shared("a", sharing, bucket("1000/s", 1_000))],
        );
        let mut big = 0;
        for step in 0..1_000 {
            assert!(admit(&gate, 1).is_admitted());
            if step % 10 == 0 {
                now(gate.sync_leases());
            }
            if step % 50 == 49 {
                big += u64::from(admit(&gate, 300).is_admitted());
            }
            clock.advance(Span::from_millis(10));
        }
        println!("{sharing:?}: {big} of 20");
        assert!(
            big > 0,
            "{sharing:?}: a cost of 300 never passes a limit of 1000 of which 990 are left"
        );
    }
}

/// Cancels maintenance while the store is asked, with another policy active if `reloads`. Returns what the store
/// has left after maintenance ran again.
fn left_after_maintenance_was_cancelled(reloads: bool) -> u64 {
    let clock = ManualClock::new();
    let counting = Counting::new(&clock, 1);
    let slow = Slow::new(&counting, &clock, 1_000, 1_000);
    let limit = window("1000/100s");
    let rules = || vec![shared("a", Sharing::Sync, limit.clone())];
    let mut gate = node(&clock, slow, rules());
    if let Decide::Pending(asking) = begin(&gate, "acme", 1) {
        let _ = now_or_later(&clock, asking);
    }
    assert_eq!(passes(&gate, 99), 99);
    if reloads {
        let policy = Policy {
            limits: rules(),
            ..Policy::default()
        };
        gate = Arc::new(gate.reload(policy, Vec::new()).unwrap());
    }
    {
        let mut maintenance = Box::pin(gate.sync_leases());
        assert!(maintenance.as_mut().poll(&mut context()).is_pending());
    }
    for _ in 0..10 {
        clock.advance(Span::from_millis(100));
        now_or_later(&clock, gate.sync_leases());
    }
    left(&clock, &counting, limit)
}

#[test]
fn cancelled_maintenance_can_be_restarted() {
    assert_eq!(left_after_maintenance_was_cancelled(false), 900);
}

#[test]
fn cancelled_maintenance_loses_no_usage_of_the_previous_policy() {
    assert_eq!(left_after_maintenance_was_cancelled(true), 900);
}

#[test]
fn a_single_node_with_a_synced_counter_never_exceeds_the_limit() {
    let clock = ManualClock::new();
    let counting = Counting::new(&clock, 1);
    let slow = Slow::new(&counting, &clock, 3_000, 3_000);
    let rule = shared("a", Sharing::Sync, bucket("10000/s", 5_000));
    let stated = rule.quota.max_overshoot(Sharing::Sync, 1);
    let gate = node(&clock, slow, vec![rule]);
    // What is in a bucket of 5000 that leaks 10000/s, in tenths of a unit for each 50 us: 5 tenths leak.
    let (mut level, mut worst) = (0_i64, 0_i64);
    let mut maintenance: Option<Pin<Box<dyn Future<Output = ()> + '_>>> = None;
    let mut waiting: Vec<Pin<Box<dyn Future<Output = PolicyDecision> + '_>>> = Vec::new();
    for us in (0..3_000_000_u64).step_by(50) {
        let mut passed = 0;
        if us % 100_000 == 0 && maintenance.is_none() {
            maintenance = Some(Box::pin(gate.sync_leases()));
        }
        if let Some(t) = &mut maintenance
            && t.as_mut().poll(&mut context()).is_ready()
        {
            maintenance = None;
        }
        waiting.retain_mut(|w| match w.as_mut().poll(&mut context()) {
            Poll::Pending => true,
            Poll::Ready(answer) => {
                passed += i64::from(answer.is_admitted());
                false
            }
        });
        match begin(&gate, "acme", 1) {
            Decide::Ready(answer) => passed += i64::from(answer.is_admitted()),
            Decide::Pending(asking) => waiting.push(Box::pin(asking)),
        }
        level = (level - 5).max(0) + 10 * passed;
        worst = worst.max(level / 10 - 5_000);
        clock.advance(Span::from_nanos(50_000));
    }
    println!("worst {worst}; {:?}", gate.lease_report());
    assert!(
        worst <= stated as i64,
        "{worst} more than the limit in some stretch, stated is {stated}"
    );
}

#[test]
fn a_change_of_policy_during_a_push_counts_nothing_twice() {
    let clock = ManualClock::new();
    let counting = Counting::new(&clock, 1);
    let slow = Slow::new(&counting, &clock, 500, 500);
    let limit = window("1000/100s");
    let gate = node(
        &clock,
        slow,
        vec![shared("a", Sharing::Sync, limit.clone())],
    );
    if let Decide::Pending(asking) = begin(&gate, "acme", 1) {
        let _ = now_or_later(&clock, asking);
    }
    assert_eq!(passes(&gate, 99), 99);
    let next = {
        let mut maintenance = Box::pin(gate.sync_leases());
        assert!(maintenance.as_mut().poll(&mut context()).is_pending());
        let policy = Policy {
            limits: vec![shared("a", Sharing::Sync, limit.clone())],
            ..Policy::default()
        };
        let next = gate.reload(policy, Vec::new()).unwrap();
        now_or_later(&clock, maintenance);
        next
    };
    now_or_later(&clock, next.sync_leases());
    assert_eq!(left(&clock, &counting, limit), 900);
}

#[test]
fn a_change_of_policy_keeps_all_usage() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let rule = || {
        let mut rule = shared("a", Sharing::Sync, window("1000/100s"));
        rule.key = vec![KeyPart::new(Source::Header("x-org".into()))];
        rule
    };
    let gate = node(&clock, store.clone(), vec![rule()]);
    let keys: Vec<String> = (0..6_000).map(|key| key.to_string()).collect();
    for key in &keys {
        for _ in 0..10 {
            assert!(admit_for(&gate, key, 1).is_admitted());
        }
    }
    let next = gate
        .reload(
            Policy {
                limits: vec![rule()],
                ..Policy::default()
            },
            Vec::new(),
        )
        .unwrap();
    now(next.sync_leases());
    now(next.sync_leases());
    let exact = node(
        &clock,
        store,
        vec![shared("a", Sharing::Exact, window("1000/100s"))],
    );
    let forgotten = keys
        .iter()
        .filter(|key| admit_for(&exact, key, 1).status.remaining > 989)
        .count();
    assert_eq!(forgotten, 0, "of 6000 keys");
}

#[test]
fn max_overshoot_is_less_than_twice_the_limit() {
    for (capacity, nodes) in [(1_000, 8), (10, 8), (10, 100), (1, 4)] {
        let quota = Quota::plain(bucket("10/s", capacity));
        let above = quota.max_overshoot(Sharing::Sync, nodes);
        println!("{capacity} on {nodes} nodes: {above}");
        assert!(
            above < 2 * capacity,
            "a limit of {capacity} on {nodes} nodes: {above} above"
        );
    }
}
