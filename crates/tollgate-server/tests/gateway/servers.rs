//! Unhealthy servers: which are ejected, and for how long.

use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use tollgate_testkit::wait;

use tollgate::Span;
use tollgate_config::{HealthSpec, Protocol};

use crate::http_versions::Http2Upstream;
use crate::support::{OPEN, TestGateway, pause};
use crate::upstream::Upstream;

fn health(path: &str) -> HealthSpec {
    HealthSpec {
        every: Span::from_millis(100),
        fails: 3,
        passes: 1,
        ..HealthSpec::at(path)
    }
}

/// One that no failure is forgiven by.
fn strict(path: &str) -> HealthSpec {
    HealthSpec {
        every: Span::from_millis(50),
        timeout: Span::from_secs(10),
        fails: 1,
        passes: 1000,
        ..HealthSpec::at(path)
    }
}

fn is_up(gateway: &TestGateway, port: u16) -> bool {
    let series =
        format!("tollgate_upstream_server_up{{upstream=\"app\",server=\"127.0.0.1:{port}\"}}");
    gateway.metric(&series) == 1
}

/// A server that takes every request and answers none.
fn breaks_off() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in socket.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
            });
        }
    });
    port
}

/// How many of sixty requests, ten milliseconds apart, that a good server takes long for are 502.
fn broken_of_sixty(gateway: &Arc<TestGateway>) -> usize {
    let ask = |_| {
        pause(10);
        let gateway = Arc::clone(gateway);
        std::thread::spawn(move || gateway.get("/slow").status)
    };
    let all: Vec<_> = (0..60).map(ask).collect();
    let statuses = all.into_iter().map(|thread| thread.join().unwrap());
    statuses.filter(|status| *status == 502).count()
}

#[test]
fn a_server_that_reports_unhealthy_is_ejected_though_it_answers_requests() {
    let upstream = Upstream::start();
    let gateway = TestGateway::with(
        OPEN,
        |spec| spec.health = Some(health("/503")),
        &[upstream.port],
    );
    wait("it is out", || {
        assert_eq!(gateway.get("/").status, 200);
        !is_up(&gateway, upstream.port)
    });
}

#[test]
fn a_good_answer_that_ends_the_connection_is_a_good_answer() {
    let upstream = Upstream::start();
    let gateway = TestGateway::with(
        OPEN,
        |spec| spec.health = Some(strict("/once")),
        &[upstream.port],
    );
    wait("it was asked often", || upstream.count() > 30);
    assert!(is_up(&gateway, upstream.port));
}

#[test]
fn the_same_over_http_2() {
    let upstream = Http2Upstream::that_ends_connections();
    let change = |spec: &mut tollgate_config::UpstreamSpec| {
        spec.protocol = Protocol::Http2;
        spec.health = Some(strict("/healthz"));
    };
    let gateway = TestGateway::with(OPEN, change, &[upstream.port]);
    wait("it was asked often", || upstream.seen().len() > 30);
    assert!(is_up(&gateway, upstream.port));
}

#[test]
fn a_server_that_breaks_off_does_not_draw_the_requests() {
    let (good, port) = (Upstream::start(), breaks_off());
    let gateway = Arc::new(TestGateway::with(OPEN, |_| (), &[port, good.port]));
    let broken = broken_of_sixty(&gateway);
    assert!((1..=6).contains(&broken), "{broken} of 60");
}
