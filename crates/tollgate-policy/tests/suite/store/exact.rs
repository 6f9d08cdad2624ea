//! A policy with a remote store: the same decisions as with a local one, and local decisions when the store does
//! not answer.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::kit::{Counting, Gate, admit_without_time, node, now, start};
use tollgate::{Clock, Limit, ManualClock, Moment, Origin, Span, Verdict};
use tollgate_policy::shared::FaultKind;
use tollgate_policy::{
    Decide, DecisionRequest, Facts, KeyPart, LimitRule, Mode, NoHost, OnStoreError, Op, Policy,
    PolicyDecision, PolicyGate, Quota, Reason, Settlement, Source, Subject, decide, decide_batch,
};

fn admit(gate: &Gate, facts: &Facts<'_>) -> PolicyDecision {
    ask(gate, facts, Op::Charge)
}

fn ask(gate: &Gate, facts: &Facts<'_>, op: Op) -> PolicyDecision {
    now(start(gate, facts, op).resolve())
}

fn rule(name: &str, rate: &str, burst: u64) -> LimitRule {
    let limit = Limit::token_bucket(rate.parse().unwrap(), burst).unwrap();
    let mut rule = LimitRule::new(name, Quota::plain(limit));
    rule.key = vec![KeyPart::new(Source::Header("x-org".into()))];
    rule
}

const ACME: [(&str, &str); 1] = [("x-org", "acme")];
const OTHER: [(&str, &str); 1] = [("x-org", "other")];

fn of<'a>(headers: &'a [(&'a str, &'a str); 1]) -> Facts<'a> {
    Facts {
        method: "GET",
        path: "/",
        headers,
        ..Facts::default()
    }
}

fn passes(gate: &Gate, facts: &Facts<'_>, times: usize) -> usize {
    let admitted = (0..times).filter(|_| admit(gate, facts).is_admitted());
    admitted.count()
}

#[test]
fn a_remote_store_gives_the_same_decisions_as_a_local_one() {
    let clock = ManualClock::new();
    let limits = || {
        let mut shadow = rule("shadow", "1/s", 2);
        shadow.mode = Mode::Shadow;
        let mut candidate = rule("wide", "5/s", 20);
        let limit = Limit::token_bucket("1/s".parse().unwrap(), 3).unwrap();
        candidate.candidate = Some(Quota::plain(limit));
        vec![rule("narrow", "2/s", 4), candidate, shadow]
    };
    let policy = Policy {
        limits: limits(),
        ..Policy::default()
    };
    let alone = PolicyGate::new(policy, clock.clone()).unwrap();
    let shared = node(&clock, Counting::new(&clock, 1), limits());
    for step in 0..400_u64 {
        clock.advance(Span::from_millis(step * 37 % 450));
        let headers = if step % 3 == 0 { &OTHER } else { &ACME };
        let facts = Facts {
            cost: Some(step % 6),
            ..of(headers)
        };
        let take = step % 5 != 0;
        let here = if take {
            alone.admit(&facts)
        } else {
            alone.peek(&facts)
        };
        let op = if take { Op::Charge } else { Op::Peek };
        let there = ask(&shared, &facts, op);
        assert_eq!(here.verdict, there.verdict, "step {step}");
        assert_eq!(here.reason, there.reason, "step {step}");
        assert_eq!(here.status, there.status, "step {step}");
        let numbers = |answer: &PolicyDecision| -> Vec<_> {
            let charges = answer.charges.iter();
            charges
                .map(|c| (c.rule, c.role, c.cost, c.verdict))
                .collect()
        };
        assert_eq!(numbers(&here), numbers(&there), "step {step}");
    }
}

#[test]
fn nodes_that_share_a_store_share_the_limit() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let nodes = [0, 1].map(|_| node(&clock, store.clone(), vec![rule("a", "1/s", 10)]));
    let facts = of(&ACME);
    let admitted = (0..30).filter(|i| admit(&nodes[i % 2], &facts).is_admitted());
    assert_eq!(admitted.count(), 10);
}

#[test]
fn a_node_without_the_store_admits_its_share_less_what_it_admitted_before() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let gate = node(&clock, store.clone(), vec![rule("a", "2/s", 10)]);
    let facts = of(&ACME);
    assert_eq!(passes(&gate, &facts, 3), 3);
    store.go_away(true);
    // Its share is a burst of 5, of which 3 are used.
    let alone: Vec<PolicyDecision> = (0..5).map(|_| admit(&gate, &facts)).collect();
    assert!(alone.iter().all(|answer| answer.origin == Origin::Degraded));
    assert_eq!(
        alone.iter().filter(|answer| answer.is_admitted()).count(),
        2
    );
    // And half the rate.
    clock.advance(Span::from_secs(2));
    assert_eq!(passes(&gate, &facts, 5), 2);
    // A new client has the whole share.
    assert_eq!(passes(&gate, &of(&OTHER), 9), 5);
}

#[test]
fn usage_during_an_outage_is_reported_to_the_store() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 10)]);
    let facts = of(&ACME);
    store.go_away(true);
    assert_eq!(passes(&gate, &facts, 7), 7);
    store.go_away(false);
    // Seven of ten are gone, also for every other node.
    assert_eq!(passes(&gate, &facts, 10), 3);
    let other = node(&clock, store, vec![rule("a", "1/h", 10)]);
    assert_eq!(passes(&other, &facts, 10), 0);
}

#[test]
fn a_debt_is_reported_once_and_again_only_if_the_answer_was_lost() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 10)]);
    let facts = of(&ACME);
    store.go_away(true);
    assert_eq!(passes(&gate, &facts, 2), 2);
    // Started during the outage, not received: still owed.
    assert_eq!(passes(&gate, &facts, 2), 2);
    store.go_away(false);
    assert_eq!(passes(&gate, &facts, 20), 6);
}

#[test]
fn only_usage_during_an_outage_is_owed() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 100)]);
    let facts = of(&ACME);
    assert_eq!(passes(&gate, &facts, 45), 45);
    store.go_away(true);
    assert_eq!(passes(&gate, &facts, 1), 1);
    store.go_away(false);
    assert_eq!(passes(&gate, &facts, 100), 54);
}

#[test]
fn a_debt_whose_report_may_be_lost_is_reported_again() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 10)]);
    let facts = of(&ACME);
    store.go_away(true);
    assert_eq!(passes(&gate, &facts, 3), 3);
    // Late: the three may have been counted, or not. Twice is better than not at all.
    store.fail(Some(FaultKind::Late));
    assert_eq!(passes(&gate, &facts, 1), 1);
    store.go_away(false);
    assert_eq!(passes(&gate, &facts, 20), 6);
}

#[test]
fn two_changes_in_a_row_keep_all_usage() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let with = |rate| Policy {
        limits: vec![rule("a", rate, 10)],
        ..Policy::default()
    };
    let first = node(&clock, store.clone(), with("1/h").limits);
    let second = first.reload(with("2/h"), Vec::new()).unwrap();
    let third = second.reload(with("3/h"), Vec::new()).unwrap();
    let quotas = |rates: &[&str]| -> Vec<Quota> {
        let quota = |rate: &&str| {
            Limit::token_bucket(rate.parse().unwrap(), 10)
                .unwrap()
                .with_name("a")
        };
        rates.iter().map(quota).map(Quota::plain).collect()
    };
    let before = || store.before.lock().unwrap()["a"].clone();
    assert_eq!(before(), quotas(&["2/h", "1/h"]));
    // Back to the first: the others are what it was.
    let fourth = third.reload(with("1/h"), Vec::new()).unwrap();
    assert_eq!(before(), quotas(&["3/h", "2/h"]));
    // When nothing there counts any more, it is not reported.
    clock.advance(Span::from_secs(3600 * 11));
    fourth.reload(with("1/h"), Vec::new()).unwrap();
    assert_eq!(before(), []);
}

#[test]
fn a_share_set_by_an_old_policy_is_corrected_by_the_active_one() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let old = node(&clock, store.clone(), vec![rule("a", "1/h", 1_000)]);
    let policy = Policy {
        limits: vec![rule("a", "1/h", 10)],
        ..Policy::default()
    };
    let new = Arc::new(old.reload(policy, Vec::new()).unwrap());
    store.nodes.store(2, SeqCst);
    new.rebalance();
    old.rebalance();
    new.rebalance();
    store.go_away(true);
    assert_eq!(passes(&new, &of(&ACME), 1_000), 5);
}

#[test]
fn each_limit_configures_what_happens_during_an_outage() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let with = |name: &str, on_error| {
        let mut rule = rule(name, "1/h", 3);
        rule.on_store_error = on_error;
        rule
    };
    let facts = of(&ACME);
    let away = |limits| {
        store.go_away(false);
        let gate = node(&clock, store.clone(), limits);
        store.go_away(true);
        gate
    };

    let allowing = away(vec![with("allowing", OnStoreError::Allow)]);
    for _ in 0..10 {
        let answer = admit(&allowing, &facts);
        assert_eq!(answer.verdict, Verdict::Pass);
        assert_eq!(
            (answer.reason, answer.origin),
            (Reason::StoreError(0), Origin::Degraded)
        );
    }

    let denying = away(vec![
        with("local", OnStoreError::Local),
        with("denying", OnStoreError::Deny),
    ]);
    let answer = admit(&denying, &facts);
    assert!(matches!(answer.verdict, Verdict::Refuse { .. }));
    assert_eq!(answer.reason, Reason::StoreError(1));
    assert_eq!(tollgate_policy::fields::status(&answer), 503);

    let both = away(vec![
        with("allows", OnStoreError::Allow),
        with("counts", OnStoreError::Local),
    ]);
    assert_eq!(passes(&both, &facts, 10), 3);
}

#[test]
fn a_cost_above_the_share_is_refused_for_now_and_not_for_ever() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 4);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/s", 8)]);
    store.go_away(true);
    let costing = |cost| Facts {
        cost: Some(cost),
        ..of(&ACME)
    };
    assert!(admit(&gate, &costing(2)).is_admitted());
    assert!(matches!(
        admit(&gate, &costing(5)).verdict,
        Verdict::Refuse { .. }
    ));
    assert_eq!(admit(&gate, &costing(9)).verdict, Verdict::Never);
}

#[test]
fn the_share_follows_the_number_of_nodes() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 12)]);
    store.go_away(true);
    store.nodes.store(4, SeqCst);
    gate.rebalance();
    assert_eq!(passes(&gate, &of(&ACME), 20), 3);
    store.nodes.store(2, SeqCst);
    gate.rebalance();
    assert_eq!(passes(&gate, &of(&ACME), 20), 3);
    assert_eq!(passes(&gate, &of(&OTHER), 20), 6);
}

#[test]
fn a_peek_takes_nothing_there_nor_here() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 3)]);
    let facts = of(&ACME);
    for away in [false, true] {
        store.go_away(away);
        for _ in 0..5 {
            assert_eq!(ask(&gate, &facts, Op::Peek).status.remaining, 2);
        }
    }
    store.go_away(false);
    assert_eq!(passes(&gate, &facts, 9), 3);
}

#[test]
fn the_unused_part_is_refunded_in_the_store_and_in_the_share() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 10)]);
    let facts = Facts {
        cost: Some(8),
        ..of(&ACME)
    };
    let answer = admit(&gate, &facts);
    let reservation = gate.reserve(&answer);
    assert!(reservation.is_shared());
    assert_eq!(now(reservation.settle_everywhere(Settlement::Actual(3))), 0);
    let asked = Facts {
        cost: Some(0),
        ..of(&ACME)
    };
    assert_eq!(ask(&gate, &asked, Op::Peek).status.remaining, 7);
    store.go_away(true);
    assert_eq!(ask(&gate, &asked, Op::Peek).status.remaining, 7);
}

#[test]
fn a_debt_is_owed_in_the_store_at_all_nodes() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let owing = || {
        let mut owing = rule("a", "1/s", 10);
        owing.quota.limit = owing.quota.limit.with_max_debt(20).unwrap();
        owing
    };
    let gates = [(); 2].map(|()| node(&clock, store.clone(), vec![owing()]));
    let facts = Facts {
        cost: Some(4),
        ..of(&ACME)
    };
    let reservation = gates[0].reserve(&admit(&gates[0], &facts));
    assert_eq!(
        now(reservation.settle_everywhere(Settlement::Actual(25))),
        0
    );
    for gate in &gates {
        let refused = admit(gate, &facts);
        assert_eq!(refused.status.remaining, 0);
        let retry_after = Span::from_secs(19);
        assert_eq!(refused.verdict, Verdict::Refuse { retry_after });
    }
    clock.advance(Span::from_secs(19));
    assert!(admit(&gates[1], &facts).is_admitted());
}

#[test]
fn a_share_is_refunded_no_more_than_it_took() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 5);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 10)]);
    // The share is two; the store grants ten here, of which all are given back.
    let granted: Vec<PolicyDecision> = (0..10).map(|_| admit(&gate, &of(&ACME))).collect();
    assert!(granted.iter().all(|answer| answer.is_admitted()));
    for (number, answer) in granted.iter().enumerate() {
        // Of the first two the share knows.
        if number >= 2 {
            now(gate
                .reserve(answer)
                .settle_everywhere(Settlement::Cancelled));
        }
    }
    store.go_away(true);
    assert_eq!(passes(&gate, &of(&ACME), 5), 0);
    for answer in granted.iter().take(2) {
        now(gate
            .reserve(answer)
            .settle_everywhere(Settlement::Cancelled));
    }
    assert_eq!(passes(&gate, &of(&ACME), 5), 2);
}

#[test]
fn a_reload_keeps_the_store_and_its_debts() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 10)]);
    let facts = of(&ACME);
    store.go_away(true);
    assert_eq!(passes(&gate, &facts, 4), 4);
    let policy = Policy {
        limits: vec![rule("b", "1/h", 1_000), rule("a", "1/h", 10)],
        ..Policy::default()
    };
    let next = Arc::new(gate.reload(policy, Vec::new()).unwrap());
    store.go_away(false);
    assert_eq!(passes(&next, &facts, 20), 6);
}

#[test]
fn a_policy_without_a_store_is_decided_at_once() {
    let clock = ManualClock::new();
    let policy = Policy {
        limits: vec![rule("a", "1/h", 1)],
        ..Policy::default()
    };
    let gate = Arc::new(PolicyGate::new(policy, clock).unwrap());
    assert!(matches!(
        start(&gate, &of(&ACME), Op::Charge),
        Decide::Ready(_)
    ));
    let charge = |rule| {
        let subject = Subject::Rule {
            rule,
            key: &["acme"],
            cost: 1,
        };
        let request = DecisionRequest::new(subject, Op::Charge);
        decide(&NoHost::new(), &gate, &request)
    };
    assert!(matches!(charge(0), Decide::Ready(answer) if !answer.is_admitted()));
    // A place without a rule limits nothing.
    assert!(matches!(charge(1), Decide::Ready(answer) if answer.reason == Reason::Unmatched));
    assert_eq!(gate.clock().now(), Moment::ORIGIN);
}

#[test]
fn several_requests_are_one_question_to_the_store() {
    let clock = ManualClock::new();
    let gate = node(&clock, Counting::new(&clock, 1), vec![rule("a", "1/h", 3)]);
    let facts = [of(&ACME), of(&OTHER)];
    let ask = |op| {
        let (started, parts) = decide_batch(&NoHost::new(), &gate, &facts, op, None);
        let Decide::Pending(pending) = started else {
            panic!("the store has to be asked");
        };
        (now(pending), parts)
    };
    let result_of = |answer: &PolicyDecision, at, take| {
        let (verdict, status) = gate.charge_outcome(answer, at, take).unwrap();
        (verdict.is_admitted(), status.remaining)
    };
    let (answer, parts) = ask(Op::Charge);
    let charges: Vec<_> = parts.iter().map(|part| part.charges.clone()).collect();
    assert_eq!(charges, [[0], [1]]);
    assert_eq!(result_of(&answer, 0, true), (true, 2));
    // A charge that is only peeked is reported as it is.
    let (answer, _) = ask(Op::Peek);
    assert_eq!(result_of(&answer, 1, false), (true, 2));
    now(gate
        .refund_for(&answer)
        .settle_everywhere(Settlement::Cancelled));
    let (answer, _) = ask(Op::Peek);
    assert_eq!(result_of(&answer, 0, false), (true, 3));
}

#[test]
fn a_request_without_time_is_decided_by_this_node_alone() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let facts = of(&ACME);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 3)]);
    let decided = || admit_without_time(&gate, &facts);
    // An answer that is there counts, however late it is.
    assert_eq!(decided().origin, Origin::Fresh);
    store.fail(Some(FaultKind::Busy));
    let answer = decided();
    assert_eq!(answer.origin, Origin::Degraded);
    assert!(answer.is_admitted());
    assert_eq!(answer.status.remaining, 1);
}

#[test]
fn a_debt_belongs_to_one_of_two_keys_of_a_limit() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store.clone(), vec![rule("a", "1/h", 10)]);
    let both = |gate: &Gate| {
        let both = [of(&ACME), of(&OTHER)];
        now(decide_batch(&NoHost::new(), gate, &both, Op::Charge, None)
            .0
            .resolve())
    };
    // The second key has a debt of four, and its first report is lost.
    store.go_away(true);
    assert_eq!(passes(&gate, &of(&OTHER), 4), 4);
    assert!(both(&gate).is_admitted());
    store.go_away(false);
    assert!(both(&gate).is_admitted());
    let elsewhere = node(&clock, store, vec![rule("a", "1/h", 10)]);
    assert_eq!(passes(&elsewhere, &of(&ACME), 10), 8);
    assert_eq!(passes(&elsewhere, &of(&OTHER), 10), 4);
}
