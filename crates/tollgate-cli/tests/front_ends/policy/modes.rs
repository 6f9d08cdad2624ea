//! Limits that are not enforced, or only for some keys: shadow limits, candidates, shares of the keys.

use super::{play, play_limits};

const ASK: &str = r#"{"path":"/"}"#;

#[test]
fn a_shadow_is_counted_and_reported_but_refuses_no_request() {
    let server = play_limits(
        "  - { name: quiet, allow: 1/h, burst: 2, mode: shadow }",
        &[(2, ASK, 200)],
    );
    for _ in 0..3 {
        let answer = server.check(ASK).expect(200);
        let body = answer.json();
        assert_eq!(body["limits"][0]["role"], "shadow", "{body}");
        assert_eq!(body["limits"][0]["would_refuse"], true, "{body}");
        assert_eq!(answer.header("ratelimit"), None, "clients see nothing");
    }
    let series = r#"tollgate_shadow_refusals_total{limit="quiet",role="shadow"}"#;
    assert_eq!(server.metric(series), Some(3));
}

#[test]
fn a_candidate_is_counted_beside_the_limit_that_is_enforced() {
    let server = play_limits(
        "  - { name: one, allow: 1/h, burst: 4, candidate: { burst: 2 } }",
        &[(4, ASK, 200), (1, ASK, 429)],
    );
    let series = r#"tollgate_shadow_refusals_total{limit="one",role="candidate"}"#;
    let counted = server.metric(series);
    // Two that passed; the one that was refused anyhow may be counted or not, but no more.
    assert!(matches!(counted, Some(2 | 3)), "{counted:?}");
    let roles = server.check(ASK).json()["limits"].to_string();
    assert!(roles.contains("candidate"), "{roles}");
}

#[test]
fn a_share_of_the_keys_is_enforced_and_always_the_same() {
    let server = play_limits(
        "  - { name: part, key: header.u, allow: 1/h, burst: 1, enforce: 25% }",
        &[],
    );
    let mut client = server.client();
    let mut round = || -> Vec<bool> {
        let keys = 0..400;
        keys.map(|key| {
            let ask = format!(r#"{{"path":"/","headers":{{"u":"{key}"}}}}"#);
            client.post("/v1/check", &ask).status == 429
        })
        .collect()
    };
    assert!(round().iter().all(|refused| !refused));
    let second = round();
    let refused = second.iter().filter(|refused| **refused).count();
    assert!((50..=160).contains(&refused), "{refused} of 400");
    assert_eq!(round(), second);
}

#[test]
fn a_limit_that_is_off_or_over_is_as_if_it_were_not_there() {
    let server = play_limits(
        "  - { name: off, allow: 1/h, burst: 1, mode: off }
  - { name: over, allow: 1/h, burst: 1, expires: 2020-01-01 }
  - { name: live, allow: 1/h, burst: 3, expires: 2099-01-01 }",
        &[(3, ASK, 200), (1, ASK, 429)],
    );
    let refused = server.check(ASK).json();
    assert_eq!(super::names(&refused), ["live"]);
}

#[test]
fn a_shadow_sees_only_what_passes() {
    let server = play(
        "default: pass
limits:
  - { name: bites, allow: 1/h, burst: 2 }
  - { name: quiet, allow: 1/h, burst: 3, mode: shadow }
",
        &[(2, ASK, 200), (50, ASK, 429)],
    );
    let peeked = server.check(r#"{"limit":"quiet","key":[],"cost":0}"#);
    let body = peeked.json();
    assert_ne!(body["limits"][0]["would_refuse"], true, "{body}");
}
