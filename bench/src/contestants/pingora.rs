//! pingora-limits' `Rate`: observe, then compare with the limit.
//!
//! It counts in a sketch of fixed size, so it is approximate (keys that collide add up), takes no
//! memory per key, and is not hurt by many keys. It counts in windows rather than by a bucket; the
//! window here is the time in which the whole burst is earned.
//!
//! With its default 4 rows of 1024 counters and far more keys than counters, nearly every key shares
//! all of its counters: when most is to be refused it refuses, but not because of the key.

use pingora_limits::rate::Rate;

use super::KeyedLimiter;
use crate::workload::Config;

pub(crate) struct Pingora {
    rate: Rate,
    limit: isize,
}

impl KeyedLimiter for Pingora {
    const NAME: &'static str = "pingora-limits";

    fn new(config: &Config) -> Self {
        Self {
            rate: Rate::new(config.interval * config.burst.get()),
            limit: isize::try_from(config.burst.get()).unwrap_or(isize::MAX),
        }
    }

    fn check_str(&self, key: &String) -> bool {
        self.rate.observe(key, 1) <= self.limit
    }

    fn check_u64(&self, key: u64) -> bool {
        self.rate.observe(&key, 1) <= self.limit
    }
}
