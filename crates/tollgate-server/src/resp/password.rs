//! Authentication by password, with a rate limit of failures.
//!
//! The password is stored as a keyed hash, and hashes are compared in constant time. The reply to a wrong password is
//! delayed. An address with too many failures is rejected for a while whatever it sends, so guessing from one address is no
//! faster than [`GUESSES`]. Authenticated connections are not affected. Failures are counted, and logged at a bounded rate.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate::{Limit, LimitError, Limiter, Rate, Span, UnkeyedLimiter};

/// Fewest bytes of a password.
const MIN_LENGTH: usize = 8;
/// Most bytes: an unauthenticated client could not send more.
const MAX_LENGTH: usize = 512;
/// Failures from one address: a burst, and then one a second.
const GUESSES: u64 = 10;
/// Seconds between log lines about failures.
const LOG_INTERVAL: u64 = 10;
/// The only user.
pub(super) const USER: &[u8] = b"default";
/// Addresses whose failures are counted.
const ADDRESSES: usize = 10_000;
/// Delay of the reply to a wrong password.
pub(super) const FAILURE_DELAY: Duration = Duration::from_millis(200);

/// Why a password cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PasswordError {
    /// It is too short.
    Short {
        /// How many bytes it has.
        length: usize,
    },
    /// It is too long.
    Long,
    /// The operating system gives no random numbers.
    NoRandom,
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { length } => write!(
                f,
                "the password for Redis clients has {length} characters, fewer than {MIN_LENGTH}\n\
                 hint: make one with `openssl rand -hex 16`"
            ),
            Self::Long => write!(
                f,
                "the password for Redis clients has more than {MAX_LENGTH} characters\n\
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

/// The password, and the failures to authenticate.
pub(super) struct Password {
    key: [u8; blake3::KEY_LEN],
    hash: blake3::Hash,
    guesses: Limiter,
    failures: AuthFailures,
}

/// Counters of failures.
#[derive(Debug)]
struct AuthFailures {
    wrong_password: AtomicU64,
    rate_limited: AtomicU64,
    /// The sum of both at the last log line.
    logged: AtomicU64,
    log_lines: UnkeyedLimiter,
}

impl AuthFailures {
    fn new() -> Option<AuthFailures> {
        let rate = Rate::new(1, Span::from_secs(LOG_INTERVAL)).ok()?;
        let limit = Limit::token_bucket(rate, 1).ok()?;
        Some(AuthFailures {
            wrong_password: AtomicU64::new(0),
            rate_limited: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            log_lines: UnkeyedLimiter::new(limit).ok()?,
        })
    }

    /// Wrong passwords, and attempts rejected unread.
    fn sums(&self) -> [u64; 2] {
        [
            self.wrong_password.load(Relaxed),
            self.rate_limited.load(Relaxed),
        ]
    }

    /// Counts a failed authentication, and logs it at a bounded rate.
    #[cold]
    fn record(&self, result: AuthResult, peer: IpAddr) {
        match result {
            AuthResult::Valid => return,
            AuthResult::Wrong => &self.wrong_password,
            AuthResult::RateLimited => &self.rate_limited,
        }
        .fetch_add(1, Relaxed);
        if !self.log_lines.check().is_admitted() {
            return;
        }
        let all = self.sums().iter().sum::<u64>();
        let since = all.saturating_sub(self.logged.swap(all, Relaxed));
        tracing::warn!(
            target: "tollgate::resp",
            %peer,
            failures = since,
            rate_limited = result == AuthResult::RateLimited,
            "Redis clients failed to authenticate; see `failures` since the last such line"
        );
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// The result of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthResult {
    Valid,
    Wrong,
    /// Not compared: the address has too many failures.
    RateLimited,
}

impl Password {
    /// A password without surrounding white space, which files have.
    pub(super) fn new(text: &str) -> Result<Password, PasswordError> {
        let text = text.trim();
        if text.len() < MIN_LENGTH {
            return Err(PasswordError::Short { length: text.len() });
        }
        if text.len() > MAX_LENGTH {
            return Err(PasswordError::Long);
        }
        let mut key = [0; blake3::KEY_LEN];
        getrandom::fill(&mut key).map_err(|_| PasswordError::NoRandom)?;
        Ok(Password {
            hash: blake3::keyed_hash(&key, text.as_bytes()),
            key,
            guesses: guesses().map_err(|_| PasswordError::NoRandom)?,
            failures: AuthFailures::new().ok_or(PasswordError::NoRandom)?,
        })
    }

    /// Verifies user and password, and counts a failure.
    pub(super) fn verify(&self, user: &[u8], offered: &[u8], peer: IpAddr) -> AuthResult {
        let result = self.compare(user, offered, peer);
        if result != AuthResult::Valid {
            self.failures.record(result, peer);
        }
        result
    }

    fn compare(&self, user: &[u8], offered: &[u8], peer: IpAddr) -> AuthResult {
        let peer = network(peer);
        if !self.guesses.peek(&peer, 1).is_admitted() {
            return AuthResult::RateLimited;
        }
        let is_valid = blake3::keyed_hash(&self.key, offered) == self.hash;
        if is_valid && user == USER {
            return AuthResult::Valid;
        }
        // The next attempt reads whether this one used up the last guess.
        let _ = self.guesses.check(&peer);
        AuthResult::Wrong
    }

    /// Wrong passwords, and attempts rejected unread.
    pub(super) fn failures(&self) -> [u64; 2] {
        self.failures.sums()
    }
}

/// What failures are counted by: an IPv4 address, or an IPv6 /64 network, which one host may have.
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
    fn only_the_password_is_valid_and_guessing_it_is_slow() {
        let password = Password::new(" correct horse \n").unwrap();
        assert_eq!(
            password.verify(USER, b"correct horse", PEER),
            AuthResult::Valid
        );
        for wrong in 0..GUESSES {
            let guess = format!("correct horsf{wrong}");
            assert_eq!(
                password.verify(USER, guess.as_bytes(), PEER),
                AuthResult::Wrong
            );
        }
        assert_eq!(password.verify(USER, b"x", PEER), AuthResult::RateLimited);
        assert_eq!(
            password.verify(USER, b"correct horse", PEER),
            AuthResult::RateLimited
        );
        let other = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(
            password.verify(USER, b"correct horse", other),
            AuthResult::Valid
        );
        assert_eq!(password.failures(), [GUESSES, 2]);
        assert_eq!(
            password.verify(b"admin", b"correct horse", other),
            AuthResult::Wrong
        );
        assert_eq!(password.failures(), [GUESSES + 1, 2]);
        assert_eq!(format!("{password:?}"), "Password");
    }

    #[test]
    fn failures_of_one_network_count_together() {
        let password = Password::new("correct horse").unwrap();
        let at = |host: u16, net: u16| IpAddr::from([0x2001, 0xdb8, 0, net, 0, 0, 0, host]);
        for host in 0..10 {
            let result = password.verify(USER, b"x", at(host, 1));
            assert_eq!(result, AuthResult::Wrong);
        }
        let verify = |peer| password.verify(USER, b"correct horse", peer);
        assert_eq!(verify(at(99, 1)), AuthResult::RateLimited);
        assert_eq!(verify(at(1, 2)), AuthResult::Valid);
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
