//! Flow-control windows: the server keeps its own wide, and respects those of the client.

use super::raw::*;
use crate::client::Server;

const POLICY: &str = "default: pass\nlimits: [{ name: a-limit-with-a-name, match: { domain: edge }, allow: 1000000/s }]\n";

#[tokio::test]
async fn an_answer_waits_for_the_window_of_its_call() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::with(&server, &[setting(4, 0), call(1)].concat()).await;
    // Its head needs no room.
    assert_eq!(raw.next_of(HEADERS).await.stream, 1);
    raw.send(&frame(PING, 0, 0, &[7; 8])).await;
    assert_eq!(raw.next_of(PING).await.flags, ACK);
    for _ in 0..3 {
        raw.send(&window(1, 2)).await;
        let piece = raw.next_of(DATA).await;
        assert_eq!((piece.stream, piece.payload.len()), (1, 2));
    }
    // Room for all calls is room for this one.
    raw.send(&setting(4, 1_000)).await;
    let answer = raw.answer(1).await;
    assert_eq!(answer.status, Some(0));
    assert!(!answer.data.is_empty());
}

#[tokio::test]
async fn answers_wait_for_the_window_of_the_connection_and_lose_nothing() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::with(&server, &setting(4, 0x7fff_ffff)).await;
    let calls = 900_u32;
    let mut sent = Vec::new();
    for number in 0..calls {
        sent.extend(call(number * 2 + 1));
    }
    raw.send(&sent).await;
    let (mut data, mut ends, mut wide) = (0, 0, 65_535_usize);
    while ends < calls {
        let next = raw.next().await.unwrap();
        match (next.kind, next.flags & END) {
            (DATA, _) => data += next.payload.len(),
            (HEADERS, END) => ends += 1,
            (GOAWAY | RESET, _) => panic!("{next:?}"),
            _ => {}
        }
        assert!(data <= wide, "{data} of {wide}");
        if data == wide {
            wide += 1_000;
            raw.send(&window(0, 1_000)).await;
        }
    }
    assert!(data > 65_535, "{data} was no test");
}

#[tokio::test]
async fn a_window_update_is_positive_and_bounded() {
    let server = Server::start(POLICY).await;
    let open = frame(HEADERS, WHOLE, 1, &call_head());
    for (wrong, code) in [
        (window(0, 0), PROTOCOL),
        (window(0, 0x7fff_ffff), FLOW_CONTROL),
    ] {
        assert_eq!(ends(&server, &wrong).await, Some(code));
    }
    for (wrong, code) in [
        (window(1, 0), PROTOCOL),
        (window(1, 0x7fff_ffff), FLOW_CONTROL),
    ] {
        let bytes = [open.clone(), wrong].concat();
        assert_eq!(ends_call(&server, &bytes).await.reset, Some(code));
    }
    assert_eq!(
        ends(&server, &setting(4, 0x8000_0000)).await,
        Some(FLOW_CONTROL)
    );
    // A wide window that all of them make wider.
    let wide = [open, window(1, 0x7fff_0000), setting(4, 0x7fff_ffff)].concat();
    assert_eq!(ends(&server, &wide).await, Some(FLOW_CONTROL));
}

#[tokio::test]
async fn a_client_that_sends_much_gets_window_updates() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::new(&server).await;
    let settings = raw.next_of(SETTINGS).await.payload;
    assert!(
        settings.windows(6).any(|s| s == [0, 3, 0, 0, 3, 232]),
        "1000 calls"
    );
    assert!(
        settings.windows(6).any(|s| s == [0, 4, 0, 1, 0, 0]),
        "64 KiB for each"
    );
    let mut room = 65_535 + raw.next_of(WINDOW).await.number(0);
    assert_eq!(room, 1_048_576);
    // Three times as much as the window is wide.
    let body = message(&[0x78, 0x01].repeat(8_000));
    let size = u32::try_from(body.len()).unwrap();
    for stream in (0..200_u32).map(|number| number * 2 + 1) {
        assert!(room >= size, "nothing came back");
        raw.send(&frame(HEADERS, WHOLE, stream, &call_head())).await;
        raw.send(&frame(DATA, END, stream, &body)).await;
        room -= size;
        loop {
            let next = raw.next().await.unwrap();
            if next.kind == WINDOW {
                room += next.number(0);
            }
            if next.stream == stream && next.flags & END != 0 {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_stream_of_answers_waits_for_its_window() {
    let server = Server::start(POLICY).await;
    let ask = [0x3a, 0];
    let bytes = [
        setting(4, 10),
        frame(
            HEADERS,
            WHOLE,
            1,
            &head(
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                &[],
            ),
        ),
        // What services there are, twice.
        frame(DATA, 0, 1, &message(&ask)),
        frame(DATA, END, 1, &message(&ask)),
    ];
    let mut raw = Raw::with(&server, &bytes.concat()).await;
    assert_eq!(raw.next_of(DATA).await.payload.len(), 10);
    raw.send(&[window(1, 50), window(1, 60_000)].concat()).await;
    let answer = raw.answer(1).await;
    assert_eq!(answer.status, Some(0));
    let name = b"envoy.service.ratelimit.v3.RateLimitService";
    let found = answer
        .data
        .windows(name.len())
        .filter(|w| w == name)
        .count();
    assert!(found >= 1, "{found}");
}
