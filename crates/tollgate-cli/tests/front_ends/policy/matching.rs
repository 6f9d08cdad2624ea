//! `match` and the path rules: which requests a limit applies to.

use super::names;

use crate::harness::{policy_with, serve};

const LIMITS: &str = r#"
  - { name: posts,    match: { method: [POST, PUT] },                      allow: 1000/h }
  - { name: rides,    match: { path: /api/rides/** },                      allow: 1000/h }
  - { name: cancel,   match: { path: "/api/rides/{ride}/cancel" },         allow: 1000/h }
  - { name: exact,    match: { path: /api/fares },                         allow: 1000/h }
  - { name: partners, match: { host: "*.partners.example" },               allow: 1000/h }
  - { name: beta,     match: { header: { x-beta: true } },                 allow: 1000/h }
  - { name: robots,   match: { header: { user-agent: ["*bot*", curl*] } }, allow: 1000/h }
  - { name: unauthenticated,  match: { path: /login, header: { authorization: false } }, allow: 1000/h }
  - { name: pdf,      match: { query: { format: pdf } },                   allow: 1000/h }
  - { name: office,   match: { ip: [10.0.0.0/8, "2001:db8::/32"] },        allow: 1000/h }
  - { name: slow,     match: { descriptor: { generic_key: slow } },        allow: 1000/h }
  - { name: edge,     match: { domain: edge },                             allow: 1000/h }
  - { name: all-of,   match: { method: GET, path: /all, query: { a: "1" } }, allow: 1000/h }
  - { name: admin,    match: { path: /admin/** }, except: { path: /admin/health }, allow: 1000/h }
"#;

#[test]
fn a_request_meets_the_limits_that_match_it_and_no_other() {
    let table: &[(&str, &[&str])] = &[
        (r#"{"method":"GET","path":"/"}"#, &[]),
        (r#"{"method":"POST","path":"/"}"#, &["posts"]),
        (r#"{"method":"PUT","path":"/"}"#, &["posts"]),
        (r#"{"method":"DELETE","path":"/"}"#, &[]),
        (r#"{"path":"/api/rides"}"#, &["rides"]),
        (r#"{"path":"/api/rides/7"}"#, &["rides"]),
        (r#"{"path":"/api/ridesharing"}"#, &[]),
        (r#"{"path":"/api/rides/7/cancel"}"#, &["rides", "cancel"]),
        (r#"{"path":"/api/rides/7/8/cancel"}"#, &["rides"]),
        (r#"{"path":"/api/fares"}"#, &["exact"]),
        (r#"{"path":"/api/fares/"}"#, &["exact"]),
        (r#"{"path":"/api/x/..//%66ares"}"#, &["exact"]),
        (r#"{"path":"/api/Fares"}"#, &[]),
        (r#"{"path":"/","host":"a.partners.example"}"#, &["partners"]),
        (
            r#"{"path":"/","host":"A.Partners.Example:8443"}"#,
            &["partners"],
        ),
        (r#"{"path":"/","host":"partners.example.com"}"#, &[]),
        (r#"{"path":"/","headers":{"X-Beta":"anything"}}"#, &["beta"]),
        (
            r#"{"path":"/","headers":{"user-agent":"a bot of ours"}}"#,
            &["robots"],
        ),
        (
            r#"{"path":"/","headers":{"user-agent":"curl/8"}}"#,
            &["robots"],
        ),
        (r#"{"path":"/","headers":{"user-agent":"Firefox"}}"#, &[]),
        (r#"{"path":"/login"}"#, &["unauthenticated"]),
        (
            r#"{"path":"/login","headers":{"Authorization":"Bearer x"}}"#,
            &[],
        ),
        (r#"{"path":"/x?format=pdf&a=b"}"#, &["pdf"]),
        (r#"{"path":"/x?format=png"}"#, &[]),
        (r#"{"path":"/","ip":"10.1.2.3"}"#, &["office"]),
        (r#"{"path":"/","ip":"::ffff:10.1.2.3"}"#, &["office"]),
        (r#"{"path":"/","ip":"2001:db8:7::1"}"#, &["office"]),
        (r#"{"path":"/","ip":"11.1.2.3"}"#, &[]),
        (r#"{"descriptor":{"generic_key":"slow"}}"#, &["slow"]),
        (
            r#"{"descriptor":[{"key":"generic_key","value":"slow"}]}"#,
            &["slow"],
        ),
        (r#"{"descriptor":{"generic_key":"fast"}}"#, &[]),
        (r#"{"domain":"edge"}"#, &["edge"]),
        (r#"{"method":"GET","path":"/all?a=1"}"#, &["all-of"]),
        (r#"{"method":"GET","path":"/all?a=2"}"#, &[]),
        (r#"{"method":"HEAD","path":"/all?a=1"}"#, &[]),
        (r#"{"path":"/admin/users"}"#, &["admin"]),
        (r#"{"path":"/admin/health"}"#, &[]),
        (r#"{"path":"/admin/x/../health"}"#, &[]),
    ];
    let server = serve(&policy_with(LIMITS));
    for (ask, expected) in table {
        let answer = server.check(ask).expect(200).json();
        assert_eq!(names(&answer), *expected, "{ask}");
        let reason = if expected.is_empty() {
            "unmatched"
        } else {
            "limit"
        };
        assert_eq!(answer["reason"], reason, "{ask}");
    }
}

#[test]
fn a_path_that_servers_read_differently_is_rejected() {
    let server = serve(&policy_with(LIMITS));
    for path in [
        "/api%2Frides",
        "/api/..;/admin",
        "/api\\\\rides",
        "/a%",
        "/a b",
    ] {
        let answer = server
            .check(&format!(r#"{{"path":"{path}"}}"#))
            .expect(400)
            .json();
        assert_eq!(answer["reason"], "path", "{path}");
    }
}

#[test]
fn case_and_a_last_slash_count_if_the_policy_says_so() {
    let limits = "  - { name: one, match: { path: /api/fares }, allow: 1000/h }";
    let cases = [
        ("ignore_case: true", "/API/Fares", true),
        ("ignore_case: false", "/API/Fares", false),
        ("trailing_slash: ignore", "/api/fares/", true),
        ("trailing_slash: keep", "/api/fares/", false),
    ];
    for (rule, path, is_met) in cases {
        let policy = format!("paths: {{ {rule} }}\n{}", policy_with(limits));
        let answer = serve(&policy)
            .check(&format!(r#"{{"path":"{path}"}}"#))
            .json();
        assert_eq!(!names(&answer).is_empty(), is_met, "{rule} {path}");
    }
}
