//! The fast path without its sockets, for the fuzz targets.

use super::{Request as Plain, *};

/// A request that was read on the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Names and values, as sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What the fast path made of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The requests that it answers.
    pub requests: Vec<Request>,
    /// Did the rest leave the path?
    pub is_other: bool,
    /// What was not answered.
    pub left: Vec<u8>,
    /// The most bytes that were kept unanswered.
    pub kept: usize,
}

/// Bytes of a request on the fast path: a head and a body.
pub fn most() -> usize {
    let limits = ListenLimits::default();
    limits.head_bytes + limits.body.bytes
}

/// Reads requests of pieces that come one after the other.
pub fn read<'a>(mut pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let limits = ListenLimits::default();
    let mut bytes = BytesMut::new();
    let requests = std::cell::RefCell::new(Vec::new());
    let respond = |plain: &Plain<'_>, _: &mut ResponseBuffer| {
        let header = |field: &httparse::Header<'_>| (field.name.to_owned(), field.value.to_vec());
        requests.borrow_mut().push(Request {
            method: plain.method.to_owned(),
            target: plain.target.to_owned(),
            headers: plain.headers.iter().map(header).collect(),
            body: plain.body.to_vec(),
        });
        Respond::Ready
    };
    let mut all = Read::default();
    let mut wanted = 0;
    let (mut response, mut out) = (ResponseBuffer::default(), Vec::new());
    for piece in &mut pieces {
        bytes.extend_from_slice(piece);
        if bytes.len() < wanted {
            continue;
        }
        out.clear();
        match answer_all(&mut bytes, &limits, &respond, &mut response, &mut out) {
            Step::NeedsBody(missing) => wanted = bytes.len() + missing,
            Step::NeedsHead => wanted = 0,
            _ => {
                all.is_other = true;
                break;
            }
        }
        all.kept = all.kept.max(bytes.len());
    }
    pieces.for_each(|piece| bytes.extend_from_slice(piece));
    all.left = bytes.to_vec();
    all.requests = requests.into_inner();
    all
}
