//! Responses of upstreams without their sockets, for the fuzz targets.

use bytes::Bytes;
use hyper::http::HeaderMap;
use hyper::{Method, Response};

use super::chunks::{ChunkReader, Part};
use super::head::{self, ResponseBodyKind};

/// The body that follows a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// None.
    None,
    /// This many bytes.
    Length(u64),
    /// Chunks.
    Chunks,
    /// All bytes until the connection ends.
    UntilClose,
}

/// The length of a head, if it is complete. Bytes before `from` were scanned before.
pub fn end(bytes: &[u8], from: usize) -> Option<usize> {
    head::end(bytes, from)
}

/// Parses a complete head: the response, its body, and whether the connection may be used again.
///
/// # Errors
/// What is wrong with it.
pub fn parse_head(
    bytes: &[u8],
    method: &Method,
) -> Result<(Response<()>, ResponseBody, bool), &'static str> {
    let head = head::parse(&Bytes::copy_from_slice(bytes), method)?;
    let body = match head.body {
        ResponseBodyKind::None => ResponseBody::None,
        ResponseBodyKind::Length(length) => ResponseBody::Length(length),
        ResponseBodyKind::Chunks => ResponseBody::Chunks,
        ResponseBodyKind::UntilClose => ResponseBody::UntilClose,
    };
    Ok((head.response, body, head.is_reusable))
}

/// A chunked body.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunked {
    /// Its data.
    pub data: Vec<u8>,
    /// Its trailer fields.
    pub trailers: HeaderMap,
    /// Bytes after its end; `None` if it is incomplete.
    pub after: Option<usize>,
}

/// Reads a chunked body from pieces that arrive one after the other.
///
/// # Errors
/// What is wrong with it.
pub fn read_chunks<'a>(
    mut pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<Chunked, &'static str> {
    let mut chunks = ChunkReader::new();
    let mut read = Bytes::new();
    let mut all = Chunked::default();
    loop {
        match chunks.next(&mut read)? {
            Part::Data(part) => all.data.extend_from_slice(&part),
            Part::Trailers(fields) => all.trailers = fields,
            Part::End => {
                all.after = Some(read.len() + pieces.map(<[u8]>::len).sum::<usize>());
                return Ok(all);
            }
            Part::Missing => match pieces.next() {
                Some(piece) => read = Bytes::copy_from_slice(piece),
                None => return Ok(all),
            },
        }
    }
}
