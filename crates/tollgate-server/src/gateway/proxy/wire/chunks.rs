//! Reads a chunked response body.

use bytes::{Buf, Bytes, BytesMut};
use hyper::http::HeaderMap;

use super::head::parse_trailers;

/// Bytes of the line before a chunk.
const LINE_BYTES: usize = 256;
/// Bytes of all lines after the last chunk.
const TRAILER_BYTES: usize = 16 * 1024;

/// Reads a chunked body.
#[derive(Debug)]
pub(super) struct ChunkReader {
    position: Position,
    /// An incomplete line, or all lines after the last chunk.
    line: BytesMut,
}

#[derive(Clone, Copy, Debug)]
enum Position {
    /// In the line before a chunk.
    Size,
    Data(u64),
    /// In the line end after a chunk.
    DataEnd,
    /// In the lines after the last chunk.
    Trailers,
    End,
}

/// The next part of a body.
#[derive(Debug)]
pub(super) enum Part {
    Data(Bytes),
    Trailers(HeaderMap),
    /// The body has ended.
    End,
    /// More bytes are needed.
    Missing,
}

impl ChunkReader {
    pub(super) fn new() -> ChunkReader {
        ChunkReader {
            position: Position::Size,
            line: BytesMut::new(),
        }
    }

    /// Takes the next part from what was read.
    pub(super) fn next(&mut self, read: &mut Bytes) -> Result<Part, &'static str> {
        loop {
            match self.position {
                Position::End => return Ok(Part::End),
                _ if read.is_empty() => return Ok(Part::Missing),
                Position::Size => {
                    if self.take_line(read, LINE_BYTES)? {
                        self.position = match size(&self.line)? {
                            0 => Position::Trailers,
                            size => Position::Data(size),
                        };
                        self.line.clear();
                    }
                }
                Position::Data(left) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    let data = read.split_to(most.min(read.len()));
                    self.position = match left - data.len() as u64 {
                        0 => Position::DataEnd,
                        left => Position::Data(left),
                    };
                    return Ok(Part::Data(data));
                }
                Position::DataEnd => {
                    if self.take_line(read, 2)? {
                        if self.line != "\r\n" {
                            return Err("a chunk is longer than its size");
                        }
                        self.line.clear();
                        self.position = Position::Size;
                    }
                }
                Position::Trailers => {
                    if self.take_line(read, TRAILER_BYTES)? && self.has_empty_line() {
                        self.position = Position::End;
                        if self.line.len() == 2 {
                            return Ok(Part::End);
                        }
                        return parse_trailers(&self.line).map(Part::Trailers);
                    }
                }
            }
        }
    }

    /// Is the last line empty?
    fn has_empty_line(&self) -> bool {
        self.line == "\r\n" || self.line.ends_with(b"\n\r\n")
    }

    /// Takes what there is of a line. True if it is complete.
    fn take_line(&mut self, read: &mut Bytes, max: usize) -> Result<bool, &'static str> {
        let end = read.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(read.len(), |end| end + 1);
        if self.line.len() + taken > max {
            return Err("a line between chunks is too long");
        }
        self.line
            .extend_from_slice(read.get(..taken).unwrap_or_default());
        read.advance(taken);
        Ok(end.is_some())
    }
}

/// Parses the line before a chunk.
fn size(line: &[u8]) -> Result<u64, &'static str> {
    let error = "the size of a chunk is not a number";
    let line = line.strip_suffix(b"\r\n").ok_or(error)?;
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    if digits.is_empty() || digits.len() > 15 {
        return Err(error);
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = char::from(*digit).to_digit(16).ok_or(error)?;
        Ok(sum << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of a body that arrives in pieces of this size, its trailers, and the bytes after it.
    fn decoded(text: &[u8], piece: usize) -> Result<(Vec<u8>, usize, usize), &'static str> {
        let mut chunks = ChunkReader::new();
        let (mut data, mut trailers) = (Vec::new(), 0);
        let mut pieces = text.chunks(piece);
        let mut read = Bytes::new();
        loop {
            match chunks.next(&mut read)? {
                Part::Data(part) => data.extend_from_slice(&part),
                Part::Trailers(fields) => trailers = fields.len(),
                Part::End => {
                    let behind = read.len() + pieces.map(<[u8]>::len).sum::<usize>();
                    return Ok((data, trailers, behind));
                }
                Part::Missing => {
                    read = Bytes::copy_from_slice(pieces.next().ok_or("it is incomplete")?);
                }
            }
        }
    }

    #[test]
    fn a_body_is_the_same_however_it_is_split() {
        let text =
            b"5\r\nhello\r\n1;x=y\r\n \r\n00A \r\n0123456789\r\n0\r\nt: 1\r\nu: 2\r\n\r\nHTTP";
        for piece in 1..=text.len() {
            let all = (b"hello 0123456789".to_vec(), 2, 4);
            assert_eq!(decoded(text, piece), Ok(all), "{piece}");
        }
        assert_eq!(decoded(b"0\r\n\r\n", 1), Ok((Vec::new(), 0, 0)));
    }

    #[test]
    fn malformed_chunks_are_an_error_however_they_are_split() {
        for text in [
            &b"g\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b"5\nhello\r\n0\r\n\r\n",
            b"5\r\nhelloX\r\n0\r\n\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"1000000000000000\r\n",
            b"0\r\nno colon\r\n\r\n",
        ] {
            for piece in 1..=text.len() {
                assert!(decoded(text, piece).is_err(), "{text:?} {piece}");
            }
        }
        let long = [b"1;".to_vec(), vec![b'x'; LINE_BYTES], b"\r\n".to_vec()].concat();
        assert!(decoded(&long, 100).is_err());
        let trailers = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(TRAILER_BYTES)].concat();
        assert!(decoded(&trailers, 1000).is_err());
    }
}
