//! Tests of the adaptive concurrency limit: the guard against drift, overload and failures.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use super::super::adaptive::{Adaptive, Estimator};
use super::super::adaptive::{Sample, golden};
use super::super::unguarded::EstimatorLimit;
use super::AdaptiveLimit;
use crate::time::Span;

const MS: u64 = 1_000_000;
const SEC: u64 = 1000 * MS;
const ALL: [Estimator; 2] = [Estimator::Aimd, Estimator::Gradient2];

fn adaptive(by: Estimator, initial: u32) -> Adaptive {
    Adaptive {
        by,
        min: 2,
        max: 500,
        initial,
        timeout: Span::from_secs(1),
    }
}

fn guarded(by: Estimator, initial: u32) -> AdaptiveLimit {
    AdaptiveLimit::new(&adaptive(by, initial)).unwrap()
}

/// A backend that serves `servers` at once in `service_ns` each, without noise: a reply at regular intervals.
struct Steady {
    now_ns: u64,
    servers: u64,
    service_ns: u64,
}

impl Steady {
    fn new(servers: u64) -> Self {
        Self {
            now_ns: SEC,
            servers,
            service_ns: 20 * MS,
        }
    }

    /// Feeds `limit` all replies of this many seconds, with as many in flight as it allows.
    fn serve(
        &mut self,
        secs: u64,
        mut limit: impl FnMut(u64, Sample) -> u32,
        first: u32,
    ) -> (u32, u32) {
        let end_ns = self.now_ns + secs * SEC;
        let (mut inflight, mut low, mut high) = (first, first, first);
        while self.now_ns < end_ns {
            let running = u64::from(inflight);
            let rtt_ns = self.service_ns * running.max(self.servers) / self.servers;
            self.now_ns += rtt_ns / running;
            let sample = Sample {
                rtt_ns,
                inflight,
                dropped: false,
            };
            inflight = limit(self.now_ns, sample);
            low = low.min(inflight);
            high = high.max(inflight);
        }
        (low, high)
    }

    fn serve_learned(&mut self, secs: u64, learned: &mut AdaptiveLimit) -> (u32, u32) {
        let first = learned.limit();
        self.serve(secs, |now_ns, sample| learned.sample(now_ns, sample), first)
    }

    fn serve_unguarded(&mut self, secs: u64, unguarded: &mut EstimatorLimit) {
        let first = unguarded.limit();
        self.serve(secs, |_, sample| unguarded.sample(sample), first);
    }
}

/// Replies of 100 in flight of 20 ms each in a second; every `every`-th of them failed.
fn second_of(learned: &mut AdaptiveLimit, from_ns: u64, rtt_ns: u64, every: u64) {
    for i in 1..=5000 {
        let sample = Sample {
            rtt_ns,
            inflight: learned.limit(),
            dropped: i % every == 0,
        };
        learned.sample(from_ns + i * MS / 5, sample);
    }
}

#[test]
fn queues_that_fail_nothing_and_become_normal_do_not_drive_any_limit_up() {
    for by in ALL {
        let mut learned = guarded(by, 20);
        let mut backend = Steady::new(40);
        backend.serve_learned(30, &mut learned);
        let (low, high) = backend.serve_learned(600, &mut learned);
        assert!(low >= 20 && high <= 80, "{by:?}: {low} to {high}");
        assert!(learned.limit() >= 24, "{by:?}: {}", learned.limit());
    }
}

#[test]
fn without_the_guard_the_same_queue_drives_them_up() {
    for by in ALL {
        let mut unguarded = EstimatorLimit::new(&adaptive(by, 20)).unwrap();
        Steady::new(40).serve_unguarded(600, &mut unguarded);
        assert!(unguarded.limit() > 80, "{by:?}: {}", unguarded.limit());
    }
}

#[test]
fn a_limit_far_too_high_comes_down_within_30_s() {
    for by in ALL {
        let mut learned = guarded(by, 500);
        let mut backend = Steady::new(40);
        backend.serve_learned(30, &mut learned);
        assert!(learned.limit() <= 80, "{by:?}: {}", learned.limit());
    }
}

#[test]
fn a_backend_three_times_slower_is_not_taken_for_a_queue() {
    for by in ALL {
        let mut learned = guarded(by, 20);
        let mut backend = Steady::new(40);
        backend.serve_learned(30, &mut learned);
        backend.service_ns *= 3;
        let (low, high) = backend.serve_learned(60, &mut learned);
        assert!(low >= 20 && high <= 80, "{by:?}: {low} to {high}");
        assert!(learned.limit() >= 36, "{by:?}: {}", learned.limit());
    }
}

#[test]
fn drops_shrink_whatever_the_estimator_says_and_however_fast_they_are() {
    for by in ALL {
        for rtt_ns in [1000, 5 * MS] {
            let mut learned = guarded(by, 200);
            for second in 0..30 {
                second_of(&mut learned, second * SEC, rtt_ns, 1);
            }
            assert_eq!(learned.limit(), 2, "{by:?}");
        }
    }
    let mut plain = EstimatorLimit::new(&adaptive(Estimator::Gradient2, 20)).unwrap();
    for _ in 0..1000 {
        plain.sample(Sample {
            rtt_ns: 5 * MS,
            inflight: 500,
            dropped: true,
        });
    }
    assert_eq!(plain.limit(), 500, "alone it climbs");
}

#[test]
fn what_takes_longer_than_the_timeout_counts_as_dropped() {
    let mut learned = guarded(Estimator::Gradient2, 200);
    for second in 10..60 {
        second_of(&mut learned, second * SEC, 1001 * MS, u64::MAX);
    }
    assert_eq!(learned.limit(), 2);
}

#[test]
fn one_failure_of_a_hundred_is_not_overload_and_one_of_ten_is() {
    for by in ALL {
        let mut learned = guarded(by, 100);
        second_of(&mut learned, 0, 20 * MS, 100);
        second_of(&mut learned, SEC, 20 * MS, 100);
        assert!(learned.limit() >= 60, "{by:?}: {}", learned.limit());
        let mut learned = guarded(by, 100);
        for second in 0..20 {
            second_of(&mut learned, second * SEC, 20 * MS, 10);
        }
        assert!(learned.limit() < 50, "{by:?}: {}", learned.limit());
    }
}

#[test]
fn what_hung_counts_by_the_time_it_held_its_place() {
    for by in ALL {
        // 2 of 100, but 40 times as long as the others: half of the time.
        let mut learned = guarded(by, 100);
        for i in 0..500 {
            let dropped = i % 50 == 49;
            let sample = Sample {
                rtt_ns: if dropped { 900 * MS } else { 20 * MS },
                inflight: 100,
                dropped,
            };
            learned.sample(10 * SEC + i * 10 * MS, sample);
        }
        assert!(learned.limit() < 70, "{by:?}: {}", learned.limit());
    }
}

#[test]
fn one_overload_counts_once() {
    for by in ALL {
        let mut learned = guarded(by, 200);
        // All started before the first of them failed.
        for i in 0..200 {
            let sample = Sample {
                rtt_ns: 500 * MS + i * 5 * MS,
                inflight: 200,
                dropped: true,
            };
            learned.sample(10 * SEC + 500 * MS + i * 5 * MS, sample);
        }
        assert_eq!(learned.limit(), 100, "{by:?}");
    }
}

#[test]
fn after_failures_the_limit_grows_slowly_above_the_value_they_set() {
    let grown = |every| {
        let mut learned = guarded(Estimator::Aimd, 100);
        let mut backend = Steady::new(400);
        backend.serve_learned(1, &mut learned);
        second_of(&mut learned, backend.now_ns, 20 * MS, every);
        backend.now_ns += SEC;
        let from = learned.limit();
        backend.serve_learned(2, &mut learned);
        f64::from(learned.limit()) / f64::from(from)
    };
    assert!(grown(5) < 1.5, "{}", grown(5));
    assert!(grown(u64::MAX) > 1.6, "{}", grown(u64::MAX));
}

#[test]
fn a_limit_that_holds_nothing_back_does_not_grow_and_is_never_probed() {
    for by in ALL {
        let mut learned = guarded(by, 100);
        for i in 0..10_000 {
            let sample = Sample {
                rtt_ns: 20 * MS,
                inflight: 50,
                dropped: false,
            };
            assert_eq!(learned.sample(i * 10 * MS, sample), 100, "{by:?}");
        }
    }
}

#[test]
fn a_probe_is_short_and_lowers_the_limit_to_five_eighths_at_the_least() {
    for by in ALL {
        let mut learned = guarded(by, 50);
        let mut backend = Steady::new(40);
        backend.serve_learned(30, &mut learned);
        let first = learned.limit();
        let (mut before, mut lowered, mut last_ns) = (first, 0, backend.now_ns);
        let watch = |now_ns, sample| {
            let limit = learned.sample(now_ns, sample);
            assert!(limit * 8 + 16 >= before * 5, "{by:?}: {before} to {limit}");
            if limit * 4 <= before * 3 {
                lowered += now_ns - last_ns;
            } else {
                before = limit;
            }
            last_ns = now_ns;
            limit
        };
        backend.serve(60, watch, first);
        assert!(lowered > 0, "{by:?} was never probed");
        assert!(lowered < 5 * SEC, "{by:?}: {lowered} ns of 60 s");
    }
}

#[test]
fn a_stall_shrinks_to_half_at_the_most_and_only_if_nothing_finishes() {
    for by in ALL {
        let mut learned = guarded(by, 100);
        second_of(&mut learned, 0, 20 * MS, u64::MAX);
        let before = learned.limit();
        for i in 0..100 {
            let now_ns = SEC + i * 100 * MS;
            learned.tick(now_ns, i * 100 * MS);
        }
        assert!(learned.limit() < before * 6 / 10, "{by:?}");
        assert!(learned.limit() >= before / 2, "{by:?}");

        // One that never ends among others that do is no stall.
        let mut learned = guarded(by, 100);
        for i in 0..1000 {
            let sample = Sample {
                rtt_ns: 20 * MS,
                inflight: 50,
                dropped: false,
            };
            learned.sample(i * 10 * MS, sample);
            learned.tick(i * 10 * MS, i * 10 * MS);
        }
        assert_eq!(learned.limit(), 100, "{by:?}");
        // And nothing in flight is none either.
        for i in 0..100 {
            assert_eq!(learned.tick(20 * SEC + i * 100 * MS, 0), 100, "{by:?}");
        }
    }
}

#[test]
fn a_stall_does_not_raise_a_limit_that_failures_lowered() {
    for by in ALL {
        let mut learned = guarded(by, 100);
        for i in 0..=20 {
            learned.tick(SEC + i * 100 * MS, i * 100 * MS);
        }
        for i in 0..3000 {
            let sample = Sample {
                rtt_ns: 20 * MS,
                inflight: 100,
                dropped: true,
            };
            learned.sample(4 * SEC + i * MS, sample);
        }
        let failed = learned.limit();
        assert!(failed < 25, "{by:?}: {failed}");
        for i in 0..30 {
            let limit = learned.tick(8 * SEC + i * 100 * MS, SEC + i * 100 * MS);
            assert!(limit <= failed, "{by:?}: {failed} to {limit}");
        }
    }
}

/// As many as the limit allows start at the same moment, and end at the same moment.
fn in_step(
    learned: &mut AdaptiveLimit,
    from_ns: u64,
    secs: u64,
    rtt_ns: u64,
    dropped: bool,
) -> u32 {
    let (mut now_ns, mut high) = (from_ns, 0);
    // Up to the most that these tests allow; there is nothing to see above it.
    while now_ns < from_ns + secs * SEC && high < 60 {
        let inflight = learned.limit();
        now_ns += rtt_ns;
        for _ in 0..inflight {
            let sample = Sample {
                rtt_ns,
                inflight,
                dropped,
            };
            learned.sample(now_ns, sample);
        }
        learned.tick(now_ns, 0);
        high = high.max(learned.limit());
    }
    high
}

#[test]
fn a_limit_at_its_least_grows_again_once_the_backend_is_well_however_quick_it_is() {
    for by in ALL {
        for min in [1, 2, 4, 6] {
            for rtt_ns in [99_999, MS, 20 * MS, 300 * MS] {
                let mut rule = adaptive(by, 10);
                (rule.min, rule.max) = (min, 60);
                let mut learned = AdaptiveLimit::new(&rule).unwrap();
                in_step(&mut learned, SEC, 10, rtt_ns, true);
                assert_eq!(learned.limit(), min, "{by:?}");
                let high = in_step(&mut learned, 11 * SEC, 60, rtt_ns, false);
                assert_eq!(high, 60, "{by:?} from {min} at {rtt_ns} ns");
            }
        }
    }
}

#[test]
fn quick_answers_while_something_hangs_do_not_drive_any_limit_up() {
    for by in ALL {
        let mut learned = guarded(by, 100);
        for i in 0..100_000 {
            let sample = Sample {
                rtt_ns: 20_000,
                inflight: 100,
                dropped: false,
            };
            learned.tick(i * MS / 10, 100 * MS + i * MS / 10);
            learned.sample(i * MS / 10, sample);
        }
        assert!(learned.limit() <= 100, "{by:?}: {}", learned.limit());
    }
}

#[test]
fn a_slow_backend_is_measured_although_few_requests_finish() {
    for by in ALL {
        let mut learned = guarded(by, 100);
        for i in 1..30 {
            let sample = Sample {
                rtt_ns: 900 * MS,
                inflight: 100,
                dropped: true,
            };
            learned.sample(i * 1100 * MS, sample);
        }
        assert!(learned.limit() < 10, "{by:?}: {}", learned.limit());
    }
}

#[test]
fn the_range_holds_for_any_input_at_any_time() {
    for by in ALL {
        let mut learned = AdaptiveLimit::new(&Adaptive {
            by,
            min: 7,
            max: 30,
            initial: 8,
            timeout: Span::from_secs(1),
        })
        .unwrap();
        let mut now_ns = 0_u64;
        for (i, sample) in golden::absurd_samples().enumerate() {
            now_ns = match i % 1000 {
                998 => u64::MAX,
                999 => 0,
                _ => now_ns.saturating_add(sample.rtt_ns % (200 * MS)),
            };
            assert!((7..=30).contains(&learned.sample(now_ns, sample)));
            assert!((7..=30).contains(&learned.tick(now_ns, sample.rtt_ns)));
        }
    }
}

#[test]
fn a_clock_that_steps_back_does_not_stop_the_learning() {
    for by in ALL {
        let mut learned = guarded(by, 20);
        let mut backend = Steady::new(40);
        backend.now_ns = 1_000_000 * SEC;
        backend.serve_learned(10, &mut learned);
        backend.now_ns = SEC;
        backend.servers = 160;
        backend.serve_learned(30, &mut learned);
        assert!(learned.limit() >= 80, "{by:?}: {}", learned.limit());
    }
}

#[test]
fn a_changed_range_keeps_what_was_learned_and_another_estimator_starts_anew() {
    let mut learned = guarded(Estimator::Gradient2, 20);
    Steady::new(40).serve_learned(30, &mut learned);
    let before = learned.limit();
    assert!(before > 30);
    let mut rule = adaptive(Estimator::Gradient2, 2);
    learned.change(&rule).unwrap();
    assert_eq!(learned.limit(), before);
    rule.max = 25;
    learned.change(&rule).unwrap();
    assert_eq!(learned.limit(), 25);
    rule.by = Estimator::Aimd;
    learned.change(&rule).unwrap();
    assert_eq!(learned.limit(), 2);
    rule.min = 0;
    assert!(learned.change(&rule).is_err());
    assert_eq!(learned.limit(), 2, "nothing changed");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let mut rule = adaptive(Estimator::Gradient2, 20);
    rule.timeout = Span::ZERO;
    assert!(AdaptiveLimit::new(&rule).is_err());
    assert!(AdaptiveLimit::new(&adaptive(Estimator::Gradient2, 1)).is_err());
    assert!(AdaptiveLimit::new(&adaptive(Estimator::Aimd, 501)).is_err());
}
