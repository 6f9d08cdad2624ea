//! Bounds on connections by address.

use std::io::Read;
use std::net::TcpStream;
use tollgate_testkit::wait;

use crate::upstream::Upstream;
use crate::world::{World, reply};

fn world(accept: &str, more: &str, port: u16) -> World {
    let policy = format!("default: pass\n{more}gateway:\n  accept: {{ {accept} }}\n");
    World::before(&policy, port)
}

/// Closed at once, without an answer.
fn is_closed(mut stream: TcpStream) -> bool {
    !matches!(stream.read(&mut [0]), Ok(1))
}

fn rejected(world: &World, why: &str) -> u64 {
    world.metric(&format!(
        "tollgate_rejected_connections_total{{reason=\"{why}\"}}"
    ))
}

#[test]
fn one_address_has_so_many_connections_and_gets_them_back() {
    let upstream = Upstream::start();
    let world = world("per_address: 2", "", upstream.port);
    let mut first = world.send("/", "");
    let mut second = world.send("/", "");
    assert_eq!(reply(&mut first).status, 200);
    assert_eq!(reply(&mut second).status, 200);
    assert!(is_closed(world.connect()));
    assert!(is_closed(world.connect()));
    assert_eq!(rejected(&world, "too-many"), 2);
    drop(first);
    wait("there is room again", || {
        use std::io::Write;
        let mut stream = world.connect();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        matches!(stream.read(&mut [0]), Ok(1))
    });
}

#[test]
fn one_address_connects_only_so_fast() {
    let upstream = Upstream::start();
    let world = world("rate: 1/h, burst: 3", "", upstream.port);
    for _ in 0..3 {
        assert_eq!(world.get("/").status, 200);
    }
    assert!(is_closed(world.connect()));
    assert_eq!(rejected(&world, "too-fast"), 1);
    assert_eq!(upstream.count(), 3);
}

#[test]
fn a_trusted_proxy_is_not_counted_by_its_address() {
    let upstream = Upstream::start();
    let trusted = "trusted_proxies: [127.0.0.1/32]\n";
    let world = world(
        "per_address: 1, rate: 1/h, burst: 1",
        trusted,
        upstream.port,
    );
    let mut open: Vec<_> = (0..10).map(|_| world.send("/", "")).collect();
    for stream in &mut open {
        assert_eq!(reply(stream).status, 200);
    }
    assert_eq!(rejected(&world, "too-many"), 0);
    assert_eq!(rejected(&world, "too-fast"), 0);
}
