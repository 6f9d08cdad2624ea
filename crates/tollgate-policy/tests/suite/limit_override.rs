//! Limits that a request carries, and costs that are reported afterwards: in the engine, without a front end.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use std::sync::Arc;

use tollgate::{Limit, ManualClock, Scale, Span};
use tollgate_policy::{
    Decide, Facts, LimitOverride, LimitRule, Match, NoHost, OnStoreError, Op, OverridePolicy,
    Policy, PolicyError, PolicyGate, Quota, REQUEST_LIMITS, Unit, ValueTest, WhenOver,
    decide_batch,
};

fn follow(max_keys: usize) -> Option<OverridePolicy> {
    Some(OverridePolicy {
        domains: vec!["edge".into()],
        max_keys,
        on_store_error: OnStoreError::Local,
    })
}

fn gate() -> (PolicyGate<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let policy = Policy {
        follow: follow(1_000),
        ..Policy::default()
    };
    (PolicyGate::new(policy, clock.clone()).unwrap(), clock)
}

fn facts<'a>(entries: &'a [(&'a str, &'a str)], most: u32, unit: Unit) -> Facts<'a> {
    Facts {
        domain: "edge",
        descriptor: entries,
        limit_override: Some(LimitOverride { most, unit }),
        ..Facts::default()
    }
}

const ANN: [(&str, &str); 1] = [("user", "ann")];

#[test]
fn a_window_ends_with_its_unit_and_begins_at_its_multiples() {
    for unit in Unit::ALL {
        let (gate, clock) = gate();
        let asked = facts(&ANN, 2, unit);
        // Half a unit after the clock began to count.
        let half = Span::from_nanos(unit.span().as_nanos() / 2);
        clock.advance(half);
        assert_eq!(gate.admit(&asked).status.remaining, 1, "{unit:?}");
        assert_eq!(gate.admit(&asked).status.remaining, 0);
        let refused = gate.admit(&asked);
        assert_eq!(refused.verdict.wait(), Some(half), "{unit:?}");
        clock.advance(half);
        assert!(gate.admit(&asked).is_admitted(), "{unit:?}");
    }
}

#[test]
fn threads_never_exceed_the_limit_of_the_request_and_never_take_half_of_it() {
    let gate = Arc::new(gate().0);
    let (wide, narrow) = ([("user", "wide")], [("user", "narrow")]);
    let passed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let both = [
                        facts(&wide, 5_000, Unit::Year),
                        facts(&narrow, 1_000, Unit::Year),
                    ];
                    let decided = decide_batch(&NoHost::new(), &gate, &both, Op::Charge, None);
                    let (Decide::Ready(answer), _) = decided else {
                        panic!("there is no store to ask");
                    };
                    passed.fetch_add(usize::from(answer.is_admitted()), Relaxed);
                }
            });
        }
    });
    assert_eq!(passed.load(Relaxed), 1_000);
    // What the narrow one refused was not taken from the wide one.
    let left = gate.peek(&Facts {
        cost: Some(0),
        ..facts(&wide, 5_000, Unit::Year)
    });
    assert_eq!(left.status.remaining, 4_000);
}

#[test]
fn threads_with_different_numbers_each_keep_to_their_own() {
    let (gate, _) = gate();
    let passed = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        for (most, passed) in [300, 700].into_iter().zip(&passed) {
            let gate = &gate;
            scope.spawn(move || {
                for _ in 0..1_000 {
                    let answer = gate.admit(&facts(&ANN, most, Unit::Year));
                    passed.fetch_add(usize::from(answer.is_admitted()), Relaxed);
                }
            });
        }
    });
    let [low, high] = passed.map(|count| count.into_inner());
    assert_eq!(low + high, 700, "one count for both");
    assert!(low <= 300, "{low}");
}

#[test]
fn pressure_shrinks_limits_of_requests() {
    let (gate, _) = gate();
    gate.set_pressure(Scale::from_share(5_000));
    let passed = |most: u32| {
        let name = most.to_string();
        let entries = [("user", &*name)];
        (0..50)
            .filter(|_| gate.admit(&facts(&entries, most, Unit::Year)).is_admitted())
            .count()
    };
    assert_eq!([passed(10), passed(1), passed(0)], [5, 1, 0]);
}

#[test]
fn keys_without_end_take_no_memory_without_end() {
    let (gate, _) = gate();
    for number in 0..50_000 {
        let name = number.to_string();
        let entries = [("user", &*name)];
        let _ = gate.admit(&facts(&entries, 1, Unit::Year));
    }
    let mut live = 0;
    for (_, limiter) in gate.limiters() {
        live += limiter.live_keys();
    }
    assert!(live <= 10_000, "{live}");
    // New keys share the remaining room: less for each, never more.
    let (_, year) = gate.limiters().last().unwrap();
    assert!(year.overflowed() > 0);
}

#[test]
fn domain_entries_and_their_order_distinguish_keys() {
    let clock = ManualClock::new();
    let policy = Policy {
        follow: Some(OverridePolicy {
            domains: vec!["edge".into(), "other".into()],
            ..follow(1_000).unwrap()
        }),
        ..Policy::default()
    };
    let gate = PolicyGate::new(policy, clock).unwrap();
    let (ab, ba) = ([("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")]);
    for (domain, entries) in [("edge", &ab), ("edge", &ba), ("other", &ab)] {
        let asked = Facts {
            domain,
            ..facts(entries, 1, Unit::Day)
        };
        assert!(gate.admit(&asked).is_admitted());
        assert!(!gate.admit(&asked).is_admitted());
    }
}

#[test]
fn the_name_of_these_limits_cannot_be_that_of_another() {
    let quota = Quota::plain(Limit::token_bucket("1/h".parse().unwrap(), 1).unwrap());
    let policy = Policy {
        limits: vec![LimitRule::new(REQUEST_LIMITS, quota)],
        follow: follow(10),
        ..Policy::default()
    };
    let error = PolicyGate::new(policy.clone(), ManualClock::new()).unwrap_err();
    let name = REQUEST_LIMITS.into();
    assert_eq!(error, PolicyError::SameName { name });
    // Without them it is a name like any other.
    let policy = Policy {
        follow: None,
        ..policy
    };
    assert!(PolicyGate::new(policy, ManualClock::new()).is_ok());
}

#[test]
fn the_next_policy_keeps_usage() {
    let (gate, clock) = gate();
    assert!(gate.admit(&facts(&ANN, 3, Unit::Year)).is_admitted());
    let next = gate.reload(gate.policy().clone(), Vec::new()).unwrap();
    clock.advance(Span::from_secs(5));
    assert_eq!(next.admit(&facts(&ANN, 3, Unit::Year)).status.remaining, 1);
}

/// A limit for each value of `user`, of which what does not pass takes the rest.
fn afterwards(limit: Limit) -> PolicyGate<ManualClock> {
    let rule = LimitRule {
        matches: Match {
            descriptor: vec![("user".into(), ValueTest::Present)],
            ..Match::default()
        },
        when_over: WhenOver::ChargeRemaining,
        ..LimitRule::new("tokens", Quota::plain(limit))
    };
    let policy = Policy {
        limits: vec![rule],
        ..Policy::default()
    };
    PolicyGate::new(policy, ManualClock::new()).unwrap()
}

#[test]
fn a_refused_request_takes_the_remainder_and_never_more() {
    let rate = "100/h".parse().unwrap();
    for limit in [
        Limit::token_bucket(rate, 100).unwrap(),
        Limit::fixed_window(rate).unwrap(),
        Limit::sliding_log(rate).unwrap(),
        Limit::sliding_window(rate).unwrap(),
    ] {
        let gate = afterwards(limit.clone());
        let ask = |cost| {
            let facts = Facts {
                descriptor: &ANN,
                cost: Some(cost),
                ..Facts::default()
            };
            gate.admit(&facts)
        };
        assert!(ask(60).is_admitted(), "{limit}");
        // A peek changes nothing.
        let peeked = gate.peek(&Facts {
            descriptor: &ANN,
            cost: Some(u64::MAX),
            ..Facts::default()
        });
        assert!(!peeked.is_admitted());
        assert!(!ask(u64::MAX).is_admitted(), "{limit}");
        assert!(!ask(1).is_admitted(), "{limit}");
        assert_eq!(ask(1).status.remaining, 0, "{limit}");
    }
}

#[test]
fn a_bucket_that_was_overdrawn_earns_on_at_once() {
    let clock = ManualClock::new();
    let limit = Limit::token_bucket("1/s".parse().unwrap(), 10).unwrap();
    let rule = LimitRule {
        when_over: WhenOver::ChargeRemaining,
        ..LimitRule::new("tokens", Quota::plain(limit))
    };
    let policy = Policy {
        limits: vec![rule],
        ..Policy::default()
    };
    let gate = PolicyGate::new(policy, clock.clone()).unwrap();
    let ask = |cost| {
        let facts = Facts {
            cost: Some(cost),
            ..Facts::default()
        };
        gate.admit(&facts).is_admitted()
    };
    assert!(!ask(1_000_000));
    assert!(!ask(1));
    clock.advance(Span::from_secs(1));
    assert!(ask(1), "nothing is owed");
}
