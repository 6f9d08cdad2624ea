//! Frames: their sizes, their numbers, their order.

use super::raw::*;
use crate::client::Server;

const POLICY: &str = "default: pass\n";

#[tokio::test]
async fn a_call_is_answered_at_every_split_of_its_bytes() {
    let server = Server::start(POLICY).await;
    let mut whole = PREFACE.to_vec();
    whole.extend(frame(SETTINGS, 0, 0, &[]));
    whole.extend(call(1));
    whole.extend(call(3));
    for piece in [1, 2, 7, 10, 64, 1_000] {
        let mut raw = Raw::silent(&server).await;
        for bytes in whole.chunks(piece) {
            raw.send(bytes).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(raw.answer(1).await.response().overall_code, 1);
        assert_eq!(raw.answer(3).await.response().overall_code, 1);
    }
}

#[tokio::test]
async fn a_client_that_waits_for_our_settings_gets_them() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::silent(&server).await;
    raw.send(PREFACE).await;
    let settings = raw.next().await.unwrap();
    assert_eq!((settings.kind, settings.flags), (SETTINGS, 0));
    raw.send(&frame(SETTINGS, 0, 0, &[])).await;
    raw.send(&frame(SETTINGS, ACK, 0, &[])).await;
    raw.send(&call(1)).await;
    assert_eq!(raw.answer(1).await.status, Some(0));
}

#[tokio::test]
async fn bytes_that_are_not_http_2_close_the_connection() {
    let server = Server::start(POLICY).await;
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                   Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    for other in [
        upgrade,
        "GET / HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r!",
        "\u{16}\u{3}\u{1}",
    ] {
        let mut raw = Raw::silent(&server).await;
        raw.send(other.as_bytes()).await;
        assert_eq!(raw.next().await, None, "{other:?}");
    }
}

#[tokio::test]
async fn a_frame_that_is_too_large_ends_the_connection() {
    let server = Server::start(POLICY).await;
    let large = vec![0; 16_385];
    for kind in [DATA, HEADERS, SETTINGS, 99] {
        let mut bytes = frame(HEADERS, WHOLE, 1, &call_head());
        bytes.extend(frame(kind, 0, 1, &large));
        assert_eq!(ends(&server, &bytes).await, Some(FRAME_SIZE), "{kind}");
    }
}

#[tokio::test]
async fn frames_of_a_fixed_size_are_checked() {
    let server = Server::start(POLICY).await;
    let open = frame(HEADERS, WHOLE, 1, &call_head());
    for wrong in [
        frame(PING, 0, 0, &[0; 7]),
        frame(PING, ACK, 0, &[0; 9]),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(SETTINGS, ACK, 0, &[0; 6]),
        frame(WINDOW, 0, 0, &[0; 3]),
        frame(RESET, 0, 1, &[0; 5]),
        frame(GOAWAY, 0, 0, &[0; 7]),
        frame(PRIORITY, 0, 3, &[0; 4]),
    ] {
        let bytes = [open.clone(), wrong.clone()].concat();
        assert_eq!(ends(&server, &bytes).await, Some(FRAME_SIZE), "{wrong:?}");
    }
    // Of a call that has begun it is the call's mistake.
    let bytes = [open, frame(PRIORITY, 0, 1, &[0; 4])].concat();
    assert_eq!(ends_call(&server, &bytes).await.reset, Some(FRAME_SIZE));
}

#[tokio::test]
async fn frames_on_the_wrong_stream_end_the_connection() {
    let server = Server::start(POLICY).await;
    let open = frame(HEADERS, WHOLE, 1, &call_head());
    for wrong in [
        frame(DATA, 0, 0, b"a"),
        frame(HEADERS, WHOLE, 0, &call_head()),
        frame(PRIORITY, 0, 0, &[0; 5]),
        frame(RESET, 0, 0, &[0; 4]),
        frame(SETTINGS, 0, 1, &[]),
        frame(PING, 0, 1, &[0; 8]),
        frame(GOAWAY, 0, 1, &[0; 8]),
        frame(CONTINUATION, WHOLE, 1, &[]),
        frame(PROMISE, WHOLE, 1, &[0, 0, 0, 2]),
        setting(2, 2),
        setting(5, 16_383),
        setting(5, 16_777_216),
    ] {
        let bytes = [open.clone(), wrong.clone()].concat();
        assert_eq!(ends(&server, &bytes).await, Some(PROTOCOL), "{wrong:?}");
    }
}

#[tokio::test]
async fn settings_come_first() {
    let server = Server::start(POLICY).await;
    for first in [
        call(1),
        frame(PING, 0, 0, &[0; 8]),
        frame(SETTINGS, ACK, 0, &[]),
    ] {
        let mut raw = Raw::silent(&server).await;
        raw.send(PREFACE).await;
        raw.send(&first).await;
        assert_eq!(raw.goodbye().await, Some(PROTOCOL), "{first:?}");
    }
}

#[tokio::test]
async fn frames_of_an_idle_stream_end_the_connection() {
    let server = Server::start(POLICY).await;
    for wrong in [
        frame(DATA, END, 3, b"a"),
        frame(DATA, END, 2, b"a"),
        window(3, 1),
        reset(3),
        reset(2),
    ] {
        let bytes = [call(1), wrong.clone()].concat();
        assert_eq!(ends(&server, &bytes).await, Some(PROTOCOL), "{wrong:?}");
    }
}

#[tokio::test]
async fn late_frames_of_a_closed_stream_are_ignored() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::with(&server, &call(5)).await;
    assert_eq!(raw.answer(5).await.status, Some(0));
    raw.send(&[window(5, 1), window(1, 1), reset(5), reset(3)].concat())
        .await;
    // Data is more than a word.
    raw.send(&frame(DATA, 0, 5, b"more")).await;
    assert_eq!(raw.answer(5).await.reset, Some(STREAM_CLOSED));
    raw.send(&call(7)).await;
    assert_eq!(raw.answer(7).await.status, Some(0));
}

#[tokio::test]
async fn streams_have_odd_numbers_that_grow() {
    let server = Server::start(POLICY).await;
    for wrong in [call(2), call(3), call(1), call(0)] {
        let bytes = [call(5), wrong].concat();
        assert_eq!(ends(&server, &bytes).await, Some(PROTOCOL));
    }
    // Some may be left out.
    let mut raw = Raw::with(&server, &[call(5), call(0x7fff_ffff)].concat()).await;
    assert_eq!(raw.answer(5).await.status, Some(0));
    assert_eq!(raw.answer(0x7fff_ffff).await.status, Some(0));
}

#[tokio::test]
async fn unknown_frames_priorities_and_pings_are_ignored() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::new(&server).await;
    raw.send(&frame(0xfa, 0xff, 77, b"what")).await;
    raw.send(&frame(PRIORITY, 0, 9, &[0; 5])).await;
    raw.send(&setting(0xabcd, 7)).await;
    raw.send(&frame(PING, 0, 0, b"12345678")).await;
    let answer = raw.next_of(PING).await;
    assert_eq!(
        (answer.flags, answer.payload.as_slice()),
        (ACK, &b"12345678"[..])
    );
    let mut prior = vec![0, 0, 0, 1, 16];
    prior.extend(call_head());
    raw.send(&frame(HEADERS, WHOLE | WITH_PRIORITY, 1, &prior))
        .await;
    raw.send(&frame(DATA, END, 1, &question())).await;
    assert_eq!(raw.answer(1).await.status, Some(0));
}

#[tokio::test]
async fn padding_is_removed_and_checked() {
    let server = Server::start(POLICY).await;
    let padded = |bytes: Vec<u8>, padding: u8| {
        let mut whole = vec![padding];
        whole.extend(bytes);
        whole.extend(vec![0; usize::from(padding)]);
        whole
    };
    let bytes = [
        frame(HEADERS, WHOLE | PADDED, 1, &padded(call_head(), 200)),
        frame(DATA, PADDED, 1, &padded(question(), 255)),
        frame(DATA, PADDED | END, 1, &[0]),
    ];
    let mut raw = Raw::with(&server, &bytes.concat()).await;
    // What was padding may come again.
    let more = raw.next_of(WINDOW).await;
    assert_eq!((more.stream, more.number(0)), (0, 1_048_576 - 65_535));
    let more = raw.next_of(WINDOW).await;
    assert_eq!((more.stream, more.number(0)), (1, 256));
    assert_eq!(raw.answer(1).await.status, Some(0));
    for wrong in [
        [
            frame(HEADERS, WHOLE, 1, &call_head()),
            frame(DATA, PADDED, 1, &[4, 1, 2, 3]),
        ],
        [frame(HEADERS, WHOLE | PADDED, 1, &[9, 0x83]), vec![]],
        [frame(HEADERS, WHOLE | WITH_PRIORITY, 1, &[0; 4]), vec![]],
    ] {
        assert_eq!(ends(&server, &wrong.concat()).await, Some(PROTOCOL));
    }
}
