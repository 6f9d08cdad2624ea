//! Header fields, as a server sees them.

use crate::support::{OPEN, TestGateway};
use crate::upstream::Upstream;

#[test]
fn an_untrusted_client_does_not_state_its_origin() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    gateway.ask(
        b"GET / HTTP/1.1\r\nHost: app.example\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n\
          Forwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX-Tollgate-Client: root\r\nX_Real_Ip: 6.6.6.6\r\n\
          Connection: X-Forwarded-For, X-Secret, Via, Host\r\nX-Secret: 1\r\nTE: gzip\r\nAccept: a\r\n\r\n",
    );
    let seen = upstream.last();
    let is = |name: &str| seen.header(name);
    assert_eq!(is("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert_eq!(is("x-forwarded-proto").as_deref(), Some("http"));
    assert_eq!(is("x-forwarded-host").as_deref(), Some("app.example"));
    assert_eq!(is("host").as_deref(), Some("app.example"));
    assert_eq!(is("via").as_deref(), Some("1.1 tollgate"));
    assert_eq!(is("accept").as_deref(), Some("a"));
    for gone in [
        "forwarded",
        "x-real-ip",
        "x-tollgate-client",
        "x_real_ip",
        "connection",
        "x-secret",
        "te",
    ] {
        assert_eq!(is(gone), None, "{}", seen.head);
    }
}

#[test]
fn the_client_behind_a_trusted_proxy_is_limited() {
    let upstream = Upstream::start();
    let policy = "trusted_proxies: [127.0.0.0/8]\ndefault: pass\nlimits:\n  - { name: all, key: ip, allow: 1/h, burst: 1 }\n";
    let gateway = TestGateway::before(policy, upstream.port);
    let ask = |client: &str| {
        let head = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\nX-Forwarded-Proto: https\r\n\r\n"
        );
        gateway.ask(head.as_bytes()).status
    };
    assert_eq!(ask("198.51.100.1"), 200);
    let seen = upstream.last();
    let list = seen.header("x-forwarded-for").unwrap();
    assert_eq!(list, "198.51.100.1, 127.0.0.1");
    assert_eq!(seen.header("x-forwarded-proto").unwrap(), "https");
    assert_eq!(ask("198.51.100.1"), 429);
    assert_eq!(ask("198.51.100.2"), 200);
}

#[test]
fn the_host_is_that_of_the_server_if_the_policy_sets_it() {
    let upstream = Upstream::start();
    let gateway = TestGateway::with(OPEN, |spec| spec.keep_host = false, &[upstream.port]);
    assert_eq!(gateway.get("/").status, 200);
    let own = format!("127.0.0.1:{}", upstream.port);
    assert_eq!(upstream.last().header("host").unwrap(), own);
    assert_eq!(
        upstream.last().header("x-forwarded-host").unwrap(),
        "app.example"
    );
}
