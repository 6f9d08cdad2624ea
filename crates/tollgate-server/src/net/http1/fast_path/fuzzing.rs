//! The fast path without its socket, for the fuzz targets.

use super::{Request as Borrowed, *};

/// A request that was parsed on the fast path.
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
pub struct Served {
    /// The requests that it answers.
    pub requests: Vec<Request>,
    /// The rest is for hyper.
    pub is_declined: bool,
    /// What was not answered.
    pub unread: Vec<u8>,
    /// The most bytes that were kept unanswered.
    pub max_kept: usize,
}

/// Bytes of the largest request on the fast path.
pub fn max_request_bytes() -> usize {
    let limits = ListenLimits::default();
    limits.head_bytes + limits.body.bytes
}

/// Serves pieces that arrive one after the other.
pub fn serve_pieces<'a>(mut pieces: impl Iterator<Item = &'a [u8]>) -> Served {
    let requests = std::cell::RefCell::new(Vec::new());
    let respond = |request: &Borrowed<'_>, _: &mut ResponseBuffer| {
        let header = |field: &httparse::Header<'_>| (field.name.to_owned(), field.value.to_vec());
        requests.borrow_mut().push(Request {
            method: request.method.to_owned(),
            target: request.target.to_owned(),
            headers: request.headers.iter().map(header).collect(),
            body: request.body.to_vec(),
        });
        Respond::Ready
    };
    let mut path = FastPath {
        limits: &ListenLimits::default(),
        respond,
        response: ResponseBuffer::default(),
        unwritten: Vec::new(),
    };
    let mut served = Served::default();
    let mut unread = Unread::default();
    let mut wanted = 0;
    for piece in &mut pieces {
        path.unwritten.clear();
        if unread.bytes.len() + piece.len() < wanted {
            unread.bytes.extend_from_slice(piece);
            continue;
        }
        match unread.parse_more(piece, |bytes, _| path.answer(bytes)) {
            NextAction::NeedsBody(missing) => wanted = unread.bytes.len() + missing,
            NextAction::NeedsHead => wanted = 0,
            _ => {
                served.is_declined = true;
                break;
            }
        }
        served.max_kept = served.max_kept.max(unread.bytes.len());
    }
    pieces.for_each(|piece| unread.bytes.extend_from_slice(piece));
    served.unread = unread.bytes.to_vec();
    drop(path);
    served.requests = requests.into_inner();
    served
}
