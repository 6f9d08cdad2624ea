//! throttlecrab's library: its `PeriodicStore`, which its README calls the default, behind one
//! mutex, which its documentation requires.
//!
//! # A burst of 1 becomes 2
//!
//! With a burst of 1 the library stores the first request with a time to live of zero, finds it
//! expired at the next one, and so admits everything (see the test below). That would be compared
//! with limiters that refuse. It is therefore given a burst of at least 2, and the warm-up checks
//! twice, so that by the time of the first measurement it too has nothing left.
//!
//! # Numbers become text
//!
//! The library has only text keys. An id is written as 16 hexadecimal digits on the stack, which
//! is the least that a user with numeric ids could do.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use throttlecrab::{PeriodicStore, RateLimiter};

use super::KeyedLimiter;
use crate::workload::Config;

const BURST_MIN: i64 = 2;

pub(crate) struct Throttlecrab {
    limiter: Mutex<RateLimiter<PeriodicStore>>,
    burst: i64,
    interval_s: i64,
}

impl KeyedLimiter for Throttlecrab {
    const NAME: &'static str = "throttlecrab";

    fn new(config: &Config) -> Self {
        Self {
            limiter: Mutex::new(RateLimiter::new(PeriodicStore::new())),
            burst: i64::from(config.burst.get()).max(BURST_MIN),
            interval_s: i64::try_from(config.interval.as_secs()).unwrap_or(i64::MAX),
        }
    }

    fn check_str(&self, key: &String) -> bool {
        self.check(key)
    }

    fn check_u64(&self, key: u64) -> bool {
        let digits = hexadecimal(key);
        self.check(std::str::from_utf8(&digits).unwrap_or_default())
    }
}

impl Throttlecrab {
    #[inline]
    fn check(&self, key: &str) -> bool {
        const COUNT_PER_PERIOD: i64 = 1;
        const QUANTITY: i64 = 1;
        // The clock is read before the lock is taken: that keeps the locked part short.
        let now = SystemTime::now();
        self.limiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .rate_limit(
                key,
                self.burst,
                COUNT_PER_PERIOD,
                self.interval_s,
                QUANTITY,
                now,
            )
            // An error would count as refused, and be seen in the column of admissions.
            .is_ok_and(|(allowed, _)| allowed)
    }
}

#[inline]
fn hexadecimal(key: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 16];
    for (place, digit) in text.iter_mut().enumerate() {
        *digit = DIGITS[(key >> (60 - 4 * place)) as usize & 15];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault of the library, and the reason for [`BURST_MIN`]. When this test fails, the library was fixed: give it the burst
    /// that all others get, and warm up once.
    #[test]
    fn a_burst_of_one_admits_everything() {
        let mut limiter = RateLimiter::new(PeriodicStore::new());
        for _ in 0..10 {
            let answer = limiter.rate_limit("key", 1, 1, 3600, 1, SystemTime::now());
            assert!(answer.is_ok_and(|(allowed, _)| allowed));
        }
    }

    #[test]
    fn an_id_is_written_in_sixteen_digits() {
        assert_eq!(&hexadecimal(0x0123_4567_89ab_cdef), b"0123456789abcdef");
        assert_eq!(&hexadecimal(1), b"0000000000000001");
    }
}
