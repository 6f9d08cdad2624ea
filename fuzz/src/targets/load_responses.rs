//! Fuzzes responses to the load generator: the Redis protocol, HTTP/1.1, and gRPC on HTTP/2.

use tollgate_load::TargetProtocol;
use tollgate_load::fuzzing::{Read, read};

use crate::split::{SPLITS, pieces, unsplit};
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "load_responses",
    holds: "a stream has the same answers in every split; memory grows with the bytes sent",
    run,
};

/// Requests in flight.
const REQUESTS: u64 = 8;

fn run(bytes: &[u8]) {
    for protocol in [
        TargetProtocol::Resp,
        TargetProtocol::Http,
        TargetProtocol::Grpc,
    ] {
        let (all, taken) = memory::peak(|| read(protocol, REQUESTS, unsplit(bytes)));
        let room = 64 * 1024 + bytes.len().saturating_mul(256);
        assert!(taken <= room, "{taken} bytes of memory");
        let Some(all) = all else {
            panic!("the plan of this target is wrong")
        };
        for split in 0..SPLITS {
            let split_run = read(protocol, REQUESTS, pieces(bytes, split));
            assert_eq!(
                split_run.as_ref().map(read_result),
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
