//! Fuzzes responses of upstreams, as the gateway reads them.

use http::Method;
use tollgate_server::fuzzing::upstream_responses::{
    Chunked, ResponseBody, end, parse_head, read_chunks,
};

use crate::split::{SPLITS, pieces, unsplit};
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
    let (head, after_head) = bytes.split_at(head);
    for method in [Method::GET, Method::HEAD] {
        let (parsed, taken) = memory::peak(|| parse_head(head, &method));
        // Room for 256 fields, on the stack and in a map.
        let room = 64 * 1024 + head.len().saturating_mul(64);
        assert!(taken <= room, "{taken} bytes of memory");
        let Ok((response, body, is_reusable)) = parsed else {
            continue;
        };
        let fields = |name: &str| response.headers().get_all(name).iter().count();
        let is_ambiguous = fields("content-length") > 0 && fields("transfer-encoding") > 0;
        assert!(!is_reusable || !is_ambiguous && body != ResponseBody::UntilClose);
        assert!(method != Method::HEAD || body == ResponseBody::None);
    }
    in_chunks(after_head);
}

fn in_chunks(bytes: &[u8]) {
    let (all, taken) = memory::peak(|| read_chunks(unsplit(bytes)));
    assert!(taken <= 64 * 1024 + bytes.len().saturating_mul(64));
    if let Ok(Chunked { data, after, .. }) = &all {
        assert!(data.len() + after.unwrap_or(0) <= bytes.len());
    }
    for split in 0..SPLITS {
        assert_eq!(read_chunks(pieces(bytes, split)), all);
    }
}
