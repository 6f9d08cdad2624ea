//! The golden timeline, and the bound on the output under callers with arbitrary delays.

use super::*;

fn at(ns: u64) -> Moment {
    Moment::from_nanos(ns)
}

fn queue(rate: &str, capacity: u64) -> LeakyQueue<u64> {
    LeakyQueue::new(rate.parse().unwrap(), capacity, None).unwrap()
}

/// Takes out what is due until `now`, each at its moment.
fn drain(queue: &mut LeakyQueue<u64>, now: Moment, out: &mut Vec<u64>) {
    while let Some(next) = queue.next_at().filter(|next| *next <= now) {
        assert!(queue.due(next).is_some());
        out.push(next.as_nanos());
    }
}

#[test]
fn the_golden_timeline_of_5000_and_3000_a_second() {
    let mut q = queue("3000/s", 5000);
    let mut out = Vec::new();
    let mut observed = Vec::new();
    for (second, arrivals) in [4000, 2500, 3200, 6000].into_iter().enumerate() {
        let now = at(second as u64 * 1_000_000_000);
        drain(&mut q, now, &mut out);
        let before = q.level(now);
        let refused = (0..arrivals)
            .filter(|i| q.offer(now, 1, *i).is_err())
            .count();
        observed.push((before, q.level(now), refused));
    }
    assert_eq!(
        observed,
        [
            (0, 4000, 0),
            (1000, 3500, 0),
            (500, 3700, 0),
            (700, 5000, 1700)
        ]
    );
    assert_eq!(q.empty_after(at(3_000_000_000)).as_nanos(), 1_666_666_667);
    drain(&mut q, at(u64::MAX), &mut out);
    assert_eq!(out.len(), 4000 + 2500 + 3200 + 4300);
    assert_eq!(q.level(at(4_666_666_666)), 1);
    assert_eq!(q.level(at(4_666_666_667)), 0);
    for pair in out.windows(2) {
        assert!(pair[1] - pair[0] >= 333_333);
    }
}

#[test]
fn an_offer_returns_its_slot_to_the_nanosecond() {
    let mut q = queue("3000/s", 10);
    let slots: Vec<u64> = (0..4)
        .map(|i| q.offer(at(0), 1, i).unwrap().as_nanos())
        .collect();
    assert_eq!(slots, [0, 333_334, 666_667, 1_000_000]);
}

#[test]
fn a_refused_offer_fits_exactly_after_its_retry_time() {
    let mut q = queue("3000/s", 3);
    (0..3).for_each(|i| drop(q.offer(at(0), 1, i)));
    q.due(at(0));
    let retry = q.offer(at(100), 1, 9).unwrap_err().retry_after.unwrap();
    assert_eq!(retry.as_nanos(), 333_334 - 100);
    assert!(q.clone().offer(at(333_333), 1, 9).is_err());
    assert!(q.offer(at(333_334), 1, 9).is_ok());
}

#[test]
fn a_cost_that_never_fits_says_so_and_a_cost_of_zero_takes_room() {
    let mut q = queue("10/s", 2);
    assert_eq!(
        q.offer(at(0), 3, 7).unwrap_err(),
        Refused {
            item: 7,
            retry_after: None
        }
    );
    assert!(q.offer(at(0), 0, 0).is_ok());
    assert!(q.offer(at(0), 0, 1).is_ok());
    assert!(q.offer(at(0), 0, 2).is_err());
}

#[test]
fn what_would_wait_too_long_is_refused_until_it_would_not() {
    let rate = "10/s".parse().unwrap();
    let mut q = LeakyQueue::new(rate, 100, Some(Span::from_millis(150))).unwrap();
    assert!(q.offer(at(0), 1, 0).is_ok());
    assert!(q.offer(at(0), 1, 1).is_ok());
    let retry = q.offer(at(0), 1, 2).unwrap_err().retry_after;
    assert_eq!(retry, Some(Span::from_millis(50)));
}

#[test]
fn a_stall_is_not_followed_by_a_burst() {
    let mut q = queue("1000/s", 100);
    (0..100).for_each(|i| drop(q.offer(at(0), 1, i)));
    let late = at(50_000_000);
    assert_eq!(q.due(late), Some(0));
    assert_eq!(q.due(late), None);
    assert_eq!(q.next_at(), Some(at(51_000_000)));
    assert_eq!(
        q.offer(late, 1, 200).unwrap_err().retry_after,
        Some(Span::from_millis(1))
    );
}

#[test]
fn catching_up_makes_good_no_more_than_it_says() {
    for (span, at_once) in [(0, 1), (3, 4), (10, 11), (1_000, 51)] {
        let mut q = queue("1000/s", 100).catch_up(Span::from_millis(span));
        (0..100).for_each(|i| drop(q.offer(at(0), 1, i)));
        let late = at(50_000_000);
        let burst = std::iter::from_fn(|| q.due(late)).count();
        assert_eq!(burst, at_once, "catching up {span} ms");
    }
}

/// A small generator: tests repeat.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn no_lateness_of_callers_exceeds_the_rate_in_any_window() {
    for (round, rate) in ["3000/s", "7/3s", "1000/s", "9_999_991/s"]
        .iter()
        .cycle()
        .take(200)
        .enumerate()
    {
        let seed = &mut (round as u64);
        let rate_of: Rate = rate.parse().unwrap();
        let unit = rate_of.time_to_earn(1).as_nanos();
        let capacity = 1 + next(seed) % 50;
        let compensated = if round % 2 == 0 {
            0
        } else {
            next(seed) % (5 * unit)
        };
        let mut q = queue(rate, capacity).catch_up(Span::from_nanos(compensated));
        let (mut now, mut out) = (0_u64, Vec::new());
        let mut inside = 0;
        for item in 0..500 {
            now += next(seed) % (2 * unit);
            if !next(seed).is_multiple_of(3) {
                let cost = 1 + next(seed) % 3;
                if q.offer(at(now), cost, cost).is_ok() {
                    inside += cost;
                }
                assert!(inside <= capacity, "item {item}");
            }
            if next(seed).is_multiple_of(2) {
                while let Some(cost) = q.due(at(now)) {
                    inside -= cost;
                    out.push((now, cost));
                }
            }
        }
        // From the start of one to the start of another, the units in between have had their time,
        // less a nanosecond of rounding.
        for (i, (from, _)) in out.iter().enumerate() {
            let mut units = 0;
            for (to, cost) in out.iter().skip(i) {
                let time = u128::from(units) * u128::from(rate_of.per().as_nanos());
                let gone = u128::from(to - from + compensated + 1) * u128::from(rate_of.units());
                assert!(gone >= time, "{units} units in {} ns at {rate}", to - from);
                units += *cost;
            }
        }
    }
}
