//! The admin port over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate_server::admin::{AdminSettings, Tokens, serve};
use tollgate_server::engine::Engine;

use crate::support::{Directory, TOKEN, admitted, logged_by_all, operate, policy, send, start};

const ROUTES: [(&str, &str, bool); 14] = [
    ("GET", "/health", false),
    ("GET", "/ready", false),
    ("GET", "/metrics", false),
    ("POST", "/reload", true),
    ("GET", "/overrides", true),
    ("PUT", "/overrides", true),
    ("DELETE", "/overrides", true),
    ("GET", "/top", true),
    ("POST", "/switch", true),
    ("GET", "/pressure", true),
    ("POST", "/pressure", true),
    ("DELETE", "/pressure", true),
    ("GET", "/policy", true),
    ("POST", "/peek", true),
];

/// A server for operators, and how to end it.
pub(crate) struct TestServer {
    pub(crate) at: SocketAddr,
    pub(crate) engine: Arc<Engine>,
    _stop: watch::Sender<bool>,
    _runtime: tokio::runtime::Runtime,
}

pub(crate) fn serve_policy(policy: &Path) -> TestServer {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let engine = start(policy, None);
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, stopped) = watch::channel(false);
    let settings = AdminSettings {
        tokens: Tokens::new(&[TOKEN, "the-other-token-of-two-for-rotation"]).unwrap(),
        hosts: vec!["tolls.example".into()],
    };
    let served = serve(listener, Arc::clone(&engine), settings, 256, stopped);
    runtime.spawn(served);
    TestServer {
        at,
        engine,
        _stop: stop,
        _runtime: runtime,
    }
}

#[test]
fn every_route_requires_a_token_where_documented() {
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(5));
    for (method, route, needs_token) in ROUTES {
        // One for each: failures are limited.
        let server = serve_policy(&path);
        let status =
            |headers: &[(&str, &str)]| send(server.at, method, route, headers, "{}").status;
        let without = status(&[]);
        let wrong = status(&[("Authorization", "Bearer 00000000000000000000000000000000")]);
        let basic = status(&[("Authorization", &format!("Basic {TOKEN}"))]);
        let right = status(&[("Authorization", &format!("Bearer {TOKEN}"))]);
        let other = status(&[(
            "Authorization",
            "bearer the-other-token-of-two-for-rotation",
        )]);
        if needs_token {
            assert_eq!((without, wrong, basic), (401, 401, 401), "{method} {route}");
        } else {
            assert_eq!((without, wrong, basic), (200, 200, 200), "{method} {route}");
        }
        // The bodies are empty, which some routes do not like; what counts is that they were asked.
        assert!(
            [200, 400].contains(&right) && other == right,
            "{method} {route}: {right} {other}"
        );
        let bearer = format!("Bearer {TOKEN}");
        let foreign = [
            ("Authorization", &*bearer),
            ("Origin", "http://evil.example"),
        ];
        assert_eq!(status(&foreign), 403, "{method} {route}");
        assert_eq!(
            status(&[("Authorization", &bearer), ("Host", "evil.example")]),
            421
        );
        assert_eq!(
            status(&[("Authorization", &bearer), ("Host", "tolls.example:9090")]),
            right
        );
        let plain = status(&[("Authorization", &bearer), ("Content-Type", "text/plain")]);
        assert_eq!(
            plain,
            if method == "GET" { right } else { 415 },
            "{method} {route}"
        );
        assert_eq!(send(server.at, "PATCH", route, &[], "").status, 405);
    }
}

#[test]
fn failed_logins_are_rate_limited_and_valid_tokens_are_not() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(5)));
    let wrong = [("Authorization", "Bearer nonsense")];
    let statuses: Vec<u16> = (0..12)
        .map(|_| send(server.at, "GET", "/top", &wrong, "").status)
        .collect();
    assert_eq!(statuses[..10], [401; 10]);
    assert_eq!(statuses[10..], [429; 2]);
    let got = send(server.at, "GET", "/top", &wrong, "");
    got.must("retry-after");
    assert_eq!(operate(server.at, "GET", "/top", "").status, 200);
    assert_eq!(send(server.at, "GET", "/health", &wrong, "").status, 200);
}

#[test]
fn errors_have_a_code_and_a_hint() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(5)));
    let large = " ".repeat(70_000);
    let faults = [
        ("GET", "/nothing", "", 404),
        ("GET", "/switch", "", 405),
        ("POST", "/switch", "{", 400),
        ("POST", "/switch", "{\"limiting\": \"maybe\"}", 400),
        (
            "POST",
            "/switch",
            "{\"limiting\": \"off\", \"more\": 1}",
            400,
        ),
        (
            "PUT",
            "/overrides",
            "{\"limit\": \"users\", \"key\": 7}",
            400,
        ),
        (
            "PUT",
            "/overrides",
            "{\"limit\": \"users\", \"key\": \"a\", \"allow\": \"5\"}",
            400,
        ),
        (
            "PUT",
            "/overrides",
            "{\"limit\": \"unknown\", \"key\": \"a\", \"blocked\": true}",
            404,
        ),
        ("PUT", "/overrides", &large, 413),
        (
            "DELETE",
            "/overrides",
            "{\"limit\": \"users\", \"key\": \"a\"}",
            404,
        ),
        (
            "POST",
            "/peek",
            "{\"limit\": \"unknown\", \"key\": \"a\"}",
            404,
        ),
        (
            "POST",
            "/peek",
            "{\"limit\": \"users\", \"key\": [\"a\", \"b\"]}",
            400,
        ),
    ];
    for (method, path, body, status) in faults {
        let got = operate(server.at, method, path, body);
        assert_eq!(got.status, status, "{method} {path} {body:.80}: {got:?}");
        assert_eq!(
            got.must("content-type"),
            "application/problem+json",
            "{got:?}"
        );
        let problem = got.json();
        assert_eq!(problem["status"], status);
        for part in ["title", "code", "detail", "hint"] {
            assert!(
                !problem[part].as_str().unwrap().is_empty(),
                "{part}: {problem}"
            );
        }
    }
    assert!(server.engine.overrides().is_empty() && !server.engine.is_switched_off());
}

#[test]
fn overrides_are_set_listed_and_removed() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(5)));
    let body = json!({"limit": "users", "key": "ann", "blocked": true}).to_string();
    let got = operate(server.at, "PUT", "/overrides", &body).json();
    assert_eq!(
        (&got["key"], &got["persisted"]),
        (&json!(["ann"]), &json!(false))
    );
    assert_eq!(admitted(&server.engine, "ann", 5), 0);
    let listed = operate(server.at, "GET", "/overrides", "").json();
    assert_eq!(listed["overrides"][0]["change"], json!({"blocked": true}));
    let metrics = send(server.at, "GET", "/metrics", &[], "").body;
    assert!(metrics.contains("\ntollgate_overrides 1\n"));
    let body = json!({"limit": "users", "key": ["ann"]}).to_string();
    assert_eq!(
        operate(server.at, "DELETE", "/overrides", &body).status,
        200
    );
    assert_eq!(admitted(&server.engine, "ann", 9), 5);
}

#[test]
fn the_switch_applies_at_once_and_shows_in_health() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(1)));
    assert_eq!(admitted(&server.engine, "ann", 5), 1);
    let got = operate(server.at, "POST", "/switch", "{\"limiting\": \"off\"}");
    assert_eq!(got.json(), json!({"limiting": "off", "was": "on"}));
    assert_eq!(admitted(&server.engine, "ann", 5), 5);
    assert_eq!(
        send(server.at, "GET", "/ready", &[], "").json()["limiting"],
        "off"
    );
    let metrics = send(server.at, "GET", "/metrics", &[], "").body;
    assert!(metrics.contains("\ntollgate_switched_off 1\n"));
    operate(server.at, "POST", "/switch", "{\"limiting\": \"on\"}");
    assert_eq!(admitted(&server.engine, "ann", 5), 0);
}

#[test]
fn a_reload_returns_its_result() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(1)));
    let reload = || operate(server.at, "POST", "/reload", "");
    assert_eq!(reload().json()["outcome"], "unchanged");
    dir.write("p.yaml", &policy(2));
    let got = reload().json();
    assert_eq!(
        (&got["outcome"], &got["version"]),
        (&json!("changed"), &json!(2))
    );
    dir.write("p.yaml", "limits: 5");
    let got = reload();
    assert_eq!(got.status, 409);
    assert_eq!(got.json()["code"], "policy-invalid");
    assert!(!got.json()["problems"].as_array().unwrap().is_empty());
    let ready = send(server.at, "GET", "/ready", &[], "");
    assert_eq!(ready.status, 200);
    let ready = ready.json();
    assert_eq!(ready["status"], "degraded");
    assert_eq!(ready["policy"]["last_error"]["code"], "policy-invalid");
    assert_eq!(ready["policy"]["version"], 2);
}

#[test]
fn the_policy_and_the_status_of_a_key_are_readable() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(5)));
    admitted(&server.engine, "ann", 7);
    let got = operate(server.at, "GET", "/policy", "").json();
    assert_eq!(got["limits"][0]["name"], "users");
    assert_eq!(got["limits"][0]["key"], json!(["header.x-user"]));
    assert_eq!(got["limits"][0]["quota"]["units"], 5);
    let peek = |key: &str| {
        let body = json!({"limit": "users", "key": key}).to_string();
        operate(server.at, "POST", "/peek", &body).json()
    };
    assert_eq!(
        (&peek("ann")["verdict"], &peek("ann")["remaining"]),
        (&json!("refuse"), &json!(0))
    );
    assert_eq!(peek("bob")["verdict"], "pass");
    let top = operate(server.at, "GET", "/top", "").json();
    assert_eq!(top["refused"][0]["key"], json!(["ann"]));
    assert_eq!(top["refused"][0]["refused"], 2);
}

#[test]
fn operations_without_a_body_need_no_media_type() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(5)));
    let bearer = format!("Bearer {TOKEN}");
    let bare = |method: &str, path: &str| {
        let headers = [
            ("Host", "localhost"),
            ("Connection", "close"),
            ("Authorization", &*bearer),
        ];
        tollgate_testkit::http::Client::with_address(server.at).send(method, path, &headers, "")
    };
    assert_eq!(bare("POST", "/reload").status, 200);
    assert_eq!(bare("DELETE", "/pressure").status, 200);
    assert_eq!(bare("DELETE", "/v1/keys/users/ann").status, 200);
    // The others read a body.
    assert_eq!(bare("POST", "/switch").status, 415);
}

#[test]
fn a_key_is_reset() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(3)));
    assert_eq!(admitted(&server.engine, "a/b c", 9), 3);
    assert_eq!(admitted(&server.engine, "other", 9), 3);
    let reset = operate(server.at, "DELETE", "/v1/keys/users/a%2Fb%20c", "");
    assert_eq!(reset.status, 200, "{}", reset.body);
    assert_eq!(
        reset.json(),
        json!({"limit": "users", "key": ["a/b c"], "units_here": 3})
    );
    assert_eq!(admitted(&server.engine, "a/b c", 9), 3);
    assert_eq!(admitted(&server.engine, "other", 9), 0);
    for (path, status) in [
        ("/v1/keys/user/ann", 404),
        ("/v1/keys/users/", 200),
        ("/v1/keys/users/a/b", 400),
        ("/v1/keys/users/%ff", 400),
    ] {
        let wrong = operate(server.at, "DELETE", path, "");
        assert_eq!(wrong.status, status, "{path}: {}", wrong.body);
    }
    assert_eq!(
        operate(server.at, "GET", "/v1/keys/users/ann", "").status,
        405
    );
}

#[test]
fn responses_are_not_cached_or_sniffed() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(5)));
    for (method, path, _) in ROUTES {
        let got = operate(server.at, method, path, "{}");
        assert_eq!(got.must("cache-control"), "no-store", "{got:?}");
        assert_eq!(got.must("x-content-type-options"), "nosniff", "{got:?}");
    }
}

#[test]
fn every_change_is_logged_with_actor_and_old_value() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(5)));
    logged_by_all();
    for change in [json!({"allow": "7/h"}), json!({"blocked": true})] {
        let mut body = change;
        body["limit"] = "users".into();
        body["key"] = "audited-key".into();
        operate(server.at, "PUT", "/overrides", &body.to_string());
    }
    let body = json!({"limit": "users", "key": "audited-key"}).to_string();
    operate(server.at, "DELETE", "/overrides", &body);
    operate(server.at, "POST", "/switch", "{\"limiting\": \"off\"}");
    let lines = logged_by_all();
    let audit = lines
        .iter()
        .filter(|line| line.starts_with("tollgate::audit"));
    let audit: Vec<_> = audit
        .filter(|line| line.contains("actor=127.0.0.1"))
        .collect();
    for (old, new) in [
        ("none", "{\"allow\":\"7/h\"}"),
        ("{\"allow\":\"7/h\"}", "{\"blocked\":true}"),
        ("{\"blocked\":true}", "\"none\""),
    ] {
        let says = |line: &&&String| {
            line.contains("audited-key")
                && line.contains(&format!("old={old}"))
                && line.contains(&format!("new={new}"))
        };
        assert!(audit.iter().find(says).is_some(), "{old} {new}: {audit:#?}");
    }
    let switched = "action=\"switch\" old=\"on\" new=\"off\"";
    assert!(
        audit.iter().any(|line| line.contains(switched)),
        "{audit:#?}"
    );
    assert!(lines.iter().all(|line| !line.contains(TOKEN)));
}

/// A connection from this address of loopback.
fn connect_from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

#[test]
fn silent_connections_do_not_take_the_admin_port() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(5)));
    let mut silent: Vec<_> = (0..256)
        .map(|_| connect_from([127, 0, 0, 1], server.at))
        .collect();
    let mut operator = connect_from([127, 0, 0, 2], server.at);
    operator
        .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    operator
        .set_read_timeout(Some(Duration::from_secs(3)))
        .unwrap();
    let mut response = String::new();
    operator.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    // The silent ones have the time of a head.
    for stream in &mut silent {
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    }
    assert_eq!(send(server.at, "GET", "/health", &[], "").status, 200);
}
