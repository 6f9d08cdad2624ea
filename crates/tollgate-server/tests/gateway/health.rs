//! Health probes of servers.

use tollgate::Span;
use tollgate_config::HealthSpec;
use tollgate_testkit::wait;

use crate::support::{OPEN, TestGateway};
use crate::upstream::Upstream;

fn is_up(gateway: &TestGateway, server: &Upstream) -> bool {
    let port = server.port;
    let series =
        format!("tollgate_upstream_server_up{{upstream=\"app\",server=\"127.0.0.1:{port}\"}}");
    gateway.metric(&series) == 1
}

fn asked(gateway: &TestGateway, both: [&Upstream; 2]) -> [usize; 2] {
    let before = both.map(|server| server.targets().len());
    for _ in 0..20 {
        assert_eq!(gateway.get("/").status, 200);
    }
    let after = both.map(|server| server.targets().len());
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn an_unhealthy_server_is_avoided_unless_all_are_unhealthy() {
    let (a, b) = (Upstream::start(), Upstream::start());
    let health = |spec: &mut tollgate_config::UpstreamSpec| {
        spec.health = Some(HealthSpec {
            every: Span::from_millis(100),
            fails: 2,
            passes: 2,
            ..HealthSpec::at("/healthz")
        });
    };
    let gateway = TestGateway::with(OPEN, health, &[a.port, b.port]);
    wait("both are asked how they are", || {
        a.count() > 2 && b.count() > 2
    });
    assert_eq!(asked(&gateway, [&a, &b]), [10, 10]);
    a.set_unhealthy(true);
    wait("it is out", || !is_up(&gateway, &a));
    assert_eq!(asked(&gateway, [&a, &b]), [0, 20]);
    b.set_unhealthy(true);
    wait("both are out", || !is_up(&gateway, &b));
    assert_eq!(asked(&gateway, [&a, &b]), [10, 10]);
    a.set_unhealthy(false);
    wait("it is back", || is_up(&gateway, &a));
    assert_eq!(asked(&gateway, [&a, &b]), [20, 0]);
    assert_eq!(gateway.admitted(), 80, "no look at a server is a request");
}

#[test]
fn an_only_upstream_that_is_down_is_reported() {
    // A port that is free again.
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let gateway = TestGateway::before(OPEN, port);
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 502);
    }
    let health = gateway.started.engine.health();
    assert_eq!(health.unavailable_upstreams, ["app"]);
    assert_eq!(health.status, "unavailable");
    assert_eq!(gateway.get("/").status, 502, "requests are still sent");
    let _upstream = Upstream::on(port);
    wait("it is up again", || {
        gateway.started.engine.health().status == "ok"
    });
    assert_eq!(gateway.get("/").status, 200);
}
