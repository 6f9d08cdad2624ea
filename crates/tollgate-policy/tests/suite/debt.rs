//! Costs that are known afterwards and exceed what is left: the key owes them, up to a bound.

use std::sync::Arc;

use tollgate::{Limit, ManualClock, Span, Verdict};
use tollgate_policy::{
    Facts, KeyPart, LimitRule, Override, OverrideAction, Policy, PolicyDecision, PolicyError,
    PolicyGate, PriorState, Quota, RuntimeOverride, Settlement, Sharing, Source,
};

type Gate = PolicyGate<ManualClock>;

/// A thousand tokens at once, a hundred a second, and a debt of 1500.
fn tokens() -> Limit {
    let bucket = Limit::token_bucket("100/s".parse().unwrap(), 1000).unwrap();
    bucket.with_max_debt(1500).unwrap()
}

fn policy(limit: Limit) -> Policy {
    let mut rule = LimitRule::new("tokens", Quota::plain(limit));
    rule.key = vec![KeyPart::new(Source::Header("user".into()))];
    Policy {
        limits: vec![rule],
        ..Policy::default()
    }
}

fn gate() -> (Gate, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Span::from_secs(1_000_000));
    let gate = PolicyGate::new(policy(tokens()), clock.clone()).unwrap();
    (gate, clock)
}

fn ask(gate: &Gate, cost: u64) -> PolicyDecision {
    gate.admit(&Facts {
        headers: &[("user", "a")],
        cost: Some(cost),
        ..Facts::default()
    })
}

/// Reserves and settles; returns what could not be charged.
fn use_tokens(gate: &Gate, reserved: u64, used: u64) -> u64 {
    let answer = ask(gate, reserved);
    assert!(answer.is_admitted(), "{answer:?}");
    gate.reserve(&answer).settle(Settlement::Actual(used))
}

fn retry_after(answer: &PolicyDecision) -> Span {
    match answer.verdict {
        Verdict::Refuse { retry_after } => retry_after,
        verdict => panic!("{verdict:?}"),
    }
}

#[test]
fn a_reservation_that_is_settled_at_more_is_owed_and_not_forgiven() {
    let (gate, clock) = gate();
    assert_eq!(use_tokens(&gate, 200, 1700), 0);
    let refused = ask(&gate, 1);
    assert_eq!(refused.status.remaining, 0);
    // 700 are owed, and one more has to be earned.
    assert_eq!(retry_after(&refused), Span::from_millis(7_010));
    assert_eq!(refused.status.full_after, Span::from_secs(17));
    clock.advance(Span::from_millis(7_009));
    assert_eq!(retry_after(&ask(&gate, 1)), Span::from_millis(1));
    clock.advance(Span::from_millis(1));
    assert!(ask(&gate, 1).is_admitted());
}

#[test]
fn a_debt_ends_at_its_bound_and_what_is_beyond_is_reported() {
    let (gate, _) = gate();
    assert_eq!(use_tokens(&gate, 1000, 3000), 500);
    assert_eq!(retry_after(&ask(&gate, 1)), Span::from_millis(15_010));
}

#[test]
fn requests_in_flight_together_owe_together() {
    let (gate, _) = gate();
    let flights: Vec<_> = (0..4).map(|_| gate.reserve(&ask(&gate, 250))).collect();
    let unpaid = flights
        .into_iter()
        .map(|flight| flight.settle(Settlement::Actual(650)));
    // 1600 more than there were.
    assert_eq!(unpaid.collect::<Vec<_>>(), [0, 0, 0, 100]);
}

#[test]
fn a_refused_request_owes_nothing() {
    let (gate, _) = gate();
    assert_eq!(use_tokens(&gate, 1000, 1100), 0);
    for _ in 0..100 {
        assert_eq!(retry_after(&ask(&gate, 1000)), Span::from_secs(11));
    }
}

#[test]
fn a_refund_pays_a_debt_first() {
    let (gate, _) = gate();
    let first = gate.reserve(&ask(&gate, 600));
    assert_eq!(use_tokens(&gate, 400, 900), 0);
    assert_eq!(first.settle(Settlement::Cancelled), 0);
    assert_eq!(ask(&gate, 0).status.remaining, 100);
}

#[test]
fn a_debt_is_kept_over_reloads_restarts_and_overrides() {
    let (gate, clock) = gate();
    assert_eq!(use_tokens(&gate, 100, 1500), 0);
    let owes_500 = |gate: &Gate| {
        assert_eq!(retry_after(&ask(gate, 1)), Span::from_millis(5_010));
    };
    owes_500(&gate);
    let gate = gate.reload(policy(tokens()), vec![]).unwrap();
    owes_500(&gate);
    let prior = PriorState::from_saved(&gate.save()).unwrap();
    let gate = PolicyGate::with_prior(policy(tokens()), vec![], clock, prior).unwrap();
    owes_500(&gate);
    let own = Limit::token_bucket("100/s".parse().unwrap(), 1000).unwrap();
    let over = RuntimeOverride {
        limit: Arc::from("tokens"),
        change: Override {
            key: vec!["a".into()],
            grant: OverrideAction::Quota(Box::new(Quota::plain(own))),
            expires: None,
        },
    };
    let gate = gate.with_overrides(vec![over]).unwrap();
    owes_500(&gate);
    let gate = gate.with_overrides(vec![]).unwrap();
    owes_500(&gate);
    // Without a bound there are no new debts; the old one is earned all the same.
    let plain = Limit::token_bucket("100/s".parse().unwrap(), 1000).unwrap();
    let gate = gate.reload(policy(plain), vec![]).unwrap();
    owes_500(&gate);
}

#[test]
fn a_limit_with_a_debt_is_shared_exactly() {
    for sharing in [Sharing::Lease, Sharing::Sync] {
        let mut policy = policy(tokens());
        policy.limits[0].sharing = sharing;
        let error = PolicyGate::new(policy, ManualClock::new()).unwrap_err();
        assert!(matches!(error, PolicyError::NotShared { .. }), "{error:?}");
    }
}
