//! A stream in pieces, as networks cut it.
//!
//! Where it is cut depends on the bytes alone, so that an input means the same whenever it is tried.

use fastrand::Rng;

/// Ways to cut that are tried.
pub const WAYS: u64 = 4;

/// The pieces of `bytes`, cut in this way. The first way is byte by byte.
pub fn pieces(bytes: &[u8], way: u64) -> impl Iterator<Item = &[u8]> {
    let mut rng = generator(bytes, way);
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let most = match way {
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
pub fn whole(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
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
    fn the_pieces_are_the_whole_in_every_way() {
        let bytes: Vec<u8> = (0..=255).collect();
        for way in 0..WAYS {
            let all: Vec<u8> = pieces(&bytes, way).flatten().copied().collect();
            assert_eq!(all, bytes);
        }
        assert_eq!(pieces(&bytes, 0).count(), bytes.len());
        assert_eq!(pieces(&[], 1).count(), 0);
    }
}
