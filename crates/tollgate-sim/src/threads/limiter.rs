//! Scenarios with one key of one limiter.

use super::{ChargeBlock, ThreadOutcome, Workers, burst, per_second, still};
use tollgate::{Clock, Estimate, Limit, Limiter, MonotonicClock, Rate, Span, Verdict};

/// The one key.
const KEY: u64 = 42;

/// Keys of one batch.
const BATCH: usize = 32;

/// The greatest limit of a sliding window, and the greatest that it keeps spans for.
const SLIDING_MAX: u64 = (1 << 24) - 1;
const SPANS_MAX: u64 = 65_535;

/// A token bucket admits its burst.
pub(super) fn token_bucket(workers: &mut Workers<'_>) -> Result<ThreadOutcome, String> {
    let burst = burst(workers.charges());
    exactly(
        workers,
        burst,
        Limit::token_bucket(per_second(1_000)?, burst),
    )
}

/// A fixed window admits its limit.
pub(super) fn fixed_window(workers: &mut Workers<'_>) -> Result<ThreadOutcome, String> {
    let limit = burst(workers.charges());
    exactly(workers, limit, Limit::fixed_window(per_hour(limit)?))
}

/// A sliding window admits its limit: one that keeps counts only.
pub(super) fn sliding_window(workers: &mut Workers<'_>) -> Result<ThreadOutcome, String> {
    let limit = burst(workers.charges()).min(SLIDING_MAX);
    let counts = Limit::new(tollgate::Algorithm::SlidingWindow {
        limit,
        window: Span::from_secs(3600),
        estimate: Estimate::Strict,
    });
    exactly(workers, limit, counts)
}

/// And one that keeps the spans in which something came.
pub(super) fn sliding_window_with_spans(
    workers: &mut Workers<'_>,
) -> Result<ThreadOutcome, String> {
    let limit = burst(workers.charges()).min(SPANS_MAX);
    exactly(workers, limit, Limit::sliding_window(per_hour(limit)?))
}

/// A leaky bucket admits what its queue holds, all but the first with a wait.
pub(super) fn leaky_bucket(workers: &mut Workers<'_>) -> Result<ThreadOutcome, String> {
    let queue = burst(workers.charges());
    exactly(
        workers,
        queue,
        Limit::leaky_bucket(per_second(1_000)?, queue),
    )
}

/// On a real clock a token bucket admits its burst and at most what it earned meanwhile.
pub(super) fn on_a_real_clock(workers: &mut Workers<'_>) -> Result<ThreadOutcome, String> {
    let burst = burst(workers.charges());
    let rate = per_second((burst / 10).max(1))?;
    let clock = MonotonicClock::new();
    let limit = Limit::token_bucket(rate, burst).map_err(|error| error.to_string())?;
    let limiter = limiter(limit, clock.clone())?;
    let began = clock.fresh();
    let admitted = workers.charge(|block| ask(&limiter, block))?;
    let elapsed = clock.fresh().since(began);
    // Rounded up, because the clock counts whole nanoseconds.
    let earned = rate.earned_in(elapsed).saturating_add(1);
    let mut outcome = ThreadOutcome::between(burst, burst.saturating_add(earned), admitted);
    let ms = elapsed.as_nanos() / 1_000_000;
    outcome
        .notes
        .push(format!("burst {burst}, {rate} for {ms} ms"));
    Ok(outcome)
}

fn per_hour(units: u64) -> Result<Rate, String> {
    Rate::new(units, Span::from_secs(3600)).map_err(|error| error.to_string())
}

/// The key admits exactly `expected` on a stopped clock, and has nothing left then.
fn exactly(
    workers: &mut Workers<'_>,
    expected: u64,
    limit: Result<Limit, tollgate::LimitError>,
) -> Result<ThreadOutcome, String> {
    let limit = limit.map_err(|error| error.to_string())?;
    let limiter = limiter(limit, still())?;
    let admitted = workers.charge(|block| ask(&limiter, block))?;
    let mut outcome = ThreadOutcome::exactly(expected, admitted);
    outcome.expect_equal("what is left", 0, limiter.peek(&KEY, 0).remaining());
    outcome.expect_equal("the number of keys", 1, limiter.live_keys() as u64);
    Ok(outcome)
}

fn limiter<C: Clock>(limit: Limit, clock: C) -> Result<Limiter<C>, String> {
    Limiter::with_clock(limit.with_max_keys(1_000), clock).map_err(|error| error.to_string())
}

/// Makes the charges of a block, in one of three ways.
fn ask<C: Clock>(limiter: &Limiter<C>, block: ChargeBlock) -> u64 {
    let times = 0..block.charges;
    // Not in step with each other: every way meets every other.
    match (block.number + block.thread as u64) % 3 {
        0 => times.map(|_| one(limiter.check(&KEY))).sum(),
        1 => times.map(|_| one(limiter.charge(&KEY, 1).verdict)).sum(),
        _ => {
            let mut admitted = 0;
            let mut left = usize::try_from(block.charges).unwrap_or(usize::MAX);
            while left > 0 {
                let count = left.min(BATCH);
                let mut verdicts = [Verdict::Never; BATCH];
                limiter.check_batch(&[KEY; BATCH][..count], &mut verdicts[..count]);
                admitted += verdicts.into_iter().map(one).sum::<u64>();
                left -= count;
            }
            admitted
        }
    }
}

fn one(verdict: Verdict) -> u64 {
    u64::from(verdict.is_admitted())
}
