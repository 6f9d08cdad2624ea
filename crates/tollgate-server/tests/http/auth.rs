//! Forward-auth.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::client::{Server, other_address};

const POLICY: &str = "
default: pass
deny:
  - { name: scrapers, match: { ip: 198.51.100.0/24 } }
limits:
  - { name: logins, match: { method: POST, path: /login, host: [app.example, tollgate] }, key: ip, algorithm: fixed-window, allow: 2/h }
  - { name: by-key, match: { path: /api/** }, key: header.x-api-key, algorithm: fixed-window, allow: 1/h }
  - { name: big, match: { path: /big }, algorithm: fixed-window, allow: 1/h, cost: 2 }
  - { name: queue, match: { path: /queue }, algorithm: leaky-bucket, allow: 5/s, queue: 5 }
  - { name: long-queue, match: { path: /long }, algorithm: leaky-bucket, allow: 1/min, queue: 5 }
";

/// As Traefik and Caddy ask.
fn traefik(server: &Server, method: &str, uri: &str, client: &str) -> super::client::Reply {
    let headers = [
        ("x-forwarded-method", method),
        ("x-forwarded-uri", uri),
        ("x-forwarded-host", "app.example"),
        ("x-forwarded-for", client),
    ];
    server.send("GET", "/v1/auth", &headers, b"")
}

/// As nginx asks with the recipe.
fn nginx(server: &Server, method: &str, uri: &str, client: &str) -> super::client::Reply {
    let headers = [
        ("x-original-method", method),
        ("x-original-uri", uri),
        ("x-real-ip", client),
    ];
    server.send("GET", "/v1/auth/nginx", &headers, b"")
}

#[test]
fn forward_auth_answers_with_headers_and_a_problem_body() {
    let server = Server::start(POLICY);
    let pass = traefik(&server, "POST", "/login?next=/", "203.0.113.7");
    assert_eq!((pass.status, pass.body.as_str()), (200, ""));
    assert!(
        pass.header("ratelimit")
            .unwrap()
            .starts_with("\"logins\";r=1;t=")
    );
    assert_eq!(
        traefik(&server, "GET", "/login", "203.0.113.7").header("ratelimit"),
        None
    );
    assert_eq!(
        traefik(&server, "POST", "//login", "203.0.113.7").status,
        200
    );
    let refused = traefik(&server, "POST", "/login", "203.0.113.7");
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert!(refused.header("retry-after").is_some());
    let json = refused.json();
    assert_eq!(
        json["type"],
        "https://iana.org/assignments/http-problem-types#quota-exceeded"
    );
    assert_eq!(json["violated-policies"], serde_json::json!(["logins"]));
    assert_eq!(
        traefik(&server, "POST", "/login", "203.0.113.8").status,
        200
    );
}

#[test]
fn nginx_gets_403_and_the_real_status_in_a_header() {
    let server = Server::start(POLICY);
    assert_eq!(nginx(&server, "POST", "/login", "203.0.113.7").status, 200);
    assert_eq!(nginx(&server, "POST", "/login", "203.0.113.7").status, 200);
    let refused = nginx(&server, "POST", "/login", "203.0.113.7");
    assert_eq!(
        (refused.status, refused.header("x-tollgate-status")),
        (403, Some("429"))
    );
    assert!(refused.header("retry-after").is_some());
    assert!(refused.header("ratelimit").is_some());
    let never = nginx(&server, "GET", "/big", "203.0.113.7");
    assert_eq!(
        (never.status, never.header("x-tollgate-status")),
        (403, Some("422"))
    );
    let path = nginx(&server, "GET", "/a%2fb", "203.0.113.7");
    assert_eq!(
        (path.status, path.header("x-tollgate-status")),
        (403, Some("400"))
    );
    let by_query = [("x-original-uri", "/big"), ("x-original-method", "GET")];
    assert_eq!(
        server
            .send("GET", "/v1/auth?deny=403", &by_query, b"")
            .status,
        403
    );
    let silent = server.get("/v1/auth/nginx");
    assert_eq!(silent.status, 400);
    assert!(
        silent.body.contains("X-Original-URI $request_uri"),
        "{}",
        silent.body
    );
}

#[test]
fn each_mode_reads_only_its_own_headers() {
    let server = Server::start(POLICY);
    for status in [200, 200, 403] {
        let headers = [
            ("x-original-method", "POST"),
            ("x-original-uri", "/login"),
            ("x-real-ip", "203.0.113.7"),
            // nginx lets these pass as the client sent them.
            ("x-forwarded-uri", "/harmless"),
            ("x-forwarded-method", "GET"),
            ("x-forwarded-for", &format!("203.0.113.{status}")),
        ];
        assert_eq!(
            server.send("GET", "/v1/auth/nginx", &headers, b"").status,
            status
        );
    }
    for status in [200, 200, 429] {
        let headers = [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", "/login"),
            ("x-forwarded-host", "app.example"),
            ("x-forwarded-for", "6.6.6.6, 203.0.113.9"),
            ("x-original-uri", "/harmless"),
            ("x-real-ip", &format!("203.0.113.{status}")),
        ];
        assert_eq!(server.send("GET", "/v1/auth", &headers, b"").status, status);
    }
}

#[test]
fn permanent_refusals_have_their_own_status() {
    let server = Server::start(POLICY);
    assert_eq!(traefik(&server, "GET", "/big", "203.0.113.7").status, 422);
    assert_eq!(traefik(&server, "GET", "/a%2fb", "203.0.113.7").status, 400);
    let denied = traefik(&server, "GET", "/", "198.51.100.1");
    assert_eq!(denied.status, 403);
    assert!(
        !denied.body.contains("scrapers"),
        "lists are not expected to clients: {}",
        denied.body
    );
}

#[test]
fn any_method_is_accepted_and_the_forwarded_one_decided() {
    let server = Server::start(POLICY);
    for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"] {
        let expected = [("x-forwarded-uri", "/other")];
        let reply = server.send(method, "/v1/auth", &expected, b"");
        assert_eq!(reply.status, 200, "{method}");
        // Without it every request would look the same, and limits by path would be off.
        let reply = server.send(method, "/v1/auth", &[], b"");
        assert_eq!(reply.status, 400, "{method}");
        assert!(method == "HEAD" || reply.body.contains("X-Forwarded-Uri"));
    }
    let posted = server.send(
        "POST",
        "/v1/auth",
        &[("x-forwarded-uri", "/login")],
        b"an unread body",
    );
    assert!(posted.header("ratelimit").is_some());
}

#[test]
fn other_headers_are_facts() {
    let server = Server::start(POLICY);
    let ask = |key: &str| {
        let headers = [("x-forwarded-uri", "/api/x"), ("x-api-key", key)];
        server.send("GET", "/v1/auth", &headers, b"").status
    };
    assert_eq!([ask("a"), ask("a"), ask("b")], [200, 429, 200]);
}

#[test]
fn repeated_and_non_utf8_headers_are_refused() {
    let server = Server::start(POLICY);
    let twice = [
        ("x-forwarded-uri", "/login"),
        ("x-forwarded-uri", "/harmless"),
    ];
    let reply = server.send("GET", "/v1/auth", &twice, b"");
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("more than once"), "{}", reply.body);
    let raw = server.raw(
        b"GET /v1/auth HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-forwarded-uri: /\xff\r\n\r\n",
    );
    assert!(
        raw.starts_with(b"HTTP/1.1 400"),
        "{}",
        String::from_utf8_lossy(&raw)
    );
}

#[test]
fn a_peer_that_is_no_trusted_proxy_is_refused() {
    let address =
        other_address().expect("this machine needs an address beside loopback: give it a network");
    let server = Server::on(&format!("{address}:0"), POLICY);
    for name in [
        "x-forwarded-for",
        "x-forwarded-uri",
        "x-forwarded-host",
        "x-forwarded-method",
        "x-original-uri",
        "x-real-ip",
        "forwarded",
    ] {
        let reply = server.send("GET", "/v1/auth", &[(name, "6.6.6.6")], b"");
        assert_eq!(reply.status, 400, "{name}");
        assert!(
            reply.body.contains("not a trusted proxy") && reply.body.contains("trusted_proxies"),
            "{}",
            reply.body
        );
    }
    let trusted = format!("trusted_proxies: [{address}]\n{}", POLICY.trim_start());
    let server = Server::on(&format!("{address}:0"), &trusted);
    let statuses = [0; 3].map(|_| traefik(&server, "POST", "/login", "203.0.113.7").status);
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn a_delay_is_served_before_the_answer() {
    let server = Server::start(POLICY);
    #[expect(clippy::disallowed_methods, reason = "the test looks at real time")]
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(traefik(&server, "GET", "/queue", "203.0.113.7").status, 200);
    }
    assert!(
        begun.elapsed() >= Duration::from_millis(390),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_wait_above_the_maximum_is_refunded() {
    let server = Server::start(POLICY);
    assert_eq!(traefik(&server, "GET", "/long", "203.0.113.7").status, 200);
    for _ in 0..10 {
        let refused = traefik(&server, "GET", "/long", "203.0.113.7");
        assert_eq!(
            (refused.status, refused.header("retry-after")),
            // Half a minute later, half a minute is left to wait: as long as a request is held.
            (429, Some("30"))
        );
    }
}

#[test]
fn a_client_that_leaves_during_its_delay_is_refunded() {
    let policy =
        "default: pass\nlimits: [{ name: q, algorithm: leaky-bucket, allow: 1/10s, queue: 3 }]\n";
    for close in ["", "Connection: close\r\n"] {
        let server = Server::start(policy);
        let ask = || {
            let mut client = server.connect();
            let head = format!("GET /v1/auth HTTP/1.1\r\nX-Forwarded-Uri: /\r\n{close}\r\n");
            client.write_all(head.as_bytes()).unwrap();
            client
        };
        let mut first = ask();
        let mut answer = [0; 12];
        first.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        let free = || server.check(r#"{"path":"/","cost":0}"#).json()["remaining"].as_u64();
        let before = free();
        let wait_until = |wanted: &dyn Fn(Option<u64>) -> bool| {
            for _ in 0..500 {
                if wanted(free()) {
                    return;
                }
                #[expect(clippy::disallowed_methods, reason = "a test may look again")]
                std::thread::sleep(Duration::from_millis(10));
            }
            panic!("{close:?}: {:?} of {before:?}", free());
        };
        let waiting = ask();
        wait_until(&|free| free < before);
        drop(waiting);
        wait_until(&|free| free == before);
    }
}

#[test]
fn a_shutdown_admits_no_waiting_request() {
    let policy =
        "default: pass\nlimits: [{ name: q, algorithm: leaky-bucket, allow: 1/10s, queue: 3 }]\n";
    let server = Server::start(policy);
    assert_eq!(traefik(&server, "GET", "/", "203.0.113.7").status, 200);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| traefik(&server, "GET", "/", "203.0.113.7"));
        let settle_in = Duration::from_millis(300);
        #[expect(
            clippy::disallowed_methods,
            reason = "the other thread must have asked"
        )]
        std::thread::sleep(settle_in);
        server.stop();
        let reply = waiting.join().unwrap();
        assert_eq!(reply.status, 503);
        assert_eq!(reply.header("retry-after"), Some("10"));
    });
}
