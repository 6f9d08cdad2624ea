//! The Huffman code of HPACK strings (RFC 7541, appendix B).
//!
//! # Theory
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols, and
//! longer codes follow shorter ones. The lengths alone determine it. The length of the next code is the first
//! length whose end exceeds the next bits, read as a left-aligned number.
//!
//! # Invariant
//!
//! Only the canonical encoding is accepted: the padding is fewer than eight bits, all ones, and the end-of-string symbol is
//! an error.

/// The code length of each byte.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];
/// The longest code.
const LONGEST: usize = 30;

/// The decoding table, in lookup order.
struct Table {
    /// The end of the codes of each length or shorter, left-aligned in 32 bits.
    ends: [u32; LONGEST + 1],
    /// The first code of each length.
    first: [u32; LONGEST + 1],
    /// Index of the first symbol of each length.
    begins: [u32; LONGEST + 1],
    /// Symbols in the order of code length, then value.
    symbols: [u8; 256],
}

static TABLE: Table = table();

const fn table() -> Table {
    let mut table = Table {
        ends: [0; LONGEST + 1],
        first: [0; LONGEST + 1],
        begins: [0; LONGEST + 1],
        symbols: [0; 256],
    };
    let (mut length, mut code, mut filled) = (1, 0_u32, 0_usize);
    while length <= LONGEST {
        code <<= 1;
        table.first[length] = code;
        table.begins[length] = filled as u32;
        let mut symbol = 0_u8;
        loop {
            if LENGTHS[symbol as usize] as usize == length {
                table.symbols[filled] = symbol;
                filled += 1;
                code += 1;
            }
            if symbol == u8::MAX {
                break;
            }
            symbol += 1;
        }
        table.ends[length] = code << (32 - length);
        length += 1;
    }
    table
}

/// Adds what `coded` means to `to`; None if it means nothing.
pub(crate) fn decode(mut coded: &[u8], to: &mut Vec<u8>) -> Option<()> {
    // The bits that were not looked at yet are the lowest of `bits`.
    let (mut bits, mut count) = (0_u64, 0_u32);
    loop {
        while count <= 32
            && let Some((byte, rest)) = coded.split_first()
        {
            bits = bits << 8 | u64::from(*byte);
            count += 8;
            coded = rest;
        }
        // The next 32 bits, with ones behind the end.
        let next = match count {
            32.. => u32::try_from(bits >> (count - 32) & u64::from(u32::MAX)).ok()?,
            0 => return Some(()),
            _ => {
                let known = u32::try_from(bits & ((1 << count) - 1)).ok()?;
                known << (32 - count) | u32::MAX >> count
            }
        };
        let mut lengths = TABLE.ends.iter().enumerate();
        let Some((length, _)) = lengths.find(|(_, end)| next < **end) else {
            // Ones only: what fills the last byte, or the end-of-string code, which is invalid.
            return (count < 8).then_some(());
        };
        let long = u32::try_from(length).ok()?;
        if long > count {
            return None;
        }
        let place = (next >> (32 - long)) - TABLE.first.get(length)? + TABLE.begins.get(length)?;
        to.push(*TABLE.symbols.get(usize::try_from(place).ok()?)?);
        count -= long;
    }
}

#[cfg(test)]
pub(crate) fn encode(text: &[u8]) -> Vec<u8> {
    let mut bits = String::new();
    for byte in text {
        let length = LENGTHS[usize::from(*byte)];
        let begins = TABLE.begins[usize::from(length)];
        let place = (begins..).find(|at| TABLE.symbols[*at as usize] == *byte);
        let code = TABLE.first[usize::from(length)] + place.unwrap() - begins;
        bits.push_str(&format!("{code:0width$b}", width = usize::from(length)));
    }
    while !bits.len().is_multiple_of(8) {
        bits.push('1');
    }
    let bytes = bits.as_bytes().chunks(8);
    let byte = |bits| u8::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap();
    bytes.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut to = Vec::new();
        decode(coded, &mut to)?;
        Some(to)
    }

    #[test]
    fn the_examples_of_the_standard_are_read() {
        for (coded, text) in [
            (
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (
                &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f],
                "custom-key",
            ),
            (&[0x64, 0x02], "302"),
            (&[], ""),
        ] {
            assert_eq!(decoded(coded).as_deref(), Some(text.as_bytes()));
            assert_eq!(encode(text.as_bytes()), coded);
        }
    }

    #[test]
    fn the_longest_codes_are_those_of_the_standard() {
        assert_eq!(encode(&[22]), [0xff, 0xff, 0xff, 0xfb]);
        assert_eq!(encode(b"\\"), [0xff, 0xfe, 0x1f]);
        assert_eq!(encode(&[255]), [0xff, 0xff, 0xfb, 0xbf]);
    }

    #[test]
    fn every_byte_is_read_as_it_was_written() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encode(&all)), Some(all.clone()));
        for byte in all {
            assert_eq!(decoded(&encode(&[byte])), Some(vec![byte]));
            assert_eq!(decoded(&encode(&[byte; 9])), Some(vec![byte; 9]));
        }
    }

    #[test]
    fn padding_is_fewer_than_eight_one_bits() {
        assert_eq!(decoded(&[0x00]), None, "zeros");
        assert_eq!(decoded(&[0x07, 0xff]), None, "a byte of them");
        assert_eq!(decoded(&[0xff]), None, "a byte of nothing else");
        assert_eq!(decoded(&[0xff; 4]), None, "the end is not sent");
        assert_eq!(decoded(&[0xff; 5]), None, "the end is not sent");
        // Half a code.
        assert_eq!(decoded(&[0xff, 0xc0]), None);
    }
}
