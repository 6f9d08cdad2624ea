//! A stream in pieces, as a network delivers it.
//!
//! The split depends on the bytes alone, so that an input behaves the same in every run.

use fastrand::Rng;

/// How many splits a target tries.
pub const SPLITS: u64 = 4;

/// The pieces of `bytes` in this split. The first split is byte by byte.
pub fn pieces(bytes: &[u8], split: u64) -> impl Iterator<Item = &[u8]> {
    let mut rng = generator(bytes, split);
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let most = match split {
            0 => 1,
            1 => 8,
            2 => 200,
            _ => rest.len().max(2) - 1,
        };
        let size = rng.usize(1..=most).min(rest.len());
        let (piece, behind) = rest.split_at(size);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

/// All of it at once.
pub fn unsplit(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::once(bytes)
}

/// A generator that is the same for the same bytes and number.
pub fn generator(bytes: &[u8], number: u64) -> Rng {
    let mixed = bytes.iter().fold(number, |mixed, byte| {
        (mixed ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Rng::with_seed(mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_make_the_whole_in_every_split() {
        let bytes: Vec<u8> = (0..=255).collect();
        for split in 0..SPLITS {
            let all: Vec<u8> = pieces(&bytes, split).flatten().copied().collect();
            assert_eq!(all, bytes);
        }
        assert_eq!(pieces(&bytes, 0).count(), bytes.len());
        assert_eq!(pieces(&[], 1).count(), 0);
    }
}
