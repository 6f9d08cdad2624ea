//! Tests of inline quotas: the vectors of the protocol, and random histories against an oracle.

use fastrand::Rng;

use super::*;

const SECOND: u64 = 1_000_000_000;
/// Not the origin, so that what lies before it is a moment, too.
const START: u64 = 1_000_000 * SECOND;

/// One key on a clock that is moved by hand.
struct Key {
    tat: Option<u64>,
    now: u64,
}

impl Key {
    fn new() -> Key {
        Key {
            tat: None,
            now: START,
        }
    }

    /// Limited, limit, remaining, when to try again in nanoseconds (-1: not reported), until full.
    fn call(&mut self, quota: (i64, i64, i64), quantity: i64) -> [i128; 5] {
        let quota = InlineQuota::new(quota.0, quota.1, quota.2).unwrap();
        let (result, write) = quota.step(self.tat, Moment::from_nanos(self.now), quantity);
        if write.is_some() {
            self.tat = write;
        }
        let result = result.unwrap();
        [
            i128::from(result.is_limited),
            i128::from(result.limit),
            i128::from(result.remaining),
            result.retry_after.map_or(-1, |s| i128::from(s.as_nanos())),
            i128::from(result.reset_after.as_nanos()),
        ]
    }
}

/// The same in whole seconds, as the vectors are written.
fn seconds(result: [i128; 5]) -> [i128; 5] {
    let second = i128::from(SECOND);
    let whole = |ns: i128| if ns < 0 { ns } else { ns.div_euclid(second) };
    [
        result[0],
        result[1],
        result[2],
        whole(result[3]),
        whole(result[4]),
    ]
}

const USUAL: (i64, i64, i64) = (15, 30, 60);

#[test]
fn the_vectors_of_the_protocol_hold() {
    let mut key = Key::new();
    for (quantity, result) in [
        (0, [0, 16, 16, -1, 0]),
        (1, [0, 16, 15, -1, 2]),
        (1, [0, 16, 14, -1, 4]),
        (5, [0, 16, 9, -1, 14]),
        (0, [0, 16, 9, -1, 14]),
        (9, [0, 16, 0, -1, 32]),
        (1, [1, 16, 0, 2, 32]),
        (0, [0, 16, 0, -1, 32]),
    ] {
        assert_eq!(seconds(key.call(USUAL, quantity)), result, "{quantity}");
    }
    let mut other = Key::new();
    assert_eq!(seconds(other.call(USUAL, 17)), [1, 16, 16, -1, 0]);
    assert_eq!(seconds(other.call(USUAL, 16)), [0, 16, 0, -1, 32]);
    assert_eq!(seconds(other.call(USUAL, -4)), [0, 16, 4, -1, 24]);
    let mut single = Key::new();
    assert_eq!(seconds(single.call((0, 1, 2), 1)), [0, 1, 0, -1, 2]);
    assert_eq!(seconds(single.call((0, 1, 2), 1)), [1, 1, 0, 2, 2]);
    let mut daily = Key::new();
    assert_eq!(
        seconds(daily.call((0, 1, 86_400), 1)),
        [0, 1, 0, -1, 86_400]
    );
    assert_eq!(
        seconds(daily.call((0, 1, 86_400), 1)),
        [1, 1, 0, 86_400, 86_400]
    );
}

#[test]
fn the_quota_may_change_between_calls_and_the_tat_stays() {
    let mut key = Key::new();
    assert_eq!(key.call((9, 100, 60), 1), [0, 10, 9, -1, 600_000_000]);
    let result = key.call((0, 1, 60), 1);
    assert_eq!(result, [1, 1, 0, 600_000_000, 600_000_000]);
}

#[test]
fn what_is_left_is_right_for_intervals_below_a_microsecond() {
    let mut key = Key::new();
    assert_eq!(key.call((10, 10_000_000, 1), 1), [0, 11, 10, -1, 100]);
    let mut endless = Key::new();
    let result = endless.call((10, i64::MAX, 1), 11);
    assert_eq!(result, [0, 11, 11, -1, 0], "more than one in a nanosecond");
    assert_eq!(endless.tat, None);
}

#[test]
fn time_gives_back_what_the_rate_earns_and_no_more() {
    let mut key = Key::new();
    assert_eq!(key.call(USUAL, 16)[0], 0);
    key.now += 2 * SECOND - 1;
    assert_eq!(key.call(USUAL, 1)[0], 1);
    key.now += 1;
    assert_eq!(key.call(USUAL, 1)[..3], [0, 16, 0]);
    key.now += 3_600 * SECOND;
    assert_eq!(
        key.call(USUAL, 1)[..3],
        [0, 16, 15],
        "never above the burst"
    );
}

#[test]
fn a_limited_call_changes_nothing() {
    let mut key = Key::new();
    key.call(USUAL, 16);
    let before = key.tat;
    for quantity in [1, 2, 16, 17, 1_000_000] {
        assert_eq!(key.call(USUAL, quantity)[0], 1);
        assert_eq!(key.tat, before);
    }
}

#[test]
fn a_result_beyond_the_clock_is_an_error_and_changes_nothing() {
    let quota = InlineQuota::new(15, 30, 60).unwrap();
    let now = Moment::from_nanos(START);
    let failed = |tat, quantity| quota.step(tat, now, quantity);
    assert_eq!(failed(None, -1), (Err(OutOfRange::NothingOut), None));
    let used = Some(START + 2 * SECOND);
    assert_eq!(failed(used, -2), (Err(OutOfRange::NothingOut), None));
    assert_eq!(failed(used, -1).1, Some(START), "all of it may come back");
    for quantity in [i64::MAX, i64::MIN, i64::MAX / 2] {
        assert_eq!(failed(None, quantity), (Err(OutOfRange::TooFar), None));
    }
    let centuries = InlineQuota::new(i64::MAX, 1, i64::MAX).unwrap();
    assert_eq!(centuries.step(None, now, 1).0, Err(OutOfRange::TooFar));
    assert_eq!(
        centuries.step(None, now, 0).0.map(|t| t.remaining),
        Ok(1 << 63)
    );
}

#[test]
fn zero_rates_and_negative_numbers_are_rejected() {
    for (burst, count, period) in [(1, 0, 1), (1, 1, 0), (0, 0, 0)] {
        assert_eq!(
            InlineQuota::new(burst, count, period),
            Err(InlineQuotaError::Zero)
        );
    }
    for (burst, count, period, what) in [
        (-1, 1, 1, "burst"),
        (1, -1, 1, "count"),
        (1, 1, i64::MIN, "period"),
        (-1, 0, 0, "burst"),
    ] {
        let error = InlineQuota::new(burst, count, period);
        assert_eq!(error, Err(InlineQuotaError::Negative { what }));
    }
}

/// The definition once more, in wide numbers and without a thought for speed.
fn oracle(
    (burst, count, period): (i64, i64, i64),
    tat: Option<u64>,
    now: u64,
    quantity: i64,
) -> Option<([i128; 5], Option<i128>)> {
    let interval =
        (i128::from(period) * 1_000_000_000 / i128::from(count)).min(i128::from(i64::MAX));
    let limit = i128::from(burst) + 1;
    let (dvt, now) = (interval * limit, i128::from(now));
    let base = tat.map_or(now, i128::from).max(now);
    let moved = interval * i128::from(quantity);
    let new = base + moved;
    if moved.abs() > i128::from(i64::MAX) || (quantity < 0 && new < now) {
        return None;
    }
    let remaining = |tat: i128| match interval {
        0 => limit,
        _ => ((dvt - (tat - now)).max(0)) / interval,
    };
    if now < new - dvt {
        let retry = if moved > dvt { -1 } else { new - dvt - now };
        return Some(([1, limit, remaining(base), retry, base - now], None));
    }
    if new > i128::from(i64::MAX) {
        return None;
    }
    let write = (moved != 0).then_some(new);
    Some(([0, limit, remaining(new), -1, new - now], write))
}

/// Of any size: all magnitudes are as likely.
fn number(rng: &mut Rng) -> i64 {
    let bits = rng.u64(..63);
    let number = rng.u64(..) >> (63 - bits) >> 1;
    i64::try_from(number).unwrap()
}

#[test]
fn every_number_equals_the_oracle_for_random_quotas_and_histories() {
    let mut rng = Rng::with_seed(7);
    for history in 0..4_000 {
        let (mut tat, mut now) = (None, START);
        let usual = (number(&mut rng), number(&mut rng) + 1, number(&mut rng) + 1);
        for at in 0..50 {
            // Mostly the same quota, now and then others; mostly small quantities, in both directions.
            let quota = match rng.u64(..8) {
                0 => (number(&mut rng), number(&mut rng) + 1, number(&mut rng) + 1),
                _ => usual,
            };
            let quantity = match rng.u64(..8) {
                0 => number(&mut rng),
                1 => -number(&mut rng),
                2 => 0,
                other => i64::try_from(other).unwrap() - 2,
            };
            now += rng.u64(..) >> rng.u64(24..64);
            now = now.min(LATEST);
            let compiled = InlineQuota::new(quota.0, quota.1, quota.2).unwrap();
            let (result, write) = compiled.step(tat, Moment::from_nanos(now), quantity);
            let place = format!("{history}/{at}: {quota:?} {quantity} at {now} of {tat:?}");
            match (result, oracle(quota, tat, now, quantity)) {
                (Err(_), None) => assert_eq!(write, None, "{place}"),
                (Ok(result), Some((numbers, expected))) => {
                    let retry = result.retry_after.map_or(-1, |s| i128::from(s.as_nanos()));
                    let ours = [
                        i128::from(result.is_limited),
                        i128::from(result.limit),
                        i128::from(result.remaining),
                        retry,
                        i128::from(result.reset_after.as_nanos()),
                    ];
                    assert_eq!(ours, numbers, "{place}");
                    assert_eq!(write.map(i128::from), expected, "{place}");
                }
                (ours, theirs) => panic!("{place}: {ours:?} and {theirs:?}"),
            }
            tat = write.or(tat);
        }
    }
}
