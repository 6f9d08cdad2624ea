//! Requests as Traefik sends them: its documented headers, from a client of the tests. Traefik itself is not run.

use tollgate_testkit::http::{Client, Reply};
use tollgate_testkit::now;

use crate::harness::serve;

use crate::proxied;

/// What `ForwardAuth` sends for a request of a client, with headers of the client's own.
fn forwarded(
    proxy: &mut Client,
    (method, uri): (&str, &str),
    client: &str,
    own: &[(&str, &str)],
) -> Reply {
    let mut headers = vec![
        ("X-Forwarded-Method", method),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "shop.example"),
        ("X-Forwarded-Uri", uri),
        ("X-Forwarded-For", client),
    ];
    headers.extend(own);
    proxy.get_with("/v1/auth", &headers)
}

#[test]
fn the_request_that_traefik_reports_is_limited() {
    let server = serve(proxied::POLICY);
    let mut proxy = server.client();
    let mut ask = |what, client| forwarded(&mut proxy, what, client, &[]).status;
    let get = ("GET", "/ip/a?x=1");
    let of_one: Vec<u16> = (0..4).map(|_| ask(get, "203.0.113.7")).collect();
    assert_eq!(of_one, [200, 200, 200, 429]);
    assert_eq!(ask(get, "203.0.113.8"), 200);
    // A proxy of ours in front of Traefik: the last address that is not ours counts.
    assert_eq!(ask(get, "6.6.6.6, 203.0.113.7, 127.0.0.1"), 429);
    assert_eq!(ask(("POST", "/post"), "203.0.113.7"), 200);
    assert_eq!(ask(("POST", "/post"), "203.0.113.8"), 429);
    assert_eq!(ask(("GET", "/post"), "203.0.113.8"), 200);
    assert_eq!(ask(("GET", "/host"), "203.0.113.8"), 200);
    assert_eq!(ask(("GET", "/host"), "203.0.113.9"), 429);
}

#[test]
fn what_traefik_passes_on_of_a_refusal_is_whole() {
    let server = serve(proxied::POLICY);
    let mut proxy = server.client();
    let ann = [("X-User", "ann")];
    let mut ask = || forwarded(&mut proxy, ("GET", "/user/a"), "203.0.113.7", &ann);
    for _ in 0..3 {
        assert_eq!(ask().expect(200).body, "");
    }
    let refused = ask().expect(429);
    let wait = refused.must("retry-after");
    assert_eq!(
        refused.must("ratelimit"),
        format!(r#""per-user";r=0;t={wait}"#)
    );
    assert_eq!(refused.must("content-type"), "application/problem+json");
    let problem = refused.json();
    assert_eq!(problem["violated-policies"][0], "per-user");
    assert_eq!(problem["status"], 429);
}

#[test]
fn headers_of_another_proxy_say_nothing_to_the_way_of_traefik() {
    let server = serve(proxied::POLICY);
    let mut proxy = server.client();
    let mut passed = 0;
    for number in 0..6 {
        let other = format!("6.6.6.{number}");
        let own = [
            ("X-Original-URI", "/free"),
            ("X-Original-Method", "HEAD"),
            ("X-Real-IP", other.as_str()),
        ];
        let reply = forwarded(&mut proxy, ("GET", "/ip/a"), "203.0.113.7", &own);
        passed += usize::from(reply.status == 200);
    }
    assert_eq!(passed, 3);
}

#[test]
fn a_repeated_header_is_rejected() {
    let server = serve(proxied::POLICY);
    let mut proxy = server.client();
    for name in ["X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Host"] {
        let own = [(name, "/free")];
        forwarded(&mut proxy, ("GET", "/ip/a"), "203.0.113.7", &own).expect(400);
    }
}

#[test]
fn a_request_that_must_wait_is_held_until_its_slot() {
    let server = serve(
        "default: pass\nlimits: [{ name: one, algorithm: leaky-bucket, allow: 2/s, queue: 3 }]\n",
    );
    let watch = now();
    let mut proxy = server.client();
    for _ in 0..3 {
        forwarded(&mut proxy, ("GET", "/"), "203.0.113.7", &[]).expect(200);
    }
    // At once, after half a second, and after a second.
    let passed = watch.elapsed().as_millis();
    assert!((990..5_000).contains(&passed), "{passed} ms");
}
