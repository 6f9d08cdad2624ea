//! Responses to clients: the families of header fields, and the body of a refusal.

use super::{play, play_limits};
use tollgate_testkit::http::Reply;

use crate::harness::serve;

const ASK: &str = r#"{"path":"/"}"#;

/// The answers to a request that passes and to one that is refused, with these settings of `headers`.
fn both(settings: &str) -> (Reply, Reply) {
    let policy = format!(
        "default: pass\nheaders: {{ {settings} }}\nlimits: [{{ name: one, allow: 1/min, burst: 2 }}]\n"
    );
    let server = serve(&policy);
    let passed = server.check(ASK).expect(200);
    server.check(ASK).expect(200);
    (passed, server.check(ASK).expect(429))
}

#[test]
fn every_family_of_headers_has_the_same_numbers() {
    let (passed, refused) = both("");
    assert_eq!(passed.must("x-ratelimit-limit"), "2");
    assert_eq!(passed.must("x-ratelimit-remaining"), "1");
    assert_eq!(passed.must("x-ratelimit-reset"), "60");
    assert_eq!(passed.must("ratelimit-policy"), r#""one";q=2;w=120"#);
    assert_eq!(passed.must("ratelimit"), r#""one";r=1;t=60"#);
    assert_eq!(passed.header("retry-after"), None);
    assert_eq!(passed.header("cache-control"), None);
    assert_eq!(refused.must("x-ratelimit-remaining"), "0");
    assert_eq!(refused.must("cache-control"), "no-store");
    let wait = refused.must("retry-after");
    let seconds: u64 = wait.parse().expect("a number");
    assert!((40..=60).contains(&seconds), "{wait}");
    assert_eq!(refused.must("ratelimit"), format!(r#""one";r=0;t={wait}"#));
    assert_eq!(refused.must("x-ratelimit-reset"), wait);
}

#[test]
fn each_family_of_headers_can_be_switched_off() {
    let families: [(&str, &[&str]); 3] = [
        ("retry_after: false", &["retry-after"]),
        (
            "x_ratelimit: off",
            &[
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
            ],
        ),
        ("ratelimit: false", &["ratelimit", "ratelimit-policy"]),
    ];
    for (off, names) in &families {
        let (_, refused) = both(off);
        for (other, others) in &families {
            for name in *others {
                let is_there = refused.header(name).is_some();
                assert_eq!(is_there, other != off, "{off}: {name}");
            }
        }
        assert!(!names.is_empty());
    }
    let (_, bare) = both("retry_after: false, x_ratelimit: off, ratelimit: false");
    assert_eq!(bare.json()["verdict"], "refuse");
}

#[test]
fn an_epoch_is_the_moment_of_the_reset() {
    let (passed, refused) = both("x_ratelimit: epoch");
    for reply in [passed, refused] {
        let reset: u64 = reply.must("x-ratelimit-reset").parse().expect("a number");
        // Between 2024 and 2100: no span of this test is as long.
        assert!((1_700_000_000..4_102_444_800).contains(&reset), "{reset}");
    }
}

#[test]
fn jitter_spreads_keys_and_stays_the_same_for_each() {
    let policy = "default: pass
headers: { jitter: 50% }
limits: [{ name: one, key: header.u, allow: 1/h, burst: 1 }]
";
    let server = serve(policy);
    let mut waits = Vec::new();
    for key in 0..30 {
        let ask = format!(r#"{{"path":"/","headers":{{"u":"{key}"}}}}"#);
        server.check(&ask).expect(200);
        let wait = || -> u64 {
            let refused = server.check(&ask).expect(429);
            refused.must("retry-after").parse().expect("a number")
        };
        let (first, second) = (wait(), wait());
        assert!((3_590..=5_400).contains(&first), "{first}");
        // Time passes meanwhile, and the spread with it.
        assert!(first.abs_diff(second) <= 2, "{first} {second}");
        waits.push(first);
    }
    let (least, most) = (waits.iter().min(), waits.iter().max());
    let apart = most.zip(least).map(|(most, least)| most - least);
    assert!(apart >= Some(600), "{waits:?}");
}

#[test]
fn of_several_limits_the_one_with_the_least_left_is_reported() {
    let server = play(
        "default: pass
limits:
  - { name: wide, allow: 1/h, burst: 100 }
  - { name: narrow, match: { path: /n }, allow: 1/h, burst: 3 }
",
        &[(1, r#"{"path":"/n"}"#, 200)],
    );
    let reply = server.check(r#"{"path":"/n"}"#);
    assert_eq!(reply.json()["limit"], "narrow");
    assert_eq!(reply.must("x-ratelimit-remaining"), "1");
    let policies = reply.must("ratelimit-policy");
    assert!(
        policies.starts_with(r#""wide";q=100;w=360000, "narrow";q=3"#),
        "{policies}"
    );
}

#[test]
fn a_refusal_can_go_without_a_body_that_explains_it() {
    for (problem, media) in [(true, Some("application/problem+json")), (false, None)] {
        let policy = format!(
            "default: pass\nheaders: {{ problem: {problem} }}\nlimits: [{{ name: one, allow: 1/h, burst: 1 }}]\n"
        );
        let server = serve(&policy);
        let mut proxy = server.client();
        let about = [("X-Forwarded-Uri", "/")];
        proxy.get_with("/v1/auth", &about).expect(200);
        let refused = proxy.get_with("/v1/auth", &about).expect(429);
        assert_eq!(refused.header("content-type"), media);
        assert_eq!(refused.body.is_empty(), !problem);
    }
}

#[test]
fn a_limit_without_requests_beyond_it_says_what_is_left_after_each() {
    let server = play_limits("  - { name: one, allow: 1/h, burst: 5 }", &[]);
    for left in (0..5).rev() {
        let reply = server.check(ASK).expect(200);
        assert_eq!(reply.json()["remaining"], left);
        assert_eq!(reply.must("x-ratelimit-remaining"), left.to_string());
    }
}
