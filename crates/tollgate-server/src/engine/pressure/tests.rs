//! Tests of load shedding by the signals of backends.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Mutex;

use tollgate_policy::Facts;

use super::*;
use crate::engine::for_tests;

const POLICY: &str = "
default: pass
limits:
  - { name: all, key: ip, allow: 100/h, burst: 100 }
";

#[derive(Debug, Default)]
struct FakeBackends(Mutex<BackendTotals>);

impl Backends for FakeBackends {
    fn observed(&self) -> BackendTotals {
        *self.0.lock().unwrap()
    }
}

impl FakeBackends {
    /// Adds ten answers of this latency, `failed` of which were failures.
    fn ten(&self, failed: u64, millis: u64) {
        let mut totals = self.0.lock().unwrap();
        totals.ended += 10;
        totals.failed += failed;
        totals.answered += 10;
        totals.latency_ns += 10 * millis * 1_000_000;
    }
}

fn left(engine: &Engine) -> u64 {
    let facts = Facts {
        path: "/",
        client: Some([192, 0, 2, 1].into()),
        cost: Some(0),
        ..Facts::default()
    };
    engine.active().gate.peek(&facts).status.remaining
}

/// Steps as the loop would.
#[expect(
    clippy::disallowed_methods,
    reason = "steps that come too soon change nothing"
)]
fn step(engine: &Engine) {
    std::thread::sleep(Duration::from_millis(110));
    engine.step_pressure();
}

#[test]
fn overloaded_backends_shrink_limits_and_healthy_ones_let_them_grow() {
    let engine = for_tests(POLICY);
    locked(&engine.pressure).controller = PressureController::new(PressureRule {
        latency: Some(Span::from_millis(200)),
        errors: Some(500),
        ..PressureRule::default()
    });
    let backends = Arc::new(FakeBackends::default());
    engine.watch_backends(Arc::clone(&backends) as Arc<dyn Backends>);
    backends.ten(0, 20);
    step(&engine);
    assert_eq!(left(&engine), 100, "all is well");
    backends.ten(0, 201);
    step(&engine);
    assert_eq!(left(&engine), 89, "slow");
    backends.ten(1, 20);
    step(&engine);
    assert_eq!(left(&engine), 80, "failing");
    assert_eq!(engine.pressure().level, "over");
    assert_eq!(engine.pressure().errors, Some(Share(1_000)));
    backends.ten(0, 190);
    step(&engine);
    assert_eq!(left(&engine), 80, "between well and over");
    // Without requests to the backend the last statistics stay.
    step(&engine);
    assert_eq!(left(&engine), 80);
    let metrics = engine.metrics();
    let signal = "\ntollgate_pressure_signal_ratio{signal=\"latency\"} 0.950000\n";
    assert!(metrics.contains(signal), "{metrics}");
    backends.ten(0, 100);
    step(&engine);
    assert_eq!(left(&engine), 82);
    assert!(
        engine
            .metrics()
            .contains("\ntollgate_pressure_scale_ratio 0.82")
    );
    assert!(
        engine
            .metrics()
            .contains("\ntollgate_pressure_signal_ratio{signal=\"latency\"} 0.500000\n")
    );
}

/// The scale after each step, two a second, of a controller that observes only these backends.
fn steps_of(backends: &Arc<FakeBackends>) -> impl FnMut() -> u32 {
    let mut under = PressureState::new(PressureRule {
        errors: Some(500),
        ..PressureRule::default()
    });
    let source = Arc::clone(backends) as Arc<dyn Backends>;
    let mut now = Moment::from_nanos(0);
    let seen = BackendWindow::new(source.observed(), now);
    under.backends = Some((source, seen));
    move || {
        now = now.plus(Span::from_millis(500));
        under.step(now);
        under.controller.scale().as_share()
    }
}

#[test]
fn a_backend_that_fails_the_few_requests_it_gets_does_not_look_well_in_between() {
    let backends = Arc::new(FakeBackends::default());
    let mut step = steps_of(&backends);
    // One a second, and all of them fail.
    let shares: Vec<_> = (0..60)
        .map(|number| {
            let mut seen = backends.0.lock().unwrap();
            seen.ended += number % 2;
            seen.failed += number % 2;
            drop(seen);
            step()
        })
        .collect();
    assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
    // Six times five failures, six cuts to nine tenths.
    assert_eq!(shares.last(), Some(&5_314), "{shares:?}");
}

#[test]
fn the_same_failures_shrink_limits_once_and_expire_after_ten_seconds() {
    let backends = Arc::new(FakeBackends::default());
    let mut step = steps_of(&backends);
    backends.ten(10, 1);
    let shares: Vec<_> = (0..20).map(|_| step()).collect();
    assert_eq!(shares, [8_999; 20]);
    assert!(step() > 8_999, "the statistics have expired");
}

#[test]
fn the_next_policy_gets_the_scale_under_its_own_rule() {
    let engine = for_tests(POLICY);
    engine.hold_pressure(Scale::from_share(5_000), Span::from_secs(60));
    assert_eq!(left(&engine), 50);
    // A gate that knows nothing of the one before, as no reload makes it.
    let fresh = for_tests(POLICY);
    let fresh = fresh.active();
    let next = crate::engine::reload::NextPolicy {
        gate: fresh.gate.with_overrides(Vec::new()).unwrap(),
        queues: Arc::clone(&fresh.queues),
        gateway: Arc::clone(&fresh.gateway),
    };
    engine.swap(2, next);
    assert_eq!(left(&engine), 100);
    engine.step_pressure();
    assert_eq!(left(&engine), 50);
}

#[test]
fn shares_are_written_as_percentages() {
    for (share, text) in [
        (10_000, "100%"),
        (5_898, "58.98%"),
        (505, "5.05%"),
        (1, "0.01%"),
    ] {
        assert_eq!(Share(share).to_string(), text);
    }
}
