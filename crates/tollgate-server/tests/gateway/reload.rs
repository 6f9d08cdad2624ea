//! Reloads while requests wait and are in flight.

use std::io::Write;
use tollgate_testkit::{Directory, wait};

use tollgate_server::engine::{ReloadCause, Reloaded};

use crate::support::{TestGateway, reply};
use crate::upstream::Upstream;

fn policy(burst: u32, upstream: &str) -> String {
    format!(
        "default: pass\nlimits:\n  - {{ name: all, allow: 1/h, burst: {burst} }}\nqueues:\n  - {{ name: all, at_once: 1, max_wait: 10s }}\ngateway:\n  upstreams:\n    - {upstream}\n"
    )
}

fn at(port: u16) -> String {
    format!("{{ name: app, servers: 'http://127.0.0.1:{port}' }}")
}

fn is_changed(gateway: &TestGateway) -> bool {
    let reloaded = gateway.started.engine.reload(ReloadCause::Signal).unwrap();
    matches!(reloaded, Reloaded::Changed { .. })
}

#[test]
fn a_waiting_request_stays_in_the_queue_and_follows_the_new_policy() {
    let (old, new) = (Upstream::start(), Upstream::start());
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(10, &at(old.port)));
    let gateway = TestGateway::by_file(&path);
    let mut kept = gateway.connect();
    let holds = gateway.send("/hang", "");
    wait("it is there", || old.count() == 1);
    let mut waiting = [gateway.send("/1", ""), gateway.send("/2", "")];
    wait("both wait", || gateway.waiting() == 2);
    dir.write("p.yaml", &policy(10, &at(new.port)));
    assert!(is_changed(&gateway));
    assert_eq!(gateway.waiting(), 2);
    assert_eq!(old.open(), 1, "requests in flight continue");
    drop(holds);
    for waits in &mut waiting {
        assert_eq!(reply(waits).status, 200);
    }
    // An existing connection continues as well, and so does what was counted: 7 of 10 are left.
    let mut statuses = [0; 8];
    for status in &mut statuses {
        kept.write_all(b"GET /kept HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        *status = reply(&mut kept).status;
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 429]);
    assert_eq!(old.targets(), ["/hang"]);
    let mut first = new.targets()[..2].to_vec();
    first.sort();
    assert_eq!(first, ["/1", "/2"]);
}

#[test]
fn a_policy_with_invalid_upstreams_changes_nothing_and_is_reported() {
    let upstream = Upstream::start();
    let dir = Directory::new();
    let path = dir.write("p.yaml", &policy(3, &at(upstream.port)));
    let gateway = TestGateway::by_file(&path);
    assert_eq!(gateway.get("/").status, 200);
    let missing = dir.file("missing.pem");
    let bad = format!(
        "{{ name: app, servers: 'https://127.0.0.1:{}', ca_file: '{}' }}",
        upstream.port,
        missing.display()
    );
    dir.write("p.yaml", &policy(1000, &bad));
    let error = gateway
        .started
        .engine
        .reload(ReloadCause::Signal)
        .unwrap_err();
    assert_eq!(error.code(), "policy-gateway");
    let message = error.to_string();
    assert!(message.contains("upstream `app`"), "{message}");
    assert!(message.contains("missing.pem"), "{message}");
    let health = gateway.started.engine.health();
    assert_eq!(health.status, "degraded");
    assert_eq!(health.policy.version, 1);
    assert_eq!(health.policy.last_error.unwrap().code, "policy-gateway");
    // Neither its limits nor its upstreams are active.
    let statuses = [(); 3].map(|()| gateway.get("/").status);
    assert_eq!(statuses, [200, 200, 429]);
    // The file that it needs comes later: it is tried again although the policy is the same.
    secure_file(&missing);
    assert!(is_changed(&gateway));
    assert_eq!(gateway.started.engine.health().status, "ok");
    assert_eq!(gateway.get("/").status, 502, "it does not use TLS");
}

fn secure_file(path: &std::path::Path) {
    let dir = Directory::new();
    let files = crate::tls::certificate(&dir, "other");
    std::fs::copy(files.cert, path).unwrap();
}
