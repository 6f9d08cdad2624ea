//! Tollgate's keyed limiter: on its exact clock, on its coarse clock, and in batches.

#![allow(
    clippy::expect_used,
    reason = "a benchmark that cannot be set up should say so and stop"
)]

use tollgate::{Clock, CoarseClock, Limit, Limiter, MonotonicClock, Rate, Span, Verdict};

use super::{BATCH_LEN, KeyedLimiter};
use crate::workload::Config;

/// One key at a time, exact monotonic clock: the default.
pub(crate) struct Exact(Limiter);

/// One key at a time, coarse clock.
pub(crate) struct Coarse(Limiter<CoarseClock>);

/// Batches, exact clock read once for each.
pub(crate) struct Batch(Limiter);

pub(super) fn limiter<C: Clock>(config: &Config, clock: C) -> Limiter<C> {
    Limiter::with_clock(limit(config), clock).expect("there is memory for the keys")
}

pub(super) fn limit(config: &Config) -> Limit {
    let rate = Rate::new(1, Span::from(config.interval)).expect("no mode has an interval of zero");
    let burst = u64::from(config.burst.get());
    // The bucket may take at most 73 years to fill; the burst of the passing mode takes longer.
    let most = (1 << 61) / rate.per().as_nanos();
    let limit = Limit::token_bucket(rate, burst.min(most)).expect("the burst was cut to fit");
    limit.with_max_keys(config.keys)
}

impl Exact {
    /// The upper bound that it states for its memory.
    pub(crate) fn memory_cap(&self) -> usize {
        self.0.memory_cap()
    }

    /// Decisions on the shared overflow bucket, because there was no room for a key.
    pub(crate) fn overflow_count(&self) -> u64 {
        self.0.overflowed()
    }
}

impl KeyedLimiter for Exact {
    const NAME: &'static str = "tollgate";

    fn new(config: &Config) -> Self {
        Self(limiter(config, MonotonicClock::new()))
    }

    fn check_str(&self, key: &String) -> bool {
        self.0.check(key.as_str()).is_admitted()
    }

    fn check_u64(&self, key: u64) -> bool {
        self.0.check(&key).is_admitted()
    }
}

impl KeyedLimiter for Coarse {
    const NAME: &'static str = "tollgate-coarse";

    fn new(config: &Config) -> Self {
        let clock = CoarseClock::new().expect("a thread can be started");
        Self(limiter(config, clock))
    }

    fn check_str(&self, key: &String) -> bool {
        self.0.check(key.as_str()).is_admitted()
    }

    fn check_u64(&self, key: u64) -> bool {
        self.0.check(&key).is_admitted()
    }
}

impl KeyedLimiter for Batch {
    const NAME: &'static str = "tollgate-batch";

    fn new(config: &Config) -> Self {
        Self(limiter(config, MonotonicClock::new()))
    }

    fn check_str(&self, key: &String) -> bool {
        self.0.check(key.as_str()).is_admitted()
    }

    fn check_u64(&self, key: u64) -> bool {
        self.0.check(&key).is_admitted()
    }

    #[inline]
    fn check_batch_str(&self, keys: &[&str]) -> Option<u32> {
        Some(admitted(&self.0, keys))
    }

    #[inline]
    fn check_batch_u64(&self, keys: &[u64]) -> Option<u32> {
        Some(admitted(&self.0, keys))
    }
}

#[inline]
fn admitted<K: tollgate::Keyed>(limiter: &Limiter, keys: &[K]) -> u32 {
    let mut verdicts = [Verdict::Never; BATCH_LEN];
    limiter.check_batch(keys, &mut verdicts);
    verdicts.iter().map(|v| u32::from(v.is_admitted())).sum()
}
