//! Decisions without the store on a clock that moves while a request is decided, as a real one does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::kit::{bucket, now, of, shared};
use tollgate::{Clock, Limit, LimitError, Moment};
use tollgate_policy::shared::{
    Answering, FaultKind, SharedLimit, SharedLimits, SharedOutcome, SharedRequest, SharedSettle,
    SharedStore, StoreFault, StoreReport,
};
use tollgate_policy::{
    DecisionRequest, LimitRule, NoHost, Op, Policy, PolicyGate, PriorState, Sharing, Subject,
    decide,
};

/// Nanoseconds between two readings.
const STEP: u64 = 7_000;
const REQUESTS: usize = 5_000;

/// A clock that moves on with every reading.
#[derive(Clone, Debug, Default)]
struct MovingClock(Arc<AtomicU64>);

impl Clock for MovingClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.fetch_add(STEP, SeqCst))
    }
}

/// A store that never answers.
#[derive(Debug)]
struct Away;

fn away() -> StoreFault {
    StoreFault::new(FaultKind::Away, "down")
}

impl SharedStore for Away {
    fn prepare(&self, _: &[SharedLimit<'_>]) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)> {
        Ok(Arc::new(Away))
    }
    fn nodes(&self) -> u32 {
        1
    }
    fn report(&self) -> StoreReport {
        StoreReport::default()
    }
}

impl SharedLimits for Away {
    fn charge<'a>(&'a self, _: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>> {
        Box::pin(async { Err(away()) })
    }
    fn settle<'a>(&'a self, _: &'a SharedSettle) -> Answering<'a, u64> {
        Box::pin(async { Err(away()) })
    }
}

fn rule(name: &str, limit: Limit) -> LimitRule {
    shared(name, Sharing::Exact, limit)
}

/// Sends requests one after the other, and returns how many passed and in how many nanoseconds.
fn passed(limits: Vec<LimitRule>) -> (u64, u64) {
    let clock = MovingClock::default();
    let policy = Policy {
        limits,
        ..Policy::default()
    };
    let prior = PriorState::new().with_store(Arc::new(Away));
    let gate = PolicyGate::with_prior(policy, Vec::new(), clock.clone(), prior).unwrap();
    let (gate, headers) = (Arc::new(gate), [("x-org", "acme")]);
    let start = clock.now();
    let admitted = (0..REQUESTS).filter(|_| {
        let facts = of(&headers, 1);
        let request = DecisionRequest::new(Subject::Request(&facts), Op::Charge);
        let decided = decide(&NoHost::new(), &gate, &request);
        now(decided.resolve()).is_admitted()
    });
    let admitted = admitted.count() as u64;
    (admitted, clock.now().since(start).as_nanos())
}

#[test]
fn a_request_that_the_share_refuses_stays_refused_if_a_unit_is_earned_meanwhile() {
    let tight = || rule("tight", bucket("1000/s", 3));
    let wide = rule("wide", bucket("1000000/s", 1_000_000));
    for limits in [
        vec![tight()],
        vec![wide.clone(), tight()],
        vec![tight(), wide],
    ] {
        let count = limits.len();
        let (passed, nanos) = passed(limits);
        let allowed = 3 + nanos / 1_000_000;
        // The clock leaves time for many refusals, and the whole share is used.
        assert!(allowed < REQUESTS as u64 / 2, "{count} limits: {allowed}");
        assert!(passed <= allowed, "{count} limits: {passed} of {allowed}");
        assert!(
            passed + 2 >= allowed,
            "{count} limits: {passed} of {allowed}"
        );
    }
}
