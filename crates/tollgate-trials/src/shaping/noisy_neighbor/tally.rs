//! The throughput of the tenants.

use std::time::Duration;

use super::super::measure::{fair_shares, jain, per_mille, quantile};
use super::super::number;
use super::super::schedule::Completed;
use super::{CAPACITY, NOISY, TENANTS};

/// Counts of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) quiet_served: u64,
    /// Refused by the front or by the server.
    pub(super) quiet_failed: u64,
    pub(super) noisy_served: u64,
    pub(super) noisy_refused: u64,
    /// Requests without an answer.
    pub(super) silent: u64,
    /// Of what was served of the 99.
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    /// Jain's index, in parts of a thousand.
    pub(super) fairness: u64,
    span: Duration,
}

impl Tally {
    pub(super) fn new(done: &[Completed], span: Duration) -> Tally {
        let count = |is: &dyn Fn(&Completed) -> bool| number(done.iter().filter(|d| is(d)).count());
        let is_noisy = |done: &Completed| done.scheduled.tenant == NOISY;
        let is_served = |done: &Completed| done.status == 200;
        let mut quiet: Vec<Duration> = done
            .iter()
            .filter(|done| !is_noisy(done) && is_served(done))
            .map(|done| done.took)
            .collect();
        Tally {
            quiet_served: number(quiet.len()),
            quiet_failed: count(&|done| !is_noisy(done) && !is_served(done)),
            noisy_served: count(&|done| is_noisy(done) && is_served(done)),
            noisy_refused: count(&|done| is_noisy(done) && !is_served(done)),
            silent: count(&|done| done.status == 0),
            p50: quantile(&mut quiet, 500),
            p99: quantile(&mut quiet, 990),
            fairness: fairness(done, span),
            span,
        }
    }

    /// The throughput of the 99 relative to that without the noisy tenant, in parts of a thousand.
    pub(super) fn kept_of(&self, alone: &Tally) -> u64 {
        per_mille(self.quiet_served, alone.quiet_served)
    }

    pub(super) fn noisy_per_second(&self) -> u64 {
        let span = self.span.as_millis().max(1);
        let rate = u128::from(self.noisy_served) * 1000 / span;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Jain's index over the throughput of each tenant relative to its fair share.
fn fairness(done: &[Completed], span: Duration) -> u64 {
    let tenants = 0..TENANTS;
    let count = |tenant: u32, is: fn(&Completed) -> bool| {
        let mine = done.iter().filter(|done| done.scheduled.tenant == tenant);
        number(mine.filter(|done| is(done)).count())
    };
    let demand: Vec<u64> = tenants.clone().map(|t| count(t, |_| true)).collect();
    let served = tenants.map(|t| count(t, |done| done.status == 200));
    let capacity = u128::from(CAPACITY) * span.as_millis() / 1000;
    let fair = fair_shares(&demand, u64::try_from(capacity).unwrap_or(u64::MAX));
    let parts = served.zip(fair).filter(|&(_, fair)| fair > 0);
    let parts: Vec<u64> = parts.map(|(got, fair)| per_mille(got, fair)).collect();
    jain(&parts)
}
