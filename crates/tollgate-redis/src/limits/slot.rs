//! Computes the cluster slot of a key.

/// The slot of a key: CRC-16 of its hash tag, or of all of it if it has none, modulo 16384.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let after = key.get(open + 1..)?;
        let close = after.iter().position(|byte| *byte == b'}')?;
        after.get(..close).filter(|tag| !tag.is_empty())
    };
    crc16(tag().unwrap_or(key)) % 16_384
}

/// CRC-16/XMODEM: polynomial 0x1021, initial value 0, not reflected.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let mixed = crc ^ (u16::from(*byte) << 8);
        (0..8).fold(mixed, |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_that_clusters_use() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"somekey"), 11_058);
    }

    #[test]
    fn only_the_first_braces_count_unless_they_are_empty() {
        assert_eq!(slot(b"a{foo}b"), slot(b"foo"));
        assert_eq!(slot(b"{foo}{bar}"), slot(b"foo"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_ne!(slot(b"a{}foo"), slot(b"b{}foo"));
        assert_eq!(slot(b"foo{bar"), crc16(b"foo{bar") % 16_384);
    }
}
