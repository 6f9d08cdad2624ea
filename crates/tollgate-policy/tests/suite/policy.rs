//! Decisions of a policy: matching, keys, costs, tiers, modes, lists, defaults.

use std::net::IpAddr;
use std::sync::Arc;

use tollgate::{Limit, ManualClock, Moment, Span, Verdict};
use tollgate_policy::address::{CidrSet, Proxies};
use tollgate_policy::pattern::{PathPattern, TextPattern};
use tollgate_policy::{
    CostRule, Decide, DecisionRequest, DefaultAction, Facts, KeyPart, LimitRule, ListRule, Match,
    MissingKey, Mode, NoHost, Op, Override, OverrideAction, Policy, PolicyDecision, PolicyGate,
    Quota, Reason, Role, Settlement, Source, Subject, TierMembers, TierQuota, Tiers, ValueTest,
    decide,
};

fn bucket(rate: &str, burst: u64) -> Quota {
    Quota::plain(Limit::token_bucket(rate.parse().unwrap(), burst).unwrap())
}

fn rule(name: &str, burst: u64) -> LimitRule {
    LimitRule::new(name, bucket("1/h", burst))
}

fn by(source: Source) -> Vec<KeyPart> {
    vec![KeyPart::new(source)]
}

fn header(name: &str) -> Source {
    Source::Header(name.into())
}

fn paths(patterns: &[&str]) -> Match {
    Match {
        paths: patterns
            .iter()
            .map(|p| PathPattern::new(p).unwrap())
            .collect(),
        ..Match::default()
    }
}

type Gate = Arc<PolicyGate<ManualClock>>;

fn gate_of(limits: Vec<LimitRule>) -> Gate {
    gate(Policy {
        limits,
        ..Policy::default()
    })
}

fn gate(policy: Policy) -> Gate {
    Arc::new(PolicyGate::new(policy, ManualClock::new()).unwrap())
}

/// Decides a charge on one rule, with the key given by its parts.
fn decide_rule(gate: &Gate, rule: usize, key: &[&str], cost: u64, op: Op) -> PolicyDecision {
    let request = DecisionRequest::new(Subject::Rule { rule, key, cost }, op);
    match decide(&NoHost::new(), gate, &request) {
        Decide::Ready(answer) => answer,
        Decide::Pending(_) => panic!("there is no store"),
    }
}

fn get(path: &str) -> Facts<'_> {
    Facts {
        method: "GET",
        path,
        ..Facts::default()
    }
}

fn passes(gate: &PolicyGate<ManualClock>, facts: &Facts<'_>, tries: usize) -> usize {
    (0..tries)
        .filter(|_| gate.admit(facts).is_admitted())
        .count()
}

#[test]
fn a_request_is_charged_to_every_limit_that_matches_or_to_none() {
    let wide = rule("wide", 5);
    let mut narrow = rule("narrow", 2);
    narrow.matches = paths(&["/rides/**"]);
    let gate = gate_of(vec![wide, narrow]);
    assert_eq!(passes(&gate, &get("/rides/7"), 10), 2);
    let refused = gate.admit(&get("/rides/7"));
    assert_eq!(
        refused.binding().map(|c| c.rule),
        Some(1),
        "the narrow one refuses"
    );
    assert_eq!(
        passes(&gate, &get("/other"), 10),
        3,
        "refused requests cost nothing"
    );
}

#[test]
fn variants_of_a_path_share_one_bucket() {
    let mut one = rule("one", 3);
    one.key = by(Source::Path);
    one.matches = paths(&["/api/rides"]);
    let gate = gate_of(vec![one]);
    let variants = [
        "/api/rides",
        "//api///rides",
        "/api/./rides",
        "/api/x/../rides",
        "/api/%72ides",
        "/api/rides/",
    ];
    let passed = variants
        .iter()
        .filter(|p| gate.admit(&get(p)).is_admitted())
        .count();
    assert_eq!(passed, 3);
    let odd = gate.admit(&get("/api%2frides"));
    assert!(matches!(
        (odd.verdict, odd.reason),
        (Verdict::Never, Reason::Path(_))
    ));
}

#[test]
fn keys_are_kept_apart_and_parts_are_framed() {
    let mut one = rule("one", 1);
    one.key = vec![KeyPart::new(header("a")), KeyPart::new(header("b"))];
    let gate = gate_of(vec![one]);
    let with = |headers| Facts {
        headers,
        ..get("/")
    };
    for headers in [
        &[("a", "x"), ("b", "yz")] as &[(&str, &str); 2],
        &[("a", "xy"), ("b", "z")],
        &[("a", "yz"), ("b", "x")],
    ] {
        assert_eq!(passes(&gate, &with(headers), 3), 1, "{headers:?}");
    }
}

#[test]
fn a_repeated_header_is_no_key_whatever_stands_in_it() {
    let mut one = rule("one", 2);
    one.key = by(header("user"));
    let gate = gate_of(vec![one]);
    let passed = (0..50).filter(|i| {
        let other = i.to_string();
        let twice = [("User", "alice"), ("user", other.as_str())];
        let facts = Facts {
            headers: &twice,
            client: Some("203.0.113.7".parse().unwrap()),
            ..get("/")
        };
        gate.admit(&facts).is_admitted()
    });
    assert_eq!(passed.count(), 2, "they are counted for the address");
    let alice = Facts {
        headers: &[("user", "alice")],
        ..get("/")
    };
    assert_eq!(
        passes(&gate, &alice, 5),
        2,
        "and no other client pays for it"
    );
}

#[test]
fn a_repeated_cost_counts_as_the_greatest() {
    let mut one = rule("one", 10);
    one.cost = CostRule::From {
        source: header("x-cost"),
        default: 1,
        least: 1,
        most: 6,
    };
    let twice = Facts {
        headers: &[("x-cost", "1"), ("x-cost", "2")],
        ..get("/")
    };
    assert_eq!(gate_of(vec![one]).admit(&twice).status.remaining, 4);
}

#[test]
fn a_shadow_with_an_unlimited_key_does_not_keep_the_default_away() {
    let mut shadow = rule("shadow", 1);
    shadow.mode = Mode::Shadow;
    shadow.key = by(header("user"));
    shadow.overrides = vec![over("a", OverrideAction::Unlimited)];
    let gate = gate(Policy {
        limits: vec![shadow],
        default: DefaultAction::Refuse,
        ..Policy::default()
    });
    let facts = Facts {
        headers: &[("user", "a")],
        ..get("/")
    };
    assert_eq!(passes(&gate, &facts, 3), 0);
}

#[test]
fn routes_of_a_cost_ignore_the_case_of_a_method() {
    let mut one = rule("one", 10);
    one.cost = CostRule::Routes {
        routes: vec![(vec!["POST".into()], PathPattern::new("/x").unwrap(), 5)],
        default: 1,
    };
    let post = Facts {
        method: "post",
        ..get("/x")
    };
    assert_eq!(gate_of(vec![one]).admit(&post).status.remaining, 5);
}

#[test]
fn a_missing_key_falls_back_to_the_address_and_never_to_no_limit() {
    let mut one = rule("one", 2);
    one.key = by(header("user"));
    let client: IpAddr = "203.0.113.7".parse().unwrap();
    let other: IpAddr = "203.0.113.8".parse().unwrap();
    let from = |client| Facts { client, ..get("/") };
    let gate_by_address = gate_of(vec![one.clone()]);
    assert_eq!(passes(&gate_by_address, &from(Some(client)), 5), 2);
    assert_eq!(passes(&gate_by_address, &from(Some(other)), 5), 2);
    assert_eq!(
        passes(&gate_by_address, &from(None), 5),
        2,
        "unknown clients share one"
    );
    let blank = Facts {
        headers: &[("user", "  ")],
        client: Some(client),
        ..get("/")
    };
    assert_eq!(passes(&gate_by_address, &blank, 5), 0, "blank is missing");
    one.missing_key = MissingKey::Shared;
    let shared = gate_of(vec![one.clone()]);
    assert_eq!(passes(&shared, &from(Some(client)), 5), 2);
    assert_eq!(passes(&shared, &from(Some(other)), 5), 0);
    one.missing_key = MissingKey::Deny;
    let denied = gate_of(vec![one]).admit(&from(Some(client)));
    assert_eq!(
        (denied.verdict, denied.reason),
        (Verdict::Never, Reason::MissingKey(0))
    );
}

#[test]
fn folded_keys_are_one() {
    let mut one = rule("one", 1);
    one.key = vec![KeyPart {
        source: header("mail"),
        trim: true,
        lowercase: true,
    }];
    let gate = gate_of(vec![one]);
    let passed = ["Al@Example.com", " al@example.com ", "AL@EXAMPLE.COM"]
        .iter()
        .filter(|mail| {
            let headers = [("mail", **mail)];
            let facts = Facts {
                headers: &headers,
                ..get("/")
            };
            gate.admit(&facts).is_admitted()
        })
        .count();
    assert_eq!(passed, 1);
}

#[test]
fn addresses_are_counted_by_their_prefix() {
    let mut one = rule("one", 1);
    one.key = by(Source::Address { v4: 32, v6: 64 });
    let gate = gate_of(vec![one]);
    let from = |text: &str| Facts {
        client: Some(text.parse().unwrap()),
        ..get("/")
    };
    assert_eq!(passes(&gate, &from("2001:db8:1:2::1"), 1), 1);
    assert_eq!(passes(&gate, &from("2001:db8:1:2:ffff::9"), 1), 0);
    assert_eq!(passes(&gate, &from("2001:db8:1:3::1"), 1), 1);
    assert_eq!(passes(&gate, &from("203.0.113.7"), 1), 1);
    assert_eq!(passes(&gate, &from("::ffff:203.0.113.7"), 1), 0);
}

#[test]
fn captures_cookies_queries_descriptors_and_fields_are_keys() {
    let sources = [
        Source::Capture("ride".into()),
        Source::Cookie("session".into()),
        Source::Query("user".into()),
        Source::Descriptor("tenant".into()),
        Source::Field("job".into()),
        Source::Host,
        Source::Method,
    ];
    for source in sources {
        let mut one = rule("one", 1);
        one.matches = paths(&["/rides/{ride}/cancel"]);
        one.key = by(source.clone());
        let gate = gate_of(vec![one]);
        let of = |who: &'static str, path| Facts {
            method: if who == "a" { "GET" } else { "POST" },
            path,
            query: if who == "a" { "x=1&user=a" } else { "user=b" },
            host: if who == "a" {
                "A.example:8080"
            } else {
                "b.example"
            },
            headers: if who == "a" {
                &[("cookie", "x=1; session=a")]
            } else {
                &[("cookie", "session=b")]
            },
            descriptor: if who == "a" {
                &[("tenant", "a")]
            } else {
                &[("tenant", "b")]
            },
            fields: if who == "a" {
                &[("job", "a")]
            } else {
                &[("job", "b")]
            },
            ..Facts::default()
        };
        assert_eq!(
            passes(&gate, &of("a", "/rides/a/cancel"), 2),
            1,
            "{source:?}"
        );
        assert_eq!(
            passes(&gate, &of("b", "/rides/b/cancel"), 2),
            1,
            "{source:?}"
        );
    }
}

#[test]
fn costs_are_stated_constant_by_route_or_read_from_the_request() {
    let mut one = rule("one", 10);
    let asked = gate_of(vec![one.clone()]);
    assert_eq!(
        asked
            .admit(&Facts {
                cost: Some(7),
                ..get("/")
            })
            .status
            .remaining,
        3
    );
    assert_eq!(asked.admit(&get("/")).status.remaining, 2);
    one.cost = CostRule::Constant(2);
    let constant = gate_of(vec![one.clone()]);
    assert_eq!(
        constant
            .admit(&Facts {
                cost: Some(7),
                ..get("/")
            })
            .status
            .remaining,
        8
    );
    one.cost = CostRule::Routes {
        routes: vec![(
            vec!["POST".into()],
            PathPattern::new("/export/*").unwrap(),
            5,
        )],
        default: 1,
    };
    let routes = gate_of(vec![one.clone()]);
    let post = Facts {
        method: "POST",
        ..get("/export/pdf")
    };
    assert_eq!(routes.admit(&post).status.remaining, 5);
    assert_eq!(routes.admit(&get("/export/pdf")).status.remaining, 4);
    one.cost = CostRule::From {
        source: header("x-cost"),
        default: 1,
        least: 1,
        most: 6,
    };
    let left_after = |value: &str| {
        let headers = [("x-cost", value)];
        let gate = gate_of(vec![one.clone()]);
        gate.admit(&Facts {
            headers: &headers,
            ..get("/")
        })
        .status
        .remaining
    };
    assert_eq!(left_after("3"), 7);
    assert_eq!(left_after("0"), 9, "never less than the least");
    assert_eq!(
        left_after("99999999999999999999999"),
        4,
        "never more than the most"
    );
    for garbage in ["-1", "NaN", "1.5", "abc"] {
        assert_eq!(
            left_after(garbage),
            4,
            "{garbage}: what is no number takes the most"
        );
    }
}

#[test]
fn a_cost_above_what_the_limit_holds_never_passes() {
    let gate = gate_of(vec![rule("one", 10)]);
    let answer = gate.admit(&Facts {
        cost: Some(11),
        ..get("/")
    });
    assert_eq!(answer.verdict, Verdict::Never);
    assert_eq!(answer.binding().map(|c| c.rule), Some(0));
}

#[test]
fn tiers_have_quotas_of_their_own() {
    let mut one = rule("one", 1);
    one.key = by(header("user"));
    one.tiers = Some(Tiers {
        source: header("plan"),
        members: None,
        tiers: vec![TierQuota {
            name: Arc::from("pro"),
            weight: 4,
            quota: bucket("1/h", 5),
        }],
    });
    let gate = gate_of(vec![one]);
    let with = |headers| Facts {
        headers,
        ..get("/")
    };
    assert_eq!(
        passes(&gate, &with(&[("user", "a"), ("plan", "pro")]), 9),
        5
    );
    assert_eq!(
        passes(&gate, &with(&[("user", "b"), ("plan", "free")]), 9),
        1
    );
    let unknown: Vec<u64> = gate.unknown_tiers().map(|(_, count)| count).collect();
    assert_eq!(unknown, [9], "requests of tier free");
    let answer = gate.admit(&with(&[("user", "c"), ("plan", "pro")]));
    assert_eq!(answer.charges[0].tier, Some(0));
    assert_eq!(
        gate.quota(answer.charges[0].limit),
        Some(&bucket("1/h", 5).with_name("one"))
    );
}

#[test]
fn a_tier_is_found_by_a_key_that_is_listed_and_never_by_its_name() {
    let mut one = rule("one", 1);
    one.key = by(header("user"));
    one.tiers = Some(Tiers {
        source: header("user"),
        members: Some(Arc::new(TierMembers {
            lowercase: true,
            tiers: [("acme".to_owned(), 0)].into_iter().collect(),
        })),
        tiers: vec![TierQuota {
            name: Arc::from("pro"),
            weight: 4,
            quota: bucket("1/h", 5),
        }],
    });
    let gate = gate_of(vec![one]);
    let with = |headers| Facts {
        headers,
        ..get("/")
    };
    let acme = passes(&gate, &with(&[("user", "Acme")]), 9);
    let pro = passes(&gate, &with(&[("user", "pro")]), 9);
    let ann = passes(&gate, &with(&[("user", "ann")]), 9);
    assert_eq!((acme, pro, ann), (5, 1, 1));
    assert_eq!(gate.unknown_tiers().map(|(_, count)| count).sum::<u64>(), 0);
}

fn over(key: &str, grant: OverrideAction) -> Override {
    Override {
        key: vec![key.into()],
        grant,
        expires: None,
    }
}

#[test]
fn overrides_are_for_one_key() {
    let mut one = rule("one", 2);
    one.key = by(header("user"));
    one.overrides = vec![
        over("big", OverrideAction::Quota(Box::new(bucket("1/h", 4)))),
        over("free", OverrideAction::Unlimited),
        over("evil", OverrideAction::Blocked),
        Override {
            expires: Some(Moment::ORIGIN),
            ..over("late", OverrideAction::Unlimited)
        },
    ];
    let gate = gate_of(vec![one]);
    let count = |user: &str| {
        let headers = [("user", user)];
        passes(
            &gate,
            &Facts {
                headers: &headers,
                ..get("/")
            },
            9,
        )
    };
    assert_eq!(count("unlisted"), 2);
    assert_eq!(count("big"), 4);
    assert_eq!(count("free"), 9);
    assert_eq!(count("evil"), 0);
    assert_eq!(count("late"), 2, "it has expired");
}

#[test]
fn a_shadow_counts_and_never_refuses() {
    let mut shadow = rule("shadow", 2);
    shadow.mode = Mode::Shadow;
    let gate = gate_of(vec![rule("live", 4), shadow]);
    let answers: Vec<_> = (0..6).map(|_| gate.admit(&get("/"))).collect();
    assert_eq!(answers.iter().filter(|a| a.is_admitted()).count(), 4);
    let would_refuse = |a: &&tollgate_policy::PolicyDecision| !a.charges[1].verdict.is_admitted();
    assert_eq!(answers[..4].iter().filter(would_refuse).count(), 2);
    assert!(answers[0].charges[1].role == Role::Shadow);
}

#[test]
fn a_shadow_sees_only_what_passes() {
    let mut shadow = rule("shadow", 3);
    shadow.mode = Mode::Shadow;
    let gate = gate_of(vec![rule("live", 1), shadow]);
    for _ in 0..5 {
        let _ = gate.admit(&get("/"));
    }
    let left = gate.limiter_of(1).unwrap().live_keys();
    assert_eq!(left, 1);
    let explained = gate.explain(&get("/"));
    assert_eq!(
        explained.rules[1].decision.unwrap().status.remaining,
        1,
        "one of three was used, one is asked for"
    );
}

#[test]
fn a_candidate_is_counted_beside_the_live_quota() {
    let mut one = rule("one", 5);
    one.candidate = Some(bucket("1/h", 2));
    let gate = gate_of(vec![one]);
    let answers: Vec<_> = (0..5).map(|_| gate.admit(&get("/"))).collect();
    assert!(answers.iter().all(|a| a.is_admitted()));
    let refused = |a: &&tollgate_policy::PolicyDecision| {
        let candidate = a
            .charges
            .iter()
            .find(|c| c.role == Role::Candidate)
            .unwrap();
        !candidate.verdict.is_admitted()
    };
    assert_eq!(answers.iter().filter(refused).count(), 3);
}

#[test]
fn a_share_of_the_keys_is_enforced_and_always_the_same_keys() {
    let mut one = rule("one", 1);
    one.key = by(header("user"));
    one.enforced = 2_500;
    let gate = gate_of(vec![one]);
    let refused = |i: usize| {
        let name = i.to_string();
        let headers = [("user", name.as_str())];
        let facts = Facts {
            headers: &headers,
            ..get("/")
        };
        let _ = gate.admit(&facts);
        (0..3).filter(|_| !gate.admit(&facts).is_admitted()).count()
    };
    let counts: Vec<usize> = (0..4000).map(refused).collect();
    assert!(
        counts.iter().all(|c| *c == 0 || *c == 3),
        "a key is enforced or it is not"
    );
    let enforced = counts.iter().filter(|c| **c == 3).count();
    assert!((850..1150).contains(&enforced), "{enforced} of 4000");
}

#[test]
fn lists_come_before_limits_and_deny_before_allow() {
    let listed = |name: &str, networks: &[&str]| ListRule {
        name: Arc::from(name),
        except: Vec::new(),
        matches: Match {
            addresses: CidrSet::new(networks.iter().map(|n| n.parse().unwrap()).collect()),
            ..Match::default()
        },
        reason: None,
        expires: None,
    };
    let gate = gate(Policy {
        limits: vec![rule("one", 1)],
        allow: vec![listed("office", &["10.0.0.0/8"])],
        deny: vec![listed("bad", &["10.6.6.0/24"])],
        ..Policy::default()
    });
    let from = |text: &str| Facts {
        client: Some(text.parse().unwrap()),
        ..get("/")
    };
    assert_eq!(passes(&gate, &from("10.1.1.1"), 9), 9);
    assert_eq!(gate.admit(&from("10.1.1.1")).reason, Reason::AllowList(0));
    assert_eq!(gate.admit(&from("10.6.6.6")).reason, Reason::DenyList(0));
    assert_eq!(passes(&gate, &from("10.6.6.6"), 9), 0);
    assert_eq!(passes(&gate, &from("192.0.2.1"), 9), 1);
    gate.switch_off(true);
    assert_eq!(passes(&gate, &from("192.0.2.1"), 9), 9);
    assert_eq!(
        passes(&gate, &from("10.6.6.6"), 9),
        0,
        "switching limiting off does not admit denied clients"
    );
    gate.switch_off(false);
    assert_eq!(passes(&gate, &from("192.0.2.1"), 9), 0);
}

#[test]
fn the_default_is_for_requests_that_no_enforced_limit_matches() {
    let mut rides = rule("rides", 1);
    rides.matches = paths(&["/rides"]);
    let mut shadow = rule("shadow", 1);
    shadow.mode = Mode::Shadow;
    let with = |default| {
        gate(Policy {
            limits: vec![rides.clone(), shadow.clone()],
            default,
            ..Policy::default()
        })
    };
    assert_eq!(passes(&with(DefaultAction::Unset), &get("/x"), 5), 5);
    assert_eq!(passes(&with(DefaultAction::Pass), &get("/x"), 5), 5);
    let refusing = with(DefaultAction::Refuse);
    assert_eq!(passes(&refusing, &get("/x"), 5), 0);
    assert_eq!(refusing.admit(&get("/x")).reason, Reason::Unmatched);
    let limited = with(DefaultAction::Limit(Box::new(rule("default", 3))));
    assert_eq!(passes(&limited, &get("/x"), 5), 3);
    assert_eq!(passes(&limited, &get("/rides"), 5), 1, "and not for others");
}

#[test]
fn conditions_all_hold_and_exceptions_do_not() {
    let mut one = rule("one", 1);
    one.matches = Match {
        methods: vec!["POST".into()],
        hosts: vec![TextPattern::new("*.example.com")],
        headers: vec![
            ("x-beta".into(), ValueTest::Present),
            ("x-off".into(), ValueTest::Absent),
        ],
        query: vec![(
            "format".into(),
            ValueTest::Like(vec![TextPattern::new("pdf")]),
        )],
        ..paths(&["/a/**"])
    };
    one.except = vec![paths(&["/a/health"])];
    let gate = gate_of(vec![one]);
    let good = Facts {
        method: "POST",
        path: "/a/b",
        query: "format=pdf",
        host: "API.example.com:443",
        headers: &[("X-Beta", "1")],
        ..Facts::default()
    };
    assert_eq!(passes(&gate, &good, 3), 1);
    let others = [
        Facts {
            method: "GET",
            ..good
        },
        Facts { path: "/b", ..good },
        Facts {
            path: "/a/health",
            ..good
        },
        Facts {
            host: "example.com",
            ..good
        },
        Facts {
            headers: &[("x-beta", "1"), ("x-off", "1")],
            ..good
        },
        Facts {
            query: "format=csv",
            ..good
        },
    ];
    for other in others {
        assert_eq!(passes(&gate, &other, 3), 3, "{other:?}");
    }
}

/// A blank or repeated header is missing for a key, so it is not present for `match` either: no request can choose the
/// limit of known users and then be counted by its address there.
#[test]
fn a_header_is_present_if_it_is_there_once_and_not_blank() {
    let by_header = |test| Match {
        headers: vec![("x-user".into(), test)],
        ..Match::default()
    };
    for (headers, passed) in [
        (vec![("x-user", "42")], 5),
        (vec![], 2),
        (vec![("x-user", "")], 2),
        (vec![("x-user", " \t")], 2),
        (vec![("x-user", "42"), ("X-User", "43")], 2),
    ] {
        let mut known = rule("known", 5);
        known.matches = by_header(ValueTest::Present);
        let mut anonymous = rule("anonymous", 2);
        anonymous.matches = by_header(ValueTest::Absent);
        let facts = Facts {
            headers: &headers,
            ..Facts::default()
        };
        let gate = gate_of(vec![known, anonymous]);
        assert_eq!(passes(&gate, &facts, 9), passed, "{headers:?}");
    }
}

#[test]
fn limits_expire() {
    let clock = ManualClock::new();
    let mut one = rule("one", 1);
    one.expires = Some(Moment::from_nanos(10));
    let policy = Policy {
        limits: vec![one],
        ..Policy::default()
    };
    let gate = PolicyGate::new(policy, clock.clone()).unwrap();
    assert_eq!(passes(&gate, &get("/"), 3), 1);
    clock.advance(Span::from_nanos(10));
    assert_eq!(passes(&gate, &get("/"), 3), 3);
}

#[test]
fn peeking_takes_nothing_and_reports_what_a_charge_would_do() {
    let gate = gate_of(vec![rule("a", 3), rule("b", 2)]);
    for _ in 0..5 {
        assert!(gate.peek(&get("/")).is_admitted());
    }
    let peeked = gate.peek(&get("/"));
    let charged = gate.admit(&get("/"));
    assert_eq!(
        (peeked.verdict, peeked.status, peeked.reason),
        (charged.verdict, charged.status, charged.reason)
    );
    let _ = gate.admit(&get("/"));
    let (peeked, charged) = (gate.peek(&get("/")), gate.admit(&get("/")));
    assert_eq!(
        (peeked.verdict, peeked.status, peeked.reason),
        (charged.verdict, charged.status, charged.reason)
    );
    assert!(!charged.is_admitted());
}

#[test]
fn a_named_limit_counts_the_same_key_as_a_request() {
    let mut one = rule("one", 2);
    one.key = vec![
        KeyPart::new(header("user")),
        KeyPart::new(Source::Address { v4: 32, v6: 64 }),
    ];
    let gate = gate_of(vec![one]);
    let facts = Facts {
        headers: &[("user", "a")],
        client: Some("2001:db8::7".parse().unwrap()),
        ..get("/")
    };
    assert!(gate.admit(&facts).is_admitted());
    assert!(decide_rule(&gate, 0, &["a", "2001:db8::9"], 1, Op::Charge).is_admitted());
    assert!(!gate.admit(&facts).is_admitted());
    assert_eq!(gate.key_texts(0, &facts).unwrap(), ["a", "2001:db8::/64"]);
}

#[test]
fn a_reservation_is_settled_once_and_frees_its_place() {
    let mut tokens = rule("tokens", 100);
    tokens.key = by(header("user"));
    let mut requests = rule("requests", 10);
    requests.cost = CostRule::Constant(1);
    let at_once = Limit::concurrency(1, Span::from_secs(60)).unwrap();
    let mut places = LimitRule::new("places", Quota::plain(at_once));
    places.cost = CostRule::Constant(1);
    let gate = gate_of(vec![tokens, requests, places]);
    let facts = Facts {
        headers: &[("user", "a")],
        cost: Some(80),
        ..get("/")
    };
    let answer = gate.admit(&facts);
    assert!(answer.is_admitted());
    assert!(
        !gate
            .admit(&Facts {
                cost: Some(1),
                ..facts
            })
            .is_admitted(),
        "the place is taken"
    );
    assert_eq!(gate.reserve(&answer).settle(Settlement::Actual(30)), 0);
    let next = gate.peek(&Facts {
        cost: Some(70),
        ..facts
    });
    assert!(next.is_admitted(), "{next:?}");
    let explained = gate.explain(&facts);
    assert_eq!(
        explained.rules[1].decision.unwrap().status.remaining,
        8,
        "one was used, one is asked for"
    );
    let answer = gate.admit(&Facts {
        cost: Some(70),
        ..facts
    });
    assert_eq!(gate.reserve(&answer).settle(Settlement::Cancelled), 0);
    assert!(
        gate.peek(&Facts {
            cost: Some(70),
            ..facts
        })
        .is_admitted()
    );
}

fn leaky(name: &str, rate: &str) -> LimitRule {
    let limit = Limit::leaky_bucket(rate.parse().unwrap(), 10).unwrap();
    LimitRule::new(name, Quota::plain(limit))
}

#[test]
fn a_cancelled_request_returns_its_slot_only_if_it_is_the_last() {
    let gate = gate_of(vec![leaky("slots", "10/s"), rule("units", 10)]);
    let delay = |ms: u64| match Span::from_millis(ms) {
        Span::ZERO => Verdict::Pass,
        delay => Verdict::Wait { delay },
    };
    let left = || {
        let left = |rule| decide_rule(&gate, rule, &[], 0, Op::Peek).status.remaining;
        (left(0), left(1))
    };
    let answers: Vec<_> = (0..4).map(|_| gate.admit(&get("/"))).collect();
    let verdicts: Vec<Verdict> = answers.iter().map(|answer| answer.verdict).collect();
    assert_eq!(verdicts, [delay(0), delay(100), delay(200), delay(300)]);
    let leave = |at: usize| gate.reserve(&answers[at]).settle(Settlement::Cancelled);
    leave(1);
    assert_eq!(
        left(),
        (6, 7),
        "two slots are promised behind it: it stays idle"
    );
    leave(3);
    assert_eq!(left(), (7, 8));
    leave(2);
    assert_eq!(left(), (8, 9), "it is the last one now");
    // Not on top of any slot that was promised, and where the first free one is.
    assert_eq!(gate.admit(&get("/")).verdict, delay(200));
}

#[test]
fn with_several_leaky_buckets_the_delayed_one_is_unknown() {
    let both = leaky("both", "10/s");
    let mut one = leaky("one", "10/s");
    one.matches = paths(&["/one"]);
    let gate = gate_of(vec![both, one]);
    // The limit `one` has a slot at 0 ms, the limit `both` at 100 ms: the decision reports 100 ms.
    let _ = gate.admit(&get("/"));
    let leaves = gate.admit(&get("/one"));
    let delay = leaves.verdict.wait();
    assert_eq!(delay, Some(Span::from_millis(100)));
    // The second slot of `one` begins at 100 ms, too, and belongs to another request.
    let stays = gate.admit(&get("/one"));
    let delay = stays.verdict.wait();
    assert_eq!(delay, Some(Span::from_millis(200)));
    gate.reserve(&leaves).settle(Settlement::Cancelled);
    let left = |rule| decide_rule(&gate, rule, &[], 0, Op::Peek).status.remaining;
    assert_eq!((left(0), left(1)), (7, 8));
}

#[test]
fn explain_reports_why_a_rule_does_not_match() {
    let mut off = rule("off", 1);
    off.mode = Mode::Off;
    let mut by_path = rule("by-path", 1);
    by_path.matches = paths(&["/admin/**"]);
    let mut by_header = rule("by-header", 1);
    by_header.matches.headers = vec![("x-plan".into(), ValueTest::Present)];
    let gate = gate_of(vec![off, by_path, by_header, rule("all", 1)]);
    let explained = gate.explain(&get("/rides"));
    use tollgate_policy::WhyNot;
    let why: Vec<_> = explained.rules.iter().map(|r| r.why_not.clone()).collect();
    assert_eq!(
        why,
        [
            Some(WhyNot::Off),
            Some(WhyNot::Path),
            Some(WhyNot::Header("x-plan".into())),
            None
        ]
    );
    assert!(
        gate.admit(&get("/rides")).is_admitted(),
        "explaining took nothing"
    );
}

#[test]
fn more_limits_than_can_be_charged_together_are_refused_with_a_reason() {
    let rules = (0..17).map(|i| rule(&format!("r{i}"), 5)).collect();
    let gate = gate_of(rules);
    for answer in [gate.admit(&get("/")), gate.peek(&get("/"))] {
        assert_eq!(
            (answer.verdict, answer.reason),
            (Verdict::Never, Reason::TooManyLimits)
        );
    }
}

#[test]
fn only_trusted_proxies_name_the_client() {
    let proxies = Proxies {
        trusted: CidrSet::new(vec!["10.0.0.0/8".parse().unwrap()]),
        ..Proxies::default()
    };
    let headers = [("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.2")];
    assert_eq!(
        proxies.client("192.0.2.1".parse().unwrap(), &headers),
        "192.0.2.1".parse::<IpAddr>().unwrap()
    );
    assert_eq!(
        proxies.client("10.0.0.1".parse().unwrap(), &headers),
        "203.0.113.9".parse::<IpAddr>().unwrap()
    );
}

#[test]
fn a_query_value_that_servers_read_differently_is_missing() {
    let mut one = rule("one", 1);
    one.key = by(Source::Query("user".into()));
    one.missing_key = MissingKey::Deny;
    let gate = gate_of(vec![one]);
    let reason = |query| gate.peek(&Facts { query, ..get("/") }).reason;
    assert_eq!(reason("user=a"), Reason::Charge(0));
    assert_eq!(
        reason("user=a%3Bx"),
        Reason::Charge(0),
        "an escaped `;` is a part of the value"
    );
    for query in [
        "user=a;x=1",
        "user=a%00",
        "user=a%0a",
        "user=a%7f",
        "user=%00",
    ] {
        assert_eq!(reason(query), Reason::MissingKey(0), "{query}");
    }
}
