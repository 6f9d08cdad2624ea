//! Allow list, deny list, and the default for all other requests.

use super::play;

#[test]
fn the_allow_list_is_never_limited_and_the_deny_list_is_asked_first() {
    let policy = "default: pass
allow:
  - { name: office, match: { ip: 10.0.0.0/8 } }
  - { name: past, match: { ip: 172.16.0.0/12 }, expires: 2020-01-01 }
deny:
  - { name: thief, match: { ip: 10.6.6.6 }, reason: stole }
  - { name: scrapers, match: { header: { user-agent: \"*scrapy*\" } } }
limits:
  - { name: one, key: ip, allow: 1/h, burst: 1 }
";
    let server = play(
        policy,
        &[
            (5, r#"{"path":"/","ip":"10.1.1.1"}"#, 200),
            (1, r#"{"path":"/","ip":"10.6.6.6"}"#, 403),
            (1, r#"{"path":"/","ip":"172.16.0.1"}"#, 200),
            (1, r#"{"path":"/","ip":"172.16.0.1"}"#, 429),
            (
                1,
                r#"{"path":"/","ip":"10.1.1.1","headers":{"user-agent":"scrapy/2"}}"#,
                403,
            ),
        ],
    );
    let allowed = server.check(r#"{"path":"/","ip":"10.1.1.1"}"#).json();
    assert_eq!(allowed["reason"], "allow-list");
    assert_eq!(allowed["rule"], "office");
    let denied = server.check(r#"{"path":"/","ip":"10.6.6.6"}"#);
    assert_eq!(denied.json()["reason"], "deny-list");
    assert_eq!(denied.json()["rule"], "thief");
    assert_eq!(denied.must("cache-control"), "no-store");
    assert_eq!(
        server.metric(r#"tollgate_denied_total{entry="thief"}"#),
        Some(2)
    );
}

#[test]
fn what_no_limit_matches_passes_is_refused_or_has_a_limit_of_its_own() {
    let limits = "limits: [{ name: one, match: { path: /a }, allow: 1/h, burst: 1 }]\n";
    let other = r#"{"path":"/b","ip":"203.0.113.7"}"#;
    let matched = r#"{"path":"/a","ip":"203.0.113.7"}"#;
    for default in ["", "default: pass\n"] {
        let server = play(
            &format!("{default}{limits}"),
            &[(5, other, 200), (1, matched, 200), (1, matched, 429)],
        );
        assert_eq!(
            server.metric(r#"tollgate_decisions_without_limit_total{reason="unmatched"}"#),
            Some(5)
        );
    }
    let refused = play(
        &format!("default: refuse\n{limits}"),
        &[(2, other, 403), (1, matched, 200)],
    );
    assert_eq!(refused.check(other).json()["reason"], "unmatched");
    let limited = play(
        &format!("default: {{ key: ip, allow: 1/h, burst: 2 }}\n{limits}"),
        &[(2, other, 200), (1, other, 429), (1, matched, 200)],
    );
    assert_eq!(limited.check(other).json()["limit"], "default");
}
