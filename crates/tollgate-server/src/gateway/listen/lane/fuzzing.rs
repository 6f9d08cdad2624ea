//! The check of framing and the lane behind it, without their sockets, for the fuzz targets.

use hyper::Request;

use super::*;
use crate::gateway::check::asks_for_tunnel;
use crate::gateway::listen::frames::{Frames, WRONG};

/// Bytes of a head.
pub const HEAD_MOST: usize = HEAD_BYTES;
/// The method of the request that stands for a wrong head.
pub const WRONG_METHOD: &str = WRONG;

/// What follows a head, by the check of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The next head.
    Nothing,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunks,
    /// Nothing, until it is known whether the connection becomes a tunnel.
    PerhapsTunnel,
}

/// Looks at a whole head: what follows, and is it for the lane? None if it is refused.
pub fn check(head: &[u8]) -> Option<(Behind, bool)> {
    let checked = head::check(head).ok()?;
    let behind = match checked.follows {
        Follows::Nothing => Behind::Nothing,
        Follows::Length(length) => Behind::Length(length),
        Follows::Chunks => Behind::Chunks,
        Follows::PerhapsTunnel => Behind::PerhapsTunnel,
    };
    Some((behind, checked.is_plain && behind == Behind::Nothing))
}

/// What the check of framing gave out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// What the parser may see.
    pub bytes: Vec<u8>,
    /// Did it fail in the middle of a body?
    pub failed: bool,
    /// Is nothing more read?
    pub is_over: bool,
    /// Does it wait for a decision about a tunnel?
    pub is_held: bool,
}

/// Feeds the check of framing with pieces. Tunnels are refused if `refuses`, otherwise not decided about.
pub fn given<'a>(pieces: impl Iterator<Item = &'a [u8]>, refuses: bool) -> Given {
    let mut frames = Frames::new();
    let mut failed = false;
    for piece in pieces {
        failed = failed || frames.feed(piece).is_err();
        while refuses && !failed && frames.is_held() {
            failed = frames.decide(false).is_err();
        }
    }
    Given {
        failed,
        is_over: frames.is_over(),
        is_held: frames.is_held(),
        bytes: frames.ready.to_vec(),
    }
}

/// The heads that the lane takes of pieces that come one after the other, and what it leaves.
pub fn taken<'a>(mut pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut unanswered = Unanswered::default();
    let mut heads = Vec::new();
    let mut next = Next::Missing;
    loop {
        next = match next {
            Next::Head(head) => {
                heads.push(head.to_vec());
                unanswered.next()
            }
            Next::Missing => match pieces.next() {
                None => break,
                Some([]) => Next::Missing,
                Some(piece) => unanswered.next_of(piece),
            },
            Next::Other => {
                pieces.by_ref().for_each(|piece| unanswered.add(piece));
                break;
            }
        };
    }
    (heads, unanswered.bytes.to_vec())
}

/// The request that the lane makes of a head; None if its parser does not take it.
pub fn request(head: &[u8]) -> Option<Request<()>> {
    request::read(&Bytes::copy_from_slice(head)).map(|request| request.map(|_| ()))
}

/// Does this request ask for a tunnel?
pub fn is_tunnel(request: &Request<()>) -> bool {
    asks_for_tunnel(request)
}
