//! Responses of upstreams, as the gateway reads them.

use http::Method;
use tollgate_server::fuzzing::wire::{Behind, Chunked, chunks, end, read};

use crate::split::{SPLITS, pieces, whole};
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "upstream_responses",
    holds: "the end of a head is found from any start; a chunked body is the same in every split; its data is \
            never longer than its bytes; a connection is reused only if one reading of where the answer ends is possible; memory \
            grows with the bytes sent",
    run,
};

fn run(bytes: &[u8]) {
    let head = end(bytes, 0);
    for from in 0..bytes.len().min(64) {
        // The bytes before had no end in them.
        if head.is_none_or(|head| from + 3 < head) {
            assert_eq!(end(bytes, from.saturating_sub(3)), head, "from {from}");
        }
    }
    let Some(head) = head else {
        return in_chunks(bytes);
    };
    let (head, body) = bytes.split_at(head);
    for method in [Method::GET, Method::HEAD] {
        let (parsed, taken) = memory::peak(|| read(head, &method));
        // Room for 256 fields, on the stack and in a map.
        let room = 64 * 1024 + head.len().saturating_mul(64);
        assert!(taken <= room, "{taken} bytes of memory");
        let Ok((answer, behind, may_rest)) = parsed else {
            continue;
        };
        let fields = |name: &str| answer.headers().get_all(name).iter().count();
        let is_ambiguous = fields("content-length") > 0 && fields("transfer-encoding") > 0;
        assert!(!may_rest || !is_ambiguous && behind != Behind::Rest);
        assert!(method != Method::HEAD || behind == Behind::Nothing);
    }
    in_chunks(body);
}

fn in_chunks(bytes: &[u8]) {
    let (all, taken) = memory::peak(|| chunks(whole(bytes)));
    assert!(taken <= 64 * 1024 + bytes.len().saturating_mul(64));
    if let Ok(Chunked { data, behind, .. }) = &all {
        assert!(data.len() + behind.unwrap_or(0) <= bytes.len());
    }
    for split in 0..SPLITS {
        assert_eq!(chunks(pieces(bytes, split)), all);
    }
}
