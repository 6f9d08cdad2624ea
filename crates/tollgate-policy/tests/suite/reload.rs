//! Counts survive reloads and restarts.

use std::sync::Arc;

use tollgate::{Algorithm, Limit, ManualClock, Moment, Span};
use tollgate::{Clock, Periods};
use tollgate_policy::{
    BurstCredits, Facts, KeyPart, LimitRule, Override, OverrideAction, Policy, PolicyGate,
    PriorState, Quota, RuntimeOverride, Source, TierQuota, Tiers,
};

type Gate = PolicyGate<ManualClock>;

/// Some day in 2026.
const START: u64 = 1_790_000_000_000_000_000;

fn clock() -> ManualClock {
    let clock = ManualClock::new();
    clock.advance(Span::from_nanos(START));
    clock
}

fn policy(limits: &[(&str, Limit)]) -> Policy {
    let rule = |(name, limit): &(&str, Limit)| {
        let mut rule = LimitRule::new(name, Quota::plain(limit.clone()));
        rule.key = vec![KeyPart::new(Source::Header("user".into()))];
        rule
    };
    Policy {
        limits: limits.iter().map(rule).collect(),
        ..Policy::default()
    }
}

fn bucket(burst: u64) -> Limit {
    Limit::token_bucket("1/h".parse().unwrap(), burst).unwrap()
}

fn passes(gate: &Gate, user: &str, tries: usize) -> usize {
    let headers = [("user", user)];
    let facts = Facts {
        headers: &headers,
        path: "/",
        ..Facts::default()
    };
    (0..tries)
        .filter(|_| gate.admit(&facts).is_admitted())
        .count()
}

fn every_algorithm() -> Vec<Limit> {
    let rate = || "6/h".parse().unwrap();
    vec![
        bucket(6),
        Limit::gcra(rate(), Span::from_secs(3600)).unwrap(),
        Limit::leaky_bucket(rate(), 6).unwrap(),
        Limit::fixed_window(rate()).unwrap(),
        Limit::sliding_log(rate()).unwrap(),
        Limit::sliding_window(rate()).unwrap(),
        Limit::concurrency(6, Span::from_secs(3600)).unwrap(),
    ]
}

#[test]
fn unchanged_limits_keep_their_counts() {
    let gate = PolicyGate::new(policy(&[("one", bucket(5))]), clock()).unwrap();
    assert_eq!(passes(&gate, "a", 3), 3);
    let mut gate = gate
        .reload(policy(&[("two", bucket(2)), ("one", bucket(5))]), vec![])
        .unwrap();
    assert_eq!(passes(&gate, "b", 9), 2, "the new one limits too");
    for _ in 0..50 {
        gate = gate.reload(policy(&[("one", bucket(5))]), vec![]).unwrap();
    }
    assert_eq!(passes(&gate, "a", 9), 2);
}

#[test]
fn changed_limits_keep_usage() {
    let gate = PolicyGate::new(policy(&[("one", bucket(5))]), clock()).unwrap();
    assert_eq!(passes(&gate, "a", 3), 3);
    let wider = gate.reload(policy(&[("one", bucket(8))]), vec![]).unwrap();
    assert_eq!(passes(&wider, "a", 9), 5, "eight less three");
    let narrower = wider.reload(policy(&[("one", bucket(2))]), vec![]).unwrap();
    assert_eq!(passes(&narrower, "a", 9), 0);
}

/// Token bucket and GCRA are one algorithm with two names for its numbers.
fn is_one_algorithm(a: &Limit, b: &Limit) -> bool {
    let kind = |limit: &Limit| match limit.algorithm() {
        Algorithm::Gcra { rate, .. } => std::mem::discriminant(&Algorithm::TokenBucket {
            rate: *rate,
            burst: 1,
        }),
        other => std::mem::discriminant(other),
    };
    kind(a) == kind(b)
}

#[test]
fn another_algorithm_starts_fresh_and_is_named() {
    for from in every_algorithm() {
        for to in every_algorithm() {
            let gate = PolicyGate::new(policy(&[("one", from.clone())]), clock()).unwrap();
            assert_eq!(
                gate.restarted().count(),
                0,
                "a first policy restarts nothing"
            );
            let used = passes(&gate, "a", 2);
            assert_eq!(used, 2, "{from}");
            let next = gate.reload(policy(&[("one", to.clone())]), vec![]).unwrap();
            let (keeps, restarted): (_, &[&str]) = match is_one_algorithm(&from, &to) {
                true => (used, &[]),
                false => (0, &["one"]),
            };
            assert_eq!(next.restarted().collect::<Vec<_>>(), restarted);
            let fresh = passes(&next, "b", 30);
            let left = passes(&next, "a", 30);
            assert_eq!(left + keeps, fresh, "{from} -> {to}");
            assert_eq!(passes(&next, "a", 5), 0, "{from} -> {to}");
            // The same once more: nothing restarts any more.
            let again = next.reload(policy(&[("one", to.clone())]), vec![]).unwrap();
            assert_eq!(again.restarted().count(), 0);
            assert_eq!(passes(&again, "a", 5), 0, "{from} -> {to}");
        }
    }
}

#[test]
fn an_override_of_another_algorithm_takes_over_what_its_key_has_used() {
    for from in every_algorithm() {
        for to in every_algorithm() {
            let gate = PolicyGate::new(policy(&[("one", from.clone())]), clock()).unwrap();
            let used = passes(&gate, "a", 2);
            let own = |user| {
                over(
                    user,
                    OverrideAction::Quota(Box::new(Quota::plain(to.clone()))),
                )
            };
            let next = gate.with_overrides(vec![own("a"), own("b")]).unwrap();
            let fresh = passes(&next, "b", 30);
            let left = passes(&next, "a", 30);
            assert!(left < fresh, "{from} -> {to}: {left} of {fresh}");
            assert_eq!(left + used, fresh, "{from} -> {to}");
            assert_eq!(passes(&next, "a", 5), 0, "and no more than once");
        }
    }
}

#[test]
fn a_removed_limit_that_comes_back_starts_anew() {
    let gate = PolicyGate::new(policy(&[("one", bucket(1))]), clock()).unwrap();
    assert_eq!(passes(&gate, "a", 2), 1);
    let without = gate.reload(policy(&[]), vec![]).unwrap();
    assert_eq!(passes(&without, "a", 2), 2);
}

fn over(user: &str, grant: OverrideAction) -> RuntimeOverride {
    RuntimeOverride {
        limit: Arc::from("one"),
        change: Override {
            key: vec![user.into()],
            grant,
            expires: None,
        },
    }
}

#[test]
fn an_override_keeps_what_its_key_has_used_and_so_does_its_end() {
    let gate = PolicyGate::new(policy(&[("one", bucket(3))]), clock()).unwrap();
    assert_eq!(passes(&gate, "a", 2), 2);
    let raised = over(
        "a",
        OverrideAction::Quota(Box::new(Quota::plain(bucket(5)))),
    );
    let gate = gate.with_overrides(vec![raised]).unwrap();
    assert_eq!(passes(&gate, "a", 9), 3, "five less two");
    assert_eq!(passes(&gate, "b", 9), 3);
    let again = over(
        "a",
        OverrideAction::Quota(Box::new(Quota::plain(bucket(7)))),
    );
    let gate = gate.with_overrides(vec![again]).unwrap();
    assert_eq!(passes(&gate, "a", 9), 2, "seven less five");
    let gate = gate.with_overrides(vec![]).unwrap();
    assert_eq!(
        passes(&gate, "a", 9),
        0,
        "seven were used, three are allowed"
    );
    assert_eq!(passes(&gate, "b", 9), 0);
}

#[test]
fn what_was_used_under_an_override_counts_after_detours() {
    let gate = PolicyGate::new(policy(&[("one", bucket(2))]), clock()).unwrap();
    assert_eq!(passes(&gate, "a", 9), 2);
    let five = || {
        over(
            "a",
            OverrideAction::Quota(Box::new(Quota::plain(bucket(5)))),
        )
    };
    let gate = gate.with_overrides(vec![five()]).unwrap();
    assert_eq!(passes(&gate, "a", 9), 3);
    for detour in [OverrideAction::Unlimited, OverrideAction::Blocked] {
        let gate = gate.with_overrides(vec![over("a", detour)]).unwrap();
        let gate = gate.with_overrides(vec![]).unwrap();
        assert_eq!(passes(&gate, "a", 9), 0);
    }
    // From one quota to another and back without a request in between.
    let gate = gate
        .with_overrides(vec![over(
            "a",
            OverrideAction::Quota(Box::new(Quota::plain(bucket(9)))),
        )])
        .unwrap();
    let gate = gate.with_overrides(vec![]).unwrap();
    assert_eq!(passes(&gate, "a", 9), 0);
}

#[test]
fn overrides_that_come_and_go_change_nothing_for_others() {
    let clock = clock();
    let limit = Limit::token_bucket("3/min".parse().unwrap(), 3).unwrap();
    let of = || policy(&[("one", limit.clone())]);
    let mut gate = PolicyGate::new(of(), clock.clone()).unwrap();
    let twin = PolicyGate::new(of(), clock.clone()).unwrap();
    for round in 0..40 {
        let extra = match round % 2 {
            0 => vec![over(
                "a",
                OverrideAction::Quota(Box::new(Quota::plain(bucket(5)))),
            )],
            _ => vec![],
        };
        gate = gate.with_overrides(extra).unwrap();
        clock.advance(Span::from_secs(5));
        assert_eq!(
            passes(&gate, "b", 1),
            passes(&twin, "b", 1),
            "round {round}"
        );
    }
    assert!(gate.save().len() < 20_000, "{} bytes", gate.save().len());
}

#[test]
fn after_an_override_came_and_went_threads_get_what_one_would() {
    let clock = clock();
    let gate = PolicyGate::new(policy(&[("one", bucket(100))]), clock).unwrap();
    let gate = gate
        .with_overrides(vec![over(
            "a",
            OverrideAction::Quota(Box::new(Quota::plain(bucket(5)))),
        )])
        .unwrap();
    let gate = gate.with_overrides(vec![]).unwrap();
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| passes(&gate, "b", 20_000)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
}

#[test]
fn threads_that_meet_an_expired_override_get_what_was_left() {
    for _ in 0..50 {
        let clock = clock();
        let gate = PolicyGate::new(policy(&[("one", bucket(100))]), clock.clone()).unwrap();
        let window = Limit::fixed_window("100/h".parse().unwrap()).unwrap();
        let mut soon = over("a", OverrideAction::Quota(Box::new(Quota::plain(window))));
        soon.change.expires = Some(Moment::from_nanos(START + 1));
        let gate = gate.with_overrides(vec![soon]).unwrap();
        assert_eq!(passes(&gate, "a", 60), 60);
        clock.advance(Span::from_nanos(1));
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| passes(&gate, "a", 100)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(admitted, 40);
    }
}

#[test]
fn an_override_takes_over_what_was_used_in_a_tier_and_gives_it_back() {
    let tiered = || {
        let mut policy = policy(&[("one", bucket(2))]);
        policy.limits[0].tiers = Some(Tiers {
            source: Source::Header("plan".into()),
            members: None,
            tiers: vec![TierQuota {
                name: Arc::from("gold"),
                weight: 1,
                quota: Quota::plain(bucket(10)),
            }],
        });
        policy
    };
    let gold = |gate: &Gate, tries: usize| {
        let headers = [("user", "a"), ("plan", "gold")];
        let facts = Facts {
            headers: &headers,
            path: "/",
            ..Facts::default()
        };
        (0..tries)
            .filter(|_| gate.admit(&facts).is_admitted())
            .count()
    };
    let gate = PolicyGate::new(tiered(), clock()).unwrap();
    assert_eq!(gold(&gate, 20), 10);
    let gate = gate
        .with_overrides(vec![over(
            "a",
            OverrideAction::Quota(Box::new(Quota::plain(bucket(12)))),
        )])
        .unwrap();
    assert_eq!(gold(&gate, 20), 2, "twelve less ten");
    let gate = gate.with_overrides(vec![]).unwrap();
    assert_eq!(gold(&gate, 20), 0);
}

#[test]
fn an_override_that_expires_leaves_its_usage_behind() {
    let clock = clock();
    let gate = PolicyGate::new(policy(&[("one", bucket(3))]), clock.clone()).unwrap();
    let mut soon = over(
        "a",
        OverrideAction::Quota(Box::new(Quota::plain(bucket(10)))),
    );
    soon.change.expires = Some(Moment::from_nanos(START + 1_000_000_000));
    let gate = gate.with_overrides(vec![soon.clone()]).unwrap();
    assert_eq!(passes(&gate, "a", 20), 10);
    clock.advance(Span::from_secs(1));
    assert_eq!(passes(&gate, "a", 20), 0);
    let gate = gate.with_overrides(vec![soon]).unwrap();
    assert_eq!(passes(&gate, "a", 20), 0);
    clock.advance(Span::from_secs(2 * 3600));
    assert_eq!(
        passes(&gate, "a", 20),
        2,
        "and what was earned since is there"
    );
}

#[test]
fn a_restart_between_an_override_and_its_end_counts_once() {
    let clock = clock();
    let gate = PolicyGate::new(policy(&[("one", bucket(10))]), clock.clone()).unwrap();
    assert_eq!(passes(&gate, "a", 4), 4);
    let extra = vec![over(
        "a",
        OverrideAction::Quota(Box::new(Quota::plain(bucket(20)))),
    )];
    let gate = gate.with_overrides(extra.clone()).unwrap();
    let prior = PriorState::from_saved(&gate.save()).unwrap();
    let one = policy(&[("one", bucket(10))]);
    let gate = PolicyGate::with_prior(one, extra, clock, prior).unwrap();
    assert_eq!(passes(&gate, "a", 1), 1);
    let gate = gate.with_overrides(vec![]).unwrap();
    assert_eq!(passes(&gate, "a", 20), 5);
    assert_eq!(passes(&gate, "b", 20), 10);
}

#[test]
fn overrides_that_differ_in_any_number_are_two() {
    let credits = |slack| {
        let credits = BurstCredits {
            rate: "6/h".parse().unwrap(),
            times: 3,
            duration: Span::from_secs(3600),
            slack: Some(slack),
        };
        credits.quota().unwrap()
    };
    let gate = PolicyGate::new(policy(&[("one", bucket(4))]), clock()).unwrap();
    let with = |user, slack| over(user, OverrideAction::Quota(Box::new(credits(slack))));
    let gate = gate
        .with_overrides(vec![with("a", 2), with("b", 9)])
        .unwrap();
    assert_eq!(passes(&gate, "a", 20), 2);
    assert_eq!(passes(&gate, "b", 20), 9);
}

#[test]
fn a_limit_that_shrinks_and_grows_over_and_over_gives_nothing_away() {
    let rate = |text: &str| text.parse().unwrap();
    let pairs = [
        (bucket(6), bucket(4)),
        (bucket(6), Limit::token_bucket(rate("2/h"), 4).unwrap()),
        (
            Limit::gcra(rate("1/h"), Span::from_secs(5 * 3600)).unwrap(),
            Limit::gcra(rate("1/h"), Span::from_secs(3 * 3600)).unwrap(),
        ),
        (
            Limit::leaky_bucket(rate("1/h"), 6).unwrap(),
            Limit::leaky_bucket(rate("1/h"), 4).unwrap(),
        ),
        (
            Limit::fixed_window(rate("6/h")).unwrap(),
            Limit::fixed_window(rate("4/h")).unwrap(),
        ),
        (
            Limit::sliding_log(rate("6/h")).unwrap(),
            Limit::sliding_log(rate("4/h")).unwrap(),
        ),
        (
            Limit::sliding_window(rate("6/h")).unwrap(),
            Limit::sliding_window(rate("4/h")).unwrap(),
        ),
    ];
    for (high, low) in pairs {
        let clock = clock();
        let with = |limit: &Limit| policy(&[("one", limit.clone())]);
        let mut gate = PolicyGate::new(with(&high), clock.clone()).unwrap();
        assert_eq!(passes(&gate, "a", 9), 6, "{high}");
        for _ in 0..5 {
            gate = gate.reload(with(&low), vec![]).unwrap();
            assert_eq!(passes(&gate, "a", 9), 0, "{low}");
            let prior = PriorState::from_saved(&gate.save()).unwrap();
            gate = PolicyGate::with_prior(with(&low), vec![], clock.clone(), prior).unwrap();
            assert_eq!(passes(&gate, "a", 9), 0, "{low} after a restart");
            gate = gate.reload(with(&high), vec![]).unwrap();
            assert_eq!(passes(&gate, "a", 9), 0, "{high}");
        }
        assert_eq!(passes(&gate, "b", 9), 6, "{high}");
    }
}

#[test]
fn usage_above_a_lowered_burst_is_earned_back_before_anything_passes() {
    let clock = clock();
    let gate = PolicyGate::new(policy(&[("one", bucket(6))]), clock.clone()).unwrap();
    assert_eq!(passes(&gate, "a", 9), 6);
    let gate = gate.reload(policy(&[("one", bucket(4))]), vec![]).unwrap();
    clock.advance(Span::from_secs(3 * 3600 - 1));
    assert_eq!(passes(&gate, "a", 1), 0);
    clock.advance(Span::from_secs(1));
    assert_eq!(passes(&gate, "a", 2), 1);
}

#[test]
fn a_calendar_follows_the_wall_clock_in_this_policy_and_in_the_next() {
    const HOUR: u64 = 3_600_000_000_000;
    const DAY: u64 = 24 * HOUR;
    let days: Vec<Moment> = (0..30_000)
        .map(|day| Moment::from_nanos(day * DAY))
        .collect();
    let with = |names: &[&str]| {
        let mut policy = policy(&[]);
        for name in names {
            let periods = Periods::new("day", &days, Span::from_nanos(DAY)).unwrap();
            let limit = Limit::new(Algorithm::FixedWindow {
                limit: 2,
                window: periods.window(),
                anchor: Span::ZERO,
            });
            let mut quota = Quota::plain(limit.unwrap());
            quota.periods = Some(periods);
            let mut rule = LimitRule::new(name, quota);
            rule.key = vec![KeyPart::new(Source::Header("user".into()))];
            policy.limits.push(rule);
        }
        policy
    };
    let reset = |gate: &Gate, limit: &str| {
        let limiters = gate.limiters();
        let mut of = limiters.filter(|(id, _)| *id == limit);
        let (_, limiter) = of.next().unwrap();
        limiter.charge("new", 1).status.full_after
    };
    // The machine starts at midnight of 1 January 1970 and six hours late by its day; then its clock is set.
    let clock = ManualClock::new();
    clock.advance(Span::from_nanos(HOUR));
    let gate = PolicyGate::new(with(&["one"]), clock.clone()).unwrap();
    assert_eq!(passes(&gate, "a", 9), 2);
    let wall = || Moment::from_nanos(20_000 * DAY + 6 * HOUR + clock.now().as_nanos());
    assert_eq!(gate.follow_wall_clock(wall()), None);
    assert_eq!(passes(&gate, "a", 9), 0, "it may be a mistake");
    clock.advance(Span::from_secs(10));
    let ahead = gate.follow_wall_clock(wall());
    assert_eq!(ahead, Some((20_000 * DAY + 6 * HOUR) as i64));
    assert_eq!(passes(&gate, "a", 9), 2, "it is another day");
    assert_eq!(reset(&gate, "one"), Span::from_secs(17 * 3600 - 10));
    let gate = gate.reload(with(&["one", "two"]), vec![]).unwrap();
    assert_eq!(passes(&gate, "a", 9), 0);
    assert_eq!(reset(&gate, "two"), Span::from_secs(17 * 3600 - 10));
    // Once an hour at the most, also after a reload.
    let later = |days: u64| Moment::from_nanos(wall().as_nanos() + days * DAY);
    assert_eq!(gate.follow_wall_clock(later(2)), None);
    clock.advance(Span::from_secs(600));
    assert_eq!(gate.follow_wall_clock(later(2)), None);
    assert_eq!(passes(&gate, "a", 9), 0);
    clock.advance(Span::from_secs(3000));
    assert!(gate.follow_wall_clock(later(2)).is_some());
    assert_eq!(passes(&gate, "a", 9), 2);
}

#[test]
fn overrides_wait_for_a_limit_of_their_name() {
    let gate = PolicyGate::new(policy(&[("two", bucket(1))]), clock()).unwrap();
    let gate = gate
        .with_overrides(vec![over("a", OverrideAction::Unlimited)])
        .unwrap();
    let extra = gate.runtime_overrides().to_vec();
    let gate = gate.reload(policy(&[("one", bucket(1))]), extra).unwrap();
    assert_eq!(passes(&gate, "a", 5), 5);
    assert_eq!(passes(&gate, "b", 5), 1);
}

fn restarted(gate: &Gate, policy: Policy, clock: ManualClock) -> Gate {
    let prior = PriorState::from_saved(&gate.save()).unwrap();
    PolicyGate::with_prior(policy, vec![], clock, prior).unwrap()
}

#[test]
fn state_survives_the_process_for_every_algorithm() {
    for limit in every_algorithm() {
        let clock = clock();
        let of = |limit: &Limit| policy(&[("one", limit.clone())]);
        let gate = PolicyGate::new(of(&limit), clock.clone()).unwrap();
        let twin = PolicyGate::new(of(&limit), clock.clone()).unwrap();
        for user in 0..3000 {
            let user = user.to_string();
            assert_eq!(passes(&gate, &user, 3), passes(&twin, &user, 3), "{limit}");
        }
        clock.advance(Span::from_secs(700));
        let next = restarted(&gate, of(&limit), clock.clone());
        for user in 0..3003 {
            let user = user.to_string();
            assert_eq!(
                passes(&next, &user, 9),
                passes(&twin, &user, 9),
                "{limit}, {user}"
            );
        }
    }
}

#[test]
fn a_restart_with_another_policy_keeps_usage() {
    let clock = clock();
    let gate = PolicyGate::new(policy(&[("one", bucket(5))]), clock.clone()).unwrap();
    assert_eq!(passes(&gate, "a", 3), 3);
    let wider = restarted(&gate, policy(&[("one", bucket(8))]), clock.clone());
    assert_eq!(passes(&wider, "a", 9), 5);
    let log = Limit::sliding_log("6/h".parse().unwrap()).unwrap();
    let log = restarted(&gate, policy(&[("one", log)]), clock);
    assert_eq!(passes(&log, "a", 9), 6, "another algorithm starts fresh");
    assert_eq!(log.restarted().collect::<Vec<_>>(), ["one"]);
}

#[test]
fn a_full_table_and_its_overflow_survive() {
    let clock = clock();
    let small = bucket(2).with_max_keys(100);
    let gate = PolicyGate::new(policy(&[("one", small.clone())]), clock.clone()).unwrap();
    for user in 0..100_000 {
        passes(&gate, &user.to_string(), 1);
    }
    let overflowed = gate.limiter_of(0).unwrap().overflowed();
    assert!(overflowed > 0);
    let next = restarted(&gate, policy(&[("one", small)]), clock);
    assert_eq!(next.limiter_of(0).unwrap().overflowed(), overflowed);
    for user in 0..1000 {
        let user = user.to_string();
        assert_eq!(passes(&next, &user, 3), passes(&gate, &user, 3), "{user}");
    }
}

#[test]
fn bytes_that_are_no_saved_state_are_refused_and_never_crash() {
    let clock = clock();
    let limits = every_algorithm();
    let named: Vec<_> = limits
        .iter()
        .enumerate()
        .map(|(i, l)| (format!("l{i}"), l.clone()))
        .collect();
    let named: Vec<_> = named.iter().map(|(n, l)| (n.as_str(), l.clone())).collect();
    let gate = PolicyGate::new(policy(&named), clock).unwrap();
    passes(&gate, "a", 2);
    let saved = gate.save();
    for cut in (0..saved.len())
        .step_by(997)
        .chain(saved.len() - 40..saved.len())
    {
        assert!(PriorState::from_saved(&saved[..cut]).is_err(), "{cut}");
    }
    let mut longer = saved;
    longer.push(0);
    assert!(PriorState::from_saved(&longer).is_err());
}

#[test]
fn a_calendar_quota_counts_periods_and_survives_a_restart() {
    let day = Span::from_secs(24 * 3600);
    let clock = ManualClock::new();
    // Months of 31, 28 and 31 days.
    let starts = [0u64, 31, 59, 90].map(|d| Moment::from_nanos(d * day.as_nanos()));
    let periods = Periods::new("month", &starts, Span::from_nanos(30 * day.as_nanos())).unwrap();
    let quota = || {
        let window = tollgate::Algorithm::FixedWindow {
            limit: 3,
            window: periods.window(),
            anchor: Span::ZERO,
        };
        Quota {
            periods: Some(periods.clone()),
            ..Quota::plain(Limit::new(window).unwrap())
        }
    };
    let policy = || Policy {
        limits: vec![LimitRule::new("monthly", quota())],
        ..Policy::default()
    };
    let days = |n: u64| Span::from_nanos(n * day.as_nanos());
    let gate = PolicyGate::new(policy(), clock.clone()).unwrap();
    clock.advance(days(40)); // the ninth of a month of 28 days
    assert_eq!(passes(&gate, "", 2), 2);
    let gate = restarted(&gate, policy(), clock.clone());
    assert_eq!(passes(&gate, "", 9), 1);
    let refused = gate.admit(&Facts {
        path: "/",
        ..Facts::default()
    });
    assert_eq!(refused.verdict.wait(), Some(days(19)));
    assert_eq!(refused.status.full_after, days(19));
    clock.advance(Span::from_nanos(days(19).as_nanos() - 1));
    assert_eq!(passes(&gate, "", 9), 0);
    clock.advance(Span::from_nanos(1));
    assert_eq!(passes(&gate, "", 9), 3);
}
