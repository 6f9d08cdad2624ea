//! Answers of upstreams as they are read, without their sockets, for the fuzz targets.

use bytes::Bytes;
use hyper::http::HeaderMap;
use hyper::{Method, Response};

use super::chunks::{Chunks, Part};
use super::head::{self, Follows};

/// What follows the head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing.
    Nothing,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunks,
    /// Bytes until the connection ends.
    Rest,
}

/// Where a head ends, if it does; everything before `from` was looked at before.
pub fn end(bytes: &[u8], from: usize) -> Option<usize> {
    head::end(bytes, from)
}

/// Reads a whole head: the answer, what follows, and whether the connection may be used again.
///
/// # Errors
/// What is wrong with it.
pub fn read(bytes: &[u8], method: &Method) -> Result<(Response<()>, Behind, bool), &'static str> {
    let head = head::read(&Bytes::copy_from_slice(bytes), method)?;
    let behind = match head.follows {
        Follows::Nothing => Behind::Nothing,
        Follows::Length(length) => Behind::Length(length),
        Follows::Chunks => Behind::Chunks,
        Follows::Rest => Behind::Rest,
    };
    Ok((head.answer, behind, head.may_rest))
}

/// A body in chunks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunked {
    /// What it comes to.
    pub data: Vec<u8>,
    /// The fields behind it.
    pub trailers: HeaderMap,
    /// Bytes behind its end; None if it does not end.
    pub behind: Option<usize>,
}

/// Reads a body in chunks of pieces that come one after the other.
///
/// # Errors
/// What is wrong with it.
pub fn chunks<'a>(mut pieces: impl Iterator<Item = &'a [u8]>) -> Result<Chunked, &'static str> {
    let mut chunks = Chunks::new();
    let mut read = Bytes::new();
    let mut all = Chunked::default();
    loop {
        match chunks.next(&mut read)? {
            Part::Data(part) => all.data.extend_from_slice(&part),
            Part::Trailers(fields) => all.trailers = fields,
            Part::End => {
                all.behind = Some(read.len() + pieces.map(<[u8]>::len).sum::<usize>());
                return Ok(all);
            }
            Part::Missing => match pieces.next() {
                Some(piece) => read = Bytes::copy_from_slice(piece),
                None => return Ok(all),
            },
        }
    }
}
