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

/// Requests that are under way.
const ASKED: u64 = 8;

fn run(bytes: &[u8]) {
    for protocol in [Protocol::Resp, Protocol::Http, Protocol::Grpc] {
        let (all, taken) = memory::most(|| read(protocol, ASKED, whole(bytes)));
        let room = 64 * 1024 + bytes.len().saturating_mul(256);
        assert!(taken <= room, "{taken} bytes of memory");
        let Some(all) = all else {
            panic!("the plan of this target is wrong")
        };
        for way in 0..WAYS {
            let cut = read(protocol, ASKED, pieces(bytes, way));
            assert_eq!(cut.as_ref().map(said), Some(said(&all)), "{protocol:?}");
        }
    }
}

/// Answers, whether the rest makes no sense, and what is left.
type Said<'a> = (&'a [(Option<u64>, String)], bool, Option<usize>);

/// What is not whole is left, unless there is no sense in it.
fn said(read: &Read) -> Said<'_> {
    let left = (read.wrong.is_none() && !read.is_last).then_some(read.left);
    (&read.answers, read.wrong.is_some(), left)
}
