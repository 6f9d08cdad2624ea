//! governor's keyed limiter with its defaults: a `DashMap` store, the standard library's hasher, and
//! the `quanta` clock.

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::KeyedLimiter;
use crate::workload::Config;

pub(crate) struct Governor {
    by_text: DefaultKeyedRateLimiter<String>,
    by_id: DefaultKeyedRateLimiter<u64>,
}

impl Governor {
    /// Drops the keys that are at rest; how many numbers there are then.
    pub(crate) fn retain_recent(&self) -> usize {
        self.by_id.retain_recent();
        self.by_id.len()
    }
}

impl KeyedLimiter for Governor {
    const NAME: &'static str = "governor";

    fn new(config: &Config) -> Self {
        // `None` is for an interval of zero, which no mode has.
        let quota = Quota::with_period(config.interval)
            .unwrap_or(Quota::per_hour(config.burst))
            .allow_burst(config.burst);
        Self {
            by_text: RateLimiter::keyed(quota),
            by_id: RateLimiter::keyed(quota),
        }
    }

    fn check_str(&self, key: &String) -> bool {
        self.by_text.check_key(key).is_ok()
    }

    fn check_u64(&self, key: u64) -> bool {
        self.by_id.check_key(&key).is_ok()
    }
}
