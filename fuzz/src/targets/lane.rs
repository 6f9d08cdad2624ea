//! What clients send to the gateway: the check of framing, the lane of common requests, and the parser behind both.

use http::Request;
use tollgate_server::fuzzing::lane::{
    Behind, Given, HEAD_MOST, WRONG_METHOD, check, given, is_tunnel, request, taken,
};

use crate::cut::{WAYS, pieces, whole};
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "lane",
    holds: "what the lane takes and what the check gives out of the rest are what the check gives out of the whole; both are the same \
            however the stream is cut; whatever is given out is framed by an independent parser as the check says; the check and \
            the parsed request agree about tunnels",
    run,
    words: &[
        "GET / HTTP/1.1\r\n",
        "POST /a HTTP/1.1\r\n",
        "Host: a\r\n",
        "\r\n",
        "\n",
        "\r",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: keep-alive\r\n",
        "Connection: Upgrade\r\n",
        "Upgrade: websocket\r\n",
        "Expect: 100-continue\r\n",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "a;x=y\r\n",
        "HTTP/1.0",
        " ",
        "\t",
        ":",
        ",",
        "#",
        "http://b/",
        "TOLLGATE-WRONG /17 HTTP/1.1\r\n",
    ],
};

fn run(bytes: &[u8]) {
    let (all, memory) = memory::most(|| given(whole(bytes), true));
    let room = 4096 + bytes.len().saturating_mul(16) + HEAD_MOST;
    assert!(memory <= room, "{memory} bytes of memory");
    let (heads, left) = taken(whole(bytes));
    for way in 0..WAYS {
        let cut = given(pieces(bytes, way), true);
        agree(&all, &cut);
        assert_eq!(taken(pieces(bytes, way)), (heads.clone(), left.clone()));
        let held = given(pieces(bytes, way), false);
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

/// What broke off inside a body was given out as far as it had come.
fn agree(all: &Given, cut: &Given) {
    assert_eq!(all.failed, cut.failed);
    match all.failed {
        true => assert!(cut.bytes.starts_with(&all.bytes)),
        false => assert_eq!(all, cut),
    }
}

/// Reads what was given out as another parser does, and compares head by head.
fn framed(given: &Given) {
    let mut rest = given.bytes.as_slice();
    while !rest.is_empty() {
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut parsed = httparse::Request::new(&mut fields);
        let Ok(httparse::Status::Complete(end)) = parsed.parse(rest) else {
            // The parser is stricter in what may stand in a target, and ends the connection then.
            return;
        };
        let (head, behind) = rest.split_at(end);
        let stands_for_wrong = parsed.method == Some(WRONG_METHOD);
        let Some((follows, is_for_lane)) = check(head) else {
            panic!("given out unchecked: {}", head.escape_ascii())
        };
        let values = |name: &str| {
            let of_name = |f: &&httparse::Header<'_>| f.name.eq_ignore_ascii_case(name);
            let fields = parsed.headers.iter().filter(of_name);
            fields.map(|field| field.value).collect::<Vec<_>>()
        };
        let (lengths, encodings) = (values("content-length"), values("transfer-encoding"));
        assert!(lengths.len() + encodings.len() <= 1, "two opinions");
        let length: u64 = lengths
            .first()
            .and_then(|digits| std::str::from_utf8(digits).ok()?.trim().parse().ok())
            .unwrap_or(0);
        match follows {
            Behind::Chunks => assert!(!encodings.is_empty()),
            Behind::Length(told) => assert_eq!(told, length),
            Behind::Nothing | Behind::PerhapsTunnel => {
                assert!(length == 0 && encodings.is_empty());
            }
        }
        let read = request(head);
        if let Some(read) = &read {
            assert_eq!(is_tunnel(read), follows == Behind::PerhapsTunnel);
            same(read, &parsed);
        }
        assert!(!is_for_lane || parsed.version == Some(1));
        let Some(size) = size(follows, behind) else {
            return;
        };
        rest = behind.get(size..).unwrap_or_default();
        // Whoever sends the method that stands for a wrong head is not the end: only ours is.
        assert!(!given.is_over || given.failed || !rest.is_empty() || stands_for_wrong);
    }
    assert!(!given.failed);
}

/// How long what follows a head is; None if not all of it is there.
fn size(follows: Behind, behind: &[u8]) -> Option<usize> {
    match follows {
        Behind::Nothing | Behind::PerhapsTunnel => Some(0),
        Behind::Length(length) => usize::try_from(length)
            .ok()
            .filter(|length| *length <= behind.len()),
        Behind::Chunks => chunks(behind),
    }
}

/// The length of a body in chunks, by the parser's reading of their sizes.
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

/// The request that the lane makes is the one that the parser sees.
fn same(read: &Request<()>, parsed: &httparse::Request<'_, '_>) {
    assert_eq!(Some(read.method().as_str()), parsed.method);
    assert_eq!(read.headers().len(), parsed.headers.len());
    for field in parsed.headers.iter() {
        let mut values = read.headers().get_all(field.name).iter();
        assert!(values.any(|value| value.as_bytes() == field.value));
    }
}
