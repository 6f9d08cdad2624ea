//! The counted operations. Each runs on one hot key, and is admitted every time or refused every time.

use std::hint::black_box;
use std::io;
use std::thread::sleep;
use std::time::Duration;

use tollgate::{
    Clock, CoarseClock, Gate, KeySecret, Keyed, Limit, Limiter, MonotonicClock, Rate, Span, Verdict,
};

/// Runs this many operations.
type Run = fn(u64) -> io::Result<()>;

pub(crate) const CASES: &[(&str, Run)] = &[
    ("check_exact", |count| {
        check(exact()?, PASS, KEY, true, count)
    }),
    ("check_coarse", |count| {
        check(coarse()?, PASS, KEY, true, count)
    }),
    ("check_number_exact", |count| {
        check(exact()?, PASS, &NUMBER, true, count)
    }),
    ("refuse_exact", |count| {
        check(exact()?, REFUSE, KEY, false, count)
    }),
    ("refuse_coarse", |count| {
        check(coarse()?, REFUSE, KEY, false, count)
    }),
    ("charge_exact", charge),
    ("batch_of_32_exact", batch),
    ("gate_of_three_exact", gate),
];

const KEY: &str = "user:00001234";
const NUMBER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Burst and seconds for a unit: nothing is refused and nothing is earned back.
const PASS: (u64, u64) = (200_000_000, 10);
/// One unit passes, before the counted operations.
const REFUSE: (u64, u64) = (1, 3600);
/// The exact clock measures the cycle counter for 20 ms before it reads it.
const CALIBRATION: Duration = Duration::from_millis(50);

fn exact() -> io::Result<MonotonicClock> {
    let clock = MonotonicClock::new();
    let _ = clock.now();
    sleep(CALIBRATION);
    let _ = clock.now();
    Ok(clock)
}

fn coarse() -> io::Result<CoarseClock> {
    CoarseClock::new()
}

fn limiter<C: Clock>(clock: C, (burst, secs): (u64, u64)) -> io::Result<Limiter<C>> {
    let rate = Rate::new(1, Span::from_secs(secs)).map_err(io::Error::other)?;
    let limit = Limit::token_bucket(rate, burst).map_err(io::Error::other)?;
    let secret = KeySecret::from_seed(1);
    Limiter::with_secret(limit.with_max_keys(10_000), clock, secret).map_err(io::Error::other)
}

/// An error unless all operations had the outcome that the case is about.
fn expect(outcomes: u64, count: u64) -> io::Result<()> {
    if outcomes == count {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{outcomes} of {count} operations had the expected outcome"
    )))
}

fn check<C: Clock, K: Keyed + ?Sized>(
    clock: C,
    limit: (u64, u64),
    key: &K,
    passes: bool,
    count: u64,
) -> io::Result<()> {
    let limiter = limiter(clock, limit)?;
    let _ = limiter.check(key);
    let mut expected = 0;
    for _ in 0..count {
        expected += u64::from(limiter.check(black_box(key)).is_admitted() == passes);
    }
    expect(expected, count)
}

fn charge(count: u64) -> io::Result<()> {
    let limiter = limiter(exact()?, PASS)?;
    let mut passed = 0;
    for _ in 0..count {
        let decision = black_box(limiter.charge(black_box(KEY), 1));
        passed += u64::from(decision.is_admitted());
    }
    expect(passed, count)
}

/// An operation is one key of a batch.
fn batch(count: u64) -> io::Result<()> {
    let limiter = limiter(exact()?, PASS)?;
    let keys: Vec<String> = (0..32).map(|key| format!("user:{key:08}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut verdicts = [Verdict::Never; 32];
    let mut passed = 0;
    for _ in 0..count / 32 {
        limiter.check_batch(black_box(&keys), &mut verdicts);
        passed += verdicts
            .iter()
            .filter(|verdict| verdict.is_admitted())
            .count() as u64;
    }
    expect(passed, count)
}

fn gate(count: u64) -> io::Result<()> {
    let clock = exact()?;
    let mut gate = Gate::with_clock(clock.clone());
    let mut limits = Vec::new();
    for _ in 0..3 {
        limits.push(gate.adopt(limiter(clock.clone(), PASS)?));
    }
    let [a, b, c] = limits[..] else {
        return Err(io::Error::other("not three limits"));
    };
    let mut passed = 0;
    for _ in 0..count {
        let charges = [a, b, c].map(|limit| gate.charge(limit, black_box(KEY), 1));
        let admission = black_box(gate.admit(&charges));
        passed += u64::from(admission.decision.is_admitted());
    }
    expect(passed, count)
}
