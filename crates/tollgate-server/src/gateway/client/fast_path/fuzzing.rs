//! The framer and the fast path of the gateway without their sockets, for the fuzz targets.

use bytes::Bytes;
use hyper::Request;

use super::{BodyKind, HEAD_BYTES, head, request, take_heads};
use crate::gateway::check::asks_for_tunnel;
use crate::net::http1::framer::{self, RequestFramer};

/// Method of the request that stands for an error.
pub const BAD_REQUEST_METHOD: &str = framer::BAD_REQUEST_METHOD;

/// Bytes of a head, at most.
pub const MAX_HEAD_BYTES: usize = HEAD_BYTES;

/// The body that follows a head, by the check of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// None: the next head follows.
    None,
    /// This many bytes.
    Length(u64),
    /// Chunks.
    Chunks,
    /// None. Whether a head or a tunnel follows is decided by the response.
    MaybeTunnel,
}

/// Checks a complete head: its body, and whether it is for the fast path. `None`: it is refused.
pub fn check(head: &[u8]) -> Option<(RequestBody, bool)> {
    let checked = head::check(head).ok()?;
    let body = match checked.body {
        BodyKind::None => RequestBody::None,
        BodyKind::Length(length) => RequestBody::Length(length),
        BodyKind::Chunks => RequestBody::Chunks,
        BodyKind::MaybeTunnel => RequestBody::MaybeTunnel,
    };
    Some((body, checked.is_plain && body == RequestBody::None))
}

/// What the framer handed out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Framed {
    /// What the parser may see.
    pub bytes: Vec<u8>,
    /// Did it fail inside a body?
    pub failed: bool,
    /// Are further bytes discarded?
    pub is_over: bool,
    /// Does it wait for the decision about a tunnel?
    pub is_held: bool,
}

/// Feeds the framer with pieces. With `is_drained` the parser reads what is handed out after each piece. With
/// `refuses_tunnels` no request begins a tunnel; otherwise that stays undecided.
pub fn frame<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    is_drained: bool,
    refuses_tunnels: bool,
) -> Framed {
    let mut framer = RequestFramer::new();
    let mut framed = Framed::default();
    for piece in pieces {
        framed.failed = framed.failed || framer.feed(piece).is_err();
        while refuses_tunnels && !framed.failed && framer.is_held() {
            framed.failed = framer.decide(false).is_err();
        }
        if is_drained {
            framed.bytes.extend_from_slice(&framer.ready.split());
        }
    }
    framed.bytes.extend_from_slice(&framer.ready);
    framed.is_over = framer.is_over();
    framed.is_held = framer.is_held();
    framed
}

/// The heads that the fast path takes of pieces that arrive one after the other, and what it leaves.
pub fn taken<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Vec<u8>) {
    take_heads(pieces)
}

/// The request that the fast path makes of a head; `None` if its parser refuses it.
pub fn parse_request(head: &[u8]) -> Option<Request<()>> {
    request::parse(&Bytes::copy_from_slice(head)).map(|request| request.map(|_| ()))
}

/// Does this request ask for a tunnel?
pub fn is_tunnel(request: &Request<()>) -> bool {
    asks_for_tunnel(request)
}
