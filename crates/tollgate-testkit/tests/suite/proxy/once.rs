//! Faults of the proxy that apply once, such as a reset or a dropped reply.

use redis::Value;
use tollgate_testkit::proxy::{Direction, Fault, Faults, Link, Proxy, Then};
use tollgate_testkit::servers::{Kind, Server};

use crate::proxy::client::{
    RawClient, StreamEnd, millis, server_and_proxy, server_and_proxy_of, stopwatch,
};

#[test]
fn a_reset_ends_every_connection_that_is_open_and_none_that_comes() {
    let (_server, proxy) = server_and_proxy();
    let mut clients = [RawClient::connect(&proxy), RawClient::connect(&proxy)];
    for client in &mut clients {
        client.ask("PING", "+PONG\r\n");
    }
    proxy.inject(Fault::Reset);
    for client in &mut clients {
        assert_eq!(client.end(), StreamEnd::Reset);
    }
    RawClient::connect(&proxy).ask("PING", "+PONG\r\n");
}

#[test]
fn a_reset_after_some_bytes_lets_those_pass() {
    let (_server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    proxy.set(Fault::ResetAfter { bytes: 10 }).unwrap();
    client.ask("PING", "+PONG\r\n");
    client.send("PING");
    client.expect("+PO");
    assert_eq!(client.end(), StreamEnd::Reset);
    assert_eq!(proxy.observed().injected, 1);
}

#[test]
fn a_connection_whose_reply_half_is_closed_still_carries_commands() {
    let (server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    client.ask("PING", "+PONG\r\n");
    proxy.inject(Fault::HalfClose(Direction::ToClient));
    assert_eq!(client.end(), StreamEnd::Closed);
    client.send("RPUSH a 1");
    // The server answers in turn, so once it has blocked for nothing the command has run.
    let arrived = server.ask(&["BLPOP", "a", "2"]).unwrap();
    assert!(matches!(arrived, Value::Array(_)), "{arrived:?}");
}

#[test]
fn a_connection_whose_command_half_is_closed_is_closed_by_the_server() {
    let (_server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    client.ask("PING", "+PONG\r\n");
    proxy.inject(Fault::HalfClose(Direction::ToServer));
    assert_eq!(client.end(), StreamEnd::Closed);
}

#[test]
fn a_dropped_reply_is_one_whole_reply_and_its_command_has_run() {
    for kind in Kind::ALL {
        let (server, proxy) = server_and_proxy_of(kind);
        let mut client = RawClient::connect(&proxy);
        client.ask("RPUSH list a b", ":2\r\n");
        proxy.set(Fault::DropReply).unwrap();
        client.send("LRANGE list 0 -1");
        client.expect_silence(millis(100));
        client.ask("INCR a", ":1\r\n");
        assert_eq!(server.ask_text(&["GET", "a"]).unwrap(), "1");
        let seen = proxy.observed();
        assert_eq!((seen.commands, seen.replies, seen.injected), (3, 3, 1));
    }
}

#[test]
fn a_dropped_reply_may_be_in_the_middle_of_a_pipeline() {
    let (_server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    proxy
        .set(Faults::from(Fault::DuplicateReply).and(Fault::DropReply))
        .unwrap();
    for _ in 0..3 {
        client.send("INCR a");
    }
    client.expect(":1\r\n:1\r\n:3\r\n");
}

#[test]
fn a_duplicated_reply_comes_twice_and_its_command_ran_once() {
    let (server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    proxy.inject(Fault::DuplicateReply);
    client.ask("INCR a", ":1\r\n:1\r\n");
    client.ask("PING", "+PONG\r\n");
    assert_eq!(server.ask_text(&["GET", "a"]).unwrap(), "1");
}

#[test]
fn a_truncated_reply_is_followed_by_a_close_or_by_silence() {
    let (_server, proxy) = server_and_proxy();
    for then in [Then::Close, Then::Stall] {
        let mut client = RawClient::connect(&proxy);
        client.ask("PING", "+PONG\r\n");
        proxy.inject(Fault::TruncateReply { bytes: 3, then });
        client.send("PING");
        client.expect("+PO");
        match then {
            Then::Close => assert_eq!(client.end(), StreamEnd::Closed),
            Then::Stall => {
                client.send("PING");
                client.expect_silence(millis(150));
            }
        }
        // Only that connection was injected.
        RawClient::connect(&proxy).ask("PING", "+PONG\r\n");
    }
}

#[test]
fn a_garbled_reply_differs_in_one_byte_and_the_same_seed_garbles_alike() {
    let server = Server::start(Kind::Redis, &[]).unwrap();
    let garbled = || {
        let proxy = Proxy::start_seeded(server.port(), 7).unwrap();
        assert_eq!(proxy.seed(), 7);
        let mut client = RawClient::connect(&proxy);
        proxy.inject(Fault::GarbleReply { at: 2 });
        client.send("PING");
        client.read(7)
    };
    let bytes = garbled();
    let differ = bytes.iter().zip(b"+PONG\r\n").map(|(a, b)| a != b);
    let places: Vec<bool> = differ.collect();
    assert_eq!(places, [false, false, true, false, false, false, false]);
    assert_eq!(garbled(), bytes);
}

#[test]
fn a_push_is_no_reply_and_is_not_struck() {
    let (server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    client.send("HELLO 3");
    // How long the greeting is depends on the version: it ends with an empty list of modules.
    let mut greeting = Vec::new();
    while !greeting.ends_with(b"modules\r\n*0\r\n") {
        greeting.extend(client.read(1));
    }
    client.ask("CLIENT TRACKING ON", "+OK\r\n");
    client.ask("GET a", "_\r\n");
    proxy.inject(Fault::DropReply);
    server.ask(&["SET", "a", "1"]).unwrap();
    client.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n");
    client.send("GET a");
    client.expect_silence(millis(100));
    client.ask("PING", "+PONG\r\n");
    assert_eq!(proxy.observed().pushes, 1);
}

#[test]
fn new_faults_discard_pending_injections() {
    let (_server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    proxy.set(Fault::DropReply).unwrap();
    proxy.set(Faults::none()).unwrap();
    client.ask("PING", "+PONG\r\n");
    assert_eq!(proxy.observed().injected, 0);
}

#[test]
fn an_injection_and_lasting_faults_apply_together() {
    let (_server, proxy) = server_and_proxy();
    let mut client = RawClient::connect(&proxy);
    let faults = Faults::both(Link::latency(millis(50)));
    proxy.set(faults.and(Fault::DuplicateReply)).unwrap();
    let start = stopwatch();
    client.ask("PING", "+PONG\r\n+PONG\r\n");
    assert!(start.elapsed() >= millis(100), "{:?}", start.elapsed());
}
