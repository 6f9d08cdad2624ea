//! The simplest limiter to write by hand: a `DashMap` of token buckets, each behind a mutex.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use dashmap::DashMap;

use super::KeyedLimiter;
use crate::workload::Config;

pub(crate) struct DashMapBuckets {
    by_text: DashMap<String, Mutex<Bucket>>,
    by_id: DashMap<u64, Mutex<Bucket>>,
    /// What one unit costs, as the time in which it is earned.
    unit_ns: u64,
    /// What a full bucket holds.
    depth_ns: u64,
}

/// Savings are kept as time rather than as units, so that earning is an addition.
struct Bucket {
    saved_ns: u64,
    at: Instant,
}

impl KeyedLimiter for DashMapBuckets {
    const NAME: &'static str = "dashmap+mutex";

    fn new(config: &Config) -> Self {
        let unit_ns = u64::try_from(config.interval.as_nanos()).unwrap_or(u64::MAX);
        Self {
            by_text: DashMap::new(),
            by_id: DashMap::new(),
            unit_ns,
            depth_ns: unit_ns.saturating_mul(u64::from(config.burst.get())),
        }
    }

    fn check_str(&self, key: &String) -> bool {
        self.check(&self.by_text, key.as_str())
    }

    fn check_u64(&self, key: u64) -> bool {
        self.check(&self.by_id, &key)
    }
}

impl DashMapBuckets {
    #[inline]
    fn check<K, Q>(&self, buckets: &DashMap<K, Mutex<Bucket>>, key: &Q) -> bool
    where
        K: Borrow<Q> + Eq + Hash,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let now = Instant::now();
        if let Some(bucket) = buckets.get(key) {
            return self.take(&bucket, now);
        }
        let full = || {
            Mutex::new(Bucket {
                saved_ns: self.depth_ns,
                at: now,
            })
        };
        let bucket = buckets.entry(key.to_owned()).or_insert_with(full);
        self.take(&bucket, now)
    }

    #[inline]
    fn take(&self, bucket: &Mutex<Bucket>, now: Instant) -> bool {
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let earned = now.saturating_duration_since(bucket.at).as_nanos();
        let earned_ns = u64::try_from(earned).unwrap_or(u64::MAX);
        bucket.saved_ns = bucket.saved_ns.saturating_add(earned_ns).min(self.depth_ns);
        bucket.at = bucket.at.max(now);
        let Some(left_ns) = bucket.saved_ns.checked_sub(self.unit_ns) else {
            return false;
        };
        bucket.saved_ns = left_ns;
        true
    }
}
