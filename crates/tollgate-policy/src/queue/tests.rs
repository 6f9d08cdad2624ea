//! Tests of queue places: queue, flow, weight and cost.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may")]

use std::net::IpAddr;

use super::super::pattern::PathPattern;
use super::super::rule::Policy;
use super::*;
use tollgate::ManualClock;

fn on(pattern: &str) -> Match {
    Match {
        paths: vec![PathPattern::new(pattern).unwrap()],
        ..Match::default()
    }
}

fn queue(name: &str) -> QueueRule {
    QueueRule::new(name, QueueConcurrency::Fixed(1))
}

fn header(name: &str) -> Vec<KeyPart> {
    vec![KeyPart::new(Source::Header(name.into()))]
}

fn gate(queues: Vec<QueueRule>) -> PolicyGate<ManualClock> {
    gate_with(queues, PathRules::default())
}

fn gate_with(queues: Vec<QueueRule>, paths: PathRules) -> PolicyGate<ManualClock> {
    let policy = Policy {
        queues,
        paths,
        ..Policy::default()
    };
    PolicyGate::new(policy, ManualClock::new()).unwrap()
}

fn get(path: &str) -> Facts<'_> {
    Facts {
        method: "GET",
        path,
        ..Facts::default()
    }
}

fn queue_of(gate: &PolicyGate<ManualClock>, path: &str) -> Option<usize> {
    gate.place(&get(path)).map(|place| place.queue)
}

/// The place of a request with these headers from this address.
fn sent(
    gate: &PolicyGate<ManualClock>,
    headers: &[(&str, &str)],
    client: Option<&str>,
) -> QueuePlace {
    let headers = headers.to_vec();
    let facts = Facts {
        headers: &headers,
        client: client.map(|text| text.parse::<IpAddr>().unwrap()),
        ..get("/")
    };
    gate.place(&facts).unwrap()
}

#[test]
fn without_queues_no_request_waits() {
    assert_eq!(gate(Vec::new()).place(&get("/")), None);
}

#[test]
fn the_first_queue_that_matches_is_the_one() {
    let with = |name: &str, pattern: &str| QueueRule {
        matches: on(pattern),
        ..queue(name)
    };
    let gate = gate(vec![
        with("reports", "/api/reports/**"),
        with("api", "/api/**"),
        with("late", "/api/reports/**"),
    ]);
    assert_eq!(queue_of(&gate, "/api/reports/7"), Some(0));
    assert_eq!(queue_of(&gate, "/api/rides"), Some(1));
    assert_eq!(queue_of(&gate, "/other"), None);
}

#[test]
fn order_counts_and_not_how_narrow_a_queue_is() {
    let narrow = QueueRule {
        matches: on("/a/b"),
        ..queue("narrow")
    };
    let gate = gate(vec![queue("all"), narrow]);
    assert_eq!(queue_of(&gate, "/a/b"), Some(0));
}

#[test]
fn an_exception_sends_a_request_to_the_next_queue() {
    let first = QueueRule {
        matches: on("/api/**"),
        except: vec![on("/api/health"), on("/api/ping")],
        ..queue("api")
    };
    let gate = gate(vec![first.clone(), queue("rest")]);
    assert_eq!(queue_of(&gate, "/api/rides"), Some(0));
    assert_eq!(queue_of(&gate, "/api/health"), Some(1));
    assert_eq!(queue_of(&gate, "/api/ping"), Some(1));
    assert_eq!(
        queue_of(&gate_with(vec![first], PathRules::default()), "/api/health"),
        None
    );
}

#[test]
fn a_path_is_normalised_before_it_is_matched() {
    let rule = QueueRule {
        matches: on("/api/rides"),
        ..queue("api")
    };
    let strict = gate(vec![rule.clone()]);
    for path in [
        "/api/rides",
        "//api/./rides/",
        "/x/../api/%72ides",
        "/api/rides;v=1",
    ] {
        assert_eq!(queue_of(&strict, path), Some(0), "{path}");
    }
    assert_eq!(queue_of(&strict, "/API/rides"), None);
    let rules = PathRules {
        ignore_case: true,
        ..PathRules::default()
    };
    assert_eq!(
        queue_of(&gate_with(vec![rule], rules), "/API/rides"),
        Some(0)
    );
}

#[test]
fn an_invalid_path_waits_nowhere() {
    let gate = gate(vec![queue("all")]);
    assert_eq!(queue_of(&gate, "/a%2Fb"), None);
    assert_eq!(queue_of(&gate, "/a"), Some(0));
}

#[test]
fn while_limiting_is_switched_off_no_request_waits() {
    let gate = gate(vec![queue("all")]);
    gate.switch_off(true);
    assert_eq!(queue_of(&gate, "/"), None);
    assert_eq!(gate.explain(&get("/")).queue, None);
    gate.switch_off(false);
    assert_eq!(queue_of(&gate, "/"), Some(0));
}

#[test]
fn without_a_flow_key_all_requests_are_one_flow() {
    let gate = gate(vec![queue("all")]);
    let ann = sent(&gate, &[("x-key", "ann")], Some("192.0.2.1"));
    assert_eq!(ann, sent(&gate, &[], None));
    assert_eq!((ann.tier, ann.weight, ann.cost), (None, 1, 1));
}

#[test]
fn a_flow_is_identified_by_its_header() {
    let gate = gate(vec![QueueRule {
        flow: header("x-key"),
        ..queue("all")
    }]);
    let flow = |key: &str, client: &str| sent(&gate, &[("x-key", key)], Some(client)).flow;
    assert_eq!(flow("ann", "192.0.2.1"), flow("ann", "192.0.2.2"));
    assert_ne!(flow("ann", "192.0.2.1"), flow("bob", "192.0.2.1"));
}

#[test]
fn without_its_header_a_request_waits_as_its_address() {
    let gate = gate(vec![QueueRule {
        flow: header("x-key"),
        missing_key: MissingKey::Address { v6: 64 },
        ..queue("all")
    }]);
    let flow = |client: &str| sent(&gate, &[], Some(client)).flow;
    assert_eq!(flow("192.0.2.1"), flow("192.0.2.1"));
    assert_ne!(flow("192.0.2.1"), flow("192.0.2.2"));
    assert_eq!(flow("2001:db8::1"), flow("2001:db8::2"));
    // No client gets the dispatches of an address by sending it as a header, nor those of others by sending two.
    let named = sent(&gate, &[("x-key", "192.0.2.1")], Some("192.0.2.9")).flow;
    assert_ne!(named, flow("192.0.2.1"));
    let twice = sent(&gate, &[("x-key", "a"), ("x-key", "b")], Some("192.0.2.1")).flow;
    assert_eq!(twice, flow("192.0.2.1"));
}

#[test]
fn without_its_header_a_request_may_wait_with_all_that_lack_it() {
    for missing_key in [MissingKey::Shared, MissingKey::Deny] {
        let gate = gate(vec![QueueRule {
            flow: header("x-key"),
            missing_key,
            ..queue("all")
        }]);
        let lost = sent(&gate, &[], Some("192.0.2.1")).flow;
        assert_eq!(lost, sent(&gate, &[], Some("192.0.2.2")).flow);
        assert_eq!(lost, sent(&gate, &[], None).flow);
        assert_ne!(lost, sent(&gate, &[("x-key", "ann")], None).flow);
    }
}

#[test]
fn a_flow_may_be_part_of_the_path() {
    let gate = gate(vec![QueueRule {
        matches: on("/t/{tenant}/**"),
        flow: vec![KeyPart::new(Source::Capture("tenant".into()))],
        ..queue("tenants")
    }]);
    let flow = |path: &str| gate.place(&get(path)).unwrap().flow;
    assert_eq!(flow("/t/acme/a"), flow("/t/acme/b/c"));
    assert_eq!(flow("/t/acme/a"), flow("//t/%61cme/a/"));
    assert_ne!(flow("/t/acme/a"), flow("/t/other/a"));
}

#[test]
fn parts_of_a_flow_do_not_run_into_each_other() {
    let gate = gate(vec![QueueRule {
        flow: [header("a"), header("b")].concat(),
        ..queue("all")
    }]);
    let flow = |a: &str, b: &str| sent(&gate, &[("a", a), ("b", b)], None).flow;
    assert_ne!(flow("xy", "z"), flow("x", "yz"));
}

fn weighted(tiers: &[(&str, u32)]) -> QueueRule {
    let tiers = tiers
        .iter()
        .map(|(name, weight)| (Arc::from(*name), *weight));
    QueueRule {
        flow: header("x-key"),
        weights: Some(TierWeights {
            source: Source::Header("x-plan".into()),
            members: None,
            tiers: tiers.collect(),
        }),
        ..queue("all")
    }
}

#[test]
fn a_tier_has_its_weight_and_all_others_have_one() {
    let gate = gate(vec![weighted(&[("free", 1), ("pro", 4), ("broken", 0)])]);
    let share = |plan: &str| {
        let place = sent(&gate, &[("x-plan", plan)], None);
        (place.tier, place.weight)
    };
    assert_eq!(share("free"), (Some(0), 1));
    assert_eq!(share("pro"), (Some(1), 4));
    assert_eq!(share(" pro "), (Some(1), 4));
    assert_eq!(share("Pro"), (None, 1));
    assert_eq!(share("gold"), (None, 1));
    // A program may have written it; a weight of zero counts as one.
    assert_eq!(share("broken"), (Some(2), 1));
    let unnamed = sent(&gate, &[], None);
    assert_eq!((unnamed.tier, unnamed.weight), (None, 1));
    let both = sent(&gate, &[("x-plan", "free"), ("x-plan", "pro")], None);
    assert_eq!((both.tier, both.weight), (None, 1));
}

#[test]
fn a_tier_does_not_change_the_flow() {
    let gate = gate(vec![weighted(&[("pro", 4)])]);
    let free = sent(&gate, &[("x-key", "ann")], None);
    let paid = sent(&gate, &[("x-key", "ann"), ("x-plan", "pro")], None);
    assert_eq!(free.flow, paid.flow);
}

#[test]
fn a_request_takes_what_its_route_costs_and_never_nothing() {
    let routes = CostRule::Routes {
        routes: vec![(
            vec!["POST".into()],
            PathPattern::new("/import").unwrap(),
            10,
        )],
        default: 2,
    };
    let of = |cost: CostRule| {
        gate(vec![QueueRule {
            cost,
            ..queue("all")
        }])
    };
    let cost = |gate: &PolicyGate<ManualClock>, facts: &Facts<'_>| gate.place(facts).unwrap().cost;
    let post = Facts {
        method: "POST",
        ..get("/import")
    };
    assert_eq!(cost(&of(routes.clone()), &post), 10);
    assert_eq!(cost(&of(routes), &get("/import")), 2);
    assert_eq!(cost(&of(CostRule::Constant(7)), &post), 7);
    assert_eq!(cost(&of(CostRule::Constant(0)), &post), 1);
    let asked = |cost| Facts { cost, ..get("/") };
    assert_eq!(cost(&of(CostRule::Asked), &asked(None)), 1);
    assert_eq!(cost(&of(CostRule::Asked), &asked(Some(3))), 3);
    assert_eq!(cost(&of(CostRule::Asked), &asked(Some(0))), 1);
}

#[test]
fn the_cost_that_a_request_names_has_a_bound() {
    let gate = gate(vec![QueueRule {
        cost: CostRule::From {
            source: Source::Header("x-cost".into()),
            default: 2,
            least: 1,
            most: 50,
        },
        ..queue("all")
    }]);
    let cost = |headers: &[(&str, &str)]| sent(&gate, headers, None).cost;
    assert_eq!(cost(&[]), 2);
    assert_eq!(cost(&[("x-cost", "7")]), 7);
    assert_eq!(cost(&[("x-cost", "0")]), 1);
    assert_eq!(cost(&[("x-cost", "99999999999999999999")]), 50);
    assert_eq!(cost(&[("x-cost", "much")]), 50);
}

#[test]
fn a_flow_is_the_same_in_the_policy_that_follows() {
    let rule = QueueRule {
        flow: header("x-key"),
        ..queue("all")
    };
    let first = gate(vec![rule.clone()]);
    let other = QueueRule {
        matches: on("/other"),
        ..queue("other")
    };
    let policy = Policy {
        queues: vec![other, rule],
        ..Policy::default()
    };
    let second = first.reload(policy, Vec::new()).unwrap();
    let before = sent(&first, &[("x-key", "ann")], None);
    let after = sent(&second, &[("x-key", "ann")], None);
    assert_eq!((before.queue, after.queue), (0, 1));
    assert_eq!(before.flow, after.flow);
    // Another process has another secret: hash collisions are not predictable.
    let other_process = gate(first.policy().queues.clone());
    assert_ne!(
        before.flow,
        sent(&other_process, &[("x-key", "ann")], None).flow
    );
}

#[test]
fn an_explanation_names_the_queue_only_of_admitted_requests() {
    use super::super::{DefaultAction, ExplainedKeyKind};
    let rule = QueueRule {
        flow: header("x-key"),
        missing_key: MissingKey::Address { v6: 64 },
        ..queue("all")
    };
    let gate = gate(vec![rule.clone()]);
    let headers = [("x-key", "ann")];
    let facts = Facts {
        headers: &headers,
        ..get("/")
    };
    let explained = gate.explain(&facts).queue.unwrap();
    assert_eq!(Some(explained.place), gate.place(&facts));
    assert_eq!(explained.flow.parts, ["ann"]);
    assert_eq!(explained.flow.kind, ExplainedKeyKind::Own);
    let facts = Facts {
        client: Some("192.0.2.1".parse().unwrap()),
        ..get("/")
    };
    let explained = gate.explain(&facts).queue.unwrap();
    assert_eq!(explained.flow.parts, ["192.0.2.1"]);
    assert_eq!(explained.flow.kind, ExplainedKeyKind::Address);
    let policy = Policy {
        queues: vec![rule],
        default: DefaultAction::Refuse,
        ..Policy::default()
    };
    let refusing = PolicyGate::new(policy, ManualClock::new()).unwrap();
    assert_eq!(refusing.explain(&facts).queue, None);
}
