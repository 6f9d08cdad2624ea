//! Request heads: other methods and paths, malformed heads, and bounds on their size.

use super::raw::*;
use crate::client::{METHOD, Server};

const POLICY: &str = "default: pass\n";

fn asked(block: &[u8]) -> Vec<u8> {
    [
        frame(HEADERS, WHOLE, 1, block),
        frame(DATA, END, 1, &question()),
    ]
    .concat()
}

#[tokio::test]
async fn a_call_needs_neither_te_nor_a_content_type() {
    let server = Server::start(POLICY).await;
    for more in [
        &[][..],
        &[("te", "trailers")],
        &[("content-type", "text/plain")],
    ] {
        let answer = ends_call(&server, &asked(&head(METHOD, more))).await;
        assert_eq!(answer.response().overall_code, 1, "{more:?}");
    }
}

#[tokio::test]
async fn a_malformed_head_ends_its_call() {
    let server = Server::start(POLICY).await;
    let path = field(":path", METHOD);
    let te = |value| field("te", value);
    for wrong in [
        [&[0x83, 0x86][..], &te("trailers")].concat(),
        [&[0x86][..], &path].concat(),
        [&[0x83][..], &path].concat(),
        [&[0x83, 0x86][..], &path, &te("gzip")].concat(),
        [&[0x83, 0x86][..], &path, &field("Upper", "x")].concat(),
        [&[0x83, 0x86][..], &path, &field("connection", "close")].concat(),
        [&[0x83, 0x86][..], &path, &field(":status", "200")].concat(),
        [&[0x83, 0x86][..], &te("trailers"), &path].concat(),
        [&[0x83, 0x83, 0x86][..], &path].concat(),
        [&[0x83, 0x86][..], &field(":path", "x")].concat(),
        [&[0x83, 0x86][..], &path, &field("a b", "c")].concat(),
        [&[0x83, 0x86][..], &path, &field("a:b", "c")].concat(),
        [&[0x83, 0x86][..], &path, &field("a\u{e4}", "c")].concat(),
        [&[0x83, 0x86][..], &path, &field("a", "b\r\nc: d")].concat(),
        [&[0x83, 0x86][..], &path, &field("a", "b\0")].concat(),
        [&[0x83, 0x86][..], &path, &field("a", " b")].concat(),
        [&[0x83, 0x86][..], &path, &field("a", "b\t")].concat(),
        [
            &[0x83, 0x86][..],
            &field(":path", "/other"),
            &field("a b", "c"),
        ]
        .concat(),
        [
            &[0x83, 0x86][..],
            &field(":path", "/other"),
            &field("a", "b\r\nc: d"),
        ]
        .concat(),
    ] {
        assert_eq!(
            ends_call(&server, &asked(&wrong)).await.reset,
            Some(PROTOCOL),
            "{wrong:?}"
        );
    }
}

#[tokio::test]
async fn a_head_that_cannot_be_read_ends_the_connection() {
    let server = Server::start(POLICY).await;
    for wrong in [
        &[0x80][..],
        &[0xbe],
        &[0x83, 0x20],
        &[0x3f, 0xe2, 0x1f],
        &[0x00, 0x81, 0xff],
    ] {
        assert_eq!(
            ends(&server, &asked(wrong)).await,
            Some(COMPRESSION),
            "{wrong:?}"
        );
    }
    // Behind a body as before it.
    let late = [
        frame(HEADERS, WHOLE, 1, &call_head()),
        frame(HEADERS, WHOLE | END, 1, &[0x80]),
    ];
    assert_eq!(ends(&server, &late.concat()).await, Some(COMPRESSION));
}

#[tokio::test]
async fn other_methods_and_other_paths_are_answered_as_before() {
    let server = Server::start(POLICY).await;
    let answer = ends_call(&server, &asked(&head("/no.such.Service/Call", &[]))).await;
    assert_eq!(answer.status, Some(12));
    let answer = ends_call(&server, &asked(&head(METHOD, &[("grpc-encoding", "gzip")]))).await;
    assert_eq!(answer.status, Some(12));
    // `GET`, which tonic serves too.
    let mut get = vec![0x82, 0x86];
    get.extend(field(":path", METHOD));
    assert_eq!(ends_call(&server, &asked(&get)).await.status, Some(0));
    // The server itself.
    let health = [
        frame(
            HEADERS,
            WHOLE,
            1,
            &head("/grpc.health.v1.Health/Check", &[]),
        ),
        frame(DATA, END, 1, &message(&[])),
    ];
    let answer = ends_call(&server, &health.concat()).await;
    assert_eq!(
        (answer.status, answer.data.as_slice()),
        (Some(0), &[0, 0, 0, 0, 2, 8, 1][..])
    );
}

#[tokio::test]
async fn a_head_may_have_16_kib_and_no_more() {
    let server = Server::start(POLICY).await;
    let long = |length: usize| head(METHOD, &[("x-long", &"v".repeat(length))]);
    assert_eq!(
        ends_call(&server, &asked(&long(16_000))).await.status,
        Some(0)
    );
    // Short on the wire, and long in fact: one field put into the table, then named many times.
    let mut many = head(METHOD, &[]);
    many.push(0x40);
    string("x-long", &mut many);
    string(&"v".repeat(2_000), &mut many);
    many.extend([0xbe; 14_000]);
    let answer = ends_call(&server, &asked(&many)).await;
    assert_eq!(answer.http, Some(431));
    // Longer on the wire, too.
    let pieces = |block: &[u8]| {
        let mut chunks = block.chunks(16_000);
        let mut bytes = frame(HEADERS, 0, 1, chunks.next().unwrap());
        chunks.for_each(|chunk| bytes.extend(frame(CONTINUATION, 0, 1, chunk)));
        bytes.extend(frame(CONTINUATION, WHOLE, 1, &[]));
        bytes.extend(frame(DATA, END, 1, &question()));
        bytes
    };
    let answer = ends_call(&server, &pieces(&long(20_000))).await;
    assert_eq!(answer.http, Some(431));
    // The server does not read this to its end.
    assert_eq!(ends(&server, &pieces(&long(70_000))).await, Some(CALM));
}

#[tokio::test]
async fn a_head_may_come_in_pieces_with_nothing_between_them() {
    let server = Server::start(POLICY).await;
    let block = call_head();
    let mut bytes = frame(HEADERS, 0, 1, &block[..5]);
    bytes.extend(frame(CONTINUATION, 0, 1, &block[5..20]));
    bytes.extend(frame(CONTINUATION, WHOLE, 1, &block[20..]));
    bytes.extend(frame(DATA, END, 1, &question()));
    assert_eq!(ends_call(&server, &bytes).await.status, Some(0));
    for between in [
        frame(PING, 0, 0, &[0; 8]),
        frame(HEADERS, WHOLE, 3, &block),
        frame(CONTINUATION, WHOLE, 3, &block),
        frame(DATA, 0, 1, b"a"),
        frame(99, 0, 0, b""),
    ] {
        let bytes = [frame(HEADERS, 0, 1, &block), between].concat();
        assert_eq!(ends(&server, &bytes).await, Some(PROTOCOL));
    }
}

#[tokio::test]
async fn a_head_without_an_end_ends_the_connection() {
    let server = Server::start(POLICY).await;
    for piece in [&[][..], &[0x82; 100], &[0x82; 10_000]] {
        let mut bytes = frame(HEADERS, 0, 1, &call_head());
        for _ in 0..200 {
            bytes.extend(frame(CONTINUATION, 0, 1, piece));
        }
        assert_eq!(ends(&server, &bytes).await, Some(CALM), "{}", piece.len());
    }
}

/// A block that was read before is known again by its bytes; what they stand for may be another thing by then.
#[tokio::test]
async fn a_known_head_means_something_else_when_the_table_has_changed() {
    let server = Server::start(POLICY).await;
    let with_path = |path: &str| {
        let mut block = vec![0x83, 0x86, 0x44];
        string(path, &mut block);
        block
    };
    let same = [0x83, 0x86, 0xbe];
    let mut raw = Raw::new(&server).await;
    for (stream, block, status) in [
        (1, with_path(METHOD), 0),
        (3, same.to_vec(), 0),
        (5, same.to_vec(), 0),
        (7, with_path("/other"), 12),
        (9, same.to_vec(), 12),
        (11, with_path(METHOD), 0),
        (13, same.to_vec(), 0),
    ] {
        raw.send(&frame(HEADERS, WHOLE, stream, &block)).await;
        raw.send(&frame(DATA, END, stream, &question())).await;
        assert_eq!(raw.answer(stream).await.status, Some(status), "{stream}");
    }
}

#[tokio::test]
async fn a_client_with_a_small_table_gets_no_table_entries() {
    let server = Server::start(POLICY).await;
    let mut raw = Raw::with(&server, &[setting(1, 0), call(1), call(3)].concat()).await;
    assert_eq!(raw.next_of(HEADERS).await.payload[..2], [0x20, 0x88]);
    assert_eq!(raw.answer(1).await.status, Some(0));
    assert_eq!(raw.next_of(HEADERS).await.payload[0], 0x88);
    assert_eq!(raw.answer(3).await.status, Some(0));
}

#[tokio::test]
async fn malformed_authorities_are_accepted() {
    let server = Server::start(POLICY).await;
    for authority in [
        "outbound|8081||limits.ns.svc.cluster.local",
        "unix:%2Ftmp%2Fx",
        "",
    ] {
        let health = head("/grpc.health.v1.Health/Check", &[]);
        let mut block = vec![0x83, 0x86];
        block.extend(field(":authority", authority));
        block.extend(&health[2..]);
        let bytes = [
            frame(HEADERS, WHOLE, 1, &block),
            frame(DATA, END, 1, &message(&[])),
        ];
        let answer = ends_call(&server, &bytes.concat()).await;
        assert_eq!(answer.status, Some(0), "{authority}");
    }
}
