//! Who may come in: whoever knows the password, and does not guess too often.
//!
//! The password is kept only as a keyed hash, and hashes are compared in the same time wherever they differ.
//! A wrong one is answered after a pause; an address that has been wrong too often is not listened to for a
//! while, be it right or wrong, so that guessing from one address is no faster than [`GUESSES`]. Connections
//! that are in already notice nothing of it. Who is wrong is counted, and told in the log now and then.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate::{Limit, LimitError, Limiter, Rate, Single, Span};

/// Characters of a password at the least.
const LENGTH_MIN: usize = 8;
/// More than a stranger may send at once could never be shown.
const LENGTH_MAX: usize = 512;
/// Wrong passwords from one address: so many at once, and then one a second.
const GUESSES: u64 = 10;
/// Of wrong passwords one line is logged in so many seconds, and how many there were since the last.
const LINE_EVERY: u64 = 10;
/// The only user that there is.
pub(super) const USER: &[u8] = b"default";
/// Addresses whose guesses are counted.
const ADDRESSES: usize = 10_000;
/// How long a wrong password waits for its answer.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// Why a password cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PasswordError {
    /// It is too short to be safe.
    Short {
        /// How many bytes it has.
        length: usize,
    },
    /// It is too long to be shown.
    Long,
    /// The operating system gives no random numbers.
    NoRandom,
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { length } => write!(
                f,
                "the password for Redis clients has {length} characters, and {LENGTH_MIN} are the least\n\
                 hint: make one with `openssl rand -hex 16`"
            ),
            Self::Long => write!(
                f,
                "the password for Redis clients has more than {LENGTH_MAX} characters\n\
                 hint: make one with `openssl rand -hex 16`"
            ),
            Self::NoRandom => f.write_str(
                "the operating system gives no random numbers\n\
                 hint: see that the sandbox allows `getrandom`",
            ),
        }
    }
}

impl std::error::Error for PasswordError {}

/// The password, and who was wrong about it.
pub(super) struct Password {
    key: [u8; blake3::KEY_LEN],
    hash: blake3::Hash,
    guesses: Limiter,
    failed: Failed,
}

/// Passwords that let nobody in.
#[derive(Debug)]
struct Failed {
    wrong: AtomicU64,
    unheard: AtomicU64,
    /// Of both together, what the log was told of.
    logged: AtomicU64,
    lines: Single,
}

impl Failed {
    fn new() -> Option<Failed> {
        let rate = Rate::new(1, Span::from_secs(LINE_EVERY)).ok()?;
        let limit = Limit::token_bucket(rate, 1).ok()?;
        Some(Failed {
            wrong: AtomicU64::new(0),
            unheard: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            lines: Single::new(limit).ok()?,
        })
    }

    /// How many were wrong, and how many were not heard.
    fn sums(&self) -> [u64; 2] {
        [self.wrong.load(Relaxed), self.unheard.load(Relaxed)]
    }

    /// Counts one more, and says so unless that was said a moment ago.
    #[cold]
    fn note(&self, shown: Shown, peer: IpAddr) {
        match shown {
            Shown::Right => return,
            Shown::Wrong => &self.wrong,
            Shown::TooOften => &self.unheard,
        }
        .fetch_add(1, Relaxed);
        if !self.lines.check().is_admitted() {
            return;
        }
        let all = self.sums().iter().sum::<u64>();
        let since = all.saturating_sub(self.logged.swap(all, Relaxed));
        tracing::warn!(
            target: "tollgate::resp",
            %peer,
            since,
            is_heard = shown == Shown::Wrong,
            "Redis clients showed wrong passwords; this is the last of so many since the last such line"
        );
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// What became of a password that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Right,
    Wrong,
    /// Not looked at: this address was wrong too often.
    TooOften,
}

impl Password {
    /// This password; white space around it is dropped, as it comes from files.
    pub(super) fn new(text: &str) -> Result<Password, PasswordError> {
        let text = text.trim();
        if text.len() < LENGTH_MIN {
            return Err(PasswordError::Short { length: text.len() });
        }
        if text.len() > LENGTH_MAX {
            return Err(PasswordError::Long);
        }
        let mut key = [0; blake3::KEY_LEN];
        getrandom::fill(&mut key).map_err(|_| PasswordError::NoRandom)?;
        Ok(Password {
            hash: blake3::keyed_hash(&key, text.as_bytes()),
            key,
            guesses: guesses().map_err(|_| PasswordError::NoRandom)?,
            failed: Failed::new().ok_or(PasswordError::NoRandom)?,
        })
    }

    /// Is this the password of this user?
    pub(super) fn shown(&self, user: &[u8], offered: &[u8], peer: IpAddr) -> Shown {
        let shown = self.look(user, offered, peer);
        if shown != Shown::Right {
            self.failed.note(shown, peer);
        }
        shown
    }

    fn look(&self, user: &[u8], offered: &[u8], peer: IpAddr) -> Shown {
        let peer = network(peer);
        if !self.guesses.peek(&peer, 1).is_admitted() {
            return Shown::TooOften;
        }
        let is_right = blake3::keyed_hash(&self.key, offered) == self.hash;
        if is_right && user == USER {
            return Shown::Right;
        }
        self.guesses.check(&peer);
        Shown::Wrong
    }

    /// Passwords that were wrong, and those that were not heard.
    pub(super) fn failures(&self) -> [u64; 2] {
        self.failed.sums()
    }
}

/// Whose guesses count together: those of an IPv4 address, and those of an IPv6 network, of which one host has 2^64 addresses.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        address => address,
    }
}

fn guesses() -> Result<Limiter, LimitError> {
    const A_SECOND: NonZeroU64 = NonZeroU64::MIN;
    let limit = Limit::token_bucket(Rate::per_second(A_SECOND), GUESSES)?;
    Limiter::new(limit.with_max_keys(ADDRESSES))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn only_the_password_is_right_and_guessing_it_is_slow() {
        let password = Password::new(" correct horse \n").unwrap();
        assert_eq!(password.shown(USER, b"correct horse", PEER), Shown::Right);
        for wrong in 0..GUESSES {
            let guess = format!("correct horsf{wrong}");
            assert_eq!(password.shown(USER, guess.as_bytes(), PEER), Shown::Wrong);
        }
        assert_eq!(password.shown(USER, b"x", PEER), Shown::TooOften);
        assert_eq!(
            password.shown(USER, b"correct horse", PEER),
            Shown::TooOften
        );
        let other = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(password.shown(USER, b"correct horse", other), Shown::Right);
        assert_eq!(password.failures(), [GUESSES, 2]);
        assert_eq!(
            password.shown(b"admin", b"correct horse", other),
            Shown::Wrong
        );
        assert_eq!(password.failures(), [GUESSES + 1, 2]);
        assert_eq!(format!("{password:?}"), "Password");
    }

    #[test]
    fn the_addresses_of_one_network_guess_together() {
        let password = Password::new("correct horse").unwrap();
        let at = |host: u16, net: u16| IpAddr::from([0x2001, 0xdb8, 0, net, 0, 0, 0, host]);
        for host in 0..10 {
            let shown = password.shown(USER, b"x", at(host, 1));
            assert_eq!(shown, Shown::Wrong);
        }
        let shown = |peer| password.shown(USER, b"correct horse", peer);
        assert_eq!(shown(at(99, 1)), Shown::TooOften);
        assert_eq!(shown(at(1, 2)), Shown::Right);
    }

    #[test]
    fn a_weak_password_is_refused_with_how_to_make_one() {
        let error = Password::new("hunter2").unwrap_err();
        assert_eq!(error, PasswordError::Short { length: 7 });
        assert!(error.to_string().contains("openssl rand -hex 16"));
        assert_eq!(
            Password::new(&"x".repeat(513)).unwrap_err(),
            PasswordError::Long
        );
    }
}
