//! Request bodies: one complete message of the declared length.

use super::raw::*;
use crate::client::{METHOD, Server};

const POLICY: &str = "default: pass\n";

/// A call whose body comes in these pieces.
fn said(pieces: &[&[u8]]) -> Vec<u8> {
    let mut bytes = frame(HEADERS, WHOLE, 1, &call_head());
    for (number, piece) in pieces.iter().enumerate() {
        let end = if number + 1 == pieces.len() { END } else { 0 };
        bytes.extend(frame(DATA, end, 1, piece));
    }
    bytes
}

#[tokio::test]
async fn a_message_may_come_in_pieces_and_its_end_apart() {
    let server = Server::start(POLICY).await;
    let whole = question();
    for cut in 1..whole.len() {
        let (first, second) = whole.split_at(cut);
        for pieces in [
            &[first, second][..],
            &[first, second, &[]],
            &[&[], first, second],
        ] {
            assert_eq!(
                ends_call(&server, &said(pieces)).await.status,
                Some(0),
                "{cut}"
            );
        }
    }
    // Fields end a body, too.
    let mut bytes = frame(HEADERS, WHOLE, 1, &call_head());
    bytes.extend(frame(DATA, 0, 1, &whole));
    bytes.extend(frame(HEADERS, WHOLE | END, 1, &field("x-late", "1")));
    assert_eq!(ends_call(&server, &bytes).await.status, Some(0));
}

#[tokio::test]
async fn a_body_that_is_not_one_message_is_a_grpc_error() {
    let server = Server::start(POLICY).await;
    let whole = question();
    let two = [whole.clone(), whole.clone()].concat();
    let mut compressed = whole.clone();
    compressed[0] = 1;
    let mut strange = whole.clone();
    strange[0] = 2;
    for (body, status) in [
        (&[][..], 12),
        (&whole[..3], 3),
        (&whole[..whole.len() - 1], 3),
        (&two, 12),
        (&compressed, 12),
        (&strange, 13),
    ] {
        let answer = ends_call(&server, &said(&[body])).await;
        assert_eq!(
            (answer.status, answer.data.len()),
            (Some(status), 0),
            "{body:?}"
        );
    }
    // Without any body.
    let bytes = frame(HEADERS, WHOLE | END, 1, &call_head());
    assert_eq!(ends_call(&server, &bytes).await.status, Some(12));
}

#[tokio::test]
async fn the_longest_message_is_read_and_one_byte_more_is_not() {
    let server = Server::start(POLICY).await;
    let pieces = |length: usize| {
        // Field 15 is not known: its bytes are skipped.
        let mut body = vec![0x7a, 0, 0, 0];
        let text = u32::try_from(length - 4).unwrap();
        for (at, shift) in [(1, 0), (2, 7), (3, 14)] {
            let more = if at == 3 { 0 } else { 128 };
            body[at] = u8::try_from(text >> shift & 127).unwrap() | more;
        }
        body.resize(length, b'x');
        message(&body)
    };
    let longest = pieces(65_536);
    let chunks: Vec<&[u8]> = longest.chunks(16_384).collect();
    // It is read, and has no domain.
    let answer = ends_call(&server, &said(&chunks)).await;
    assert_eq!(answer.status, Some(3));
    let longer = pieces(65_537);
    let answer = ends_call(&server, &said(&[&longer[..16_384]])).await;
    assert_eq!(answer.status, Some(11));
    // Who has more to say is stopped.
    let mut raw = Raw::with(&server, &said(&[&longer[..16_384], &[]])[..]).await;
    assert_eq!(raw.answer(1).await.status, Some(11));
    assert_eq!(raw.answer(1).await.reset, Some(NO_ERROR));
}

#[tokio::test]
async fn a_body_has_its_declared_length() {
    let server = Server::start(POLICY).await;
    let whole = question();
    let right = whole.len();
    for (length, is_right) in [
        (right, true),
        (right - 1, false),
        (right + 1, false),
        (0, false),
    ] {
        let length = length.to_string();
        let block = head(METHOD, &[("content-length", &length)]);
        let bytes = [
            frame(HEADERS, WHOLE, 1, &block),
            frame(DATA, END, 1, &whole),
        ];
        let answer = ends_call(&server, &bytes.concat()).await;
        match is_right {
            true => assert_eq!(answer.status, Some(0)),
            false => assert_eq!(answer.reset, Some(PROTOCOL), "{length}"),
        }
    }
}

#[tokio::test]
async fn frames_after_the_end_of_a_stream_are_errors() {
    let server = Server::start(POLICY).await;
    // A call that stays open on our side, because of a health watch.
    let watch = [
        frame(
            HEADERS,
            WHOLE,
            1,
            &head("/grpc.health.v1.Health/Watch", &[]),
        ),
        frame(DATA, END, 1, &message(&[])),
    ];
    for late in [
        frame(DATA, END, 1, b"a"),
        frame(HEADERS, WHOLE | END, 1, &field("x", "y")),
    ] {
        let mut raw = Raw::with(&server, &watch.concat()).await;
        assert_eq!(raw.next_of(DATA).await.payload, [0, 0, 0, 0, 2, 8, 1]);
        raw.send(&late).await;
        assert_eq!(raw.answer(1).await.reset, Some(STREAM_CLOSED));
        raw.send(&call(3)).await;
        assert_eq!(raw.answer(3).await.status, Some(0));
    }
    // Fields behind a body have to be its end.
    let bytes = [
        frame(HEADERS, WHOLE, 1, &call_head()),
        frame(HEADERS, WHOLE, 1, &field("x", "y")),
    ];
    assert_eq!(
        ends_call(&server, &bytes.concat()).await.reset,
        Some(PROTOCOL)
    );
}

#[tokio::test]
async fn data_in_flight_after_an_early_answer_is_no_error() {
    let server = Server::start(POLICY).await;
    // Compressed, which is refused at once; the rest of the call is on its way already.
    let bytes = [
        frame(HEADERS, WHOLE, 1, &call_head()),
        frame(DATA, 0, 1, &[1, 0, 0, 0, 3]),
        frame(DATA, 0, 1, b"abc"),
        frame(HEADERS, WHOLE | END, 1, &field("x", "y")),
        call(3),
    ];
    let mut raw = Raw::with(&server, &bytes.concat()).await;
    assert_eq!(raw.answer(3).await.status, Some(0));
}
