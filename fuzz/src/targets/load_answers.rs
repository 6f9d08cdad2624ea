//! Answers of servers under load: the Redis protocol, HTTP/1.1, and gRPC on HTTP/2.

use tollgate_load::Protocol;
use tollgate_load::fuzzing::{Read, read};

use crate::cut::{WAYS, pieces, whole};
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "load_answers",
    holds: "a stream has the same answers however it is cut; memory grows by what was sent",
    run,
    words: &[
        ":0\r\n",
        "*5\r\n",
        "$3\r\nabc\r\n",
        "-ERR x\r\n",
        "%1\r\n",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 429 No\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "\r\n",
        "0\r\n\r\n",
        "\u{0}\u{0}\u{0}\u{4}\u{0}\u{0}\u{0}\u{0}\u{0}",
        "\u{0}\u{0}\u{4}\u{3}\u{0}\u{0}\u{0}\u{0}\u{1}",
        "\u{0}\u{0}\u{8}\u{7}\u{0}\u{0}\u{0}\u{0}\u{0}",
        "grpc-status",
        "0",
    ],
};

/// Requests in flight.
const REQUESTS: u64 = 8;

fn run(bytes: &[u8]) {
    for protocol in [Protocol::Resp, Protocol::Http, Protocol::Grpc] {
        let (all, taken) = memory::most(|| read(protocol, REQUESTS, whole(bytes)));
        let room = 64 * 1024 + bytes.len().saturating_mul(256);
        assert!(taken <= room, "{taken} bytes of memory");
        let Some(all) = all else {
            panic!("the plan of this target is wrong")
        };
        for way in 0..WAYS {
            let cut = read(protocol, REQUESTS, pieces(bytes, way));
            assert_eq!(
                cut.as_ref().map(read_result),
                Some(read_result(&all)),
                "{protocol:?}"
            );
        }
    }
}

/// Responses, whether the stream violates the protocol, and the bytes that remain.
type ReadResult<'a> = (&'a [(Option<u64>, String)], bool, Option<usize>);

/// Bytes of an incomplete message remain, unless the stream violates the protocol.
fn read_result(read: &Read) -> ReadResult<'_> {
    let left = (read.error.is_none() && !read.is_last).then_some(read.remaining);
    (&read.responses, read.error.is_some(), left)
}
