//! Tokens of the admin port.
//!
//! Tokens are stored only as keyed hashes, which are compared in constant time. Two can be valid at once, so that a
//! token can be replaced without an outage.

use std::fmt;

/// Minimum length: 22 characters of base64, or 32 of hex, are 128 bits.
const LENGTH_MIN: usize = 22;
/// Maximum length.
const LENGTH_MAX: usize = 512;
/// Tokens that are valid at once.
const TOKENS_MAX: usize = 2;

/// Why tokens are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenError {
    /// One is too short to be safe.
    Short {
        /// How many characters it has.
        length: usize,
    },
    /// One is longer than any header should be.
    Long,
    /// One has characters that cannot stand in a header.
    Characters,
    /// There are more than can be valid at once.
    Many,
    /// There is none.
    None,
    /// The operating system gives no random numbers.
    NoRandom,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { length } => write!(
                f,
                "the admin token has {length} characters, and {LENGTH_MIN} are the least\n\
                 hint: make one with `openssl rand -hex 16`"
            ),
            Self::Long => write!(
                f,
                "the admin token has more than {LENGTH_MAX} characters\n\
                 hint: make one with `openssl rand -hex 16`"
            ),
            Self::Characters => f.write_str(
                "the admin token has white space or characters that are not ASCII\n\
                 hint: make one with `openssl rand -hex 16`",
            ),
            Self::Many => write!(
                f,
                "more than {TOKENS_MAX} admin tokens are given\n\
                 hint: keep the old one and the new one; two are enough to replace one"
            ),
            Self::None => {
                f.write_str("no admin token is given\nhint: make one with `openssl rand -hex 16`")
            }
            Self::NoRandom => f.write_str(
                "the operating system gives no random numbers\n\
                 hint: see that the sandbox allows `getrandom`",
            ),
        }
    }
}

impl std::error::Error for TokenError {}

/// The tokens that are valid.
#[derive(Clone)]
pub struct Tokens {
    key: [u8; blake3::KEY_LEN],
    hashes: Vec<blake3::Hash>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.hashes.len())
    }
}

impl Tokens {
    /// These tokens, one or two. White space around them is dropped, as it comes from files.
    ///
    /// # Errors
    /// None, too many, or one that is not safe.
    pub fn new<T: AsRef<str>>(texts: &[T]) -> Result<Tokens, TokenError> {
        if texts.len() > TOKENS_MAX {
            return Err(TokenError::Many);
        }
        if texts.is_empty() {
            return Err(TokenError::None);
        }
        let mut key = [0; blake3::KEY_LEN];
        getrandom::fill(&mut key).map_err(|_| TokenError::NoRandom)?;
        let mut hashes = Vec::new();
        for text in texts {
            let text = text.as_ref().trim();
            let length = text.len();
            if length < LENGTH_MIN {
                return Err(TokenError::Short { length });
            }
            if length > LENGTH_MAX {
                return Err(TokenError::Long);
            }
            if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(TokenError::Characters);
            }
            hashes.push(blake3::keyed_hash(&key, text.as_bytes()));
        }
        Ok(Tokens { key, hashes })
    }

    /// Generates a token of 128 random bits and returns its text too.
    ///
    /// # Errors
    /// The operating system gives no random numbers.
    pub fn generate() -> Result<(Tokens, String), TokenError> {
        let mut bits = [0u8; 16];
        getrandom::fill(&mut bits).map_err(|_| TokenError::NoRandom)?;
        let text: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((Tokens::new(&[&text])?, text))
    }

    /// Returns `true` if the token is valid. All are compared, whichever matches.
    pub(super) fn accept(&self, offered: &[u8]) -> bool {
        let offered = blake3::keyed_hash(&self.key, offered);
        let compare = |found, hash: &blake3::Hash| found | (*hash == offered);
        self.hashes.iter().fold(false, compare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "0123456789abcdef0123456789abcdef";
    const NEW: &str = "fedcba9876543210fedcba9876543210";

    #[test]
    fn two_tokens_are_valid_at_once_and_nothing_else_is() {
        let tokens = Tokens::new(&[OLD, " fedcba9876543210fedcba9876543210\n"]).unwrap();
        assert!(tokens.accept(OLD.as_bytes()) && tokens.accept(NEW.as_bytes()));
        for wrong in ["", "0123456789abcdef0123456789abcde", " "] {
            assert!(!tokens.accept(wrong.as_bytes()));
        }
    }

    #[test]
    fn a_weak_token_is_refused_with_how_to_make_one() {
        let error = Tokens::new(&["hunter2"]).unwrap_err();
        assert_eq!(error, TokenError::Short { length: 7 });
        assert!(error.to_string().contains("openssl rand -hex 16"));
        assert_eq!(Tokens::new(&[OLD, NEW, OLD]).unwrap_err(), TokenError::Many);
        let spaced = "0123456789abcdef 0123456789";
        assert_eq!(Tokens::new(&[spaced]).unwrap_err(), TokenError::Characters);
    }

    #[test]
    fn generated_tokens_are_valid_and_never_the_same() {
        let (tokens, text) = Tokens::generate().unwrap();
        assert!(tokens.accept(text.as_bytes()));
        assert_ne!(text, Tokens::generate().unwrap().1);
    }

    #[test]
    fn debugging_shows_no_token() {
        assert_eq!(format!("{:?}", Tokens::new(&[OLD]).unwrap()), "Tokens(1)");
    }
}
