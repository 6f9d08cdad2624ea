//! HPACK: header compression of HTTP/2 (RFC 7541).
//!
//! # Theory
//!
//! Both sides keep a table of fields sent earlier. A field is an index into it, or a literal that may be added to it.
//! Indexes up to [`STATIC`] are the same everywhere. Decoding a block changes the table, so every block must be decoded
//! to its end, even that of a rejected request.
//!
//! # Invariant
//!
//! The table holds at most [`TABLE_BYTES`], as the standard counts them. Indexed fields are never copied, so a short
//! block that names a long field many times costs time in proportion to the block.
//!
//! The encoder adds nothing to the client's table, so it keeps no state.

use std::collections::VecDeque;

use crate::huffman;

/// The table's size: the default of the standard, which the session's settings do not change.
const TABLE_BYTES: usize = 4_096;
/// What a field costs in the table besides its text.
const FIELD_BYTES: usize = 32;

/// A block that cannot be decoded. The tables of the two sides differ from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError;

/// A field that the client added to the table.
#[derive(Debug)]
struct Field {
    /// The name, then the value.
    text: Box<[u8]>,
    name: usize,
}

/// Decodes the header blocks of one connection.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Newest first.
    table: VecDeque<Field>,
    bytes: usize,
    /// By how much the client reduced the table below [`TABLE_BYTES`].
    reduced_by: usize,
    changes: u64,
    /// Decoded Huffman strings.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// Counts changes of the table. While it stays the same, equal blocks decode to equal fields.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Decodes a block and passes each field's name and value to `field`.
    pub(crate) fn read(
        &mut self,
        mut block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), DecodeError> {
        let mut is_first = true;
        while let Some(&first) = block.first() {
            match first {
                0x80.. => {
                    let index = number(&mut block, 7)?;
                    let (name, value) = self.get(index)?;
                    field(name, value);
                }
                0x40.. => {
                    let index = number(&mut block, 6)?;
                    let added = self.literal_to_add(index, &mut block, &mut field)?;
                    self.add(added);
                }
                0x20.. => {
                    let size = number(&mut block, 5)?;
                    // Only before the first field, and never above the agreed size.
                    if !is_first || size > TABLE_BYTES {
                        return Err(DecodeError);
                    }
                    self.changes += 1;
                    self.reduced_by = TABLE_BYTES - size;
                    self.evict(0);
                    continue;
                }
                _ => {
                    let index = number(&mut block, 4)?;
                    self.literal(index, &mut block, &mut field)?;
                }
            }
            is_first = false;
        }
        Ok(())
    }

    fn get(&self, index: usize) -> Result<(&[u8], &[u8]), DecodeError> {
        let from_one = index.checked_sub(1).ok_or(DecodeError)?;
        if let Some((name, value)) = STATIC.get(from_one) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let field = self.table.get(from_one - STATIC.len());
        let field = field.ok_or(DecodeError)?;
        field.text.split_at_checked(field.name).ok_or(DecodeError)
    }

    /// Decodes a literal field, with an indexed or a literal name.
    fn literal(
        &mut self,
        index: usize,
        block: &mut &[u8],
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), DecodeError> {
        self.name.clear();
        self.value.clear();
        let literal_name = match index {
            0 => Some(string(block, &mut self.name)?),
            _ => None,
        };
        let value = string(block, &mut self.value)?;
        let value = value.unwrap_or(&self.value);
        let name = match literal_name {
            Some(name) => name.unwrap_or(&self.name),
            None => self.get(index)?.0,
        };
        field(name, value);
        Ok(())
    }

    /// The same, and returns a copy for the table.
    fn literal_to_add(
        &mut self,
        index: usize,
        block: &mut &[u8],
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<Field, DecodeError> {
        let mut copy = None;
        self.literal(index, block, &mut |name: &[u8], value: &[u8]| {
            copy = Some(Field {
                text: [name, value].concat().into_boxed_slice(),
                name: name.len(),
            });
            field(name, value);
        })?;
        copy.ok_or(DecodeError)
    }

    fn add(&mut self, field: Field) {
        self.changes += 1;
        let bytes = field.text.len() + FIELD_BYTES;
        self.evict(bytes);
        // A field larger than the table empties it, which is no error.
        if self.bytes + bytes + self.reduced_by <= TABLE_BYTES {
            self.bytes += bytes;
            self.table.push_front(field);
        }
    }

    fn evict(&mut self, bytes: usize) {
        while self.bytes + bytes + self.reduced_by > TABLE_BYTES {
            let Some(oldest) = self.table.pop_back() else {
                return;
            };
            self.bytes -= oldest.text.len() + FIELD_BYTES;
        }
    }
}

/// Decodes an integer with a prefix of `bits` bits.
fn number(block: &mut &[u8], bits: u32) -> Result<usize, DecodeError> {
    let (first, mut rest) = block.split_first().ok_or(DecodeError)?;
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        // Three continuation bytes exceed every length and index that is accepted.
        let mut shift = 0;
        loop {
            let (byte, behind) = rest.split_first().ok_or(DecodeError)?;
            rest = behind;
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            match byte & 0x80 {
                0 => break,
                _ if shift == 21 => return Err(DecodeError),
                _ => {}
            }
        }
    }
    *block = rest;
    Ok(value)
}

/// Decodes a string: the literal, or `None` if it was Huffman-coded and is now in `to`.
fn string<'a>(block: &mut &'a [u8], to: &mut Vec<u8>) -> Result<Option<&'a [u8]>, DecodeError> {
    let is_coded = block.first().is_some_and(|byte| byte & 0x80 != 0);
    let length = number(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(DecodeError)?;
    *block = rest;
    if is_coded {
        huffman::decode(text, to).ok_or(DecodeError)?;
        return Ok(None);
    }
    Ok(Some(text))
}

/// Writes a literal field without indexing.
pub(crate) fn write(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0);
    write_string(out, name);
    write_string(out, value);
}

pub(crate) fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    let mut length = text.len();
    if length < 0x7f {
        out.extend(u8::try_from(length));
    } else {
        out.push(0x7f);
        length -= 0x7f;
        while length >= 0x80 {
            out.extend(u8::try_from(length & 0x7f | 0x80));
            length >>= 7;
        }
        out.extend(u8::try_from(length));
    }
    out.extend_from_slice(text);
}

/// The static table (RFC 7541, appendix A).
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""),
    ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""),
    ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""),
    ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""),
    ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""), ("retry-after", ""),
    ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""), ("transfer-encoding", ""),
    ("user-agent", ""), ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

#[cfg(test)]
mod tests;
