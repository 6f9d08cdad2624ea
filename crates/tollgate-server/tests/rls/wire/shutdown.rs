//! The end of connections: missing prefaces, idle clients, shutdowns, keepalive pings.

use std::time::Duration;

use tokio::time::Instant;

use super::raw::*;
use crate::client::Server;

const POLICY: &str = "default: pass\n";

#[tokio::test]
async fn a_client_without_a_preface_is_dropped() {
    let server = Server::start(POLICY).await;
    let begun = Instant::now();
    let mut silent = Raw::silent(&server).await;
    let mut half = Raw::silent(&server).await;
    half.send(&PREFACE[..10]).await;
    let mut without_settings = Raw::silent(&server).await;
    without_settings.send(PREFACE).await;
    assert_eq!(silent.next().await, None);
    assert_eq!(half.next().await, None);
    assert_eq!(without_settings.goodbye().await, None);
    let took = begun.elapsed();
    assert!((4..9).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test]
async fn an_idle_client_is_kept() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::new(&server).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    raw.send(&call(1)).await;
    assert_eq!(raw.answer(1).await.status, Some(0));
}

#[tokio::test]
async fn a_shutdown_sends_goaway_and_answers_earlier_calls() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::with(&server, &call(1)).await;
    assert_eq!(raw.answer(1).await.status, Some(0));
    server.stop.send(true).unwrap();
    let goaway = raw.next_of(GOAWAY).await;
    assert_eq!(
        (goaway.number(0), goaway.number(4)),
        (0x7fff_ffff, NO_ERROR)
    );
    let asked = raw.next_of(PING).await;
    raw.send(&call(3)).await;
    assert_eq!(raw.answer(3).await.status, Some(0));
    // A call that is not at its end is waited for; one that comes later is not begun.
    raw.send(&frame(HEADERS, WHOLE, 5, &call_head())).await;
    raw.send(&frame(PING, ACK, 0, &asked.payload)).await;
    let goaway = raw.next_of(GOAWAY).await;
    assert_eq!((goaway.number(0), goaway.number(4)), (5, NO_ERROR));
    raw.send(&call(7)).await;
    assert_eq!(raw.answer(7).await.reset, Some(REFUSED));
    raw.send(&frame(DATA, END, 5, &question())).await;
    assert_eq!(raw.answer(5).await.status, Some(0));
    assert_eq!(raw.goodbye().await, None);
}

#[tokio::test]
async fn a_client_that_does_not_acknowledge_goaway_does_not_delay_the_shutdown() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::with(&server, &call(1)).await;
    assert_eq!(raw.answer(1).await.status, Some(0));
    let begun = Instant::now();
    server.stop.send(true).unwrap();
    assert_eq!(raw.goodbye().await, Some(NO_ERROR));
    assert!(begun.elapsed() < Duration::from_secs(4));
}

/// Time that runs when nothing else does.
#[tokio::test(start_paused = true)]
async fn keepalive_pings_are_sent_every_minute() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::new(&server).await;
    let begun = Instant::now();
    for _ in 0..3 {
        let asked = raw.next_of(PING).await;
        assert_eq!(asked.flags, 0);
        raw.send(&frame(PING, ACK, 0, &asked.payload)).await;
    }
    let took = begun.elapsed();
    assert!((175..190).contains(&took.as_secs()), "{took:?}");
    // Now it says nothing.
    assert_eq!(raw.next_of(PING).await.flags, 0);
    assert_eq!(raw.next().await, None);
    let took = begun.elapsed();
    assert!((245..260).contains(&took.as_secs()), "{took:?}");
}
