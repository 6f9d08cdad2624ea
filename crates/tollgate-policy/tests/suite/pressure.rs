//! Scaled limits: through limiters, through a policy, and in header fields.

use std::sync::Arc;

use fastrand::Rng;
use tollgate::{Clock, Limit, Limiter, ManualClock, Moment, Rate, Scale, Span, Verdict};
use tollgate_policy::fields::{QUOTA_EXCEEDED, REDUCED_CAPACITY, fields, problem};
use tollgate_policy::{
    Facts, KeyPart, LimitRule, Mode, Override, OverrideAction, Policy, PolicyDecision, PolicyGate,
    PressureRule, Quota, RuntimeOverride, Source, TierQuota, Tiers,
};

const HALF: Scale = Scale::from_q16(32_768);
const SECOND: u64 = 1_000_000_000;

/// Rounded up, so that a fifth of ten is two.
fn percent(percent: u32) -> Scale {
    Scale::from_q16((65_536 * percent).div_ceil(100))
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn at(seconds: u64) -> ManualClock {
    let clock = ManualClock::new();
    clock.set(Moment::from_nanos(seconds * SECOND));
    clock
}

/// Limits, and what half of each is.
fn halves() -> Vec<(Limit, Limit)> {
    let two = |make: &dyn Fn(&str) -> Limit, whole, half| (make(whole), make(half));
    vec![
        (
            Limit::token_bucket(rate("10/s"), 20).unwrap(),
            Limit::token_bucket(rate("5/s"), 10).unwrap(),
        ),
        (
            Limit::leaky_bucket(rate("10/s"), 20).unwrap(),
            Limit::leaky_bucket(rate("5/s"), 10).unwrap(),
        ),
        two(&|r| Limit::fixed_window(rate(r)).unwrap(), "20/s", "10/s"),
        two(&|r| Limit::sliding_log(rate(r)).unwrap(), "20/s", "10/s"),
        two(&|r| Limit::sliding_window(rate(r)).unwrap(), "20/s", "10/s"),
        (
            Limit::concurrency(20, Span::from_secs(1)).unwrap(),
            Limit::concurrency(10, Span::from_secs(1)).unwrap(),
        ),
    ]
}

#[test]
fn under_half_every_algorithm_is_the_one_with_half_the_numbers() {
    for (whole, half) in halves() {
        let clock = at(1_000);
        let pressed = Limiter::with_clock(whole.clone(), clock.clone()).unwrap();
        let plain = Limiter::with_clock(half, clock.clone()).unwrap();
        pressed.set_scale(HALF);
        assert_eq!(pressed.scale(), HALF);
        let mut rng = Rng::with_seed(5);
        let mut refused = 0;
        for _ in 0..5_000 {
            clock.advance(Span::from_nanos(rng.u64(..SECOND / 10)));
            let (key, cost) = (rng.u64(..3), 1 + rng.u64(..plain.capacity()));
            let (a, b) = (pressed.peek(&key, cost), plain.peek(&key, cost));
            assert_eq!((a.verdict, a.status), (b.verdict, b.status), "{whole}");
            let (a, b) = (pressed.charge(&key, cost), plain.charge(&key, cost));
            assert_eq!((a.verdict, a.status), (b.verdict, b.status), "{whole}");
            refused += u32::from(!a.is_admitted());
        }
        assert!(refused > 100, "{whole}: {refused} refusals prove little");
    }
}

#[test]
fn with_scales_that_change_every_wait_is_still_the_shortest_that_helps() {
    for (limit, _) in halves() {
        let clock = at(1_000);
        let limiter = Limiter::with_clock(limit.clone(), clock.clone()).unwrap();
        let (mut rng, mut refused) = (Rng::with_seed(11), 0);
        for _ in 0..3_000 {
            clock.advance(Span::from_nanos(rng.u64(..SECOND / 10)));
            limiter.set_scale(Scale::from_q16(rng.u64(..65_537) as u32));
            let cost = 1 + rng.u64(..limiter.capacity().min(20));
            let decision = limiter.charge("k", cost);
            let Verdict::Refuse { retry_after } = decision.verdict else {
                assert_ne!(decision.verdict, Verdict::Never, "{limit}");
                continue;
            };
            refused += 1;
            let now = clock.now();
            clock.set(now.plus(retry_after).minus(Span::from_nanos(1)));
            assert!(!limiter.peek("k", cost).is_admitted(), "{limit}: too long");
            clock.set(now.plus(retry_after));
            assert!(limiter.peek("k", cost).is_admitted(), "{limit}: too short");
            clock.set(now);
        }
        assert!(refused > 100, "{limit}: {refused} refusals prove little");
    }
}

#[test]
fn a_key_above_the_scaled_limit_waits_until_its_usage_is_lower() {
    for (limit, _) in halves() {
        let clock = at(1_000);
        let limiter = Limiter::with_clock(limit.clone(), clock.clone()).unwrap();
        let all = limiter.capacity();
        assert!(limiter.charge("k", all).is_admitted());
        limiter.set_scale(percent(10));
        assert_eq!(limiter.peek("k", 0).remaining(), 0, "{limit}");
        assert!(!limiter.check("k").is_admitted(), "{limit}");
        // A new key has a part of it, and all of it is back at once when the pressure ends.
        assert!(limiter.check("new").is_admitted(), "{limit}");
        limiter.set_scale(Scale::ONE);
        clock.advance(Span::from_secs(60));
        assert!(limiter.charge("k", all).is_admitted(), "{limit}");
    }
}

#[test]
fn a_changed_limit_and_a_new_epoch_keep_the_scale() {
    for (whole, half) in halves() {
        let clock = at(1_000);
        let limiter = Limiter::with_clock(half, clock.clone()).unwrap();
        limiter.set_scale(HALF);
        limiter.change(whole.clone()).unwrap();
        assert_eq!(limiter.scale(), HALF, "{whole}");
        clock.advance(Span::from_secs(400 * 86_400));
        let left = limiter.peek("k", 0).remaining();
        let _ = limiter.charge("k", 1);
        assert_eq!(limiter.scale(), HALF, "{whole}");
        limiter.set_scale(Scale::ONE);
        let all = limiter.peek("new", 0).remaining();
        assert_eq!(left, all / 2, "{whole}");
    }
}

#[test]
fn settling_under_another_scale_creates_no_allowance() {
    for (limit, _) in halves() {
        let mut rng = Rng::with_seed(77);
        for _ in 0..300 {
            let clock = at(1_000);
            let limiter = Limiter::with_clock(limit.clone(), clock.clone()).unwrap();
            let cost = 1 + rng.u64(..limiter.capacity().min(10));
            limiter.set_scale(Scale::from_q16(rng.u64(..65_537) as u32));
            let _ = limiter.charge("k", 1);
            limiter.set_scale(Scale::ONE);
            let before = limiter.peek("k", 0).remaining();
            limiter.set_scale(Scale::from_q16(rng.u64(..65_537) as u32));
            let decision = limiter.charge("k", cost);
            limiter.set_scale(Scale::from_q16(rng.u64(..65_537) as u32));
            let _ = limiter.settle("k", &decision, cost, 0);
            limiter.set_scale(Scale::ONE);
            let after = limiter.peek("k", 0).remaining();
            assert!(after <= before, "{limit}: {after} of {before}");
        }
    }
}

#[test]
fn threads_that_charge_while_the_scale_changes_never_exceed_the_limit() {
    let limiter = Limiter::with_clock(
        Limit::token_bucket(rate("1/h"), 100_000).unwrap(),
        at(1_000),
    )
    .unwrap();
    let admitted: u64 = std::thread::scope(|scope| {
        let charge = || {
            (0..60_000)
                .filter(|_| limiter.check("k").is_admitted())
                .count() as u64
        };
        let threads = [scope.spawn(charge), scope.spawn(charge)];
        for turn in 0..2_000 {
            limiter.set_scale(if turn % 2 == 0 { HALF } else { Scale::ONE });
        }
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    // Each cost one or two of a hundred thousand.
    assert!((50_000..=100_000).contains(&admitted), "{admitted}");
}

fn header(name: &str) -> Source {
    Source::Header(name.into())
}

fn quota(burst: u64) -> Quota {
    Quota::plain(Limit::token_bucket(rate("10/min"), burst).unwrap())
}

fn tiered() -> LimitRule {
    let tier = |name: &str, burst| TierQuota {
        name: Arc::from(name),
        weight: 1,
        quota: quota(burst),
    };
    LimitRule {
        key: vec![KeyPart::new(header("x-user"))],
        tiers: Some(Tiers {
            source: header("x-tier"),
            members: None,
            tiers: vec![tier("paid", 100), tier("free", 100)],
        }),
        overrides: vec![Override {
            key: vec!["vip".into()],
            grant: OverrideAction::Quota(Box::new(quota(200))),
            expires: None,
        }],
        candidate: Some(quota(100)),
        ..LimitRule::new("api", quota(100))
    }
}

fn rule() -> PressureRule {
    PressureRule {
        floor: percent(20),
        floors: vec![
            (Arc::from("paid"), percent(50)),
            (Arc::from("free"), percent(5)),
        ],
        ..PressureRule::default()
    }
}

fn policy(limits: Vec<LimitRule>) -> Policy {
    Policy {
        limits,
        pressure: Some(rule()),
        ..Policy::default()
    }
}

fn asked<'a, const N: usize>(headers: &'a [(&'a str, &'a str); N]) -> Facts<'a> {
    Facts {
        headers,
        ..Facts::default()
    }
}

fn left(gate: &PolicyGate<ManualClock>, user: &str, tier: &str) -> u64 {
    let headers = [("x-user", user), ("x-tier", tier)];
    gate.peek(&Facts {
        cost: Some(0),
        ..asked(&headers)
    })
    .status
    .remaining
}

#[test]
fn each_tier_shrinks_down_to_its_own_floor() {
    let gate = PolicyGate::new(policy(vec![tiered()]), at(1_000)).unwrap();
    for (scale, paid, free, none, vip) in [
        (100, 100, 100, 100, 200),
        (60, 60, 60, 60, 120),
        (30, 50, 30, 30, 60),
        (1, 50, 5, 20, 40),
        (100, 100, 100, 100, 200),
    ] {
        gate.set_pressure(percent(scale));
        assert_eq!(left(&gate, "a", "paid"), paid);
        assert_eq!(left(&gate, "a", "free"), free);
        assert_eq!(left(&gate, "a", "unknown"), none);
        assert_eq!(left(&gate, "vip", "free"), vip);
        // Counted limits shrink too.
        let (_, candidate) = gate.limiters().find(|(id, _)| id.contains('+')).unwrap();
        assert_eq!(candidate.scale(), percent(scale).max(percent(20)));
    }
    gate.set_pressure(percent(1));
    let by_tier = gate.pressure_by_tier();
    let scales: Vec<_> = by_tier
        .iter()
        .map(|(name, scale)| (&**name, *scale))
        .collect();
    assert_eq!(scales, [("free", percent(5)), ("paid", percent(50))]);
}

#[test]
fn a_policy_without_load_shedding_settings_shrinks_down_to_a_tenth() {
    let silent = Policy {
        limits: vec![tiered()],
        ..Policy::default()
    };
    let gate = PolicyGate::new(silent, at(1_000)).unwrap();
    gate.set_pressure(percent(1));
    assert_eq!(left(&gate, "a", "paid"), 10);
}

#[test]
fn the_next_policy_is_under_the_same_pressure_new_limits_included() {
    let gate = PolicyGate::new(policy(vec![tiered()]), at(1_000)).unwrap();
    gate.set_pressure(percent(30));
    let more = vec![tiered(), LimitRule::new("more", quota(10))];
    let next = gate.reload(policy(more), Vec::new()).unwrap();
    assert_eq!(next.pressure(), percent(30));
    assert_eq!(left(&next, "a", "paid"), 3, "the new limit has the least");
    assert_eq!(next.limiter_of(0).unwrap().scale(), percent(30));
    // And under the floors of its own.
    let high = Policy {
        pressure: Some(PressureRule {
            floor: percent(80),
            ..PressureRule::default()
        }),
        ..policy(vec![tiered()])
    };
    let next = next.reload(high, Vec::new()).unwrap();
    assert_eq!(next.limiter_of(0).unwrap().scale(), percent(80));
}

#[test]
fn usage_that_moves_to_a_quota_of_the_keys_own_under_pressure_is_the_same_part_of_it() {
    let rule = |quota| LimitRule {
        key: vec![KeyPart::new(header("x-user"))],
        ..LimitRule::new("api", quota)
    };
    let gate = PolicyGate::new(policy(vec![rule(quota(100))]), at(1_000)).unwrap();
    gate.set_pressure(HALF);
    let headers = [("x-user", "a")];
    for _ in 0..20 {
        assert!(gate.admit(&asked(&headers)).is_admitted());
    }
    // Twenty at half are forty without pressure.
    let window = Quota::plain(Limit::fixed_window(rate("100/h")).unwrap());
    let own = RuntimeOverride {
        limit: "api".into(),
        change: Override {
            key: vec!["a".into()],
            grant: OverrideAction::Quota(Box::new(window)),
            expires: None,
        },
    };
    let next = gate.with_overrides(vec![own]).unwrap();
    assert_eq!(next.admit(&asked(&headers)).status.remaining, 9);
    next.set_pressure(Scale::ONE);
    assert_eq!(left(&next, "a", ""), 59);
}

#[test]
fn a_shadow_is_never_a_reason_for_a_refusal_under_pressure_either() {
    let shadow = LimitRule {
        mode: Mode::Shadow,
        ..LimitRule::new("api", quota(10))
    };
    let gate = PolicyGate::new(policy(vec![shadow]), at(1_000)).unwrap();
    gate.set_pressure(percent(1));
    let verdicts = [(); 4].map(|()| {
        let answer = gate.admit(&Facts::default());
        assert!(answer.is_admitted());
        answer.charges[0].verdict.is_admitted()
    });
    assert_eq!(verdicts, [true, true, false, false]);
}

/// Fields as lines, and the body.
fn response_of(gate: &PolicyGate<ManualClock>, answer: &PolicyDecision) -> (Vec<String>, String) {
    let (mut text, mut parts) = (String::new(), Vec::new());
    fields(gate, answer, &mut text, &mut |field, part| {
        parts.push((field.name(), part));
    });
    let lines = parts
        .into_iter()
        .map(|(name, part)| format!("{name}: {}", &text[part]));
    let lines = lines.collect();
    let mut body = String::new();
    problem(gate, answer, &mut body);
    (lines, body)
}

#[test]
fn header_fields_report_the_scaled_limit() {
    let limits = vec![LimitRule::new("api", quota(10))];
    let gate = PolicyGate::new(policy(limits), at(1_000)).unwrap();
    gate.set_pressure(HALF);
    let first = gate.admit(&Facts::default());
    let (lines, _) = response_of(&gate, &first);
    assert!(
        lines.contains(&"ratelimit-policy: \"api\";q=5;w=60".into()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"ratelimit: \"api\";r=4;t=48".into()),
        "{lines:?}"
    );
    assert!(lines.contains(&"x-ratelimit-limit: 5".into()), "{lines:?}");
    assert!(
        lines.contains(&"x-ratelimit-remaining: 4".into()),
        "{lines:?}"
    );
    for _ in 0..4 {
        assert!(gate.admit(&Facts::default()).is_admitted());
    }
    let refused = gate.admit(&Facts::default());
    let (lines, body) = response_of(&gate, &refused);
    assert!(lines.contains(&"retry-after: 12".into()), "{lines:?}");
    assert!(body.contains(REDUCED_CAPACITY), "{body}");
    assert!(body.contains("lower than usual"), "{body}");
    assert!(body.contains("\"violated-policies\":[\"api\"]"), "{body}");
    // Without pressure the client's quota is exceeded.
    gate.set_pressure(Scale::ONE);
    let refused = gate.admit(&Facts::default());
    assert!(!refused.is_admitted());
    let (lines, body) = response_of(&gate, &refused);
    assert!(
        lines.contains(&"ratelimit-policy: \"api\";q=10;w=60".into()),
        "{lines:?}"
    );
    assert!(lines.contains(&"retry-after: 6".into()), "{lines:?}");
    assert!(body.contains(QUOTA_EXCEEDED), "{body}");
}

#[test]
fn a_cost_above_the_limit_is_not_attributed_to_pressure() {
    let limits = vec![LimitRule::new("api", quota(10))];
    let gate = PolicyGate::new(policy(limits), at(1_000)).unwrap();
    gate.set_pressure(HALF);
    let ask = |cost| {
        gate.admit(&Facts {
            cost: Some(cost),
            ..Facts::default()
        })
    };
    assert_eq!(ask(11).verdict, Verdict::Never);
    let (_, body) = response_of(&gate, &ask(11));
    assert!(body.contains("\"status\":422"), "{body}");
    assert!(ask(10).is_admitted(), "what it holds in better times");
}
