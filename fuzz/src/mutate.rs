//! Random mutations of seeds.

use fastrand::Rng;

/// Inputs do not grow beyond this.
pub const INPUT_MOST: usize = 16 * 1024;

/// Numbers at common boundaries.
const NUMBERS: [&str; 18] = [
    "0",
    "-1",
    "1",
    "9",
    "10",
    "15",
    "16",
    "127",
    "128",
    "255",
    "256",
    "1024",
    "1025",
    "65535",
    "65536",
    "2147483648",
    "9223372036854775807",
    "18446744073709551616",
];

/// A mutation of the seeds.
pub fn mutated(seeds: &[Vec<u8>], words: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng| rng.choice(seeds).map(Vec::as_slice).unwrap_or_default();
    let mut input = pick(rng).to_vec();
    for _ in 0..rng.usize(1..=8) {
        let at = rng.usize(..=input.len());
        let until = (at + rng.usize(..16)).min(input.len());
        match rng.usize(..10) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << rng.usize(..8);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = random_byte(rng);
                }
            }
            2 => {
                let more: Vec<u8> = (0..rng.usize(1..=4)).map(|_| random_byte(rng)).collect();
                input.splice(at..at, more);
            }
            3 => drop(input.drain(at..until)),
            4 | 5 => {
                let word = rng.choice(words).cloned();
                input.splice(at..at, word.unwrap_or_default());
            }
            6 => change_number(&mut input, at, rng),
            7 => {
                let part = input.get(at..until).unwrap_or_default().to_vec();
                let times = if rng.usize(..8) == 0 { 1000 } else { 5 };
                let part = part.repeat(rng.usize(1..=times));
                input.splice(at..at, part);
            }
            8 => {
                let other = pick(rng);
                let from = rng.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(other.get(from..).unwrap_or_default());
            }
            _ => input.extend_from_slice(pick(rng)),
        }
        input.truncate(INPUT_MOST);
    }
    input
}

/// Mostly printable bytes: most parsers fail at once on others.
fn random_byte(rng: &mut Rng) -> u8 {
    match rng.usize(..4) {
        0 => rng.u8(..),
        _ => rng.u8(b' '..=b'~'),
    }
}

/// Writes another number over the digits that come next.
fn change_number(input: &mut Vec<u8>, from: usize, rng: &mut Rng) {
    let behind = input.get(from..).unwrap_or_default();
    let Some(at) = behind.iter().position(u8::is_ascii_digit) else {
        return;
    };
    let digits = behind.iter().skip(at).take_while(|b| b.is_ascii_digit());
    let (begin, end) = (from + at, from + at + digits.count());
    let number = rng.choice(NUMBERS);
    input.splice(begin..end, number.unwrap_or_default().bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_they_differ() {
        let seeds = [
            b"*1\r\n$4\r\nPING\r\n".to_vec(),
            b"GET / HTTP/1.1\r\n".to_vec(),
        ];
        let inputs = |seed| {
            let mut rng = Rng::with_seed(seed);
            let mut next = || mutated(&seeds, &[b"*".to_vec(), b"\r\n".to_vec()], &mut rng);
            (0..100).map(|_| next()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        let different: std::collections::BTreeSet<_> = inputs(1).into_iter().collect();
        assert!(different.len() > 90, "{}", different.len());
        assert_ne!(inputs(1), inputs(2));
    }
}
