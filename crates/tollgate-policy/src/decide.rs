//! One call from a request to its decision, for every front end.
//!
//! # Theory
//!
//! A decision is [`Decide::Ready`] if this process can make it, and [`Decide::Pending`] if it needs a shared
//! store. Front ends do not know which store there is: a fast path writes what is ready and parks what is pending;
//! an asynchronous one awaits [`Decide::resolve`].
//!
//! ```text
//! match decide(&host, &policy, &request) { Ready(decision) => write(decision), Pending(pending) => park(pending) }
//! ```
//!
//! The decision is observed here, before the front end sees it: counted, logged, sampled. The [`DecisionHost`]
//! provides the observer and the timer.
//!
//! # Invariant
//!
//! A caller that leaves has taken nothing. [`PendingDecision`] owns everything it needs. Dropping it finishes the
//! operation in the background and then refunds what the request took.
//! A charge that passes only after its deadline is refunded likewise. What is taken but not yet delivered is held by
//! [`RefundOnDrop`].
//!
//! # Bounds
//!
//! Background work of one decision lasts at most twice the store's deadline: the charge and its refund. The host
//! runs it ([`DecisionHost::run_in_background`]). If that work is dropped, units that the store took stay taken;
//! leases end by their term.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::batch::BatchPart;
use super::charge::Charge;
use super::engine::{PendingCharges, Start};
use super::facts::Facts;
use super::gate::{Plan, PolicyGate};
use super::policy_decision::{PolicyDecision, Reason};
use super::reservation::{Reservation, Settlement};
use super::store::StoreOp;
use tollgate::Clock;
use tollgate::Verdict;
use tollgate::{Moment, Span};

/// A timer, or background work.
pub type HostFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The environment of decisions: observer and timer. Cloned for pending decisions only.
pub trait DecisionHost: Clone + Send + Sync + 'static {
    /// The clock of the limits.
    type Clock: Clock;
    /// A policy with its state.
    type Policy: Send + Sync + 'static;

    /// The limits of a policy.
    fn gate(policy: &Self::Policy) -> &PolicyGate<Self::Clock>;

    /// Whether every decision is observed. If not, [`DecisionHost::observe`] is never called and the clock is read
    /// once less.
    fn is_observed(&self) -> bool {
        true
    }

    /// Whether refusals by a concurrency limit report an estimate of the next release, from observed holding
    /// times. Otherwise they report an upper bound, the time after which a permit has expired.
    fn estimates_releases(&self) -> bool {
        false
    }

    /// Observers read [`Observed::request`]. A decision that waits for a store then keeps a copy.
    fn describes_requests(&self) -> bool {
        false
    }

    /// Observes a decision that takes units or refuses a request.
    fn observe(&self, policy: &Self::Policy, observed: &Observed<'_>) {
        let _ = (policy, observed);
    }

    /// Runs `work` to its end. By default [`PolicyGate::run_background`] does; without a runner it is dropped.
    fn run_in_background(&self, policy: &Self::Policy, work: HostFuture) {
        Self::gate(policy).queue_background(work);
    }

    /// A future that ends at `deadline`.
    fn sleep_until(&self, deadline: Instant) -> HostFuture;
}

/// A host without observer and timer, for programs that only need decisions. A deadline never ends.
pub struct NoHost<C>(PhantomData<fn() -> C>);

impl<C> NoHost<C> {
    /// A host for policies on the clock `C`.
    pub fn new() -> NoHost<C> {
        NoHost(PhantomData)
    }
}

impl<C> Default for NoHost<C> {
    fn default() -> NoHost<C> {
        NoHost::new()
    }
}

impl<C> Clone for NoHost<C> {
    fn clone(&self) -> NoHost<C> {
        NoHost::new()
    }
}

impl<C> fmt::Debug for NoHost<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoHost")
    }
}

impl<C: Clock> DecisionHost for NoHost<C> {
    type Clock = C;
    type Policy = PolicyGate<C>;

    fn gate(policy: &PolicyGate<C>) -> &PolicyGate<C> {
        policy
    }

    fn is_observed(&self) -> bool {
        false
    }

    fn sleep_until(&self, _: Instant) -> HostFuture {
        Box::pin(std::future::pending())
    }
}

/// A decision as passed to its observer.
pub struct Observed<'a> {
    /// The decision.
    pub answer: &'a PolicyDecision,
    /// Time from the call of the front end to the decision.
    pub took: Span,
    key: &'a dyn Fn(usize) -> Option<Vec<String>>,
    request: &'a dyn Fn() -> Option<DescribedRequest>,
}

/// A request in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedRequest {
    /// The method.
    pub method: Box<str>,
    /// The path without its query, cut to [`DescribedRequest::PATH_MAX`] characters.
    pub path: Box<str>,
    /// The client.
    pub client: Option<IpAddr>,
}

impl DescribedRequest {
    /// Characters of a path.
    pub const PATH_MAX: usize = 256;

    fn new(facts: &Facts<'_>) -> DescribedRequest {
        let cut = |text: &str, most| text.chars().take(most).collect();
        DescribedRequest {
            method: cut(facts.method, 32),
            path: cut(facts.path, Self::PATH_MAX),
            client: facts.client,
        }
    }
}

impl Observed<'_> {
    /// The request, if the host [describes](DecisionHost::describes_requests) requests and it is one request with facts.
    pub fn request(&self) -> Option<DescribedRequest> {
        (self.request)()
    }

    /// The parts of the key that a rule counts this request for, as text. Costs more than the decision: use it for
    /// refusals.
    pub fn key(&self, rule: usize) -> Option<Vec<String>> {
        (self.key)(rule)
    }
}

impl fmt::Debug for Observed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed")
            .field("answer", &self.answer)
            .field("took", &self.took)
            .finish_non_exhaustive()
    }
}

/// What is decided: a request, or a key of one rule.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'f> {
    /// A request, against all limits of the policy.
    Request(&'f Facts<'f>),
    /// A charge on one rule, by its index; see [`PolicyGate::rule_named`]. An index without a rule limits nothing.
    Rule {
        /// The index of the rule.
        rule: usize,
        /// The parts of the key.
        key: &'f [&'f str],
        /// The cost.
        cost: u64,
    },
}

/// What happens to the charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Take them, all or none. Observed.
    Charge,
    /// Take nothing, but a refusal refuses the request. Only refusals are observed.
    Test,
    /// Take nothing. Not observed.
    Peek,
}

/// A request for a decision.
#[derive(Clone, Copy, Debug)]
pub struct DecisionRequest<'f> {
    /// The subject.
    pub subject: Subject<'f>,
    /// The operation.
    pub op: Op,
    /// A longer wait is refused, and what was taken is refunded: `retry_after` is then the wait beyond this one.
    pub longest_wait: Option<Span>,
    /// When the caller stops waiting. A pending decision is then made without the store.
    pub deadline: Option<Instant>,
}

impl<'f> DecisionRequest<'f> {
    /// A request without bounds on time.
    pub fn new(subject: Subject<'f>, op: Op) -> DecisionRequest<'f> {
        DecisionRequest {
            subject,
            op,
            longest_wait: None,
            deadline: None,
        }
    }
}

/// A decision, or a future of one.
#[derive(Debug)]
#[must_use]
pub enum Decide<H: DecisionHost> {
    /// The decision is made.
    Ready(PolicyDecision),
    /// The store must be asked.
    Pending(PendingDecision<H>),
}

impl<H: DecisionHost> Decide<H> {
    /// Waits for the decision.
    pub async fn resolve(self) -> PolicyDecision {
        match self {
            Decide::Ready(answer) => answer,
            Decide::Pending(pending) => pending.await,
        }
    }
}

/// Decides a request under `policy`.
pub fn decide<H: DecisionHost>(
    host: &H,
    policy: &Arc<H::Policy>,
    request: &DecisionRequest<'_>,
) -> Decide<H> {
    let gate = H::gate(policy);
    let began = gate.clock().now();
    let plan = match request.subject {
        Subject::Request(facts) => gate.plan(facts, began),
        Subject::Rule { rule, key, cost } => gate.plan_rule_by_key(rule, key, cost, began),
    };
    let decision_context = DecisionContext {
        op: request.op,
        longest_wait: request.longest_wait,
        deadline: request.deadline,
        began,
    };
    let describe = || match request.subject {
        Subject::Request(facts) if host.describes_requests() => Some(DescribedRequest::new(facts)),
        _ => None,
    };
    let key = |gate: &PolicyGate<H::Clock>, _: &PolicyDecision, rule| match request.subject {
        Subject::Request(facts) => gate.key_texts(rule, facts),
        Subject::Rule { key, .. } => Some(key.iter().map(|part| (*part).to_owned()).collect()),
    };
    decision_context.start(host, policy, plan, &key, &describe)
}

/// Decides several requests as one: the charges of all are taken, or none. Returns with the decision which charges
/// belong to which request, in order.
pub fn decide_batch<H: DecisionHost>(
    host: &H,
    policy: &Arc<H::Policy>,
    requests: &[Facts<'_>],
    op: Op,
    deadline: Option<Instant>,
) -> (Decide<H>, Vec<BatchPart>) {
    let gate = H::gate(policy);
    let decision_context = DecisionContext {
        op,
        longest_wait: None,
        deadline,
        began: gate.clock().now(),
    };
    let (plan, parts) = gate.plan_batch(requests, decision_context.began);
    let key = |gate: &PolicyGate<H::Clock>, answer: &PolicyDecision, rule| {
        let refused_by = refusing(answer, &parts).unwrap_or(0);
        gate.key_texts(rule, requests.get(refused_by)?)
    };
    let decide = decision_context.start(host, policy, plan, &key, &|| None);
    (decide, parts)
}

/// The request of a batch that caused its refusal.
fn refusing(answer: &PolicyDecision, parts: &[BatchPart]) -> Option<usize> {
    parts.iter().position(|part| match answer.reason {
        Reason::Charge(at) => part.charges.contains(&at),
        reason => part.ended.is_some_and(|(_, ended)| ended == reason),
    })
}

/// The properties of a request that a pending decision needs.
#[derive(Clone, Copy, Debug)]
struct DecisionContext {
    op: Op,
    longest_wait: Option<Span>,
    deadline: Option<Instant>,
    began: Moment,
}

/// Yields the parts of a rule's key as text, for the observer.
type KeyTexts<'a, C> = &'a dyn Fn(&PolicyGate<C>, &PolicyDecision, usize) -> Option<Vec<String>>;

impl DecisionContext {
    /// Decides a plan as far as this process can.
    fn start<H: DecisionHost>(
        self,
        host: &H,
        policy: &Arc<H::Policy>,
        plan: Result<Plan, Box<PolicyDecision>>,
        key: KeyTexts<'_, H::Clock>,
        describe: &dyn Fn() -> Option<DescribedRequest>,
    ) -> Decide<H> {
        let op = match self.op {
            Op::Charge => StoreOp::Charge,
            Op::Test | Op::Peek => StoreOp::Peek,
        };
        match H::gate(policy).start(plan, op, self.began) {
            Start::Decided(mut answer) => {
                self.complete(host, policy, &mut answer, key, describe);
                Decide::Ready(answer)
            }
            Start::Pending(charges) => Decide::Pending(PendingDecision {
                deadline: self.deadline.map(|deadline| host.sleep_until(deadline)),
                host: host.clone(),
                policy: Arc::clone(policy),
                decision_context: self,
                charges,
                request: describe(),
            }),
        }
    }

    /// Bounds the wait of a decision and observes it.
    fn complete<H: DecisionHost>(
        &self,
        host: &H,
        policy: &H::Policy,
        answer: &mut PolicyDecision,
        key: KeyTexts<'_, H::Clock>,
        request: &dyn Fn() -> Option<DescribedRequest>,
    ) {
        let gate = H::gate(policy);
        if let (Verdict::Wait { delay }, Some(longest)) = (answer.verdict, self.longest_wait)
            && delay > longest
        {
            if self.op == Op::Charge {
                let reservation = gate.reserve(answer);
                match reservation.is_shared() {
                    true => host.run_in_background(
                        policy,
                        Box::pin(async move {
                            reservation.settle_everywhere(Settlement::Cancelled).await;
                        }),
                    ),
                    false => {
                        reservation.settle(Settlement::Cancelled);
                    }
                }
            }
            let retry_after = Span::from_nanos(delay.as_nanos().saturating_sub(longest.as_nanos()));
            answer.verdict = Verdict::Refuse { retry_after };
        }
        if let (Verdict::Refuse { retry_after }, Reason::Charge(at)) =
            (answer.verdict, answer.reason)
            && host.estimates_releases()
            && let Some(charge) = answer.charges.get(at)
            && let Some(retry_after) = gate.until_release(charge.limit, retry_after)
        {
            answer.verdict = Verdict::Refuse { retry_after };
        }
        let is_observed = match self.op {
            Op::Charge => true,
            Op::Test => !answer.is_admitted(),
            Op::Peek => false,
        };
        if is_observed && host.is_observed() {
            let took = gate.clock().now().since(self.began);
            let key = &|rule| key(gate, answer, rule);
            host.observe(
                policy,
                &Observed {
                    answer,
                    took,
                    key,
                    request,
                },
            );
        }
    }
}

/// A decision that waits for a store. Dropped, it is finished in the background and what it took is refunded
/// ([`DecisionHost::run_in_background`]).
#[must_use = "a decision that is not awaited is finished in the background and refunded"]
pub struct PendingDecision<H: DecisionHost> {
    host: H,
    policy: Arc<H::Policy>,
    decision_context: DecisionContext,
    charges: PendingCharges,
    deadline: Option<HostFuture>,
    /// For the observer, if the host describes requests.
    request: Option<DescribedRequest>,
}

impl<H: DecisionHost> fmt::Debug for PendingDecision<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingDecision")
            .field("decision_context", &self.decision_context)
            .finish_non_exhaustive()
    }
}

impl<H: DecisionHost> PendingDecision<H> {
    /// The policy of the decision.
    pub fn policy(&self) -> &Arc<H::Policy> {
        &self.policy
    }

    /// Finishes in the background what was sent, and refunds what it takes.
    fn detach(&mut self) {
        if let Some(work) = H::gate(&self.policy).detach(&mut self.charges) {
            self.host.run_in_background(&self.policy, work);
        }
    }

    /// Builds and observes the decision on these charges.
    fn complete(&self, charges: Vec<Charge>) -> PolicyDecision {
        let gate = H::gate(&self.policy);
        let mut answer = gate.build_decision(charges, self.charges.enforced());
        let key = |gate: &PolicyGate<H::Clock>, answer: &PolicyDecision, rule: usize| {
            // Only a charge can refuse a request that waited for the store.
            let Reason::Charge(at) = answer.reason else {
                return None;
            };
            gate.shared_key_texts(rule, answer.charges.get(at)?.key.as_deref()?)
        };
        let request = || self.request.clone();
        self.decision_context
            .complete(&self.host, &self.policy, &mut answer, &key, &request);
        answer
    }
}

impl<H: DecisionHost> Future for PendingDecision<H> {
    type Output = PolicyDecision;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<PolicyDecision> {
        let this = &mut *self;
        if let Poll::Ready(charges) = this.charges.poll(context) {
            return Poll::Ready(this.complete(charges));
        }
        let Some(sleep) = &mut this.deadline else {
            return Poll::Pending;
        };
        if this.charges.is_ended() || sleep.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        this.detach();
        let charges = H::gate(&this.policy).decide_locally(&this.charges);
        Poll::Ready(this.complete(charges))
    }
}

impl<H: DecisionHost> Unpin for PendingDecision<H> {}

impl<H: DecisionHost> Drop for PendingDecision<H> {
    fn drop(&mut self) {
        self.detach();
    }
}

/// What a decision took whose response is not written yet. Dropping it refunds everything.
#[derive(Debug)]
pub struct RefundOnDrop<C: Clock>(Option<Reservation<C>>);

impl<C: Clock> RefundOnDrop<C> {
    /// Holds what a decision took.
    pub fn new(gate: &PolicyGate<C>, answer: &PolicyDecision) -> RefundOnDrop<C> {
        RefundOnDrop(Some(gate.reserve(answer)))
    }

    /// Called when the response is written: what was taken stays taken.
    pub fn commit(mut self) {
        self.0 = None;
    }
}

impl<C: Clock> Drop for RefundOnDrop<C> {
    fn drop(&mut self) {
        if let Some(reservation) = self.0.take() {
            reservation.settle(Settlement::Cancelled);
        }
    }
}
