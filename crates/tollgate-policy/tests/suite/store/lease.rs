//! Leased limits: nodes spend locally what the store granted, and no more.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Waker};

use super::kit::{Counting, Gate, bucket, node, now, shared, start};
use tollgate::{Limit, ManualClock, Origin, Span};
use tollgate_policy::{Decide, Facts, LimitRule, Op, Policy, PolicyDecision, Settlement, Sharing};

fn leased(name: &str, limit: Limit) -> LimitRule {
    shared(name, Sharing::Lease, limit)
}

fn acme() -> Facts<'static> {
    Facts {
        method: "GET",
        path: "/",
        headers: &[("x-org", "acme")],
        ..Facts::default()
    }
}

fn admit(gate: &Gate) -> PolicyDecision {
    admit_and_wait(gate).0
}

/// Returns also whether the store was asked.
fn admit_and_wait(gate: &Gate) -> (PolicyDecision, bool) {
    match start(gate, &acme(), Op::Charge) {
        Decide::Ready(answer) => (answer, false),
        Decide::Pending(asking) => (now(asking), true),
    }
}

#[test]
fn a_busy_key_is_decided_here_and_the_fleet_admits_what_one_store_would() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 4);
    let nodes: Vec<Gate> = (0..4)
        .map(|_| {
            node(
                &clock,
                store.clone(),
                vec![leased("a", bucket("10000/s", 10_000))],
            )
        })
        .collect();
    let (mut admitted, mut leased, mut all) = (0_u64, 0_u64, 0_u64);
    // Five times the limit for two seconds: one request at each node every 80 us.
    for _ in 0..25_000 {
        for gate in &nodes {
            let answer = admit(gate);
            all += 1;
            admitted += u64::from(answer.is_admitted());
            leased += u64::from(answer.origin == Origin::Leased);
        }
        clock.advance(Span::from_nanos(80_000));
    }
    let exact = 10_000 + 20_000;
    let asked = store.asked.load(SeqCst);
    println!("{admitted} of {exact}, {leased} of {all} here, {asked} questions");
    assert!(admitted <= exact, "{admitted}");
    assert!(admitted * 100 >= exact * 97, "{admitted} of {exact}");
    assert!(asked * 50 <= all, "{asked} questions for {all}");
}

#[test]
fn with_a_runner_a_key_far_from_its_limit_never_waits() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let gate = node(
        &clock,
        store.clone(),
        vec![leased("a", bucket("10000/s", 10_000))],
    );
    let mut ahead = pin!(gate.run_background(std::future::pending()));
    let mut waited = 0;
    // A third of the limit, for two seconds.
    for number in 0..6_000 {
        let maintenance = ahead.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(maintenance.is_pending());
        let (answer, has_waited) = admit_and_wait(&gate);
        assert!(answer.is_admitted());
        // Until demand is known.
        waited += u64::from(has_waited && number > 300);
        clock.advance(Span::from_nanos(333_333));
    }
    assert_eq!(waited, 0);
    let asked = questions(&store);
    assert!(asked < 150, "{asked} questions");
}

#[test]
fn no_request_waits_for_a_prefetch_without_a_runner() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store, vec![leased("a", bucket("1000/s", 1_000))]);
    let mut ahead = Box::pin(gate.run_background(std::future::pending()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(ahead.as_mut().poll(&mut context).is_pending());
    // A prefetch is queued, and no runner polls it.
    for _ in 0..200 {
        assert!(admit(&gate).is_admitted());
    }
    drop(ahead);
    for _ in 0..200 {
        assert!(admit(&gate).is_admitted());
    }
}

#[test]
fn leases_of_all_nodes_are_never_more_than_a_quarter() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(
        &clock,
        store.clone(),
        vec![leased("a", bucket("1000/s", 1_000))],
    );
    let mut ahead = pin!(gate.run_background(std::future::pending()));
    let mut taken = Vec::new();
    for _ in 0..400 {
        let _ = ahead.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        taken.push(admit(&gate));
    }
    // All of it is returned at once: what has no place here goes to the store.
    for answer in &taken {
        now(gate
            .reserve(answer)
            .settle_everywhere(Settlement::Cancelled));
    }
    let other = node(
        &clock,
        store,
        vec![LimitRule {
            sharing: Sharing::Exact,
            ..leased("a", bucket("1000/s", 1_000))
        }],
    );
    let left = admit(&other).status.remaining;
    assert!(left >= 749, "{left} left");
}

#[test]
fn a_charge_of_zero_reports_the_status() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let limit = || vec![leased("a", bucket("100/s", 1_000))];
    let (gate, other) = (
        node(&clock, store.clone(), limit()),
        node(&clock, store, limit()),
    );
    let left = |gate: &Gate| {
        let free = Facts {
            cost: Some(0),
            ..acme()
        };
        let answer = now(start(gate, &free, Op::Charge).resolve());
        assert!(answer.is_admitted());
        answer.status.remaining
    };
    assert_eq!(left(&gate), 1_000);
    for _ in 0..30 {
        assert!(admit(&other).is_admitted());
    }
    // The block of the other node is missing here, too.
    clock.advance(Span::from_millis(60));
    assert!((801..=976).contains(&left(&gate)), "{}", left(&gate));
}

#[test]
fn a_limit_too_slow_to_be_leased_is_exact() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store, vec![leased("a", bucket("30/m", 1_000))]);
    for number in 0..100 {
        let answer = admit(&gate);
        assert_eq!(answer.origin, Origin::Fresh);
        assert_eq!(answer.status.remaining, 999 - number);
    }
}

#[test]
fn without_maintenance_requests_push_synced_counters() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 4);
    let mut rule = leased("a", bucket("1/h", 1_000));
    rule.sharing = Sharing::Sync;
    let gate = node(&clock, store, vec![rule]);
    let mut passed = 0;
    // Each stale counter asks the store, and reports what passed before.
    for _ in 0..40 {
        let at_once = (0..1_000).filter(|_| admit(&gate).is_admitted()).count();
        assert!(at_once <= 501, "{at_once}");
        passed += at_once;
        clock.advance(Span::from_millis(600));
    }
    assert!((990..=1_000).contains(&passed), "{passed}");
}

/// Sends requests so often that there is a lease.
fn busy(gate: &Gate) -> u64 {
    let mut passed = 0;
    for _ in 0..20 {
        passed += u64::from(admit(gate).is_admitted());
    }
    passed
}

fn questions(store: &Counting) -> u64 {
    store.asked.load(SeqCst)
}

#[test]
fn a_quiet_key_is_decided_by_the_store() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let gate = node(
        &clock,
        store.clone(),
        vec![leased("a", bucket("100/s", 100))],
    );
    for _ in 0..30 {
        assert_eq!(admit(&gate).origin, Origin::Fresh);
        clock.advance(Span::from_millis(200));
    }
    assert_eq!(questions(&store), 30);
}

#[test]
fn a_limit_too_small_to_be_leased_is_exact() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 4);
    let gate = node(&clock, store, vec![leased("a", bucket("10/s", 10))]);
    let passed: Vec<PolicyDecision> = (0..10).map(|_| admit(&gate)).collect();
    assert!(passed.iter().all(|answer| answer.is_admitted()));
    assert!(passed.iter().all(|answer| answer.origin == Origin::Fresh));
}

#[test]
fn a_refusal_is_cached_until_it_expires_and_no_longer() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store.clone(), vec![leased("a", bucket("1/s", 3))]);
    assert_eq!((0..9).filter(|_| admit(&gate).is_admitted()).count(), 3);
    let asked = questions(&store);
    for _ in 0..100 {
        assert!(!admit(&gate).is_admitted());
    }
    assert_eq!(questions(&store), asked);
    clock.advance(Span::from_secs(1));
    assert!(admit(&gate).is_admitted());
}

#[test]
fn unspent_units_are_returned_when_the_term_ends() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let window = Limit::fixed_window("1000/100s".parse().unwrap()).unwrap();
    let gate = node(&clock, store.clone(), vec![leased("a", window.clone())]);
    let passed = busy(&gate);
    clock.advance(Span::from_secs(2));
    now(gate.sync_leases());
    // An exact limit finds all that was not used.
    let other = node(
        &clock,
        store,
        vec![LimitRule {
            sharing: Sharing::Exact,
            ..leased("a", window)
        }],
    );
    assert_eq!(admit(&other).status.remaining, 1000 - passed - 1);
}

#[test]
fn another_policy_ends_all_leases() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let window = Limit::fixed_window("1000/100s".parse().unwrap()).unwrap();
    let gate = node(&clock, store, vec![leased("a", window.clone())]);
    let passed = busy(&gate);
    let policy = Policy {
        limits: vec![LimitRule {
            sharing: Sharing::Exact,
            ..leased("a", window)
        }],
        ..Policy::default()
    };
    let next = Arc::new(gate.reload(policy, Vec::new()).unwrap());
    now(next.sync_leases());
    assert_eq!(admit(&next).status.remaining, 1000 - passed - 1);
    // Requests under the old policy ask the store.
    assert_eq!(admit(&gate).origin, Origin::Fresh);
}

#[test]
fn limits_are_taken_all_or_none_across_layers() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let wide = || {
        leased(
            "wide",
            Limit::fixed_window("1000/100s".parse().unwrap()).unwrap(),
        )
    };
    let mut narrow = leased("narrow", bucket("1/h", 5));
    narrow.sharing = Sharing::Exact;
    let gate = node(&clock, store.clone(), vec![wide(), narrow]);
    assert_eq!(busy(&gate), 5);
    clock.advance(Span::from_secs(2));
    now(gate.sync_leases());
    assert!(!admit(&gate).is_admitted());
    let mut exact = wide();
    exact.sharing = Sharing::Exact;
    let other = node(&clock, store, vec![exact]);
    // What the narrow one refused cost the wide one nothing.
    assert_eq!(admit(&other).status.remaining, 994);
}

#[test]
fn without_the_store_a_lease_is_spent_and_then_the_share() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let gate = node(
        &clock,
        store.clone(),
        vec![leased("a", bucket("100/s", 100))],
    );
    let passed = busy(&gate);
    store.go_away(true);
    let alone: Vec<PolicyDecision> = (0..100).map(|_| admit(&gate)).collect();
    let by = |origin| {
        alone
            .iter()
            .filter(|a| a.is_admitted() && a.origin == origin)
            .count() as u64
    };
    assert!(by(Origin::Leased) > 0);
    // Half of the limit is its share, and the block is part of it.
    assert!(passed + by(Origin::Leased) + by(Origin::Degraded) <= 50 + by(Origin::Leased));
    assert!(by(Origin::Degraded) > 0);
    store.fail(None);
}

#[test]
fn permits_are_leased_and_return_to_the_lease() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let places = Limit::concurrency(100, Span::from_secs(60)).unwrap();
    let gate = node(&clock, store.clone(), vec![leased("a", places)]);
    // The last ones are asked for more slowly.
    let take_all = || {
        let mut held = Vec::new();
        for _ in 0..100 {
            held.extend(
                (0..100)
                    .map(|_| admit(&gate))
                    .filter(PolicyDecision::is_admitted),
            );
            clock.advance(Span::from_millis(20));
        }
        held
    };
    let held = take_all();
    assert_eq!(held.len(), 100);
    assert!(questions(&store) < 60, "{}", questions(&store));
    for answer in &held {
        now(gate.reserve(answer).settle_everywhere(Settlement::Done));
    }
    clock.advance(Span::from_secs(2));
    now(gate.sync_leases());
    assert_eq!(take_all().len(), 100);
}

#[test]
fn a_synced_counter_decides_here_and_reports_to_the_store() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let copied = |sharing| LimitRule {
        sharing,
        ..leased(
            "a",
            Limit::fixed_window("1000/100s".parse().unwrap()).unwrap(),
        )
    };
    let gate = node(&clock, store.clone(), vec![copied(Sharing::Sync)]);
    assert_eq!(busy(&gate), 20);
    assert_eq!(questions(&store), 1, "only the first request is asked for");
    now(gate.sync_leases());
    let exact = node(&clock, store, vec![copied(Sharing::Exact)]);
    assert_eq!(admit(&exact).status.remaining, 979);
}

#[test]
fn synced_counters_together_stay_within_the_bound_and_compensate() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 8);
    let rule = LimitRule {
        sharing: Sharing::Sync,
        ..leased("a", bucket("1000/s", 1000))
    };
    let nodes: Vec<Gate> = (0..8)
        .map(|_| node(&clock, store.clone(), vec![rule.clone()]))
        .collect();
    let mut admitted = 0_u64;
    for step in 0..50_000_u64 {
        clock.advance(Span::from_nanos(200_000));
        admitted += u64::from(admit(&nodes[(step % 8) as usize]).is_admitted());
        if step % 500 == 0 {
            nodes.iter().for_each(|gate| now(gate.sync_leases()));
        }
    }
    // Ten seconds at five times the limit.
    let exact = 1_000 + 10_000;
    let above = rule.quota.max_overshoot(Sharing::Sync, 8);
    assert!(admitted <= exact + above, "{admitted}");
    assert!(admitted * 100 >= exact * 90, "{admitted}");
    println!(
        "{admitted} of {exact}, {above} above are stated, {} questions",
        questions(&store)
    );
}

#[test]
fn usage_of_synced_counters_is_taken_from_the_share_too() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let rule = LimitRule {
        sharing: Sharing::Sync,
        ..leased("a", bucket("1/h", 100))
    };
    let gate = node(&clock, store.clone(), vec![rule]);
    assert_eq!(busy(&gate), 20);
    store.go_away(true);
    // A stale counter is not used; then the share decides, half of the limit.
    clock.advance(Span::from_secs(1));
    let alone = (0..100).filter(|_| admit(&gate).is_admitted()).count();
    assert_eq!(alone, 30);
}
