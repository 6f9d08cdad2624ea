//! Requests to the gateway: the framing check, the fast path, and the parser behind both.

use http::Request;
use tollgate_server::fuzzing::lane::{
    Behind, Given, HEAD_MOST, WRONG_METHOD, check, given, is_tunnel, request, taken,
};

use crate::split::{SPLITS, pieces, whole};
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "gateway_requests",
    holds: "what the fast path and the framing check forward of the rest is what the check forwards of the whole; both are the same \
            in every split; an independent parser frames every forwarded request as the check does; the check and \
            the parsed request agree about tunnels",
    run,
};

fn run(bytes: &[u8]) {
    let (all, memory) = memory::peak(|| given(whole(bytes), true));
    let room = 4096 + bytes.len().saturating_mul(16) + HEAD_MOST;
    assert!(memory <= room, "{memory} bytes of memory");
    let (heads, left) = taken(whole(bytes));
    for split in 0..SPLITS {
        let split_run = given(pieces(bytes, split), true);
        agree(&all, &split_run);
        assert_eq!(taken(pieces(bytes, split)), (heads.clone(), left.clone()));
        let held = given(pieces(bytes, split), false);
        assert!(all.bytes.starts_with(&held.bytes) || all.failed);
    }
    let rest = given(whole(&left), true);
    let together = [heads.concat(), rest.bytes].concat();
    assert_eq!((together, rest.failed), (all.bytes.clone(), all.failed));
    for head in &heads {
        assert_eq!(check(head), Some((Behind::Nothing, true)));
    }
    framed(&all);
}

/// A stream that ends inside a body was forwarded up to its end.
fn agree(all: &Given, split_run: &Given) {
    assert_eq!(all.failed, split_run.failed);
    match all.failed {
        true => assert!(split_run.bytes.starts_with(&all.bytes)),
        false => assert_eq!(all, split_run),
    }
}

/// Parses the forwarded bytes independently, and compares head by head.
fn framed(given: &Given) {
    let mut rest = given.bytes.as_slice();
    while !rest.is_empty() {
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut parsed = httparse::Request::new(&mut fields);
        let Ok(httparse::Status::Complete(end)) = parsed.parse(rest) else {
            // The parser accepts fewer targets, and ends the connection then.
            return;
        };
        let (head, behind) = rest.split_at(end);
        let is_bad_request_method = parsed.method == Some(WRONG_METHOD);
        let Some((follows, is_for_fast_path)) = check(head) else {
            panic!("forwarded unchecked: {}", head.escape_ascii())
        };
        let values = |name: &str| {
            let of_name = |f: &&httparse::Header<'_>| f.name.eq_ignore_ascii_case(name);
            let fields = parsed.headers.iter().filter(of_name);
            fields.map(|field| field.value).collect::<Vec<_>>()
        };
        let (lengths, encodings) = (values("content-length"), values("transfer-encoding"));
        assert!(lengths.len() + encodings.len() <= 1, "ambiguous framing");
        let length: u64 = lengths
            .first()
            .and_then(|digits| std::str::from_utf8(digits).ok()?.trim().parse().ok())
            .unwrap_or(0);
        match follows {
            Behind::Chunks => assert!(!encodings.is_empty()),
            Behind::Length(checked) => assert_eq!(checked, length),
            Behind::Nothing | Behind::PerhapsTunnel => {
                assert!(length == 0 && encodings.is_empty());
            }
        }
        let read = request(head);
        if let Some(read) = &read {
            assert_eq!(is_tunnel(read), follows == Behind::PerhapsTunnel);
            same(read, &parsed);
        }
        assert!(!is_for_fast_path || parsed.version == Some(1));
        let Some(size) = size(follows, behind) else {
            return;
        };
        rest = behind.get(size..).unwrap_or_default();
        // A client that sends the method of an invalid head does not end the stream: only ours does.
        assert!(!given.is_over || given.failed || !rest.is_empty() || is_bad_request_method);
    }
    assert!(!given.failed);
}

/// The length of the body after a head; none if it is incomplete.
fn size(follows: Behind, behind: &[u8]) -> Option<usize> {
    match follows {
        Behind::Nothing | Behind::PerhapsTunnel => Some(0),
        Behind::Length(length) => usize::try_from(length)
            .ok()
            .filter(|length| *length <= behind.len()),
        Behind::Chunks => chunks(behind),
    }
}

/// The length of a chunked body, with the sizes that the other parser reads.
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

/// The request of the fast path is the one that the parser reads.
fn same(read: &Request<()>, parsed: &httparse::Request<'_, '_>) {
    assert_eq!(Some(read.method().as_str()), parsed.method);
    assert_eq!(read.headers().len(), parsed.headers.len());
    for field in parsed.headers.iter() {
        let mut values = read.headers().get_all(field.name).iter();
        assert!(values.any(|value| value.as_bytes() == field.value));
    }
}
