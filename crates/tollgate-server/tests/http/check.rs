//! `/v1/check`, `/v1/peek`, `/v1/check/batch`, `/v1/limits`.

use super::client::Server;

const POLICY: &str = "
default: pass
trusted_proxies: [10.0.0.0/8]
tiers:
  pro: { times: 10, weight: 4 }
allow:
  - { name: probes, match: { path: /healthz } }
deny:
  - { name: scrapers, match: { ip: 198.51.100.0/24 }, reason: 'they scrape' }
limits:
  - { name: per-rider, match: { path: /rides/** }, key: header.x-rider-id, allow: 2/min, burst: 2, tier: header.x-plan, owner: rides, reason: 'riders share' }
  - { name: logins, match: { path: /login }, key: ip, algorithm: fixed-window, allow: 3/h }
  - { name: paid, match: { path: /paid }, key: header.x-api-key, missing_key: deny, allow: 5/s, overrides: [{ key: thief, blocked: true }, { key: boss, unlimited: true }] }
  - { name: queue, match: { path: /queue }, algorithm: leaky-bucket, allow: 10/s, queue: 5 }
  - { name: watched, match: { path: /watched }, algorithm: fixed-window, allow: 1/h, mode: shadow }
  - { name: by-field, match: { domain: edge, descriptor: { kind: '*' } }, key: [descriptor.kind, field.tenant], algorithm: fixed-window, allow: 1/h }
";

#[test]
fn a_request_passes_until_the_limit_is_met() {
    let server = Server::start(POLICY);
    let ask = r#"{"method":"GET","path":"/rides/7?x=1","headers":{"X-Rider-Id":"42"},"ip":"203.0.113.7"}"#;
    let first = server.check(ask);
    assert_eq!(first.status, 200);
    let json = first.json();
    assert_eq!(json["verdict"], "pass");
    assert_eq!(json["limit"], "per-rider");
    assert_eq!(json["reason"], "limit");
    assert_eq!(json["remaining"], 1);
    assert_eq!(json["limits"][0]["role"], "enforced");
    assert_eq!(json["policy_version"], 1);
    assert_eq!(first.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(
        first.header("ratelimit-policy"),
        Some("\"per-rider\";q=2;w=60")
    );
    assert_eq!(first.header("ratelimit"), Some("\"per-rider\";r=1;t=30"));
    assert_eq!(server.check(ask).status, 200);
    let refused = server.check(ask);
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["verdict"], "refuse");
    assert!(refused.json()["retry_after_ms"].as_u64().unwrap() > 25_000);
    assert_eq!(refused.header("retry-after"), Some("30"));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    // Another rider has another allowance.
    assert_eq!(server.check(&ask.replace("42", "43")).status, 200);
}

#[test]
fn a_tier_has_its_own_quota_and_reports_its_weight() {
    let server = Server::start(POLICY);
    let json = server
        .check(r#"{"path":"/rides/1","headers":{"x-rider-id":"42","x-plan":["pro"]}}"#)
        .json();
    assert_eq!(
        (json["remaining"].as_u64(), json["weight"].as_u64()),
        (Some(19), Some(4))
    );
}

#[test]
fn lists_apply_first_and_name_their_rule() {
    let server = Server::start(POLICY);
    let denied = server.check(r#"{"path":"/healthz","ip":"198.51.100.9"}"#);
    assert_eq!(denied.status, 403);
    assert_eq!(denied.json()["reason"], "deny-list");
    assert_eq!(denied.json()["rule"], "scrapers");
    let allowed = server.check(r#"{"path":"/healthz"}"#);
    assert_eq!(
        (allowed.status, &allowed.json()["rule"]),
        (200, &"probes".into())
    );
    assert!(allowed.json()["remaining"].is_null());
    let unmatched = server.check(r#"{"path":"/"}"#);
    assert_eq!(
        (unmatched.status, &unmatched.json()["reason"]),
        (200, &"unmatched".into())
    );
}

#[test]
fn a_request_that_only_counted_limits_match_says_so() {
    let server = Server::start(
        "default: pass\nlimits: [{ name: watched, match: { path: /w }, allow: 1/h, mode: shadow }]\n",
    );
    let watched = server.check(r#"{"path":"/w"}"#);
    assert_eq!(
        (watched.status, &watched.json()["reason"]),
        (200, &"only-counted".into())
    );
    assert_eq!(watched.json()["limits"][0]["role"], "shadow");
    assert_eq!(
        server.check(r#"{"path":"/other"}"#).json()["reason"],
        "unmatched"
    );
}

#[test]
fn an_explanation_says_whether_the_key_is_in_the_share_that_a_limit_is_enforced_for() {
    use tollgate_policy::Facts;
    let policy = "default: pass\nlimits: [{ name: a, key: header.u, allow: 1/h, enforce: 10% }]\n";
    let engine = tollgate_server::engine::for_tests(policy);
    let explained = |user: &str| {
        let headers = [("u", user)];
        let facts = Facts {
            path: "/",
            headers: &headers,
            ..Facts::default()
        };
        let explained = tollgate_server::explain::explain(&engine.active().gate, &facts);
        let limit = &explained["limits"][0];
        assert_eq!(limit["enforce"], "10%");
        let is_enforced = limit["is_enforced"].as_bool().unwrap();
        assert_eq!(
            limit["role"],
            if is_enforced { "enforced" } else { "shadow" }
        );
        is_enforced
    };
    let inside = (0..400).filter(|user| explained(&user.to_string())).count();
    assert!((10..90).contains(&inside), "{inside}");
}

#[test]
fn missing_blocked_and_unlimited_keys_have_different_reasons() {
    let server = Server::start(POLICY);
    let missing = server.check(r#"{"path":"/paid"}"#);
    assert_eq!(
        (missing.status, &missing.json()["reason"]),
        (403, &"missing-key".into())
    );
    let blocked = server.check(r#"{"path":"/paid","headers":{"x-api-key":"thief"}}"#);
    assert_eq!(
        (blocked.status, &blocked.json()["reason"]),
        (403, &"blocked".into())
    );
    assert_eq!(blocked.json()["limit"], "paid");
    let free = server.check(r#"{"path":"/paid","headers":{"x-api-key":"boss"}}"#);
    assert_eq!(free.status, 200);
    assert!(free.json()["remaining"].is_null());
    assert_eq!(free.json()["limits"][0]["role"], "unlimited");
}

#[test]
fn a_cost_above_the_limit_can_never_pass() {
    let server = Server::start(POLICY);
    let never = server.check(r#"{"path":"/login","ip":"203.0.113.7","cost":4}"#);
    assert_eq!(
        (never.status, &never.json()["verdict"]),
        (422, &"never".into())
    );
    assert_eq!(never.header("retry-after"), None);
    let huge = server.check(r#"{"path":"/login","ip":"203.0.113.7","cost":18446744073709551615}"#);
    assert_eq!(huge.status, 422);
}

#[test]
fn an_ambiguous_path_is_a_bad_request() {
    let server = Server::start(POLICY);
    let bad = server.check(r#"{"path":"/rides/%2e%2e%2flogin"}"#);
    assert_eq!((bad.status, &bad.json()["reason"]), (400, &"path".into()));
}

#[test]
fn all_spellings_of_a_path_share_one_quota() {
    let server = Server::start(POLICY);
    for (path, status) in [
        ("/login", 200),
        ("//login", 200),
        ("/./login/", 200),
        ("/%6cogin", 429),
        ("/x/%2e%2e/login", 429),
        ("/login?a=b", 429),
        ("/login;a=b", 429),
    ] {
        let reply = server.check(&format!(r#"{{"path":"{path}","ip":"203.0.113.7"}}"#));
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
    }
}

#[test]
fn the_callers_own_address_is_never_the_clients() {
    let server = Server::start(POLICY);
    // Without an address all share one quota.
    for status in [200, 200, 200, 429] {
        assert_eq!(server.check(r#"{"path":"/login"}"#).status, status);
    }
    assert_eq!(
        server.check(r#"{"path":"/login","ip":"127.0.0.1"}"#).status,
        200
    );
}

#[test]
fn a_leaky_bucket_slot_reports_its_delay() {
    let server = Server::start(POLICY);
    let verdicts: Vec<_> = (0..6)
        .map(|_| server.check(r#"{"path":"/queue"}"#))
        .collect();
    assert_eq!(verdicts[0].json()["verdict"], "pass");
    assert_eq!(
        (verdicts[2].status, &verdicts[2].json()["verdict"]),
        (200, &"wait".into())
    );
    assert!(verdicts[2].json()["delay_ms"].as_u64().unwrap() > 0);
}

#[test]
fn a_shadow_limit_reports_and_never_refuses() {
    let server = Server::start(POLICY);
    let ask = r#"{"path":"/watched"}"#;
    assert!(
        server.check(ask).json()["limits"][0]
            .get("would_refuse")
            .is_none()
    );
    let second = server.check(ask);
    assert_eq!(second.status, 200);
    assert_eq!(second.json()["limits"][0]["role"], "shadow");
    assert_eq!(second.json()["limits"][0]["would_refuse"], true);
    assert_eq!(second.header("ratelimit"), None);
}

#[test]
fn peeks_and_zero_costs_charge_nothing() {
    let server = Server::start(POLICY);
    let ask = r#"{"path":"/login","ip":"203.0.113.7"}"#;
    for _ in 0..5 {
        assert_eq!(server.post("/v1/peek", ask).json()["remaining"], 2);
        assert_eq!(
            server
                .check(r#"{"path":"/login","ip":"203.0.113.7","cost":0}"#)
                .json()["remaining"],
            3
        );
    }
    for _ in 0..3 {
        assert_eq!(server.check(ask).status, 200);
    }
    assert_eq!(server.post("/v1/peek", ask).status, 429);
}

#[test]
fn a_limit_is_charged_by_its_name() {
    let server = Server::start(POLICY);
    let ask = r#"{"limit":"per-rider","key":"42","cost":2}"#;
    assert_eq!(server.check(ask).json()["remaining"], 0);
    assert_eq!(server.check(ask).status, 429);
    // It is the same allowance as by facts.
    assert_eq!(
        server
            .check(r#"{"path":"/rides/1","headers":{"x-rider-id":"42"}}"#)
            .status,
        429
    );
    assert_eq!(
        server
            .post("/v1/peek", r#"{"limit":"per-rider","key":["43"]}"#)
            .json()["remaining"],
        1
    );
    let unknown = server.check(r#"{"limit":"per-ridder","key":"42"}"#);
    assert_eq!(unknown.status, 404);
    assert!(
        unknown.body.contains("did you mean `per-rider`?"),
        "{}",
        unknown.body
    );
    let parts = server.check(r#"{"limit":"by-field","key":"one"}"#);
    assert_eq!(parts.status, 400);
    assert!(parts.body.contains("has 2 parts"), "{}", parts.body);
}

#[test]
fn descriptors_and_fields_are_facts_in_either_form() {
    let server = Server::start(POLICY);
    let list =
        r#"{"domain":"edge","descriptor":[{"key":"kind","value":"a"}],"fields":{"tenant":7}}"#;
    let map = r#"{"domain":"edge","descriptor":{"kind":"a"},"fields":{"tenant":"7"}}"#;
    assert_eq!(server.check(list).status, 200);
    assert_eq!(server.check(map).status, 429);
    assert_eq!(server.check(&map.replace('7', "-8")).status, 200);
}

#[test]
fn a_batch_is_decided_in_order() {
    let server = Server::start(POLICY);
    let one = r#"{"path":"/login","ip":"203.0.113.7"}"#;
    let asked = format!(r#"{{"requests":[{one},{one},{{"limit":"nope"}},{one},{one}]}}"#);
    let reply = server.post("/v1/check/batch", &asked);
    assert_eq!(reply.status, 200);
    let answers = reply.json()["answers"].as_array().unwrap().clone();
    let statuses: Vec<_> = answers
        .iter()
        .map(|a| a["status"].as_u64().unwrap())
        .collect();
    assert_eq!(statuses, [200, 200, 404, 200, 429]);
    assert_eq!(
        server.post("/v1/check/batch", r#"{"requests":[]}"#).json()["answers"],
        serde_json::json!([])
    );
}

#[test]
fn the_active_limits_are_listed_without_keys() {
    let server = Server::start(POLICY);
    let reply = server.get("/v1/limits");
    assert_eq!(reply.status, 200);
    let json = reply.json();
    let rider = &json["limits"][0];
    assert_eq!(rider["name"], "per-rider");
    assert_eq!(rider["description"], "token bucket 2/min burst 2");
    assert_eq!(rider["mode"], "enforce");
    assert_eq!(rider["match"]["paths"], serde_json::json!(["/rides/**"]));
    assert_eq!(rider["key"], serde_json::json!(["header.x-rider-id"]));
    assert_eq!(rider["tiers"][0]["weight"], 4);
    assert_eq!(
        (&rider["owner"], &rider["expires_at"]),
        (&"rides".into(), &serde_json::Value::Null)
    );
    for secret in ["thief", "boss", "198.51.100"] {
        assert!(!reply.body.contains(secret), "{secret}");
    }
}

#[test]
fn the_welcome_page_and_probes_are_answered() {
    let server = Server::start(POLICY);
    assert!(server.get("/").body.contains("curl"));
    assert_eq!(server.get("/health").body, r#"{"status":"ok"}"#);
    let head = server.send("HEAD", "/health", &[], b"");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), Some("15"));
}
