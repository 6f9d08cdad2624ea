//! Header fields as HTTP/2 packs them (RFC 7541).
//!
//! # Theory
//!
//! Both sides keep a table of fields that were sent before; a field is its place in it, or is spelt and perhaps
//! put into it. Places up to [`STATIC`] are the same everywhere. Reading a block changes the table, so every block
//! has to be read to its end, even that of a request nobody wants.
//!
//! # Invariant
//!
//! The table holds [`TABLE_BYTES`] at most, as the standard counts them. What a place stands for is never copied
//! here, so a short block that names a long field many times costs time in proportion to the block.
//!
//! Of our own fields none is put into the client's table, so there is nothing to keep for writing.

use std::collections::VecDeque;

use super::huffman;

/// What the table holds at most, as every client assumes until it is told otherwise.
const TABLE_BYTES: usize = 4_096;
/// What a field costs in the table beside its text.
const FIELD_BYTES: usize = 32;

/// A block that cannot be read. The tables of both sides differ from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// What a client put into the table.
#[derive(Debug)]
struct Field {
    /// The name, then the value.
    text: Box<[u8]>,
    name: usize,
}

/// Reads the blocks of one connection.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The newest is the first.
    table: VecDeque<Field>,
    bytes: usize,
    /// How much smaller than [`TABLE_BYTES`] the client made it.
    cut: usize,
    changes: u64,
    /// Where a name and a value in Huffman's code are spelt out.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// How often the table has changed: as long as that is the same, the same block means the same.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Tells the fields of a block one after the other, as names and values.
    pub(super) fn read(
        &mut self,
        mut block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Unreadable> {
        let mut is_first = true;
        while let Some(&first) = block.first() {
            match first {
                0x80.. => {
                    let place = number(&mut block, 7)?;
                    let (name, value) = self.at(place)?;
                    field(name, value);
                }
                0x40.. => {
                    let place = number(&mut block, 6)?;
                    let added = self.spelt(place, &mut block, &mut field)?;
                    self.add(added);
                }
                0x20.. => {
                    let size = number(&mut block, 5)?;
                    // Only before the first field, and never more than we agreed to.
                    if !is_first || size > TABLE_BYTES {
                        return Err(Unreadable);
                    }
                    self.changes += 1;
                    self.cut = TABLE_BYTES - size;
                    self.make_room(0);
                    continue;
                }
                _ => {
                    let place = number(&mut block, 4)?;
                    self.spelt_once(place, &mut block, &mut field)?;
                }
            }
            is_first = false;
        }
        Ok(())
    }

    fn at(&self, place: usize) -> Result<(&[u8], &[u8]), Unreadable> {
        let from_one = place.checked_sub(1).ok_or(Unreadable)?;
        if let Some((name, value)) = STATIC.get(from_one) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let field = self.table.get(from_one - STATIC.len());
        let field = field.ok_or(Unreadable)?;
        field.text.split_at_checked(field.name).ok_or(Unreadable)
    }

    /// A field that is spelt, with its name at a place or spelt too.
    fn spelt_once(
        &mut self,
        place: usize,
        block: &mut &[u8],
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Unreadable> {
        self.name.clear();
        self.value.clear();
        let spelt = match place {
            0 => Some(string(block, &mut self.name)?),
            _ => None,
        };
        let value = string(block, &mut self.value)?;
        let value = value.unwrap_or(&self.value);
        let name = match spelt {
            Some(name) => name.unwrap_or(&self.name),
            None => self.at(place)?.0,
        };
        field(name, value);
        Ok(())
    }

    /// The same; gives back a copy for the table.
    fn spelt(
        &mut self,
        place: usize,
        block: &mut &[u8],
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<Field, Unreadable> {
        let mut copy = None;
        self.spelt_once(place, block, &mut |name: &[u8], value: &[u8]| {
            copy = Some(Field {
                text: [name, value].concat().into_boxed_slice(),
                name: name.len(),
            });
            field(name, value);
        })?;
        copy.ok_or(Unreadable)
    }

    fn add(&mut self, field: Field) {
        self.changes += 1;
        let bytes = field.text.len() + FIELD_BYTES;
        self.make_room(bytes);
        // One that is larger than the table empties it, and is no error.
        if self.bytes + bytes + self.cut <= TABLE_BYTES {
            self.bytes += bytes;
            self.table.push_front(field);
        }
    }

    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes + self.cut > TABLE_BYTES {
            let Some(oldest) = self.table.pop_back() else {
                return;
            };
            self.bytes -= oldest.text.len() + FIELD_BYTES;
        }
    }
}

/// A number whose first bits are the lowest of the first byte.
fn number(block: &mut &[u8], bits: u32) -> Result<usize, Unreadable> {
    let (first, mut rest) = block.split_first().ok_or(Unreadable)?;
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        // Three more bytes are more than any length or place that we take.
        let mut shift = 0;
        loop {
            let (byte, behind) = rest.split_first().ok_or(Unreadable)?;
            rest = behind;
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            match byte & 0x80 {
                0 => break,
                _ if shift == 21 => return Err(Unreadable),
                _ => {}
            }
        }
    }
    *block = rest;
    Ok(value)
}

/// A string as it stands there; None if it was in Huffman's code, and is now in `to`.
fn string<'a>(block: &mut &'a [u8], to: &mut Vec<u8>) -> Result<Option<&'a [u8]>, Unreadable> {
    let is_coded = block.first().is_some_and(|byte| byte & 0x80 != 0);
    let length = number(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(Unreadable)?;
    *block = rest;
    if is_coded {
        huffman::decode(text, to).ok_or(Unreadable)?;
        return Ok(None);
    }
    Ok(Some(text))
}

/// Writes a field that nobody puts into a table.
pub(super) fn write(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0);
    write_string(out, name);
    write_string(out, value);
}

pub(super) fn write_string(out: &mut Vec<u8>, text: &[u8]) {
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

/// The fields that have the same places everywhere (RFC 7541, appendix A).
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
