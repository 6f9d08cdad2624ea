//! Fuzzes requests of clients to the gateway: the framer, the fast path, and the parser behind both.

use http::Request;
use tollgate_server::fuzzing::gateway_requests::{
    BAD_REQUEST_METHOD, Framed, MAX_HEAD_BYTES, RequestBody, check, frame, is_tunnel,
    parse_request, taken,
};

use crate::split::{SPLITS, pieces, unsplit};
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "gateway_requests",
    holds: "what the fast path takes and what the framer hands out of the rest equal what the framer hands out of the whole; both \
            are the same however the stream is split; an independent parser frames the output as the framer does; the framer \
            and the parsed request agree about tunnels",
    run,
};

fn run(bytes: &[u8]) {
    let (all, memory) = memory::peak(|| frame(unsplit(bytes), false, true));
    let room = 4096 + bytes.len().saturating_mul(16) + MAX_HEAD_BYTES;
    assert!(memory <= room, "{memory} bytes of memory");
    // Nothing is read meanwhile, so malformed chunks are answered.
    assert!(!all.failed);
    let (heads, left) = taken(unsplit(bytes));
    for split in 0..SPLITS {
        assert_eq!(frame(pieces(bytes, split), false, true), all);
        assert_eq!(taken(pieces(bytes, split)), (heads.clone(), left.clone()));
        let undecided = frame(pieces(bytes, split), false, false);
        assert!(undecided.is_over || all.bytes.starts_with(&undecided.bytes));
        let drained = frame(pieces(bytes, split), true, true);
        assert_eq!(
            (drained.is_over, drained.is_held),
            (all.is_over, all.is_held)
        );
        // A request that was handed out in part cannot be replaced.
        assert!(drained.failed || drained.bytes == all.bytes);
    }
    let rest = frame(unsplit(&left), false, true);
    let together = [heads.concat(), rest.bytes].concat();
    assert_eq!(together, all.bytes);
    for head in &heads {
        assert_eq!(check(head), Some((RequestBody::None, true)));
    }
    parsed_alike(&all);
}

/// Parses the output with another parser and compares head by head.
fn parsed_alike(framed: &Framed) {
    let mut rest = framed.bytes.as_slice();
    while !rest.is_empty() {
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut parsed = httparse::Request::new(&mut fields);
        let Ok(httparse::Status::Complete(end)) = parsed.parse(rest) else {
            // The parser allows fewer targets, and ends the connection then.
            return;
        };
        let (head, behind) = rest.split_at(end);
        let is_refusal = parsed.method == Some(BAD_REQUEST_METHOD);
        let Some((body, is_for_fast_path)) = check(head) else {
            panic!("handed out unchecked: {}", head.escape_ascii())
        };
        let values = |name: &str| {
            let of_name = |f: &&httparse::Header<'_>| f.name.eq_ignore_ascii_case(name);
            let fields = parsed.headers.iter().filter(of_name);
            fields.map(|field| field.value).collect::<Vec<_>>()
        };
        let (lengths, encodings) = (values("content-length"), values("transfer-encoding"));
        assert!(lengths.len() + encodings.len() <= 1, "ambiguous");
        let length: u64 = lengths
            .first()
            .and_then(|digits| std::str::from_utf8(digits).ok()?.trim().parse().ok())
            .unwrap_or(0);
        match body {
            RequestBody::Chunks => assert!(!encodings.is_empty()),
            RequestBody::Length(stated) => assert_eq!(stated, length),
            RequestBody::None | RequestBody::MaybeTunnel => {
                assert!(length == 0 && encodings.is_empty());
            }
        }
        let read = parse_request(head);
        if let Some(read) = &read {
            assert_eq!(is_tunnel(read), body == RequestBody::MaybeTunnel);
            same(read, &parsed);
        }
        assert!(!is_for_fast_path || parsed.version == Some(1));
        let Some(size) = size(body, behind) else {
            return;
        };
        rest = behind.get(size..).unwrap_or_default();
        // The last request of a stream that is over is the refusal.
        assert!(!framed.is_over || !rest.is_empty() || is_refusal);
    }
}

/// The length of the body; `None` if it is incomplete.
fn size(body: RequestBody, behind: &[u8]) -> Option<usize> {
    match body {
        RequestBody::None | RequestBody::MaybeTunnel => Some(0),
        RequestBody::Length(length) => usize::try_from(length)
            .ok()
            .filter(|length| *length <= behind.len()),
        RequestBody::Chunks => chunks(behind),
    }
}

/// The length of a chunked body, by the parser's reading of the sizes.
fn chunks(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        let Ok(httparse::Status::Complete((line, size))) = httparse::parse_chunk_size(rest) else {
            return None;
        };
        at += line;
        if size == 0 {
            break;
        }
        at = at
            .checked_add(usize::try_from(size).ok()?)?
            .checked_add(2)?;
    }
    let mut fields = [httparse::EMPTY_HEADER; 256];
    match httparse::parse_headers(bytes.get(at..)?, &mut fields) {
        Ok(httparse::Status::Complete((size, _))) => Some(at + size),
        _ => None,
    }
}

/// The request of the fast path is the one that the parser sees.
fn same(read: &Request<()>, parsed: &httparse::Request<'_, '_>) {
    assert_eq!(Some(read.method().as_str()), parsed.method);
    assert_eq!(read.headers().len(), parsed.headers.len());
    for field in parsed.headers.iter() {
        let mut values = read.headers().get_all(field.name).iter();
        assert!(values.any(|value| value.as_bytes() == field.value));
    }
}
