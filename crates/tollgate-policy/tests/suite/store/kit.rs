//! Nodes, requests and a slow store for tests of leases and synced counters. Each test uses a part of it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

pub(crate) use super::counting::Counting;
use tollgate::{Clock, Limit, LimitError, ManualClock, Span};
use tollgate_policy::shared::{
    Answering, FaultKind, SharedLimit, SharedLimits, SharedOutcome, SharedRequest, SharedSettle,
    SharedStore, StoreFault, StoreReport,
};
use tollgate_policy::{
    Decide, DecisionHost, DecisionRequest, Facts, HostFuture, KeyPart, LimitRule, NoHost, Op,
    Policy, PolicyDecision, PolicyGate, PriorState, Quota, Sharing, Source, Subject, decide,
};

pub(crate) type Gate = Arc<PolicyGate<ManualClock>>;
/// A decision, or the wait for the store.
pub(crate) type Started = Decide<NoHost<ManualClock>>;
pub(crate) type Waiting<'a> = Pin<Box<dyn Future<Output = PolicyDecision> + 'a>>;

pub(crate) fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut context()) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

pub(crate) fn shared(name: &str, sharing: Sharing, limit: Limit) -> LimitRule {
    let mut rule = LimitRule::new(name, Quota::plain(limit));
    rule.key = vec![KeyPart::new(Source::Header("x-org".into()))];
    rule.sharing = sharing;
    rule
}

pub(crate) fn bucket(rate: &str, burst: u64) -> Limit {
    Limit::token_bucket(rate.parse().unwrap(), burst).unwrap()
}

pub(crate) fn window(quota: &str) -> Limit {
    Limit::fixed_window(quota.parse().unwrap()).unwrap()
}

pub(crate) fn node(
    clock: &ManualClock,
    store: Arc<dyn SharedStore>,
    limits: Vec<LimitRule>,
) -> Gate {
    let policy = Policy {
        limits,
        ..Policy::default()
    };
    let prior = PriorState::new().with_store(store);
    Arc::new(PolicyGate::with_prior(policy, Vec::new(), clock.clone(), prior).unwrap())
}

/// A host whose deadlines have passed at once.
#[derive(Clone)]
pub(crate) struct NoTime;

impl DecisionHost for NoTime {
    type Clock = ManualClock;
    type Policy = PolicyGate<ManualClock>;

    fn gate(policy: &PolicyGate<ManualClock>) -> &PolicyGate<ManualClock> {
        policy
    }

    fn sleep_until(&self, _: Instant) -> HostFuture {
        Box::pin(std::future::ready(()))
    }
}

/// Decides a request whose caller cannot wait.
pub(crate) fn admit_without_time(gate: &Gate, facts: &Facts<'_>) -> PolicyDecision {
    let request = DecisionRequest {
        #[expect(clippy::disallowed_methods, reason = "the host does not read it")]
        deadline: Some(Instant::now()),
        ..DecisionRequest::new(Subject::Request(facts), Op::Charge)
    };
    now(decide(&NoTime, gate, &request).resolve())
}

/// Starts to decide a request.
pub(crate) fn start(gate: &Gate, facts: &Facts<'_>, op: Op) -> Started {
    let request = DecisionRequest::new(Subject::Request(facts), op);
    decide(&NoHost::new(), gate, &request)
}

/// A request of the key that `headers` name.
pub(crate) fn of<'a>(headers: &'a [(&'a str, &'a str); 1], cost: u64) -> Facts<'a> {
    Facts {
        method: "GET",
        path: "/",
        headers,
        cost: Some(cost),
        ..Facts::default()
    }
}

pub(crate) fn begin(gate: &Gate, org: &str, cost: u64) -> Started {
    let headers = [("x-org", org)];
    start(gate, &of(&headers, cost), Op::Charge)
}

pub(crate) fn admit_for(gate: &Gate, org: &str, cost: u64) -> PolicyDecision {
    now(begin(gate, org, cost).resolve())
}

pub(crate) fn admit(gate: &Gate, cost: u64) -> PolicyDecision {
    admit_for(gate, "acme", cost)
}

pub(crate) fn passes(gate: &Gate, times: u64) -> u64 {
    (0..times).filter(|_| admit(gate, 1).is_admitted()).count() as u64
}

/// What the store has left for acme, by an exact limit.
pub(crate) fn left(clock: &ManualClock, store: &Arc<Counting>, limit: Limit) -> u64 {
    let gate = node(
        clock,
        store.clone(),
        vec![shared("a", Sharing::Exact, limit)],
    );
    admit(&gate, 0).status.remaining
}

/// A store that receives at once (or after `there`) and answers `back` later, and whose deadline is 8 ms as in
/// production.
#[derive(Debug)]
pub(crate) struct Slow {
    inner: Arc<Counting>,
    clock: ManualClock,
    there: Arc<AtomicU64>,
    back: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) struct SlowLimits {
    inner: Arc<dyn SharedLimits>,
    clock: ManualClock,
    there: Arc<AtomicU64>,
    back: Arc<AtomicU64>,
}

impl Slow {
    pub(crate) fn new(
        inner: &Arc<Counting>,
        clock: &ManualClock,
        there_us: u64,
        back_us: u64,
    ) -> Arc<Slow> {
        Arc::new(Slow {
            inner: inner.clone(),
            clock: clock.clone(),
            there: Arc::new(AtomicU64::new(there_us)),
            back: Arc::new(AtomicU64::new(back_us)),
        })
    }
}

impl SharedStore for Slow {
    fn prepare(
        &self,
        limits: &[SharedLimit<'_>],
    ) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)> {
        Ok(Arc::new(SlowLimits {
            inner: self.inner.prepare(limits)?,
            clock: self.clock.clone(),
            there: self.there.clone(),
            back: self.back.clone(),
        }))
    }
    fn nodes(&self) -> u32 {
        self.inner.nodes()
    }
    fn report(&self) -> StoreReport {
        StoreReport::default()
    }
}

pub(crate) async fn after(clock: &ManualClock, us: u64) {
    let due = clock.now().plus(Span::from_nanos(us * 1000));
    poll_fn(|_| {
        if clock.now() >= due {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

pub(crate) const DEADLINE: Span = Span::from_millis(8);

impl SharedLimits for SlowLimits {
    fn charge<'a>(&'a self, request: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>> {
        Box::pin(async move {
            let (there, back) = (self.there.load(SeqCst), self.back.load(SeqCst));
            let took = Span::from_nanos((there + back) * 1000);
            if request.waited >= DEADLINE {
                return Err(StoreFault::new(FaultKind::Late, "no time was left to ask"));
            }
            let time = DEADLINE.as_nanos() - request.waited.as_nanos();
            if took.as_nanos() > time {
                after(&self.clock, time / 1000).await;
                return Err(StoreFault::new(FaultKind::Late, "late"));
            }
            after(&self.clock, there).await;
            let answer = self.inner.charge(request).await;
            after(&self.clock, back).await;
            answer
        })
    }
    fn settle<'a>(&'a self, settle: &'a SharedSettle) -> Answering<'a, u64> {
        Box::pin(async move {
            after(&self.clock, self.there.load(SeqCst)).await;
            let answer = self.inner.settle(settle).await;
            after(&self.clock, self.back.load(SeqCst)).await;
            answer
        })
    }
}

pub(crate) fn now_or_later<T>(clock: &ManualClock, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context()) {
            return value;
        }
        clock.advance(Span::from_millis(1));
    }
}
