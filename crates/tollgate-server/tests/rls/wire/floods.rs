//! Floods of frames that cost their sender little.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::raw::*;
use crate::client::{Server, edge, of};

const POLICY: &str = "default: pass\n";

async fn others_notice_nothing(server: &Server) {
    assert!(server.ask(edge(&[of(&[("k", "v")])])).await.is_ok());
}

#[tokio::test]
async fn at_most_a_thousand_calls_are_in_flight() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::new(&server).await;
    for number in 0..1_001_u32 {
        raw.send(&frame(HEADERS, WHOLE, number * 2 + 1, &call_head()))
            .await;
    }
    assert_eq!(raw.answer(2_001).await.reset, Some(REFUSED));
    // The others are not disturbed, and make room for further ones.
    for number in [0_u32, 999] {
        let stream = number * 2 + 1;
        raw.send(&frame(DATA, END, stream, &question())).await;
        assert_eq!(raw.answer(stream).await.status, Some(0));
    }
    raw.send(&call(2_003)).await;
    assert_eq!(raw.answer(2_003).await.status, Some(0));
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::new(&server).await;
    for stream in (0..2_000_u32).map(|number| number * 2 + 1) {
        let bytes = [frame(HEADERS, WHOLE, stream, &call_head()), reset(stream)].concat();
        if !raw.try_send(&bytes).await {
            break;
        }
    }
    assert_eq!(raw.goodbye().await, Some(CALM));
    others_notice_nothing(&server).await;
}

#[tokio::test]
async fn calls_that_provoke_resets_end_the_connection() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::new(&server).await;
    for stream in (0..2_000_u32).map(|number| number * 2 + 1) {
        let bytes = [
            frame(HEADERS, WHOLE, stream, &call_head()),
            window(stream, 0),
        ]
        .concat();
        if !raw.try_send(&bytes).await {
            break;
        }
    }
    assert_eq!(raw.goodbye().await, Some(CALM));
}

#[tokio::test]
async fn a_thousand_empty_frames_end_the_connection() {
    let server = Server::start(POLICY).await;
    for nothing in [
        frame(DATA, 0, 1, &[]),
        frame(PRIORITY, 0, 1, &[0; 5]),
        frame(SETTINGS, 0, 0, &[]),
        frame(99, 0, 0, &[]),
    ] {
        let mut bytes = frame(HEADERS, WHOLE, 1, &call_head());
        bytes.extend(nothing.repeat(2_000));
        assert_eq!(ends(&server, &bytes).await, Some(CALM), "{nothing:?}");
    }
    others_notice_nothing(&server).await;
}

#[tokio::test]
async fn pings_are_answered_however_many_if_the_answers_are_read() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::new(&server).await;
    for _ in 0..50 {
        raw.send(&frame(PING, 0, 0, &[1; 8]).repeat(100)).await;
        for _ in 0..100 {
            assert_eq!(raw.next_of(PING).await.flags, ACK);
        }
    }
    raw.send(&call(1)).await;
    assert_eq!(raw.answer(1).await.status, Some(0));
}

/// Pings, or whole calls, of a client that reads no answer: it is not read from, and then it is left.
#[tokio::test]
async fn a_client_that_does_not_read_is_paused_and_then_dropped() {
    let server = Server::start(POLICY).await;
    let ping = frame(PING, 0, 0, &[1; 8]).repeat(1_000);
    let mut raw = Raw::new(&server).await;
    let mut sent = 0;
    // What the system takes on both sides is a few megabytes; we add 64 KiB.
    while let Ok(true) = timeout(Duration::from_secs(2), raw.try_send(&ping)).await {
        sent += ping.len();
        assert!(sent < 100_000_000, "everything is read");
    }
    let begun = Instant::now();
    // Sending fails once the server has left.
    while timeout(Duration::from_secs(1), raw.try_send(&ping)).await != Ok(false) {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "it is never left"
        );
    }
    others_notice_nothing(&server).await;
}

#[tokio::test]
async fn memory_of_unfinished_messages_is_bounded() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::new(&server).await;
    let begun = &message(&[0; 20_000])[..16_000];
    let mut refused = 0;
    for stream in (0..100_u32).map(|number| number * 2 + 1) {
        raw.send(&frame(HEADERS, WHOLE, stream, &call_head())).await;
        raw.send(&frame(DATA, 0, stream, begun)).await;
    }
    raw.send(&frame(PING, 0, 0, &[1; 8])).await;
    loop {
        let next = raw.next().await.unwrap();
        match next.kind {
            RESET => {
                assert_eq!(next.number(0), CALM);
                refused += 1;
            }
            PING => break,
            _ => {}
        }
    }
    // A mebibyte of 16000 bytes each.
    assert_eq!(refused, 100 - 65);
    // Who has an end makes room.
    raw.send(&reset(1)).await;
    raw.send(&call(201)).await;
    assert_eq!(raw.answer(201).await.status, Some(0));
}

#[tokio::test]
async fn concurrent_calls_of_other_services_are_bounded() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::new(&server).await;
    for stream in (0..40_u32).map(|number| number * 2 + 1) {
        let watch = head("/grpc.health.v1.Health/Watch", &[]);
        raw.send(&frame(HEADERS, WHOLE, stream, &watch)).await;
        raw.send(&frame(DATA, END, stream, &message(&[]))).await;
    }
    let mut refused = 0;
    while refused < 8 {
        if let RESET = raw.next().await.unwrap().kind {
            refused += 1;
        }
    }
    // Those that matter are not among them.
    raw.send(&call(201)).await;
    assert_eq!(raw.answer(201).await.status, Some(0));
}
