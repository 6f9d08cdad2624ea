//! Fuzzes HTTP/2 frames at the RLS front end, from the first byte of a connection to its last.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_server::fuzzing::rls::{
    Exchange, FrontEnd, MAX_FRAME_BYTES, MAX_OUTPUT_BYTES, PREFACE, Wire,
};

use crate::Target;
use crate::split::{SPLITS, pieces, unsplit};

/// Nothing in an answer depends on the time.
const POLICY: &str = "default: pass\n";
/// The longest answer to one frame: a status for each descriptor of a message of 64 KiB, two bytes on the wire each, and as
/// much again.
const ANSWER_MOST: usize = 512 * 1024;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

pub(super) const TARGET: Target = Target {
    name: "rls_frames",
    holds: "answers are whole frames, a call is answered on its own stream and ends once, windows grow by no more than the bytes \
            received; a stream gets the same answers in every split; queued input and output stay within their bounds",
    run,
};

thread_local! {
    static WIRE: Wire = match FrontEnd::new(POLICY).wire() {
        Ok(wire) => wire,
        Err(error) => panic!("no runtime: {error}"),
    };
}

fn run(bytes: &[u8]) {
    // Most inputs test what follows the preface.
    let bytes = match bytes.starts_with(b"PRI") {
        true => bytes.to_vec(),
        false => [PREFACE, b"\0\0\0\x04\0\0\0\0\0", bytes].concat(),
    };
    let run =
        |split_run: &mut dyn Iterator<Item = &[u8]>| WIRE.with(|wire| wire.exchange(split_run));
    let all = run(&mut unsplit(&bytes));
    let frames = checked(&bytes, &all);
    let split = u64::try_from(bytes.len()).unwrap_or(0) % SPLITS;
    let split_run = run(&mut pieces(&bytes, split));
    let again = checked(&bytes, &split_run);
    if !all.has_waited && !split_run.has_waited {
        assert_eq!(again, frames);
        assert_eq!(split_run.is_closed, all.is_closed);
    }
}

/// A frame of an answer: its kind, flags, stream and content.
type Frame<'a> = (u8, u8, u32, &'a [u8]);

/// The frames of an answer without window updates, which depend on how many bytes were read together.
fn checked<'a>(asked: &[u8], exchange: &'a Exchange) -> Vec<Frame<'a>> {
    let (kept, unread) = (exchange.max_output, exchange.unread);
    assert!(kept <= MAX_OUTPUT_BYTES + ANSWER_MOST, "{kept} bytes wait");
    assert!(
        exchange.is_closed || unread < MAX_FRAME_BYTES,
        "{unread} unread"
    );
    let mut rest = exchange.bytes.as_slice();
    let mut frames = Vec::new();
    let (mut ended, mut begun) = (BTreeSet::new(), BTreeSet::new());
    let mut windows: BTreeMap<u32, u64> = BTreeMap::new();
    while !rest.is_empty() {
        let Some((frame, behind)) = first(rest) else {
            panic!("no whole frame: {}", rest.escape_ascii());
        };
        rest = behind;
        let (kind, flags, stream, content) = frame;
        match kind {
            HEADERS | DATA => {
                assert!(stream % 2 == 1, "{frame:?}");
                assert!(
                    !ended.contains(&stream),
                    "a frame after the end of its stream: {frame:?}"
                );
                assert!(kind == HEADERS || begun.contains(&stream), "{frame:?}");
                begun.insert(stream);
                if flags & END_STREAM != 0 {
                    ended.insert(stream);
                }
            }
            RST_STREAM => {
                assert_eq!(content.len(), 4, "{frame:?}");
                ended.insert(stream);
            }
            WINDOW_UPDATE => {
                let more = content
                    .iter()
                    .fold(0, |more, byte| more << 8 | u64::from(*byte));
                assert!(more > 0 && more < 1 << 31, "{frame:?}");
                *windows.entry(stream).or_default() += more;
            }
            GOAWAY => assert!(stream == 0 && content.len() >= 8, "{frame:?}"),
            _ => assert_eq!(stream, 0, "{frame:?}"),
        }
        if kind != WINDOW_UPDATE {
            frames.push(frame);
        }
    }
    // The first is wider from the beginning.
    let received = u64::try_from(asked.len()).unwrap_or(u64::MAX);
    for (stream, more) in windows {
        let wider = if stream == 0 { 1 << 20 } else { 0 };
        assert!(
            more <= received + wider,
            "the window of {stream} grew by {more}"
        );
    }
    frames
}

fn first(bytes: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<9>()?;
    let [a, b, c, kind, flags, s0, s1, s2, s3] = *header;
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    let (content, behind) = rest.split_at_checked(length)?;
    let stream = u32::from_be_bytes([s0, s1, s2, s3]);
    Some(((kind, flags, stream, content), behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_get_the_answers_of_their_names() {
        let ended = |seed: &[u8]| {
            let bytes = [PREFACE, b"\0\0\0\x04\0\0\0\0\0", seed].concat();
            let exchange = WIRE.with(|wire| wire.exchange(&mut unsplit(&bytes)));
            let frames = checked(&bytes, &exchange);
            let ends = |frame: &&Frame<'_>| frame.0 == HEADERS && frame.1 & END_STREAM != 0;
            let ended: Vec<u32> = frames.iter().filter(ends).map(|frame| frame.2).collect();
            (ended, exchange.has_waited)
        };
        let calls = include_bytes!("../../corpus/rls_frames/calls");
        assert_eq!(ended(calls), (vec![1, 3, 5, 7], false));
        let continued = include_bytes!("../../corpus/rls_frames/continued");
        assert_eq!(ended(continued), (vec![1], false));
        let windows = include_bytes!("../../corpus/rls_frames/windows");
        assert_eq!(ended(windows), (vec![1], true));
        let tables = include_bytes!("../../corpus/rls_frames/tables");
        assert_eq!(ended(tables), (vec![1, 3], false));
    }
}
