//! Burst credits in a policy: two buckets of one rule, charged together.

use tollgate::{Limit, ManualClock, Scale, Span, Verdict};
use tollgate_policy::{
    BurstCredits, Facts, KeyPart, LimitRule, Mode, Override, OverrideAction, Policy, PolicyGate,
    PriorState, Quota, Role, RuntimeOverride, Settlement, Source, TierQuota, Tiers,
};

type Gate = PolicyGate<ManualClock>;

/// Ten times 10/s for 30 s, ten at once.
fn tenfold() -> BurstCredits {
    BurstCredits {
        rate: "10/s".parse().unwrap(),
        times: 10,
        duration: Span::from_secs(30),
        slack: Some(10),
    }
}

fn rule(quota: Quota) -> LimitRule {
    let mut rule = LimitRule::new("surge", quota);
    rule.key = vec![KeyPart::new(Source::Header("user".into()))];
    rule
}

fn policy(rule: LimitRule) -> Policy {
    Policy {
        limits: vec![rule],
        ..Policy::default()
    }
}

fn gate(rule: LimitRule) -> Gate {
    PolicyGate::new(policy(rule), ManualClock::new()).unwrap()
}

fn with_user<T>(cost: u64, ask: impl FnOnce(&Facts<'_>) -> T) -> T {
    ask(&Facts {
        headers: &[("user", "ann")],
        path: "/",
        cost: Some(cost),
        ..Facts::default()
    })
}

/// The number of requests that pass of `tries` at one instant.
fn passes(gate: &Gate, tries: usize) -> usize {
    let admitted = |_: &usize| with_user(1, |facts| gate.admit(facts)).is_admitted();
    (0..tries).filter(admitted).count()
}

#[test]
fn a_burst_may_come_at_once_without_slack() {
    let credits = |rate: &str, times, secs| BurstCredits {
        rate: rate.parse().unwrap(),
        times,
        duration: Span::from_secs(secs),
        slack: None,
    };
    // `times` times the units of the rate, but no more than a burst of that length admits.
    for (credits, at_once) in [
        (credits("2/s", 5, 30), 10),
        (credits("1000/h", 3, 30), 25),
        (credits("1/h", 2, 10), 1),
    ] {
        let gate = gate(rule(credits.quota().unwrap()));
        assert_eq!(passes(&gate, 50), at_once, "{credits:?}");
    }
}

fn peek(gate: &Gate, limit: &str) -> u64 {
    let found = gate.limiters().position(|(id, _)| id == limit);
    let answer = with_user(0, |facts| gate.peek(facts));
    let charge = answer
        .charges
        .iter()
        .position(|charge| charge.limit.index() == found.unwrap());
    let (_, status) = gate
        .charge_outcome(&answer, charge.unwrap(), false)
        .unwrap();
    status.remaining
}

#[test]
fn a_burst_runs_at_the_peak_for_its_time_and_then_at_the_rate() {
    let gate = gate(rule(tenfold().quota().unwrap()));
    let tenth = Span::from_millis(100);
    // The 10 of the slack at once, then 10 in each tenth of a second: 300 tenths from full credit.
    for at in 0..=300 {
        assert_eq!(passes(&gate, 12), 10, "{at}");
        gate.clock().advance(tenth);
    }
    for at in 0..50 {
        assert_eq!(passes(&gate, 12), 1, "{at}");
        gate.clock().advance(tenth);
    }
    gate.clock().advance(Span::from_secs(271));
    assert_eq!(peek(&gate, "surge"), 2_710);
}

#[test]
fn a_refused_request_takes_nothing_of_either() {
    let gate = gate(rule(tenfold().quota().unwrap()));
    assert_eq!(passes(&gate, 1_000), 10);
    assert_eq!(
        (peek(&gate, "surge"), peek(&gate, "surge/peak")),
        (2_700, 0)
    );
    let answer = with_user(1, |facts| gate.admit(facts));
    let retry_after = Span::from_millis(10);
    assert_eq!(answer.verdict, Verdict::Refuse { retry_after });
    assert!(answer.binding().unwrap().is_peak);
    // More than ever comes at once is never.
    let answer = with_user(11, |facts| gate.admit(facts));
    assert_eq!(answer.verdict, Verdict::Never);
}

#[test]
fn a_limit_that_is_only_counted_sees_what_it_would_refuse() {
    let shadow = LimitRule {
        mode: Mode::Shadow,
        ..rule(tenfold().quota().unwrap())
    };
    let gate = gate(shadow);
    let mut would_refuse = 0;
    for _ in 0..1_000 {
        let answer = with_user(1, |facts| gate.admit(facts));
        assert!(answer.is_admitted());
        let [credit, peak] = &answer.charges[..] else {
            panic!("{answer:?}");
        };
        assert_eq!((credit.role, credit.verdict), (Role::Shadow, peak.verdict));
        would_refuse += usize::from(!credit.verdict.is_admitted());
    }
    assert_eq!(would_refuse, 990);
    assert_eq!(
        peek(&gate, "surge"),
        2_700,
        "what the peak refuses is not taken"
    );
}

#[test]
fn a_refund_returns_to_both_buckets() {
    let gate = gate(rule(tenfold().quota().unwrap()));
    let answer = with_user(8, |facts| gate.admit(facts));
    gate.reserve(&answer).settle(Settlement::Actual(3));
    assert_eq!(
        (peek(&gate, "surge"), peek(&gate, "surge/peak")),
        (2_707, 7)
    );
}

#[test]
fn both_buckets_continue_in_the_next_policy_and_from_a_snapshot() {
    let gate = gate(rule(tenfold().quota().unwrap()));
    assert_eq!(passes(&gate, 8), 8);
    let larger = BurstCredits {
        slack: Some(20),
        ..tenfold()
    };
    let reloaded = gate
        .reload(policy(rule(larger.quota().unwrap())), vec![])
        .unwrap();
    assert_eq!(peek(&reloaded, "surge/peak"), 12);
    assert_eq!(peek(&reloaded, "surge"), 2_712);
    let prior = PriorState::from_saved(&gate.save()).unwrap();
    let clock = gate.clock().clone();
    let same = policy(rule(tenfold().quota().unwrap()));
    let restored = PolicyGate::with_prior(same, vec![], clock, prior).unwrap();
    assert_eq!(passes(&restored, 9), 2);
}

#[test]
fn a_bucket_becomes_burst_credits_and_back_and_keeps_what_was_used() {
    let bucket = || Quota::plain(Limit::token_bucket("10/s".parse().unwrap(), 100).unwrap());
    let gate = gate(rule(bucket()));
    assert_eq!(passes(&gate, 90), 90);
    let gate = gate
        .reload(policy(rule(tenfold().quota().unwrap())), vec![])
        .unwrap();
    assert_eq!(peek(&gate, "surge"), 2_620);
    assert_eq!(passes(&gate, 20), 10);
    let gate = gate.reload(policy(rule(bucket())), vec![]).unwrap();
    assert_eq!(passes(&gate, 20), 0);
}

#[test]
fn usage_moves_into_an_override_and_out_of_it() {
    let bucket = Quota::plain(Limit::token_bucket("10/s".parse().unwrap(), 100).unwrap());
    let gate = gate(rule(bucket));
    assert_eq!(passes(&gate, 90), 90);
    let change = Override {
        key: vec!["ann".into()],
        grant: OverrideAction::Quota(Box::new(tenfold().quota().unwrap())),
        expires: None,
    };
    let limit = "surge".into();
    let gate = gate
        .with_overrides(vec![RuntimeOverride { limit, change }])
        .unwrap();
    // The peak holds ten, and all of them are used.
    assert_eq!(passes(&gate, 20), 0);
    gate.clock().advance(Span::from_millis(100));
    assert_eq!(passes(&gate, 20), 10);
    let gate = gate.with_overrides(vec![]).unwrap();
    assert_eq!(passes(&gate, 20), 1, "99 are used");
}

#[test]
fn pressure_makes_both_smaller_down_to_the_floor_of_a_tier() {
    let mut rule = rule(tenfold().quota().unwrap());
    rule.tiers = Some(Tiers {
        source: Source::Header("user".into()),
        members: None,
        tiers: vec![TierQuota {
            name: "ann".into(),
            weight: 1,
            quota: tenfold().quota().unwrap(),
        }],
    });
    let gate = gate(rule);
    gate.set_pressure(Scale::from_q16(32_768));
    assert_eq!(
        (peek(&gate, "surge@ann"), peek(&gate, "surge@ann/peak")),
        (1_355, 5)
    );
}

#[test]
fn an_explanation_names_one_limit() {
    let gate = gate(rule(tenfold().quota().unwrap()));
    assert_eq!(passes(&gate, 10), 10);
    let explained = with_user(1, |facts| gate.explain(facts));
    let [rule] = &explained.rules[..] else {
        panic!("{explained:?}");
    };
    let decision = rule.decision.unwrap();
    let retry_after = Span::from_millis(10);
    assert_eq!(decision.verdict, Verdict::Refuse { retry_after });
    assert_eq!(decision.status.remaining, 0);
    assert_eq!(
        gate.quota(rule.limit.unwrap()).unwrap().to_string(),
        "burst credits 10/s times 10 for 30s"
    );
}
