//! A stream in pieces, as networks cut it.
//!
//! Where it is cut depends on the bytes alone, so that an input means the same whenever it is tried.

/// Ways to cut that are tried.
pub const WAYS: u64 = 4;

/// The pieces of `bytes`, cut in this way. The first way is byte by byte.
pub fn pieces(bytes: &[u8], way: u64) -> impl Iterator<Item = &[u8]> {
    let mut dice = Dice::of(bytes, way);
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let most = match way {
            0 => 1,
            1 => 8,
            2 => 200,
            _ => rest.len().max(2) - 1,
        };
        let size = (1 + dice.roll(most)).min(rest.len());
        let (piece, behind) = rest.split_at(size);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

/// All of it at once.
pub fn whole(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::once(bytes)
}

/// Numbers that look random and are always the same.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The same for the same seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// The same for the same bytes and number.
    pub fn of(bytes: &[u8], number: u64) -> Dice {
        let mixed = bytes.iter().fold(number, |mixed, byte| {
            (mixed ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Dice::new(mixed)
    }

    /// The next number (splitmix64).
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `sides`; 0 if there is none.
    pub fn roll(&mut self, sides: usize) -> usize {
        let sides = u64::try_from(sides.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next_number() % sides).unwrap_or(0)
    }
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
