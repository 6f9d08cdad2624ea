//! Unserved requests cost nothing, and errors and delays of clients do not count as those of the server.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tollgate_testkit::wait;

use crate::support::{TestGateway, pause, reply};
use crate::upstream::Upstream;

const IN_FLIGHT: &str = "tollgate_queue_in_flight_requests{queue=\"q\"}";
const WAITING: &str = "tollgate_queue_waiting_requests{queue=\"q\"}";
const AT_ONCE: &str = "tollgate_queue_concurrency_limit{queue=\"q\"}";

/// Three an hour, and one at a time.
const THREE: &str = "\
default: pass
limits:
  - { name: all, key: ip, allow: 3/h, burst: 3 }
queues:
  - { name: q, at_once: 1, max_wait: 50ms }
";

#[test]
fn a_request_rejected_by_a_queue_is_not_charged() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(THREE, upstream.port);
    let mut hangs = gateway.connect();
    hangs
        .write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait("it is in flight", || gateway.metric(IN_FLIGHT) == 1);
    let statuses: Vec<_> = (0..6).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses, [503; 6]);
    drop(hangs);
    wait("it is over", || gateway.metric(IN_FLIGHT) == 0);
    let statuses: Vec<_> = (0..3).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 429], "the first one was served");
}

#[test]
fn a_client_that_leaves_the_queue_is_not_charged() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&THREE.replace("50ms", "30s"), upstream.port);
    let mut hangs = gateway.connect();
    hangs
        .write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait("it is in flight", || gateway.metric(IN_FLIGHT) == 1);
    for _ in 0..4 {
        let mut leaves = gateway.connect();
        leaves
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        wait("it waits", || gateway.metric(WAITING) == 1);
        drop(leaves);
        wait("it has left", || gateway.metric(WAITING) == 0);
    }
    drop(hangs);
    wait("it is over", || gateway.metric(IN_FLIGHT) == 0);
    let statuses: Vec<_> = (0..3).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 429], "the first one was served");
}

#[test]
fn slow_uploads_do_not_lower_the_limit_of_a_fast_server() {
    let upstream = Upstream::start();
    let policy = "\
default: pass
limits:
  - { name: all, allow: 1000000/s, burst: 1000000 }
queues:
  - name: q
    at_once: { adaptive: gradient2, min: 1, max: 50, initial: 20, timeout: 1s }
    max_wait: 30s
";
    let gateway = TestGateway::before(policy, upstream.port);
    let is_over = AtomicBool::new(false);
    let dribble = || {
        for _ in 0..3 {
            let mut stream = gateway.connect();
            let head = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n";
            stream.write_all(head).unwrap();
            for _ in 0..12 {
                stream.write_all(b"a").unwrap();
                pause(200);
            }
            assert_eq!(reply(&mut stream).status, 200);
        }
    };
    let mut least = u64::MAX;
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..3).map(|_| scope.spawn(dribble)).collect();
        scope.spawn(|| {
            slow.into_iter().for_each(|slow| slow.join().unwrap());
            is_over.store(true, Relaxed);
        });
        while !is_over.load(Relaxed) {
            assert_eq!(gateway.get("/").status, 200);
            least = least.min(gateway.metric(AT_ONCE));
            pause(40);
        }
    });
    assert!(least >= 15, "it fell to {least}");
}
