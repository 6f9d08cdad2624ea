//! `decide`: at once or after a store answers, observed once, and refunded if the caller leaves.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Instant;

use super::kit::{Counting, Gate, Slow, after, bucket, context, node, shared, window};
use tollgate::{Limit, ManualClock, Origin, Span, Verdict};
use tollgate_policy::{
    Decide, DecisionHost, DecisionRequest, Facts, HostFuture, KeyPart, LimitRule, Observed, Op,
    PendingDecision, Policy, PolicyDecision, PolicyGate, Quota, RefundOnDrop, Sharing, Source,
    Subject, decide, decide_batch,
};

/// What was observed: whether it passed, and the key of the limit that refused.
type Seen = (bool, Option<Vec<String>>);

#[derive(Clone)]
struct Host {
    clock: ManualClock,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl DecisionHost for Host {
    type Clock = ManualClock;
    type Policy = PolicyGate<ManualClock>;

    fn gate(policy: &Self::Policy) -> &Self::Policy {
        policy
    }

    fn observe(&self, _: &Self::Policy, observed: &Observed<'_>) {
        let rule = observed.answer.binding().map(|charge| charge.rule);
        let key = rule.and_then(|rule| observed.key(rule));
        let is_admitted = observed.answer.is_admitted();
        self.seen.lock().unwrap().push((is_admitted, key));
    }

    /// Two milliseconds, whenever that is.
    fn sleep_until(&self, _: Instant) -> HostFuture {
        let clock = self.clock.clone();
        Box::pin(async move { after(&clock, 2_000).await })
    }
}

impl Host {
    fn new(clock: &ManualClock) -> Host {
        Host {
            clock: clock.clone(),
            seen: Arc::default(),
        }
    }

    fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn facts() -> Facts<'static> {
    Facts {
        method: "GET",
        path: "/",
        client: Some([192, 0, 2, 7].into()),
        headers: &[("x-org", "acme")],
        ..Facts::default()
    }
}

fn of_acme(op: Op, f: impl FnOnce(&DecisionRequest<'_>) -> Decide<Host>) -> Decide<Host> {
    f(&DecisionRequest::new(Subject::Request(&facts()), op))
}

fn ready(decide: Decide<Host>) -> PolicyDecision {
    match decide {
        Decide::Ready(answer) => answer,
        Decide::Pending(_) => panic!("it waits"),
    }
}

fn pending(decide: Decide<Host>) -> PendingDecision<Host> {
    match decide {
        Decide::Ready(answer) => panic!("{answer:?}"),
        Decide::Pending(pending) => pending,
    }
}

fn poll(pending: &mut PendingDecision<Host>) -> Poll<PolicyDecision> {
    Pin::new(pending).poll(&mut context())
}

fn resolved(clock: &ManualClock, mut pending: PendingDecision<Host>) -> PolicyDecision {
    loop {
        if let Poll::Ready(answer) = poll(&mut pending) {
            return answer;
        }
        clock.advance(Span::from_millis(1));
    }
}

/// Runs background work for a while.
fn run(clock: &ManualClock, mut background: Pin<&mut impl Future<Output = ()>>) {
    for _ in 0..10 {
        assert!(background.as_mut().poll(&mut context()).is_pending());
        clock.advance(Span::from_millis(1));
    }
}

fn in_memory(clock: &ManualClock, limit: Limit) -> Gate {
    let mut rule = LimitRule::new("a", Quota::plain(limit));
    rule.key = vec![KeyPart::new(Source::Header("x-org".into()))];
    let policy = Policy {
        limits: vec![rule],
        ..Policy::default()
    };
    Arc::new(PolicyGate::new(policy, clock.clone()).unwrap())
}

fn exact(limit: Limit) -> LimitRule {
    let mut rule = shared("a", Sharing::Exact, limit);
    rule.key
        .push(KeyPart::new(Source::Address { v4: 24, v6: 64 }));
    rule
}

#[test]
fn what_this_process_decides_is_ready_and_observed_once() {
    let clock = ManualClock::new();
    let (host, gate) = (Host::new(&clock), in_memory(&clock, bucket("1/h", 1)));
    let acme = Some(vec![String::from("acme")]);
    for (op, passes, seen) in [
        (Op::Peek, true, None),
        (Op::Test, true, None),
        (Op::Charge, true, Some(true)),
        (Op::Peek, false, None),
        (Op::Test, false, Some(false)),
        (Op::Charge, false, Some(false)),
    ] {
        let answer = ready(of_acme(op, |request| decide(&host, &gate, request)));
        assert_eq!(answer.is_admitted(), passes, "{op:?}");
        let seen = seen.map(|passed| (passed, acme.clone()));
        assert_eq!(host.seen(), Vec::from_iter(seen), "{op:?}");
    }
    let subject = Subject::Rule {
        rule: 0,
        key: &["other"],
        cost: 2,
    };
    let never = ready(decide(
        &host,
        &gate,
        &DecisionRequest::new(subject, Op::Charge),
    ));
    assert_eq!(never.verdict, Verdict::Never);
    assert_eq!(host.seen(), [(false, Some(vec![String::from("other")]))]);
}

#[test]
fn what_a_store_decides_is_pending_and_observed_with_its_key() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let slow = Slow::new(&store, &clock, 0, 1_000);
    let gate = node(&clock, slow, vec![exact(bucket("1/h", 1))]);
    let host = Host::new(&clock);
    let key = Some(vec![String::from("acme"), String::from("192.0.2.0/24")]);
    for passes in [true, false] {
        let asked = of_acme(Op::Charge, |request| decide(&host, &gate, request));
        let asked = pending(asked);
        assert!(host.seen().is_empty());
        let answer = resolved(&clock, asked);
        assert_eq!(answer.is_admitted(), passes);
        assert_eq!(host.seen(), [(passes, key.clone())]);
    }
    let (asked, parts) = decide_batch(&host, &gate, &[facts(), facts()], Op::Charge, None);
    assert!(!resolved(&clock, pending(asked)).is_admitted());
    assert_eq!(parts.len(), 2);
    assert_eq!(host.seen(), [(false, key)]);
}

#[test]
fn a_caller_that_leaves_has_taken_nothing_in_any_layer() {
    for sharing in [Sharing::Exact, Sharing::Lease, Sharing::Sync] {
        let clock = ManualClock::new();
        let store = Counting::new(&clock, 2);
        let slow = Slow::new(&store, &clock, 0, 1_000);
        let gate = node(&clock, slow, vec![shared("a", sharing, window("5000/h"))]);
        let mut background = pin!(gate.run_background(std::future::pending()));
        let mut run = || run(&clock, background.as_mut());
        run();
        let host = Host::new(&clock);
        let ask = || of_acme(Op::Charge, |request| decide(&host, &gate, request));
        if sharing == Sharing::Exact {
            // Nothing is sent before the decision is polled.
            drop(pending(ask()));
            run();
            assert_eq!(store.asked.load(SeqCst), 0);
        }
        let mut abandoned = 0;
        for _ in 0..100 {
            let Decide::Pending(mut asked) = ask() else {
                // A lease or a copy decides here; the limit is not asked again.
                break;
            };
            assert!(poll(&mut asked).is_pending());
            abandoned += 1;
            drop(asked);
            run();
        }
        let is_ready = abandoned < 100;
        assert_eq!(is_ready, sharing != Sharing::Exact, "{sharing:?}");
        assert!(abandoned > 0 && store.asked.load(SeqCst) > 0);
        // The one that was ready has been taken.
        let mut passed = u64::from(is_ready);
        // A refusal is cached for a moment.
        for _ in 0..3 {
            loop {
                let answer = match ask() {
                    Decide::Ready(answer) => answer,
                    Decide::Pending(asked) => resolved(&clock, asked),
                };
                if !answer.is_admitted() {
                    break;
                }
                passed += 1;
            }
            clock.advance(Span::from_secs(1));
        }
        assert_eq!(passed, 5_000, "{sharing:?}");
    }
}

#[test]
fn after_its_deadline_a_decision_is_made_without_the_store_and_counts_once() {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 2);
    let slow = Slow::new(&store, &clock, 0, 5_000);
    let gate = node(&clock, slow, vec![exact(bucket("1/h", 10))]);
    let mut background = pin!(gate.run_background(std::future::pending()));
    run(&clock, background.as_mut());
    let host = Host::new(&clock);
    let facts = facts();
    let request = DecisionRequest {
        #[expect(
            clippy::disallowed_methods,
            reason = "the host of this test does not look at it"
        )]
        deadline: Some(Instant::now()),
        ..DecisionRequest::new(Subject::Request(&facts), Op::Charge)
    };
    let mut asked = pending(decide(&host, &gate, &request));
    assert!(poll(&mut asked).is_pending());
    clock.advance(Span::from_millis(2));
    let Poll::Ready(answer) = poll(&mut asked) else {
        panic!("it waits");
    };
    assert!(answer.is_admitted());
    assert_eq!(answer.origin, Origin::Degraded);
    assert_eq!(host.seen().len(), 1);
    run(&clock, background.as_mut());
    // The next charge reports what was admitted meanwhile, and takes one itself.
    let charged = of_acme(Op::Charge, |request| decide(&host, &gate, request));
    let charged = resolved(&clock, pending(charged));
    assert_eq!(charged.status.remaining, 8);
}

#[test]
fn a_wait_beyond_the_longest_is_refused_and_its_slot_is_given_back() {
    let clock = ManualClock::new();
    let slots = Limit::leaky_bucket("1/s".parse().unwrap(), 10).unwrap();
    let (host, gate) = (Host::new(&clock), in_memory(&clock, slots));
    let facts = facts();
    let request = DecisionRequest {
        longest_wait: Some(Span::from_secs(2)),
        ..DecisionRequest::new(Subject::Request(&facts), Op::Charge)
    };
    let verdicts = [(); 5].map(|()| ready(decide(&host, &gate, &request)).verdict);
    let wait = |secs| Verdict::Wait {
        delay: Span::from_secs(secs),
    };
    let refuse = Verdict::Refuse {
        retry_after: Span::from_secs(1),
    };
    assert_eq!(verdicts, [Verdict::Pass, wait(1), wait(2), refuse, refuse]);
    let passed: Vec<_> = host.seen().iter().map(|seen| seen.0).collect();
    assert_eq!(passed, [true, true, true, false, false]);
}

#[test]
fn what_is_not_delivered_is_refunded() {
    let clock = ManualClock::new();
    let (host, gate) = (Host::new(&clock), in_memory(&clock, bucket("1/h", 3)));
    let charge = || ready(of_acme(Op::Charge, |request| decide(&host, &gate, request)));
    drop(RefundOnDrop::new(&gate, &charge()));
    RefundOnDrop::new(&gate, &charge()).commit();
    assert_eq!(charge().status.remaining, 1);
}
