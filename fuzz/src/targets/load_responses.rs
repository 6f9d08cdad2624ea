//! Responses to the load generator: the Redis protocol, HTTP/1.1, and gRPC on HTTP/2.

use tollgate_load::Protocol;
use tollgate_load::fuzzing::{Read, read};

use crate::split::{SPLITS, pieces, whole};
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "load_responses",
    holds: "a stream has the same answers in every split; memory grows with the bytes sent",
    run,
};

/// Requests that are under split.
const IN_FLIGHT: u64 = 8;

fn run(bytes: &[u8]) {
    for protocol in [Protocol::Resp, Protocol::Http, Protocol::Grpc] {
        let (all, taken) = memory::peak(|| read(protocol, IN_FLIGHT, whole(bytes)));
        let room = 64 * 1024 + bytes.len().saturating_mul(256);
        assert!(taken <= room, "{taken} bytes of memory");
        let Some(all) = all else {
            panic!("the plan of this target is wrong")
        };
        for split in 0..SPLITS {
            let split_run = read(protocol, IN_FLIGHT, pieces(bytes, split));
            assert_eq!(
                split_run.as_ref().map(summary),
                Some(summary(&all)),
                "{protocol:?}"
            );
        }
    }
}

/// Answers, whether the rest is invalid, and the bytes left.
type Summary<'a> = (&'a [(Option<u64>, String)], bool, Option<usize>);

/// Bytes of an incomplete answer are left, unless they are invalid.
fn summary(read: &Read) -> Summary<'_> {
    let left = (read.wrong.is_none() && !read.is_last).then_some(read.left);
    (&read.answers, read.wrong.is_some(), left)
}
