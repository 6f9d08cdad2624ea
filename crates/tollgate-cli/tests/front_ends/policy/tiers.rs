//! Tiers, overrides, and limits within limits.

use super::{asked, names, play, play_limits};

use crate::harness::{policy_with, serve};

const TIERS: &str = "default: pass
tiers:
  free: {}
  pro: { times: 2, weight: 4 }
  half: { times: 0.5 }
limits:
  - { name: one, key: header.u, allow: 2/h, burst: 4, tier: header.plan }
";

#[test]
fn a_tier_scales_a_limit_and_an_unknown_one_does_not() {
    let plans = [
        ("free", 4),
        ("pro", 8),
        ("half", 2),
        ("PRO", 4),
        ("gold", 4),
    ];
    let server = serve(TIERS);
    for (plan, burst) in plans {
        let ask = format!(r#"{{"path":"/","headers":{{"u":"{plan}","plan":"{plan}"}}}}"#);
        asked(&server, &[(burst, &ask, 200), (1, &ask, 429)]);
    }
    let pro = server.check(r#"{"path":"/","headers":{"u":"x","plan":"pro"}}"#);
    assert_eq!(pro.must("x-ratelimit-limit"), "8");
    assert_eq!(pro.json()["weight"], 4);
    let none = server.check(r#"{"path":"/","headers":{"u":"y"}}"#);
    assert_eq!(none.must("x-ratelimit-limit"), "4");
}

#[test]
fn the_policy_can_give_single_keys_something_else() {
    let ask = |key: &str| format!(r#"{{"path":"/","headers":{{"u":"{key}"}}}}"#);
    let server = play_limits(
        "  - name: one
    key: header.u
    allow: 1/h
    burst: 2
    overrides:
      - { key: more, burst: 4, reason: a contract }
      - { key: free, unlimited: true }
      - { key: out, blocked: true }
      - { key: over, burst: 4, expires: 2020-01-01 }
      - { key: soon, burst: 4, expires: 2099-01-01T00:00:00Z }",
        &[
            (2, &ask("plain"), 200),
            (1, &ask("plain"), 429),
            (4, &ask("more"), 200),
            (1, &ask("more"), 429),
            (20, &ask("free"), 200),
            (1, &ask("out"), 403),
            (2, &ask("over"), 200),
            (1, &ask("over"), 429),
            (4, &ask("soon"), 200),
            (1, &ask("soon"), 429),
        ],
    );
    let free = server.check(&ask("free")).json();
    assert_eq!(free["limits"][0]["role"], "unlimited", "{free}");
    assert_eq!(server.check(&ask("out")).json()["reason"], "blocked");
}

#[test]
fn an_operator_can_override_a_key_while_it_runs_and_take_that_back() {
    let ask = r#"{"path":"/","headers":{"u":"acme"}}"#;
    let server = play_limits(
        "  - { name: one, key: header.u, allow: 1/h, burst: 2 }",
        &[(2, ask, 200), (1, ask, 429)],
    );
    let put = |change: &str| {
        let body = format!(r#"{{"limit":"one","key":"acme",{change}}}"#);
        server.operate("PUT", "/overrides", &body)
    };
    put(r#""blocked":true"#).expect(200);
    asked(&server, &[(1, ask, 403)]);
    put(r#""burst":5"#).expect(200);
    // What was used counts: two of the five.
    asked(&server, &[(3, ask, 200), (1, ask, 429)]);
    let listed = server.operate("GET", "/overrides", "").expect(200).json();
    assert_eq!(listed["overrides"][0]["key"][0], "acme", "{listed}");
    assert_eq!(listed["overrides"][0]["active"], true, "{listed}");
    let gone = r#"{"limit":"one","key":"acme"}"#;
    server.operate("DELETE", "/overrides", gone).expect(200);
    asked(&server, &[(1, ask, 429)]);
    server.operate("DELETE", "/overrides", gone).expect(404);
    put(r#""bursts":5"#).expect(400);
}

#[test]
fn a_key_without_a_limit_for_a_while_has_not_got_back_what_it_used_before() {
    let ask = r#"{"path":"/","headers":{"u":"acme"}}"#;
    let server = play_limits(
        "  - { name: one, key: header.u, allow: 1/h, burst: 2 }",
        &[(2, ask, 200), (1, ask, 429)],
    );
    let put = |change: &str| {
        let body = format!(r#"{{"limit":"one","key":"acme",{change}}}"#);
        server.operate("PUT", "/overrides", &body).expect(200);
    };
    put(r#""burst":5"#);
    asked(&server, &[(3, ask, 200), (1, ask, 429)]);
    put(r#""unlimited":true"#);
    asked(&server, &[(9, ask, 200)]);
    let gone = r#"{"limit":"one","key":"acme"}"#;
    server.operate("DELETE", "/overrides", gone).expect(200);
    asked(&server, &[(1, ask, 429)]);
}

#[test]
fn an_operator_needs_the_token() {
    let server = serve(&policy_with("  - { name: one, allow: 1/h }"));
    let mut client = server.admin();
    for (method, path) in [
        ("POST", "/reload"),
        ("GET", "/overrides"),
        ("PUT", "/overrides"),
        ("DELETE", "/overrides"),
        ("GET", "/top"),
        ("POST", "/switch"),
    ] {
        client.send(method, path, &[], "{}").expect(401);
    }
    for path in ["/health", "/ready", "/metrics"] {
        client.get(path).expect(200);
    }
    let foreign = [("Host", "evil.example")];
    client.get_with("/ready", &foreign).expect(421);
}

#[test]
fn limits_within_limits_are_charged_together_or_not_at_all() {
    let user = |user: &str| format!(r#"{{"path":"/","headers":{{"org":"o","user":"{user}"}}}}"#);
    let server = play_limits(
        "  - { name: org, key: header.org, allow: 1/h, burst: 5 }
  - { name: user, key: [header.org, header.user], allow: 1/h, burst: 2 }",
        &[
            (2, &user("a"), 200),
            // Refused by their own limit: nothing of the organisation's is used.
            (20, &user("a"), 429),
            (2, &user("b"), 200),
            (1, &user("c"), 200),
            // Refused by the organisation's: nothing of their own is used.
            (20, &user("c"), 429),
        ],
    );
    let refused = server.check(&user("c")).json();
    assert_eq!(refused["limit"], "org");
    assert_eq!(names(&refused), ["org", "user"]);
    let own = server.check(r#"{"limit":"user","key":["o","c"],"cost":0}"#);
    assert_eq!(own.expect(200).json()["remaining"], 1);
}

#[test]
fn deny_is_asked_before_the_switch_and_allow_after_it() {
    let policy = "default: pass
deny: [{ name: bad, match: { ip: 203.0.113.0/24 } }]
limits: [{ name: one, allow: 1/h, burst: 1 }]
";
    let good = r#"{"path":"/","ip":"198.51.100.1"}"#;
    let bad = r#"{"path":"/","ip":"203.0.113.7"}"#;
    let server = play(policy, &[(1, good, 200), (1, good, 429), (1, bad, 403)]);
    let off = server.operate("POST", "/switch", r#"{"limiting":"off"}"#);
    assert_eq!(off.expect(200).json()["was"], "on");
    asked(&server, &[(5, good, 200), (1, bad, 403)]);
    assert_eq!(server.check(good).json()["reason"], "switched-off");
    assert_eq!(server.metric("tollgate_switched_off"), Some(1));
    server
        .operate("POST", "/switch", r#"{"limiting":"on"}"#)
        .expect(200);
    asked(&server, &[(1, good, 429)]);
}
