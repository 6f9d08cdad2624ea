//! Several descriptors of one request are decided together.

use std::sync::Arc;

use tollgate::{Limit, ManualClock, Verdict};
use tollgate_policy::pattern::TextPattern;
use tollgate_policy::{
    BatchPart, Decide, Facts, KeyPart, LimitRule, ListRule, Match, Mode, NoHost, Op, Policy,
    PolicyDecision, PolicyGate, Quota, Reason, Settlement, Source, ValueTest, decide_batch,
};

type Gate = Arc<PolicyGate<ManualClock>>;

fn entries(all: &[(&str, Option<&str>)]) -> Vec<(String, ValueTest)> {
    let test = |value: &Option<&str>| match value {
        Some(text) => ValueTest::Like(vec![TextPattern::new(text)]),
        None => ValueTest::Present,
    };
    let one = |(key, value): &(&str, Option<&str>)| ((*key).to_owned(), test(value));
    all.iter().map(one).collect()
}

/// A limit for descriptors of one entry with this key, which counts each value by itself.
fn rule(key: &str, burst: u64) -> LimitRule {
    let limit = Limit::token_bucket("1/h".parse().unwrap(), burst).unwrap();
    let mut rule = LimitRule::new(key, Quota::plain(limit));
    rule.matches.entries = entries(&[(key, None)]);
    rule.key = vec![KeyPart::new(Source::Descriptor(key.into()))];
    rule
}

fn gate(limits: Vec<LimitRule>) -> Gate {
    let policy = Policy {
        limits,
        ..Policy::default()
    };
    Arc::new(PolicyGate::new(policy, ManualClock::new()).unwrap())
}

fn decide_together(
    gate: &Gate,
    descriptors: &[&[(&str, &str)]],
    op: Op,
) -> (PolicyDecision, Vec<BatchPart>) {
    let facts = descriptors.iter().map(|descriptor| Facts {
        descriptor,
        ..Facts::default()
    });
    let facts: Vec<_> = facts.collect();
    match decide_batch(&NoHost::new(), gate, &facts, op, None) {
        (Decide::Ready(answer), parts) => (answer, parts),
        (Decide::Pending(_), _) => panic!("there is no remote store"),
    }
}

/// What is left for each descriptor.
fn left(gate: &Gate, descriptors: &[&[(&str, &str)]]) -> Vec<u64> {
    let (answer, parts) = decide_together(gate, descriptors, Op::Peek);
    let of = |part: &BatchPart| {
        gate.charge_status(&answer, part.charges[0])
            .unwrap()
            .remaining
    };
    parts.iter().map(of).collect()
}

#[test]
fn a_descriptor_that_is_refused_costs_none_of_them() {
    let gate = gate(vec![rule("user", 5), rule("path", 1)]);
    let both: [&[(&str, &str)]; 2] = [&[("user", "ann")], &[("path", "/a")]];
    assert!(decide_together(&gate, &both, Op::Charge).0.is_admitted());
    for _ in 0..3 {
        let (answer, parts) = decide_together(&gate, &both, Op::Charge);
        assert!(!answer.is_admitted());
        let says = |part: &BatchPart| {
            gate.charge_outcome(&answer, part.charges[0], true)
                .unwrap()
                .0
        };
        assert!(says(&parts[0]).is_admitted());
        assert!(!says(&parts[1]).is_admitted());
    }
    assert_eq!(left(&gate, &both), [4, 0]);
}

#[test]
fn one_key_of_two_descriptors_is_charged_once_for_both() {
    let gate = gate(vec![rule("user", 5)]);
    let twice: [&[(&str, &str)]; 2] = [&[("user", "ann")], &[("user", "ann")]];
    let (answer, parts) = decide_together(&gate, &twice, Op::Charge);
    assert_eq!(answer.charges.len(), 1);
    assert_eq!(answer.charges[0].cost, 2);
    assert_eq!(parts[0], parts[1]);
    assert_eq!(left(&gate, &twice[..1]), [3]);
    assert!(decide_together(&gate, &twice, Op::Charge).0.is_admitted());
    assert!(!decide_together(&gate, &twice, Op::Charge).0.is_admitted());
    assert_eq!(left(&gate, &twice[..1]), [1]);
}

#[test]
fn entries_are_all_entries_in_their_order() {
    let m = Match {
        entries: entries(&[("a", Some("x*")), ("b", None)]),
        ..Match::default()
    };
    let holds = |descriptor: &[(&str, &str)]| {
        let facts = Facts {
            descriptor,
            ..Facts::default()
        };
        m.holds(&facts, "")
    };
    assert!(holds(&[("a", "x1"), ("b", "")]));
    assert!(!holds(&[("a", "y"), ("b", "1")]));
    assert!(!holds(&[("b", "1"), ("a", "x1")]));
    assert!(!holds(&[("a", "x1")]));
    assert!(!holds(&[("a", "x1"), ("b", "1"), ("c", "1")]));
    assert!(!holds(&[]));
}

#[test]
fn a_limit_that_is_replaced_is_not_charged_for_any_of_them() {
    let mut special = rule("special", 9);
    special.replaces = vec![Arc::from("user")];
    let gate = gate(vec![rule("user", 1), special]);
    let both: [&[(&str, &str)]; 2] = [&[("user", "ann")], &[("special", "1")]];
    for _ in 0..5 {
        let (answer, parts) = decide_together(&gate, &both, Op::Charge);
        assert!(answer.is_admitted());
        assert!(parts[0].charges.is_empty() && parts[0].ended.is_none());
    }
    assert!(
        decide_together(&gate, &both[..1], Op::Charge)
            .0
            .is_admitted()
    );
    assert!(
        !decide_together(&gate, &both[..1], Op::Charge)
            .0
            .is_admitted()
    );
}

#[test]
fn a_list_decides_one_descriptor_and_not_the_others() {
    let listed = |name: &str, except: Vec<Match>| ListRule {
        name: Arc::from(name),
        matches: Match {
            entries: entries(&[(name, None)]),
            ..Match::default()
        },
        except,
        reason: None,
        expires: None,
    };
    let but = Match {
        entries: entries(&[("open", Some("no"))]),
        ..Match::default()
    };
    let policy = Policy {
        limits: vec![rule("user", 1), rule("open", 1)],
        allow: vec![listed("open", vec![but])],
        deny: vec![listed("shut", Vec::new())],
        ..Policy::default()
    };
    let gate = Arc::new(PolicyGate::new(policy, ManualClock::new()).unwrap());
    let (answer, parts) =
        decide_together(&gate, &[&[("open", "yes")], &[("user", "ann")]], Op::Charge);
    assert!(answer.is_admitted());
    assert_eq!(parts[0].ended, Some((Verdict::Pass, Reason::AllowList(0))));
    assert_eq!(parts[1].charges, [0]);
    let (answer, parts) =
        decide_together(&gate, &[&[("user", "bob")], &[("shut", "x")]], Op::Charge);
    assert!(!answer.is_admitted());
    assert_eq!(parts[1].ended, Some((Verdict::Never, Reason::DenyList(0))));
    assert_eq!(left(&gate, &[&[("user", "bob")]]), [1]);
    // What is excepted from a list has its limit.
    let no: [&[(&str, &str)]; 1] = [&[("open", "no")]];
    assert!(decide_together(&gate, &no, Op::Charge).0.is_admitted());
    assert!(!decide_together(&gate, &no, Op::Charge).0.is_admitted());
    // Alone on a list: the decision has the list as its reason.
    let (answer, _) = decide_together(&gate, &[&[("open", "yes")]], Op::Charge);
    assert_eq!(answer.reason, Reason::AllowList(0));
}

#[test]
fn a_counted_limit_reports_for_its_own_descriptor() {
    let mut shadow = rule("shadow", 1);
    shadow.mode = Mode::Shadow;
    let gate = gate(vec![shadow, rule("user", 5)]);
    let both: [&[(&str, &str)]; 2] = [&[("shadow", "s")], &[("user", "ann")]];
    let _ = decide_together(&gate, &both, Op::Charge);
    let (answer, parts) = decide_together(&gate, &both, Op::Charge);
    assert!(answer.is_admitted());
    let (verdict, status) = gate
        .charge_outcome(&answer, parts[0].charges[0], true)
        .unwrap();
    assert!(!verdict.is_admitted());
    assert_eq!(status.remaining, 0);
}

#[test]
fn a_refund_never_exceeds_the_limit() {
    let gate = gate(vec![rule("user", 5)]);
    let ann: [&[(&str, &str)]; 1] = [&[("user", "ann")]];
    for _ in 0..3 {
        let _ = decide_together(&gate, &ann, Op::Charge);
    }
    let refund_for = || {
        let (asked, _) = decide_together(&gate, &ann, Op::Peek);
        gate.refund_for(&asked).settle(Settlement::Cancelled);
    };
    refund_for();
    assert_eq!(left(&gate, &ann), [3]);
    (0..9).for_each(|_| refund_for());
    assert_eq!(left(&gate, &ann), [5]);
}
