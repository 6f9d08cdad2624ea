//! Statistics of a server.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tollgate_testkit::wait;

use crate::support::{OPEN, TestGateway, pause, reply};
use crate::upstream::Upstream;

/// Answers, failures, and the time of all answers together.
fn observed(gateway: &TestGateway) -> (u64, u64, Duration) {
    let all = gateway.started.observed.upstreams();
    let (_, seen) = &all[0];
    let time = Duration::from_nanos(seen.latency_ns.load(Relaxed));
    (seen.answers.load(Relaxed), seen.failed.load(Relaxed), time)
}

#[test]
fn a_hanging_server_is_measured_though_its_clients_give_up() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    for _ in 0..4 {
        let mut stream = gateway.connect();
        stream
            .write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        pause(300);
    }
    wait("four were given up", || observed(&gateway).0 == 4);
    let (_, failed, time) = observed(&gateway);
    assert_eq!(failed, 0, "whose fault it was is not known");
    assert!(time >= Duration::from_millis(1000), "{time:?}");
}

#[test]
fn upload_time_is_not_server_latency() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
        .unwrap();
    for _ in 0..5 {
        pause(200);
        stream.write_all(b"a").unwrap();
    }
    assert_eq!(reply(&mut stream).status, 200);
    let (answers, _, time) = observed(&gateway);
    assert_eq!(answers, 1);
    assert!(time < Duration::from_millis(500), "{time:?}");
}

#[test]
fn an_abandoned_upload_is_no_measurement_of_the_server() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\na")
        .unwrap();
    wait("it is on its way", || upstream.open() == 1);
    pause(300);
    drop(stream);
    wait("it is given up", || upstream.open() == 0);
    assert_eq!(observed(&gateway), (0, 0, Duration::ZERO));
}
