//! Limits and queues in front of a server.

use crate::support::TestGateway;
use crate::upstream::Upstream;
use tollgate_testkit::wait;

#[test]
fn a_request_over_its_limit_never_reaches_the_server() {
    let upstream = Upstream::start();
    let policy = "default: pass\nlimits:\n  - { name: all, key: ip, allow: 1/h, burst: 5 }\n";
    let gateway = TestGateway::before(policy, upstream.port);
    let statuses: Vec<_> = (0..20).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses.iter().filter(|s| **s == 200).count(), 5);
    assert_eq!(statuses.iter().filter(|s| **s == 429).count(), 15);
    assert_eq!(upstream.count(), 5);
    assert_eq!(gateway.admitted(), 5);
    let refused = gateway.get("/");
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert!(refused.header("retry-after").is_some());
    assert!(refused.body.contains("\"status\":429"), "{refused:?}");
}

#[test]
fn a_permit_is_released_when_the_response_ends() {
    let upstream = Upstream::start();
    let policy =
        "default: pass\nlimits:\n  - { name: all, algorithm: concurrency, allow: 2, ttl: 60s }\n";
    let gateway = TestGateway::before(policy, upstream.port);
    for _ in 0..50 {
        assert_eq!(gateway.get("/").status, 200);
    }
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| gateway.get("/slow").status))
            .collect();
        wait("both are there", || upstream.count() == 52);
        assert_eq!(gateway.get("/").status, 429);
        for slow in slow {
            assert_eq!(slow.join().unwrap(), 200);
        }
    });
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn a_request_without_an_upstream_is_404() {
    let upstream = Upstream::start();
    let only_api = |spec: &mut tollgate_config::UpstreamSpec| {
        spec.matches.methods = vec!["POST".into()];
    };
    let gateway = TestGateway::with(crate::support::OPEN, only_api, &[upstream.port]);
    assert_eq!(gateway.get("/").status, 404);
    assert_eq!(upstream.count(), 0);
}
