//! Faults of the proxy that last, and connections without faults.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use redis::Value;
use tollgate_testkit::proxy::{Faults, Link, Proxy, Slices};
use tollgate_testkit::servers::{Access, Kind, Plan, Server};
use tollgate_testkit::wait::{Check, now, wait_for};

use crate::proxy::client::{
    RawClient, StreamEnd, millis, server_and_proxy, server_and_proxy_of, stopwatch,
};

#[test]
fn without_faults_everything_passes_and_is_counted() {
    for kind in Kind::ALL {
        let (server, proxy) = server_and_proxy_of(kind);
        let mut client = RawClient::connect(&proxy);
        client.ask("SET a 1", "+OK\r\n");
        client.ask("GET a", "$1\r\n1\r\n");
        assert_eq!(server.ask_text(&["GET", "a"]).unwrap(), "1");
        let seen = proxy.observed();
        assert_eq!((seen.connections, seen.open), (1, 1));
        assert_eq!((seen.commands, seen.replies, seen.pushes), (2, 2, 0));
        assert_eq!(seen.connected_at.len(), 1);
        drop(client);
        wait_for("the connection is gone", millis(5000), String::new, || {
            Ok(match proxy.observed().open {
                0 => Check::Ready(()),
                open => Check::Pending(format!("{open} open")),
            })
        })
        .unwrap();
        let seen = proxy.observed();
        assert_eq!((seen.bytes_to_server, seen.bytes_to_client), (27 + 20, 12));
    }
}

#[test]
fn without_faults_nothing_is_delayed() {
    let (_server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    let start = now();
    for _ in 0..2_000 {
        client.send("PING");
    }
    for _ in 0..2_000 {
        client.expect("+PONG\r\n");
    }
    // A millisecond for each of them would be two seconds each direction.
    assert!(start.elapsed() < millis(1_500), "{:?}", start.elapsed());
}

#[test]
fn a_connection_stays_with_its_server_when_the_address_moves() {
    let (first, proxy) = server_and_proxy();
    let second = Server::start(Kind::Redis, &[]).unwrap();
    first.ask(&["SET", "who", "1"]).unwrap();
    second.ask(&["SET", "who", "2"]).unwrap();
    let mut old = RawClient::connect(&proxy);
    old.ask("GET who", "$1\r\n1\r\n");
    proxy.set_upstream(second.port());
    RawClient::connect(&proxy).ask("GET who", "$1\r\n2\r\n");
    old.ask("GET who", "$1\r\n1\r\n");
}

#[test]
fn a_library_that_shakes_hands_works_through_the_proxy_with_tls_too() {
    let server = Plan::new(Kind::Redis)
        .tls()
        .password("secret")
        .start()
        .unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let through = Access {
        port: proxy.port(),
        ..server.access().clone()
    };
    assert_eq!(through.ask(&["SET", "a", "1"]).unwrap(), Value::Okay);
    assert_eq!(proxy.observed().replies, 0, "TLS hides replies");
}

#[tokio::test]
async fn a_proxy_works_within_a_runtime_and_faults_without_end_do_no_harm() {
    let (_server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    let never = Link {
        latency: Duration::MAX,
        jitter: Duration::MAX,
        slow_close: Duration::MAX,
        ..Link::default()
    };
    proxy.set(Faults::both(never)).unwrap();
    client.send("PING");
    client.expect_silence(millis(50));
    proxy.set(Faults::none()).unwrap();
    client.expect("+PONG\r\n");
    proxy.timeline(vec![(Duration::MAX, Faults::black_hole())]);
    client.ask("PING", "+PONG\r\n");
}

#[test]
fn a_large_reply_passes_whole() {
    let (server, proxy) = server_and_proxy();
    let value = "x".repeat(20 << 20);
    server.ask(&["SET", "large", &value]).unwrap();
    let through = Access::plain(proxy.port());
    assert_eq!(
        through.ask(&["GET", "large"]).unwrap(),
        Value::BulkString(value.into_bytes())
    );
}

#[test]
fn latency_delays_either_direction() {
    let (_server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    client.ask("PING", "+PONG\r\n");
    let link = Link::latency(millis(60));
    let clear = Link::default();
    for (to_server, to_client, least) in [(link, clear, 60), (clear, link, 60), (link, link, 120)] {
        let faults = Faults {
            to_server,
            to_client,
            ..Faults::none()
        };
        proxy.set(faults).unwrap();
        let start = stopwatch();
        client.ask("PING", "+PONG\r\n");
        let took = start.elapsed();
        assert!(took >= millis(least), "{took:?}, at least {least} ms");
    }
}

#[test]
fn jitter_differs_from_reply_to_reply_and_nothing_overtakes() {
    let (_server, proxy) = server_and_proxy();
    proxy
        .set(Faults {
            to_client: Link {
                jitter: millis(40),
                ..Link::default()
            },
            ..Faults::none()
        })
        .unwrap();
    let mut client = RawClient::connect(&proxy);
    let mut took = Vec::new();
    for number in 0..20 {
        let text = format!("{number:02}");
        let start = stopwatch();
        client.ask(&format!("ECHO {text}"), &format!("$2\r\n{text}\r\n"));
        took.push(start.elapsed());
    }
    let (least, most) = (took.iter().min().unwrap(), took.iter().max().unwrap());
    // Twenty draws that all lie within a quarter of the range: once in ten billion.
    assert!(*most - *least > millis(10), "{took:?}");
    for number in 10..60 {
        client.send(&format!("ECHO {number}"));
    }
    for number in 10..60 {
        client.expect(&format!("$2\r\n{number}\r\n"));
    }
}

#[test]
fn a_narrow_lane_takes_its_time() {
    let (server, proxy) = server_and_proxy();
    server.ask(&["SET", "a", &"x".repeat(20_000)]).unwrap();
    proxy
        .set(Faults {
            to_client: Link {
                bytes_per_second: NonZeroU64::new(50_000),
                ..Link::default()
            },
            ..Faults::none()
        })
        .unwrap();
    let mut client = RawClient::connect(&proxy);
    let start = stopwatch();
    client.send("GET a");
    client.read(20_000);
    let took = start.elapsed();
    assert!((millis(350)..millis(3000)).contains(&took), "{took:?}");
}

#[test]
fn slices_arrive_one_by_one() {
    let (_server, proxy) = server_and_proxy();
    let slices = NonZeroUsize::new(2).map(|bytes| Slices {
        bytes,
        pause: millis(20),
    });
    proxy
        .set(Faults::both(Link {
            slices,
            ..Link::default()
        }))
        .unwrap();
    let mut client = RawClient::connect(&proxy);
    client.send("PING");
    let start = stopwatch();
    let sizes: Vec<usize> = (0..4).map(|_| client.read_some()).collect();
    assert_eq!(sizes, [2, 2, 2, 1]);
    // The command has 14 bytes, so six pauses; the reply has three.
    assert!(start.elapsed() >= millis(9 * 20), "{:?}", start.elapsed());
}

#[test]
fn a_reply_that_falls_into_a_hole_was_earned_and_comes_late() {
    let (server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    client.ask("PING", "+PONG\r\n");
    proxy
        .set(Faults {
            to_client: Link::black_hole(),
            ..Faults::none()
        })
        .unwrap();
    client.send("INCR a");
    client.expect_silence(millis(150));
    assert_eq!(server.ask_text(&["GET", "a"]).unwrap(), "1");
    assert_eq!(proxy.observed().replies, 2);
    proxy.set(Faults::none()).unwrap();
    client.expect(":1\r\n");
}

#[test]
fn a_command_that_falls_into_a_hole_runs_when_the_hole_closes() {
    let (server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    proxy
        .set(Faults {
            to_server: Link::black_hole(),
            ..Faults::none()
        })
        .unwrap();
    client.send("INCR a");
    client.expect_silence(millis(150));
    assert_eq!(server.ask(&["GET", "a"]).unwrap(), Value::Nil);
    proxy.set(Faults::none()).unwrap();
    client.expect(":1\r\n");
}

#[test]
fn a_hole_swallows_a_close_too() {
    let (server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    client.ask("PING", "+PONG\r\n");
    proxy.set(Faults::black_hole()).unwrap();
    server.kill();
    client.expect_silence(millis(150));
    // A new connection gets no bytes either, although the server is alive.
    server.restart().unwrap();
    let mut other = RawClient::connect(&proxy);
    other.send("PING");
    other.expect_silence(millis(100));
    proxy.set(Faults::none()).unwrap();
    other.expect("+PONG\r\n");
    client.end();
}

#[test]
fn new_connections_are_refused_and_existing_ones_are_not() {
    let (_server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    for _ in 0..3 {
        proxy
            .set(Faults {
                refuse: true,
                ..Faults::none()
            })
            .unwrap();
        let refused = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        client.ask("PING", "+PONG\r\n");
        proxy.set(Faults::none()).unwrap();
        RawClient::connect(&proxy).ask("PING", "+PONG\r\n");
    }
    assert_eq!(proxy.observed().connections, 4);
}

#[test]
fn a_slow_close_comes_after_everything_else() {
    let (_server, proxy) = server_and_proxy();
    proxy
        .set(Faults {
            to_client: Link {
                slow_close: millis(200),
                ..Link::default()
            },
            ..Faults::none()
        })
        .unwrap();
    let mut client = RawClient::connect(&proxy);
    let start = stopwatch();
    client.ask("QUIT", "+OK\r\n");
    let answered = start.elapsed();
    assert_eq!(client.end(), StreamEnd::Closed);
    assert!(answered < millis(200), "{answered:?}");
    assert!(start.elapsed() >= millis(200), "{:?}", start.elapsed());
}

#[test]
fn new_faults_apply_at_once_to_bytes_in_flight() {
    let (_server, proxy) = server_and_proxy();
    proxy
        .set(Faults::both(Link::latency(millis(60_000))))
        .unwrap();
    let mut client = RawClient::connect(&proxy);
    client.send("PING");
    client.expect_silence(millis(100));
    proxy.set(Faults::none()).unwrap();
    client.expect("+PONG\r\n");
}

#[test]
fn a_script_changes_the_faults_until_it_ends_or_another_is_set() {
    let (_server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    client.ask("PING", "+PONG\r\n");
    let start = stopwatch();
    proxy.timeline(vec![
        (millis(0), Faults::both(Link::latency(millis(60_000)))),
        (millis(100), Faults::black_hole()),
        (millis(250), Faults::none()),
    ]);
    client.expect_silence(millis(50));
    assert!(!proxy.timeline_is_over());
    client.ask("PING", "+PONG\r\n");
    assert!(start.elapsed() >= millis(250), "{:?}", start.elapsed());
    assert!(proxy.timeline_is_over());
    proxy.timeline(vec![(millis(100), Faults::black_hole())]);
    proxy.set(Faults::none()).unwrap();
    client.expect_silence(millis(200));
    client.ask("PING", "+PONG\r\n");
}

#[test]
fn a_new_connection_to_a_dead_server_is_reset() {
    let (server, proxy) = server_and_proxy();
    server.kill();
    assert_eq!(RawClient::connect(&proxy).end(), StreamEnd::Reset);
    server.restart().unwrap();
    RawClient::connect(&proxy).ask("PING", "+PONG\r\n");
}
