//! Metrics of upstreams.

use std::io::Write;
use tollgate_testkit::wait;

use crate::upstream::Upstream;
use crate::world::{OPEN, World};

fn requests(world: &World) -> u64 {
    world.metric("tollgate_upstream_requests_total{upstream=\"app\"}")
}

#[test]
fn a_request_that_is_passed_on_is_counted_whatever_becomes_of_it() {
    let upstream = Upstream::start();
    let world = World::before(OPEN, upstream.port);
    assert_eq!(requests(&world), 0);
    assert_eq!(world.get("/").status, 200);
    assert_eq!(world.get("/close").status, 502);
    assert_eq!(requests(&world), 2);
    // Also while nobody knows yet.
    let mut hangs = world.connect();
    hangs
        .write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait("it is there", || upstream.count() == 3);
    assert_eq!(requests(&world), 3);
}

#[test]
fn what_is_refused_is_not_passed_on_and_what_is_tried_twice_counts_twice() {
    let upstream = Upstream::start();
    let nobody = {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap().port()
    };
    let policy = "default: pass\nlimits:\n  - { name: all, allow: 1/h, burst: 1 }\n";
    let world = World::with(policy, |spec| spec.retries = 1, &[nobody, upstream.port]);
    assert_eq!(world.get("/").status, 200);
    assert_eq!(world.get("/").status, 429);
    assert_eq!((requests(&world), upstream.count()), (2, 1));
}
