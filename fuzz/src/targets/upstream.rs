//! Answers of upstreams, as the gateway reads them.

use http::Method;
use tollgate_server::fuzzing::wire::{Behind, Chunked, chunks, end, read};

use crate::cut::{WAYS, pieces, whole};
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "upstream",
    holds: "the end of a head is found wherever it is looked for from; a body in chunks is the same however it is cut; its data is \
            never longer than its bytes; a connection is used again only if one reading of where the answer ends is possible; memory \
            grows by what was sent",
    run,
    words: &[
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n",
        "HTTP/1.1 204 None\r\n",
        "\r\n",
        "\n",
        "Content-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "0\r\na: b\r\n\r\n",
        ";x",
        "ffffffffffffff\r\n",
    ],
};

fn run(bytes: &[u8]) {
    let head = end(bytes, 0);
    for from in 0..bytes.len().min(64) {
        // What was looked at before had no end in it.
        if head.is_none_or(|head| from + 3 < head) {
            assert_eq!(end(bytes, from.saturating_sub(3)), head, "from {from}");
        }
    }
    let Some(head) = head else {
        return in_chunks(bytes);
    };
    let (head, body) = bytes.split_at(head);
    for method in [Method::GET, Method::HEAD] {
        let (told, taken) = memory::most(|| read(head, &method));
        // Room for 256 fields, on the stack and in a map.
        let room = 64 * 1024 + head.len().saturating_mul(64);
        assert!(taken <= room, "{taken} bytes of memory");
        let Ok((answer, behind, may_rest)) = told else {
            continue;
        };
        let fields = |name: &str| answer.headers().get_all(name).iter().count();
        let is_doubtful = fields("content-length") > 0 && fields("transfer-encoding") > 0;
        assert!(!may_rest || !is_doubtful && behind != Behind::Rest);
        assert!(method != Method::HEAD || behind == Behind::Nothing);
    }
    in_chunks(body);
}

fn in_chunks(bytes: &[u8]) {
    let (all, taken) = memory::most(|| chunks(whole(bytes)));
    assert!(taken <= 64 * 1024 + bytes.len().saturating_mul(64));
    if let Ok(Chunked { data, behind, .. }) = &all {
        assert!(data.len() + behind.unwrap_or(0) <= bytes.len());
    }
    for way in 0..WAYS {
        assert_eq!(chunks(pieces(bytes, way)), all);
    }
}
