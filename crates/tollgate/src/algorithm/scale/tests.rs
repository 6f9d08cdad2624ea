//! The laws of the module above, on words: every algorithm, and random scales.

use fastrand::Rng;

use crate::algorithm::PackedAlgorithm;
use crate::algorithm::bucket::Bucket;
use crate::algorithm::concurrency::Permits;
use crate::algorithm::queue::Queue;
use crate::algorithm::scale::Scale;
use crate::algorithm::sliding::{Estimate, Layout, Sliding, Tail};
use crate::algorithm::window::Window;
use crate::decision::Verdict;
use crate::rate::Rate;
use crate::time::{Moment, Span};

const SECOND: u64 = 1_000_000_000;

fn at(ns: u64) -> Moment {
    Moment::from_nanos(ns)
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// Anything from almost nothing to everything, the ends more often than they would come.
fn any_scale(rng: &mut Rng) -> Scale {
    match rng.usize(..10) {
        0 => Scale::ONE,
        1 => Scale::from_q16(1),
        _ => Scale::from_q16(rng.u32(1..=65_536)),
    }
}

/// Charges at random and checks that every wait is the shortest that helps, that the reported remainder passes,
/// and that one unit more does not.
fn waits_are_the_shortest_that_help<A: PackedAlgorithm>(
    plain: &A,
    costs: u64,
    step: u64,
    seed: u64,
) {
    let mut rng = Rng::with_seed(seed);
    let mut word = None;
    let (mut now, mut refused) = (1_000 * SECOND, 0);
    for _ in 0..3_000 {
        now += rng.u64(..step);
        let limit = plain.scaled(any_scale(&mut rng));
        let cost = 1 + rng.u64(..costs);
        let left = limit.status(word, at(now)).remaining;
        assert!(limit.charge(word, at(now), left).verdict.is_admitted());
        let decided = limit.charge(word, at(now), cost);
        match decided.verdict {
            Verdict::Pass | Verdict::Wait { .. } => word = decided.write,
            Verdict::Refuse { retry_after } => {
                refused += 1;
                assert!(cost > left, "{cost} of {left} left");
                let wait = retry_after.as_nanos();
                assert!(wait > 0);
                let then = |ns| limit.charge(word, at(ns), cost).verdict.is_admitted();
                assert!(!then(now + wait - 1), "a shorter wait would do");
                assert!(then(now + wait), "the wait does not help");
                // More is left exactly when it is said to be.
                let next = limit.status(word, at(now)).next_after.as_nanos();
                let later = |ns| limit.status(word, at(ns)).remaining;
                if next == 0 {
                    assert_eq!(later(now + 10_000 * SECOND), left, "all that it holds");
                } else {
                    assert!(later(now + next) > left && later(now + next - 1) <= left);
                }
            }
            Verdict::Never => panic!("never, because of pressure"),
        }
    }
    assert!(refused > 100, "{refused} refusals prove little");
}

#[test]
fn every_wait_under_a_scale_is_the_shortest_that_helps() {
    let second = Span::from_secs(1);
    for seed in 1..6 {
        let go = |text, burst| Bucket::new(rate(text), burst).unwrap();
        waits_are_the_shortest_that_help(&go("5/s", 10), 10, SECOND / 2, seed);
        waits_are_the_shortest_that_help(&go("7/3s", 1), 1, SECOND, seed);
        waits_are_the_shortest_that_help(&go("3000/s", 100), 9, SECOND / 1000, seed);
        let tolerant = Bucket::gcra(rate("9/s"), Span::from_millis(700)).unwrap();
        waits_are_the_shortest_that_help(&tolerant, 7, SECOND / 4, seed);
        let window = Window::new(20, second, Span::ZERO).unwrap();
        waits_are_the_shortest_that_help(&window, 20, SECOND / 8, seed);
        let permits = Permits::new(20, second).unwrap();
        waits_are_the_shortest_that_help(&permits, 20, SECOND / 8, seed);
    }
}

#[test]
fn a_queue_and_a_sliding_window_wait_as_short_as_possible_too() {
    // What an estimate says is left may be more a moment earlier, so here only the waits are looked at.
    fn waits<A: PackedAlgorithm>(plain: &A, costs: u64, seed: u64) {
        let (mut rng, mut word, mut now, mut refused) =
            (Rng::with_seed(seed), None, 77 * SECOND, 0);
        for _ in 0..3_000 {
            now += rng.u64(..SECOND / 4);
            let limit = plain.scaled(any_scale(&mut rng));
            let cost = 1 + rng.u64(..costs);
            let decided = limit.charge(word, at(now), cost);
            let Verdict::Refuse { retry_after } = decided.verdict else {
                assert_ne!(decided.verdict, Verdict::Never);
                word = decided.write;
                continue;
            };
            refused += 1;
            let then = |ns| limit.charge(word, at(ns), cost).verdict.is_admitted();
            let wait = retry_after.as_nanos();
            assert!(!then(now + wait - 1) && then(now + wait));
        }
        assert!(refused > 100);
    }
    for seed in 1..6 {
        waits(&Queue::new(rate("10/s"), 8, None).unwrap(), 8, seed);
        let two_counters = Layout {
            parts: 1,
            divisions: 1,
            tail: Tail::Even,
        };
        for sliding in [
            Sliding::new(30, Span::from_secs(2), Estimate::Span),
            Sliding::new(30, Span::from_secs(2), Estimate::Strict),
            Sliding::with_layout(30, Span::from_secs(2), two_counters),
        ] {
            waits(&sliding.unwrap(), 30, seed);
        }
    }
}

#[test]
fn a_bucket_under_a_scale_is_the_bucket_with_the_scaled_numbers() {
    // Scales and rates whose quotient is whole: the scaled limit can be written as a limit.
    for (text, burst, q16, scaled, less) in [
        ("10/s", 20, 32_768, "5/s", 10),
        ("100/s", 40, 16_384, "25/s", 10),
        ("3/s", 8, 8_192, "3/8s", 1),
        ("1/s", 65_536, 1, "1/65536s", 1),
    ] {
        let under = Bucket::new(rate(text), burst).unwrap();
        let under = under.scaled(Scale::from_q16(q16));
        let other = Bucket::new(rate(scaled), less).unwrap();
        let (mut rng, mut words, mut now) = (Rng::with_seed(9), (None, None), SECOND);
        for _ in 0..2_000 {
            now += rng.u64(..SECOND);
            let cost = 1 + rng.u64(..less);
            let (a, b) = (
                under.charge(words.0, at(now), cost),
                other.charge(words.1, at(now), cost),
            );
            assert_eq!(a.verdict, b.verdict, "{text} under {q16}");
            words = (a.write.or(words.0), b.write.or(words.1));
            let status = (
                under.status(words.0, at(now)),
                other.status(words.1, at(now)),
            );
            assert_eq!(status.0, status.1, "{text} under {q16}");
        }
    }
}

#[test]
fn a_saturated_bucket_admits_its_scaled_rate_and_burst_to_the_unit() {
    for (text, burst) in [("5/s", 10), ("1000/s", 100), ("7/3s", 50), ("1/min", 3)] {
        let plain = Bucket::new(rate(text), burst).unwrap();
        let [n, p, depth, _] = plain.encode();
        let n = n & 0xffff_ffff;
        for q16 in [65_536, 58_982, 32_768, 6_554, 655] {
            let limit = plain.scaled(Scale::from_q16(q16));
            let price = (u128::from(p) << 16).div_ceil(u128::from(q16));
            let (start, mut now, mut word, mut admitted) = (5 * SECOND, 5 * SECOND, None, 0u128);
            let end = start + 600 * SECOND;
            while now <= end {
                let step = limit.charge(word, at(now), 1);
                match step.verdict {
                    Verdict::Refuse { retry_after } => now += retry_after.as_nanos(),
                    _ => {
                        admitted += 1;
                        word = step.write;
                    }
                }
            }
            let time = u128::from(end - start);
            let due = if price <= u128::from(depth) {
                (u128::from(depth) + u128::from(n) * time) / price
            } else {
                // Not even one is left at once: each takes what there is, as soon as it is full again.
                1 + time / u128::from(depth.div_ceil(n))
            };
            assert_eq!(admitted, due, "{text} under {q16}");
        }
    }
}

#[test]
fn no_sequence_of_scales_admits_more_than_was_available() {
    for seed in 1..40 {
        let mut rng = Rng::with_seed(seed);
        let plain = Bucket::new(rate("50/s"), 20).unwrap();
        let [n, p, depth, _] = plain.encode();
        let n = n & 0xffff_ffff;
        let (start, mut now, mut word) = (SECOND, SECOND, None);
        let (mut scale, mut since) = (Scale::ONE, start);
        let (mut paid, mut admitted) = (0u128, 0u128);
        // In 65536ths of a tick at the plain price: allowances as they grew, and what rises added.
        let mut allowed = u128::from(depth) << 16;
        for _ in 0..5_000 {
            now += rng.u64(..SECOND / 20);
            if rng.u64(..20) == 0 {
                let next = any_scale(&mut rng);
                let (old, new) = (u128::from(scale.as_q16()), u128::from(next.as_q16()));
                allowed += old * u128::from(n) * u128::from(now - since);
                allowed += u128::from(depth) * new.saturating_sub(old);
                (scale, since) = (next, now);
            }
            let limit = plain.scaled(scale);
            // Only what fits under the scale: the law is for these.
            let cost = 1 + rng.u64(..limit.status(None, at(now)).remaining);
            let price = u128::from(scale.price(p));
            if u128::from(cost) * price > u128::from(depth) {
                continue;
            }
            let step = limit.charge(word, at(now), cost);
            if step.verdict.is_admitted() {
                word = step.write;
                paid += u128::from(cost) * price;
                admitted += u128::from(cost);
            }
            let time = u128::from(n) * u128::from(now - start);
            assert!(paid <= u128::from(depth) + time);
            let so_far = u128::from(scale.as_q16()) * u128::from(n) * u128::from(now - since);
            assert!((admitted * u128::from(p)) << 16 <= allowed + so_far);
        }
        assert!(admitted > 100, "{admitted}");
    }
}

#[test]
fn counted_limits_hold_no_more_than_the_scale_leaves() {
    fn holds<A: PackedAlgorithm>(plain: &A, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let (mut word, mut now) = (None, 100 * SECOND);
        for _ in 0..2_000 {
            now += rng.u64(..SECOND / 10);
            let scale = any_scale(&mut rng);
            let (limit, most) = (plain.scaled(scale), scale.apply_to(plain.capacity()));
            assert!(limit.status(word, at(now)).remaining <= most);
            let step = limit.charge(word, at(now), 1);
            if step.verdict.is_admitted() {
                word = step.write;
                // One more than there was, and that was less than the scale leaves.
                let used = plain.capacity() - plain.status(word, at(now)).remaining;
                assert!(used <= most, "{used} of {most}");
            }
        }
    }
    for seed in 1..6 {
        holds(
            &Window::new(50, Span::from_secs(1), Span::ZERO).unwrap(),
            seed,
        );
        holds(&Permits::new(50, Span::from_secs(1)).unwrap(), seed);
        for estimate in [Estimate::Strict, Estimate::Span] {
            holds(
                &Sliding::new(50, Span::from_secs(1), estimate).unwrap(),
                seed,
            );
        }
    }
}

#[test]
fn a_request_larger_than_what_is_left_takes_all_of_it() {
    fn takes_all<A: PackedAlgorithm>(plain: &A) {
        let (limit, now) = (plain.scaled(Scale::from_q16(6_554)), at(50 * SECOND));
        let most = plain.capacity();
        assert_eq!(limit.charge(None, now, most + 1).verdict, Verdict::Never);
        let first = limit.charge(None, now, most);
        assert!(first.verdict.is_admitted(), "all that it ever holds");
        assert_eq!(limit.status(first.write, now).remaining, 0);
        assert!(matches!(
            limit.charge(first.write, now, 1).verdict,
            Verdict::Refuse { .. }
        ));
        // Something is used: not all of it can be had.
        let one = limit.charge(None, now, 1).write;
        assert!(matches!(
            limit.charge(one, now, most).verdict,
            Verdict::Refuse { .. }
        ));
    }
    takes_all(&Bucket::new(rate("5/s"), 10).unwrap());
    takes_all(&Queue::new(rate("5/s"), 10, None).unwrap());
    takes_all(&Window::new(10, Span::from_secs(1), Span::ZERO).unwrap());
    takes_all(&Permits::new(10, Span::from_secs(1)).unwrap());
    takes_all(&Sliding::new(10, Span::from_secs(1), Estimate::Span).unwrap());
}

#[test]
fn the_smallest_scale_of_the_deepest_bucket_is_still_a_limit() {
    let slow = Bucket::new(rate("1/day"), 26_000).unwrap();
    let limit = slow.scaled(Scale::from_q16(1));
    let now = at(SECOND);
    assert_eq!(limit.status(None, now).remaining, 1);
    let word = limit.charge(None, now, 1).write;
    let status = limit.status(word, now);
    assert_eq!(status.remaining, 0);
    assert_eq!(status.next_after, status.full_after);
    assert_eq!(
        limit.charge_saturating(word, now, u64::MAX),
        (None, u64::MAX)
    );
}

#[test]
fn without_pressure_nothing_has_changed() {
    let bucket = Bucket::new(rate("7/3s"), 9).unwrap();
    assert_eq!(bucket.scaled(Scale::ONE), bucket);
    assert_eq!(bucket.scaled(Scale::from_q16(9)).scaled(Scale::ONE), bucket);
    let window = Window::new(9, Span::from_secs(1), Span::ZERO).unwrap();
    assert_eq!(window.scaled(Scale::from_q16(9)).scaled(Scale::ONE), window);
}

#[test]
fn no_sequence_of_scales_refunds_more_than_was_taken() {
    let mut rng = Rng::with_seed(3);
    let plain = Bucket::new(rate("10/s"), 100).unwrap();
    let tat =
        |word: Option<u64>, now: Moment| word.map_or(now.as_nanos(), |w| w.max(now.as_nanos()));
    for _ in 0..5_000 {
        let now = at(SECOND + rng.u64(..SECOND));
        let charged = plain.scaled(any_scale(&mut rng));
        let cost = 1 + rng.u64(..100);
        let before = charged.charge(None, now, rng.u64(..3)).write;
        let Some(word) = charged.charge(before, now, cost).write else {
            continue;
        };
        let later = now.plus(Span::from_nanos(rng.u64(..SECOND)));
        let back = plain
            .scaled(any_scale(&mut rng))
            .refund(word, later, cost, now);
        // One tick is one nanosecond: what is left is never less than if it had not been charged.
        let left = back.unwrap_or(word);
        assert!(tat(Some(left), later) >= tat(before, later));
    }
}

#[test]
fn every_written_share_is_reported_as_written() {
    for share in 1..=10_000 {
        let scale = Scale::from_share(share);
        assert_eq!(scale.as_share(), share);
        assert!(scale.apply_to(10_000) >= u64::from(share));
    }
    assert_eq!(Scale::from_share(2_000).apply_to(10), 2);
    assert_eq!(Scale::from_share(10_000), Scale::ONE);
    assert_eq!(Scale::from_share(u32::MAX), Scale::ONE);
}

#[test]
fn a_price_is_rounded_up_and_never_overflows() {
    assert_eq!(Scale::ONE.price(7), 7);
    assert_eq!(Scale::from_q16(32_768).price(7), 14);
    assert_eq!(Scale::from_q16(58_982).price(1_000_000), 1_111_119);
    assert_eq!(Scale::from_q16(1).price(1 << 61), u64::MAX);
    for price in [(1 << 48) - 1, 1 << 48, (1 << 48) + 1] {
        let exact = (u128::from(price) << 16).div_ceil(58_982);
        assert_eq!(u128::from(Scale::from_q16(58_982).price(price)), exact);
    }
}

#[test]
fn a_scale_is_never_zero_and_never_above_one() {
    assert_eq!(Scale::from_q16(0).as_q16(), 1);
    assert_eq!(Scale::from_q16(u32::MAX), Scale::ONE);
    assert_eq!(Scale::from_q16(1).apply_to(10), 1);
    assert_eq!(Scale::from_q16(58_982).apply_to(100), 89);
}
