//! Guarantees of a limiter through its public interface.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::HashSet;
use std::time::Duration;

use tollgate::{
    Algorithm, Clock, Decision, Estimate, Gate, Key, Limit, LimitError, LimitId, Limiter,
    MAX_CHARGES, ManualClock, Moment, Origin, Rate, Span, UnkeyedLimiter, Verdict,
};

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn limiter(limit: Limit) -> (Limiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Moment::from_nanos(1_000_000_000));
    (Limiter::with_clock(limit, clock.clone()).unwrap(), clock)
}

/// One limit of every algorithm, each with room for ten at once.
fn one_of_each() -> Vec<Limit> {
    let window = Span::from_secs(60);
    let strict = Algorithm::SlidingWindow {
        limit: 10,
        window,
        estimate: Estimate::Strict,
    };
    vec![
        Limit::token_bucket(rate("10/min"), 10).unwrap(),
        Limit::gcra(rate("10/min"), Span::from_secs(54)).unwrap(),
        Limit::leaky_bucket(rate("10/min"), 10).unwrap(),
        Limit::fixed_window(rate("10/min")).unwrap(),
        Limit::sliding_log(rate("10/min")).unwrap(),
        Limit::sliding_window(rate("10/min")).unwrap(),
        Limit::new(strict).unwrap(),
        Limit::concurrency(10, window).unwrap(),
    ]
}

#[test]
fn every_algorithm_admits_its_limit_and_no_more() {
    for limit in one_of_each() {
        let (limiter, _) = limiter(limit.clone());
        let admitted = (0..100)
            .filter(|_| limiter.check("a").is_admitted())
            .count();
        assert_eq!(admitted, 10, "{limit}");
        assert!(
            limiter.check("b").is_admitted(),
            "{limit}: another key has its own"
        );
    }
}

#[test]
fn a_verdict_is_a_result_with_a_real_error() {
    fn pass(limiter: &Limiter<ManualClock>, cost: u64) -> Result<Span, Box<dyn std::error::Error>> {
        Ok(limiter.check_n("a", cost).into_result()?)
    }
    let (limiter, _) = limiter("1/s burst 2".parse().unwrap());
    assert_eq!(pass(&limiter, 2).unwrap(), Span::ZERO);
    let refused = pass(&limiter, 2).unwrap_err();
    assert_eq!(refused.to_string(), "rate limit exceeded; retry after 2s");
    let never = pass(&limiter, 3).unwrap_err();
    assert!(never.to_string().contains("no wait helps"), "{never}");
}

#[test]
fn a_span_may_be_a_duration_of_any_length() {
    let forever = Duration::MAX;
    assert_eq!(Rate::new(1, forever).unwrap().per(), Span::MAX);
    assert!(Limit::gcra(rate("1/s"), forever).is_err());
    let (limiter, clock) = limiter("1/s burst 2".parse().unwrap());
    assert!(limiter.check_n("a", 2).is_admitted());
    clock.advance(forever);
    assert!(limiter.check_n("a", 2).is_admitted());
}

#[test]
fn a_gate_of_a_list_charges_every_limit_or_none() {
    let gate =
        Gate::with_limits(["2/s burst 2".parse().unwrap(), "3/day".parse().unwrap()]).unwrap();
    let left = || [0, 1].map(|limit| gate.limiter(LimitId::new(limit)).peek("a", 0).remaining());
    assert!(gate.check("a").is_admitted());
    assert!(gate.check("a").is_admitted());
    assert_eq!(left(), [0, 1]);
    let refused = gate.check("a");
    assert_eq!(
        (refused.is_admitted(), refused.binding),
        (false, Some(LimitId::new(0)))
    );
    assert_eq!(left(), [0, 1], "the other limit was not charged");
    assert!(gate.check("b").is_admitted());
}

#[test]
fn a_gate_of_nothing_admits_and_one_of_too_many_limits_refuses() {
    let gate = |count: usize| {
        Gate::with_limits((0..count).map(|_| "5/s max keys 8".parse().unwrap())).unwrap()
    };
    assert!(gate(0).check("a").is_admitted());
    assert!(gate(MAX_CHARGES).check("a").is_admitted());
    assert_eq!(
        gate(MAX_CHARGES + 1).check("a").decision.verdict,
        Verdict::Never
    );
}

#[test]
fn the_promised_wait_is_kept_to_the_nanosecond() {
    for limit in one_of_each() {
        let (limiter, clock) = limiter(limit.clone());
        while limiter.check("a").is_admitted() {}
        let wait = limiter.wait_for("a", 1).unwrap();
        clock.advance(Span::from_nanos(wait.as_nanos() - 1));
        assert!(
            !limiter.check("a").is_admitted(),
            "{limit}: a nanosecond early"
        );
        clock.advance(Span::from_nanos(1));
        assert!(limiter.check("a").is_admitted(), "{limit}: on time");
    }
}

#[test]
fn a_cost_above_the_limit_is_never_and_takes_nothing() {
    for limit in one_of_each() {
        let (limiter, _) = limiter(limit.clone());
        for cost in [11, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            assert_eq!(
                limiter.charge("a", cost).verdict,
                Verdict::Never,
                "{limit} {cost}"
            );
        }
        assert_eq!(limiter.charge("a", 10).remaining(), 0, "{limit}");
        assert_eq!(limiter.capacity(), 10, "{limit}");
    }
}

#[test]
fn a_cost_of_zero_peeks_and_takes_nothing() {
    for limit in one_of_each() {
        let (limiter, _) = limiter(limit.clone());
        for _ in 0..100 {
            assert_eq!(limiter.charge("a", 0).verdict, Verdict::Pass, "{limit}");
        }
        assert_eq!(limiter.live_keys(), 0, "{limit}: nothing was kept");
        assert_eq!(limiter.peek("a", 0).remaining(), 10, "{limit}");
    }
}

#[test]
fn a_peek_reports_what_a_charge_does() {
    for limit in one_of_each() {
        let (limiter, clock) = limiter(limit.clone());
        for cost in [3, 1, 5, 2, 9, 1, 1] {
            let peeked = limiter.peek("a", cost);
            let done = limiter.charge("a", cost);
            assert_eq!(
                (peeked.verdict, peeked.status),
                (done.verdict, done.status),
                "{limit} {cost}"
            );
            clock.advance(Span::from_millis(1700));
        }
    }
}

#[test]
fn the_unused_part_of_a_charge_is_refunded() {
    for limit in one_of_each() {
        let (limiter, _) = limiter(limit.clone());
        let decision = limiter.charge("a", 9);
        assert!(decision.is_admitted());
        assert_eq!(limiter.settle("a", &decision, 9, 2).unpaid, 0);
        assert_eq!(limiter.peek("a", 0).remaining(), 8, "{limit}");
    }
}

#[test]
fn usage_beyond_the_charge_is_taken_as_far_as_units_remain() {
    for limit in one_of_each() {
        let (limiter, _) = limiter(limit.clone());
        let decision = limiter.charge("a", 4);
        assert_eq!(limiter.settle("a", &decision, 4, 13).unpaid, 3, "{limit}");
        assert_eq!(limiter.peek("a", 0).remaining(), 0, "{limit}");
    }
}

#[test]
fn a_refused_charge_has_nothing_to_settle() {
    let (limiter, _) = limiter(Limit::token_bucket(rate("1/h"), 5).unwrap());
    let _ = limiter.charge("a", 5);
    let refused = limiter.charge("a", 5);
    let _ = limiter.settle("a", &refused, 5, 0);
    assert_eq!(limiter.peek("a", 0).remaining(), 0);
}

#[test]
fn numbers_that_make_no_limit_are_errors_with_a_hint() {
    let minute = Span::from_secs(60);
    let cases: Vec<(Result<Limit, LimitError>, &str)> = vec![
        (
            Limit::token_bucket(rate("5/s"), 0),
            "a burst of 0 would refuse every request",
        ),
        (
            Limit::token_bucket(rate("1/day"), u64::MAX),
            "filling this limit would take longer than 73 years",
        ),
        (
            Limit::leaky_bucket(rate("5/s"), 0),
            "a queue of 0 would refuse every request",
        ),
        (
            Limit::fixed_window(rate("4294967295/min")),
            "the limit is above 4294967294",
        ),
        (
            Limit::sliding_window(rate("16777216/min")),
            "the limit is above 16777215",
        ),
        (
            Limit::sliding_log(rate("16777217/min")),
            "the limit of a sliding log is above 16777216",
        ),
        (
            Limit::concurrency(0, minute),
            "a limit of 0 would refuse every request",
        ),
        (
            Limit::concurrency(1, Span::ZERO),
            "a lease of 0 has no duration",
        ),
        (
            Limit::concurrency(65_536, minute),
            "the number of permits is above 65535",
        ),
    ];
    for (limit, message) in cases {
        let error = limit.unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn room_for_no_key_and_for_too_many_are_errors() {
    let limit = Limit::token_bucket(rate("5/s"), 10).unwrap();
    let with = |max_keys| Limiter::new(limit.clone().with_max_keys(max_keys)).unwrap_err();
    assert_eq!(
        with(0).to_string(),
        "`max_keys` of 0 leaves room for no key"
    );
    assert_eq!(with(0).hint(), "write at least 1; the default is 1000000");
    assert_eq!(with(usize::MAX).hint(), "lower `max_keys`");
    let log = Limit::sliding_log(rate("16777216/min")).unwrap();
    let error = Limiter::new(log.with_max_keys(1 << 50)).unwrap_err();
    assert_eq!(error.hint(), "lower `max_keys`");
}

#[test]
fn any_bytes_are_a_key() {
    let (limiter, _) = limiter(Limit::token_bucket(rate("1/h"), 1).unwrap());
    let huge = vec![7u8; 10_000_000];
    let keys: Vec<&[u8]> = vec![
        b"",
        b"\0",
        b"\0\0",
        b"\xff\xfe",
        b"a\r\nb",
        &huge,
        &huge[1..],
    ];
    for key in &keys {
        assert!(limiter.check(*key).is_admitted());
    }
    for key in &keys {
        assert!(!limiter.check(*key).is_admitted());
    }
    let framed = [
        Key::from_parts(["a", "b"]),
        Key::from_parts(["ab", ""]),
        Key::from_parts(["", "ab"]),
    ];
    assert!(framed.iter().all(|key| limiter.check(key).is_admitted()));
}

#[test]
fn a_clock_that_jumps_years_earns_no_more_than_the_limit() {
    for limit in one_of_each() {
        let (limiter, clock) = limiter(limit.clone());
        for _ in 0..5 {
            let admitted = (0..30).filter(|_| limiter.check("a").is_admitted()).count();
            assert_eq!(admitted, 10, "{limit}");
            clock.advance(Span::from_secs(3 * 365 * 86_400));
        }
    }
}

#[test]
fn a_clock_that_is_set_back_creates_no_allowance_and_locks_no_key_out() {
    for limit in one_of_each() {
        let (limiter, clock) = limiter(limit.clone());
        clock.advance(Span::from_secs(10 * 365 * 86_400));
        while limiter.check("a").is_admitted() {}
        clock.set(Moment::from_nanos(5_000_000_000));
        assert!(
            !limiter.check("a").is_admitted(),
            "{limit}: nothing is given away"
        );
        clock.advance(Span::from_secs(125));
        assert!(
            limiter.check("a").is_admitted(),
            "{limit}: as good as new two windows later"
        );
    }
}

#[test]
fn the_end_of_the_clock_is_survived() {
    for limit in one_of_each() {
        let (limiter, clock) = limiter(limit.clone());
        clock.set(Moment::from_nanos(u64::MAX));
        let admitted = (0..30).filter(|_| limiter.check("a").is_admitted()).count();
        assert_eq!(admitted, 10, "{limit}");
        let _ = limiter.charge("b", u64::MAX);
        let _ = limiter.peek("a", 3);
    }
}

#[test]
fn a_batch_decides_as_one_after_the_other() {
    for limit in one_of_each() {
        let clock = ManualClock::new();
        let one_by_one = Limiter::with_clock(limit.clone(), clock.clone()).unwrap();
        let batched = Limiter::with_clock(limit.clone(), clock.clone()).unwrap();
        for round in 0..40u64 {
            let keys: Vec<u64> = (0..=round * 3).map(|i| i * i % 7).collect();
            let mut verdicts = vec![Verdict::Never; keys.len()];
            batched.check_batch(&keys, &mut verdicts);
            let mut singly: Vec<Verdict> = keys.iter().map(|key| one_by_one.check(key)).collect();
            if matches!(limit.algorithm(), Algorithm::LeakyBucket { .. }) {
                // A queue gives each its own slot, and keys of one batch may change places.
                let by = |v: &Verdict| v.wait();
                verdicts.sort_by_key(by);
                singly.sort_by_key(by);
            }
            assert_eq!(verdicts, singly, "{limit}");
            clock.advance(Span::from_millis(900));
        }
    }
}

#[test]
fn a_limit_can_be_changed_while_it_is_used_and_usage_is_kept() {
    for limit in one_of_each() {
        let (limiter, _) = limiter(limit.clone());
        let _ = limiter.charge("a", 7);
        let doubled = match *limit.algorithm() {
            Algorithm::TokenBucket { rate, .. } => Algorithm::TokenBucket { rate, burst: 20 },
            Algorithm::LeakyBucket { rate, max_wait, .. } => Algorithm::LeakyBucket {
                rate,
                queue: 20,
                max_wait,
            },
            Algorithm::FixedWindow { window, anchor, .. } => Algorithm::FixedWindow {
                limit: 20,
                window,
                anchor,
            },
            Algorithm::SlidingLog { window, .. } => Algorithm::SlidingLog { limit: 20, window },
            Algorithm::SlidingWindow {
                window, estimate, ..
            } => Algorithm::SlidingWindow {
                limit: 20,
                window,
                estimate,
            },
            Algorithm::Concurrency { ttl, .. } => Algorithm::Concurrency { limit: 20, ttl },
            _ => continue,
        };
        let clone = limiter.clone();
        limiter.change(Limit::new(doubled).unwrap()).unwrap();
        assert_eq!(clone.peek("a", 0).remaining(), 13, "{limit}");
        assert_eq!(clone.peek("never seen", 0).remaining(), 20, "{limit}");
        limiter.change(limit.clone()).unwrap();
        assert_eq!(clone.peek("a", 0).remaining(), 3, "{limit}");
    }
}

#[test]
fn a_limit_of_another_kind_is_refused_and_nothing_changes() {
    let (limiter, _) = limiter(Limit::token_bucket(rate("1/s"), 10).unwrap());
    let _ = limiter.charge("a", 4);
    let error = limiter
        .change(Limit::fixed_window(rate("10/min")).unwrap())
        .unwrap_err();
    assert_eq!(error, LimitError::DifferentAlgorithm);
    assert_eq!(limiter.peek("a", 0).remaining(), 6);
    assert_eq!(limiter.limit().to_string(), "token bucket 1/s burst 10");
}

#[test]
fn usage_is_kept_while_the_table_grows() {
    let (limiter, _) = limiter(
        Limit::token_bucket(rate("1/h"), 3)
            .unwrap()
            .with_max_keys(200_000),
    );
    for key in 0..200_000u64 {
        let _ = limiter.charge(&key, key % 4);
    }
    let live = (0..200_000u64).filter(|key| key % 4 > 0).count();
    assert_eq!(limiter.live_keys(), live);
    assert_eq!(limiter.overflowed(), 0, "there was room for all");
    for key in 0..200_000u64 {
        assert_eq!(limiter.peek(&key, 0).remaining(), 3 - key % 4);
    }
}

#[test]
fn keys_that_are_as_if_never_used_make_room_for_others() {
    let (limiter, clock) = limiter(
        Limit::token_bucket(rate("1/s"), 1)
            .unwrap()
            .with_max_keys(1000),
    );
    for key in 0..100_000u64 {
        assert_eq!(limiter.charge(&key, 1).origin, Origin::Fresh);
        clock.advance(Span::from_millis(2)); // 500 are in use at any time
    }
}

#[test]
fn a_flood_of_new_keys_frees_no_throttled_key_and_admits_no_more_than_promised() {
    for limit in one_of_each() {
        let (limiter, _) = limiter(limit.clone().with_max_keys(1000));
        while limiter.check("victim").is_admitted() {}
        let cap = limiter.memory_cap();
        let mut admitted = 0;
        for key in 0..50_000u64 {
            admitted += u64::from(limiter.check(&key).is_admitted());
            if key % 100 == 0 {
                assert!(
                    !limiter.check("victim").is_admitted(),
                    "{limit}: freed by {key} new keys"
                );
            }
        }
        assert!(
            limiter.overflowed() > 40_000,
            "{limit}: the table was full, {}",
            limiter.overflowed()
        );
        assert!(admitted >= 1000, "{limit}: there was room for a thousand");
        assert_eq!(limiter.memory_cap(), cap, "{limit}");
        // No key gets more than the limit, with a slot of its own or without.
        let mut seen = HashSet::new();
        for key in 49_900..50_000u64 {
            let more = (0..30)
                .filter(|_| limiter.check(&key).is_admitted())
                .count();
            assert!(more <= 10, "{limit}: {more} for one key");
            seen.insert(more);
        }
        assert!(!seen.is_empty());
    }
}

#[test]
fn a_new_key_that_gets_a_slot_later_starts_from_its_usage() {
    let (limiter, clock) = limiter(
        Limit::token_bucket(rate("1/min"), 10)
            .unwrap()
            .with_max_keys(768),
    );
    // The whole table is in use for a while, and most of it a little longer than the new key waits.
    for key in 0..5000u64 {
        let _ = limiter.charge(&key, 1);
    }
    let mut admitted_new = 0;
    for key in 10_000..10_100u64 {
        let mut used = 0;
        while limiter.charge(&key, 1).is_admitted() {
            used += 1;
        }
        assert!(used <= 10);
        admitted_new += used;
    }
    assert!(limiter.overflowed() > 0);
    // All slots are free again, but the exhausted overflow cell is not full yet.
    clock.advance(Span::from_secs(61));
    for key in 10_000..10_100u64 {
        let mut more = 0;
        while limiter.charge(&key, 1).is_admitted() {
            more += 1;
        }
        assert!(more <= 10, "a slot of its own is no second allowance");
    }
    assert!(admitted_new > 0);
}

#[test]
fn a_request_that_one_limit_refuses_costs_the_others_nothing() {
    let mut gate = Gate::with_clock(ManualClock::new());
    let ids: Vec<_> = one_of_each()
        .into_iter()
        .map(|limit| gate.add(limit).unwrap())
        .collect();
    let narrow = gate
        .add(
            Limit::token_bucket(rate("1/h"), 2)
                .unwrap()
                .with_name("narrow"),
        )
        .unwrap();
    for round in 0..10 {
        let mut charges: Vec<_> = ids.iter().map(|id| gate.charge(*id, "a", 1)).collect();
        charges.push(gate.charge(narrow, "a", 1));
        let admission = gate.admit(&charges);
        assert_eq!(admission.decision.is_admitted(), round < 2);
        assert_eq!(admission.binding, Some(narrow));
    }
    for id in &ids {
        let limiter = gate.limiter(*id);
        assert_eq!(limiter.peek("a", 0).remaining(), 8, "{}", limiter.limit());
    }
}

#[test]
fn more_charges_than_can_be_taken_together_are_refused_and_nothing_is_taken() {
    let mut gate = Gate::with_clock(ManualClock::new());
    let id = gate
        .add(Limit::token_bucket(rate("1/s"), 100).unwrap())
        .unwrap();
    let charges = vec![gate.charge(id, "a", 1); 17];
    assert_eq!(gate.admit(&charges).decision.verdict, Verdict::Never);
    assert_eq!(gate.limiter(id).peek("a", 0).remaining(), 100);
    assert!(gate.admit(&charges[..16]).decision.is_admitted());
    assert_eq!(gate.limiter(id).peek("a", 0).remaining(), 84);
    assert!(gate.admit(&[]).decision.is_admitted());
    assert_eq!(gate.admit(&[]).binding, None);
}

#[test]
fn the_same_limit_twice_in_one_request_is_charged_twice_or_not_at_all() {
    let mut gate = Gate::with_clock(ManualClock::new());
    let id = gate
        .add(Limit::token_bucket(rate("1/s"), 5).unwrap())
        .unwrap();
    let twice = [gate.charge(id, "a", 2), gate.charge(id, "a", 2)];
    assert!(gate.admit(&twice).decision.is_admitted());
    assert_eq!(gate.limiter(id).peek("a", 0).remaining(), 1);
    assert!(
        !gate
            .admit(&[gate.charge(id, "a", 1), gate.charge(id, "a", 1)])
            .decision
            .is_admitted()
    );
    assert_eq!(gate.limiter(id).peek("a", 0).remaining(), 1);
}

/// The bound that the coarse clock documents: measured with an exact clock, a window of length `w` holds at most
/// `burst + rate * (w + lateness)`.
#[test]
fn a_late_clock_admits_at_most_what_its_lateness_allows() {
    const LATENESS: u64 = 10_000_000;
    let (burst, gap) = (3, 4_000_000); // one unit every 4 ms, so that a tick is worth several
    let (limiter, clock) = limiter(Limit::token_bucket(rate("250/s"), burst).unwrap());
    let mut admitted: Vec<u64> = Vec::new();
    let (mut now, mut random) = (1_000_000_000u64, 7u64);
    for _ in 0..20_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        now += (random >> 40) % 500_000;
        clock.set(Moment::from_nanos(now - now % LATENESS));
        if limiter.check("a").is_admitted() {
            admitted.push(now);
        }
    }
    let mut most_over_exact = 0;
    for first in 0..admitted.len() {
        for last in first..admitted.len().min(first + 200) {
            let (count, window) = ((last - first + 1) as u64, admitted[last] - admitted[first]);
            assert!(
                count <= burst + (window + LATENESS) / gap,
                "{count} in {window} ns"
            );
            most_over_exact = most_over_exact.max(count.saturating_sub(burst + window / gap));
        }
    }
    assert!(
        most_over_exact > 0,
        "the lateness shows, so this test can fail"
    );
}

#[test]
fn a_single_limiter_needs_no_key() {
    let single = UnkeyedLimiter::with_clock(
        Limit::token_bucket(rate("1/h"), 2).unwrap(),
        ManualClock::new(),
    );
    let single = single.unwrap();
    assert!(single.check().is_admitted());
    let decision = single.charge(1);
    assert_eq!(decision.remaining(), 0);
    let _ = single.settle(&decision, 1, 0);
    assert_eq!(single.peek(0).remaining(), 1);
}

#[test]
fn limiters_can_be_shared_between_threads_and_are_cheap_to_clone() {
    fn is_shared<T: Send + Sync + Clone + 'static>(_: &T) {}
    let limit = Limit::token_bucket(rate("5/s"), 10).unwrap();
    let limiter = Limiter::new(limit.clone()).unwrap();
    is_shared(&limiter);
    is_shared(&Gate::new());
    is_shared(&UnkeyedLimiter::new(limit).unwrap());
    assert_eq!(size_of_val(&limiter), size_of::<usize>());
    assert!(limiter.clock().now() >= Moment::ORIGIN);
}

#[test]
fn settling_a_leaky_bucket_never_puts_a_later_arrival_on_a_promised_slot() {
    let clock = ManualClock::new();
    let limit = Limit::leaky_bucket("10/s".parse().unwrap(), 10).unwrap();
    let limiter = Limiter::with_clock(limit, clock).unwrap();
    let starts = |decision: &Decision| decision.issued.plus(decision.verdict.wait().unwrap());
    let first = limiter.charge("k", 1);
    let second = limiter.charge("k", 1);
    let third = limiter.charge("k", 1);
    // The second is cancelled; the third keeps its promised slot.
    let _ = limiter.settle("k", &second, 1, 0);
    let fourth = limiter.charge("k", 1);
    assert_eq!(starts(&third), Moment::from_nanos(200_000_000));
    assert_eq!(
        starts(&fourth),
        Moment::from_nanos(300_000_000),
        "not on top of the third"
    );
    let _ = limiter.settle("k", &first, 1, 0);
    assert_eq!(
        starts(&limiter.charge("k", 1)),
        Moment::from_nanos(400_000_000)
    );

    // A charge that began at once and has no later slot behind it can be refunded.
    let alone = limiter.charge("other", 3);
    let _ = limiter.settle("other", &alone, 3, 0);
    assert_eq!(limiter.charge("other", 1).verdict, Verdict::Pass);
}
