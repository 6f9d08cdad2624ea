//! HPACK (RFC 7541), as far as a unary call needs it.
//!
//! Requests: the fields of every call are the same, so the first call puts four of them into the server's table and later ones
//! name their indices, six bytes in all. For a server without a table they are spelt each time.
//!
//! Responses: only `:status` and `grpc-status` matter. The client announces no table, so each is in the static table or
//! spelt, plainly or in Huffman code. A name is compared in both encodings; of values only digits are decoded.

/// The method of the service.
pub(super) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const STATUS: u64 = 8;
const GRPC_STATUS: &[u8] = b"grpc-status";
/// The same in Huffman code.
const GRPC_STATUS_CODED: &[u8] = &[0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];

/// The header blocks of calls to one host.
#[derive(Clone, Debug)]
pub(super) struct HeaderBlocks {
    /// Fills the table.
    first: Vec<u8>,
    /// Uses it.
    later: Vec<u8>,
    /// Announces that no table is used, then spells all fields.
    first_spelt: Vec<u8>,
    /// Spells all fields.
    spelt: Vec<u8>,
}

impl HeaderBlocks {
    pub(super) fn new(path: &str, host: &str, is_tls: bool) -> HeaderBlocks {
        // `:method: POST`, `:scheme: http` or `https`.
        let common = [0x83, if is_tls { 0x87 } else { 0x86 }];
        let block = |place: u8, authority: u8, content_type: &[u8], te: u8| {
            let mut block = common.to_vec();
            block.push(place);
            string(path, &mut block);
            block.push(authority);
            string(host, &mut block);
            block.extend_from_slice(content_type);
            string("application/grpc", &mut block);
            block.push(te);
            string("te", &mut block);
            string("trailers", &mut block);
            block
        };
        // Indices of names in the static table: 4, 1, 31; the prefix says whether the field is indexed.
        let spelt = block(0x04, 0x01, &[0x0f, 0x10], 0x00);
        HeaderBlocks {
            first: block(0x44, 0x41, &[0x5f], 0x40),
            // The newest entry has index 62.
            later: [&common[..], &[0xc1, 0xc0, 0xbf, 0xbe]].concat(),
            first_spelt: [&[0x20], spelt.as_slice()].concat(),
            spelt,
        }
    }

    pub(super) fn block(&self, is_first: bool, has_table: bool) -> &[u8] {
        match (is_first, has_table) {
            (true, true) => &self.first,
            (false, true) => &self.later,
            (true, false) => &self.first_spelt,
            (false, false) => &self.spelt,
        }
    }
}

fn string(text: &str, out: &mut Vec<u8>) {
    let mut len = text.len();
    if len < 0x7f {
        out.extend(u8::try_from(len));
    } else {
        out.push(0x7f);
        len -= 0x7f;
        while len >= 0x80 {
            out.extend(u8::try_from(len & 0x7f | 0x80));
            len >>= 7;
        }
        out.extend(u8::try_from(len));
    }
    out.extend_from_slice(text.as_bytes());
}

/// The status fields of a header block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StatusFields {
    pub(super) http: Option<u16>,
    pub(super) grpc: Option<u32>,
}

impl StatusFields {
    /// Reads a header block; `None` if it is malformed.
    pub(super) fn read(mut bytes: &[u8]) -> Option<StatusFields> {
        let mut block = StatusFields::default();
        while let Some(&first) = bytes.first() {
            if first & 0x80 != 0 {
                let place = number(&mut bytes, 7)?;
                let known = [200, 204, 206, 304, 400, 404, 500];
                let status = place
                    .checked_sub(STATUS)
                    .and_then(|at| usize::try_from(at).ok());
                block.http = status.and_then(|at| known.get(at).copied()).or(block.http);
                continue;
            }
            if first & 0xe0 == 0x20 {
                // The size of the unused table.
                number(&mut bytes, 5)?;
                continue;
            }
            let place = number(&mut bytes, if first & 0x40 != 0 { 6 } else { 4 })?;
            let is_grpc_status = place == 0 && {
                let (name, is_coded) = text(&mut bytes)?;
                name == if is_coded {
                    GRPC_STATUS_CODED
                } else {
                    GRPC_STATUS
                }
            };
            let (value, is_coded) = text(&mut bytes)?;
            // The static table has `:status` at seven places.
            if (STATUS..STATUS + 7).contains(&place) {
                block.http = digits(value, is_coded).and_then(|status| u16::try_from(status).ok());
            } else if is_grpc_status {
                // A status that is no number counts as UNKNOWN.
                block.grpc = digits(value, is_coded).or(Some(2));
            }
        }
        Some(block)
    }
}

/// An integer whose prefix of `bits` is in the first byte.
fn number(bytes: &mut &[u8], bits: u32) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    let most = (1_u64 << bits) - 1;
    let mut value = u64::from(first) & most;
    if value < most {
        return Some(value);
    }
    // Four more bytes are more than any block needs.
    for shift in [0, 7, 14, 21] {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value += u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The first string, and whether it is in Huffman code.
fn text<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], bool)> {
    let is_coded = bytes.first()? & 0x80 != 0;
    let len = usize::try_from(number(bytes, 7)?).ok()?;
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some((text, is_coded))
}

/// A number of at most four digits.
fn digits(text: &[u8], is_coded: bool) -> Option<u32> {
    if !is_coded {
        let text = std::str::from_utf8(text).ok().filter(|t| t.len() <= 4)?;
        return text.parse().ok();
    }
    if text.len() > 3 {
        return None;
    }
    let whole = text.iter().fold(0_u32, |sum, b| sum << 8 | u32::from(*b));
    let mut left = u32::try_from(text.len()).ok()? * 8;
    let mut value = None;
    // 0, 1 and 2 are the five bits of themselves; 3 to 9 are six bits, from 0x19 on. Ones fill the last byte.
    while left >= 5 {
        let five = whole >> (left - 5) & 0x1f;
        let (digit, bits) = match five {
            0..=2 => (five, 5),
            _ if left >= 6 => match whole >> (left - 6) & 0x3f {
                six @ 0x19..=0x1f => (six - 0x19 + 3, 6),
                _ => break,
            },
            _ => break,
        };
        value = Some(value.unwrap_or(0) * 10 + digit);
        left -= bits;
    }
    let filled = (1 << left) - 1;
    value.filter(|_| left < 8 && whole & filled == filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digits in Huffman code.
    fn coded(text: &str) -> Vec<u8> {
        let mut bits = String::new();
        for digit in text.bytes().map(|byte| byte - b'0') {
            match digit {
                0..=2 => bits.push_str(&format!("{digit:05b}")),
                _ => bits.push_str(&format!("{:06b}", digit - 3 + 0x19)),
            }
        }
        while !bits.len().is_multiple_of(8) {
            bits.push('1');
        }
        let bytes = bits.as_bytes().chunks(8);
        let byte = |bits| u8::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap();
        bytes.map(byte).collect()
    }

    #[test]
    fn every_status_is_read_plainly_and_in_huffman_code() {
        for status in (0..=16).chain(100..600) {
            let text = status.to_string();
            assert_eq!(digits(text.as_bytes(), false), Some(status));
            assert_eq!(digits(&coded(&text), true), Some(status), "{text}");
        }
        for bytes in [&b""[..], b"x", b"99999"] {
            assert_eq!(digits(bytes, false), None);
        }
        assert_eq!(digits(&[0xf8], true), None);
    }

    #[test]
    fn both_statuses_are_found_among_other_fields() {
        let mut bytes = vec![0x20, 0x88, 0x5f];
        string("application/grpc", &mut bytes);
        bytes.push(0x00);
        string("grpc-status", &mut bytes);
        string("12", &mut bytes);
        bytes.push(0x10);
        string("grpc-message", &mut bytes);
        string("no", &mut bytes);
        let both = StatusFields {
            http: Some(200),
            grpc: Some(12),
        };
        assert_eq!(StatusFields::read(&bytes), Some(both));
        let mut bytes = vec![0x48, 0x83];
        bytes.extend(coded("503"));
        let coded_block = StatusFields {
            http: Some(503),
            grpc: None,
        };
        assert_eq!(
            StatusFields::read(&bytes).filter(|_| coded("503").len() == 3),
            Some(coded_block)
        );
    }

    #[test]
    fn a_truncated_block_is_malformed() {
        let mut bytes = vec![0x00];
        string("grpc-status", &mut bytes);
        string("0", &mut bytes);
        for len in 1..bytes.len() {
            assert_eq!(StatusFields::read(&bytes[..len]), None, "{len}");
        }
    }
}
