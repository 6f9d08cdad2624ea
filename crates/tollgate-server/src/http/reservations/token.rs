//! Reservations that name what they hold, so that every node of a fleet can settle them.
//!
//! # Theory
//!
//! A token is what the shared store has taken for one request, an identifier and an expiry, authenticated with the secret of the
//! fleet (keyed BLAKE3). It needs no record at the node that issued it, so it outlives that node and every reload. The store
//! records the identifier when the token is settled; so a token is settled at most once.
//!
//! # Invariant
//!
//! Only a node of the fleet can issue a token. Nothing in it is used before it is authenticated.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tollgate::Moment;
use tollgate_policy::TakenUnits;
use tollgate_policy::shared::{KeyKind, SharedKey};

const VERSION: u8 = 1;
/// Bytes of the authentication code.
const CODE: usize = 16;
/// Longer tokens are not issued: the key of a request may have any length, and clients store tokens.
const BYTES_MAX: usize = 3 * 1024;
/// Longer texts are not decoded.
const TEXT_MAX: usize = BYTES_MAX * 4 / 3 + 4;

/// A reservation that any node can settle.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) struct Token {
    pub(in crate::http) id: u128,
    pub(in crate::http) expires: Moment,
    pub(in crate::http) taken: Vec<TakenUnits>,
}

impl Token {
    /// The text. `None` if it would be too long.
    pub(in crate::http) fn encode(&self, secret: &[u8; 32]) -> Option<String> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.id.to_be_bytes());
        bytes.extend_from_slice(&self.expires.as_nanos().to_be_bytes());
        bytes.push(u8::try_from(self.taken.len()).ok()?);
        for taken in &self.taken {
            push(&mut bytes, taken.rule.as_bytes())?;
            push(&mut bytes, taken.limit.as_bytes())?;
            bytes.extend_from_slice(&taken.units.to_be_bytes());
            bytes.extend_from_slice(&taken.issued.as_nanos().to_be_bytes());
            bytes.push(match taken.key.kind() {
                KeyKind::Own => 0,
                KeyKind::Address => 1,
                KeyKind::Shared => 2,
            });
            bytes.push(u8::try_from(taken.key.parts().count()).ok()?);
            for part in taken.key.parts() {
                push(&mut bytes, part)?;
            }
        }
        let code = blake3::keyed_hash(secret, &bytes);
        bytes.extend_from_slice(code.as_bytes().get(..CODE)?);
        (bytes.len() <= BYTES_MAX).then(|| URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Reads a token. `None` if this fleet did not issue it.
    pub(in crate::http) fn decode(text: &str, secret: &[u8; 32]) -> Option<Token> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (signed, code) = bytes.split_at_checked(bytes.len().checked_sub(CODE)?)?;
        let expected = blake3::keyed_hash(secret, signed);
        if !is_equal(code, expected.as_bytes().get(..CODE)?) {
            return None;
        }
        let mut rest = Rest(signed);
        if rest.take::<1>()? != [VERSION] {
            return None;
        }
        let id = u128::from_be_bytes(rest.take()?);
        let expires = rest.moment()?;
        let [count] = rest.take()?;
        let taken: Option<Vec<TakenUnits>> = (0..count).map(|_| rest.taken()).collect();
        let taken = taken.filter(|_| rest.0.is_empty())?;
        Some(Token { id, expires, taken })
    }
}

/// In constant time.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Adds a text and its length.
fn push(bytes: &mut Vec<u8>, text: &[u8]) -> Option<()> {
    bytes.extend_from_slice(&u16::try_from(text.len()).ok()?.to_be_bytes());
    bytes.extend_from_slice(text);
    Some(())
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_be_bytes(self.take()?);
        let (taken, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        Some(taken)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn moment(&mut self) -> Option<Moment> {
        Some(Moment::from_nanos(u64::from_be_bytes(self.take()?)))
    }

    fn taken(&mut self) -> Option<TakenUnits> {
        let (rule, limit) = (self.text()?.into(), self.text()?.into());
        let units = u64::from_be_bytes(self.take()?);
        let issued = self.moment()?;
        let [kind, parts] = self.take()?;
        let mut key = SharedKey::new(match kind {
            0 => KeyKind::Own,
            1 => KeyKind::Address,
            2 => KeyKind::Shared,
            _ => return None,
        });
        for _ in 0..parts {
            key.push(self.bytes()?);
        }
        Some(TakenUnits {
            rule,
            limit,
            key,
            units,
            issued,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn token(part: &[u8]) -> Token {
        let mut key = SharedKey::new(KeyKind::Address);
        key.push(part);
        key.push(b"");
        let taken = TakenUnits {
            rule: "per user".into(),
            limit: "per user@pro".into(),
            key,
            units: u64::MAX,
            issued: Moment::from_nanos(1 << 60),
        };
        Token {
            id: 1 << 127 | 5,
            expires: Moment::from_nanos(9),
            taken: vec![taken.clone(), taken],
        }
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let token = token(b"\xff\0{}");
        let text = token.encode(&SECRET).unwrap();
        assert_eq!(Token::decode(&text, &SECRET), Some(token));
    }

    #[test]
    fn a_token_with_another_secret_or_any_other_bit_is_forged() {
        let text = token(b"203.0.113.7").encode(&SECRET).unwrap();
        assert_eq!(Token::decode(&text, &[8; 32]), None);
        let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut forged = bytes.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            let forged = URL_SAFE_NO_PAD.encode(forged);
            assert_eq!(Token::decode(&forged, &SECRET), None, "bit {bit}");
        }
        for length in 0..text.len() {
            assert_eq!(Token::decode(&text[..length], &SECRET), None);
        }
        assert_eq!(Token::decode(&format!("{text}AA"), &SECRET), None);
    }

    #[test]
    fn a_token_has_a_greatest_length() {
        let longest = (0..4096).filter_map(|length| token(&vec![b'x'; length]).encode(&SECRET));
        let longest = longest.max_by_key(String::len).unwrap();
        assert!(longest.len() > TEXT_MAX - 16 && longest.len() <= TEXT_MAX);
        assert!(Token::decode(&longest, &SECRET).is_some());
        assert_eq!(token(&[b'x'; 4096]).encode(&SECRET), None);
    }
}
