//! One call from a request to its decision, for every front end.
//!
//! # Theory
//!
//! A decision is [`Decide::Ready`] if this process can make it, and [`Decide::Pending`] if a shared store has to be
//! asked first. Front ends do not know which store there is: a fast path writes what is ready and parks what is
//! pending, an asynchronous one awaits [`Decide::resolve`].
//!
//! ```text
//! match decide(&host, &policy, &request) { Ready(decision) => write(decision), Pending(pending) => park(pending) }
//! ```
//!
//! The decision is observed here, before the front end sees it: counted, logged, sampled. What surrounds it (who
//! observes, where background work runs, which timer) is the [`DecisionHost`].
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
//! Background work of one decision lasts as long as the store's deadline, twice: the charge and its refund. A host
//! without a runtime cannot run it; leases then end by their term.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::answer::{Answer, Basis};
use super::decision::unlimited;
use super::engine::{Asking, Begun};
use super::facts::Facts;
use super::gate::PolicyGate;
use super::settle::{Reservation, Settlement};
use super::together::Part;
use tollgate::clock::Clock;
use tollgate::decision::Verdict;
use tollgate::time::{Moment, Span};

/// Work that no caller waits for.
pub type BackgroundWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What surrounds decisions: the observer, the runtime and the timer. Cloned for pending decisions only.
pub trait DecisionHost: Clone + Send + Sync + 'static {
    /// The clock of the limits.
    type Clock: Clock;
    /// A policy with its state.
    type Policy: Send + Sync + 'static;

    /// The limits of a policy.
    fn gate(policy: &Self::Policy) -> &PolicyGate<Self::Clock>;

    /// Observes every decision. If not, [`DecisionHost::observe`] is never called and the clock is read once less.
    fn is_observed(&self) -> bool {
        true
    }

    /// Observes a decision that takes, or that refuses a request.
    fn observe(&self, policy: &Self::Policy, observed: &Observed<'_>) {
        let _ = (policy, observed);
    }

    /// Runs `work` to its end. Without a runtime it is dropped.
    fn run_in_background(&self, work: BackgroundWork);

    /// Ends at `deadline`.
    fn sleep_until(&self, deadline: Instant) -> BackgroundWork;
}

/// A decision as its observer sees it.
pub struct Observed<'a> {
    /// The decision.
    pub answer: &'a Answer,
    /// From the call of the front end to the decision.
    pub took: Span,
    key: &'a dyn Fn(usize) -> Option<Vec<String>>,
}

impl Observed<'_> {
    /// The parts of the key that a rule counts this request for, as text. Costs more than the decision: for refusals.
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

/// What is decided.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'f> {
    /// A request, against all limits of the policy.
    Request(&'f Facts<'f>),
    /// A charge on one rule, by its place; see [`PolicyGate::rule_named`]. A place without a rule limits nothing.
    Rule {
        /// The place of the rule.
        rule: usize,
        /// The parts of the key.
        key: &'f [&'f str],
        /// The cost.
        cost: u64,
    },
}

/// What is done with the charges.
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
    /// What is decided.
    pub subject: Subject<'f>,
    /// What is done with it.
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

/// A decision, or the wait for one.
#[derive(Debug)]
#[must_use]
pub enum Decide<H: DecisionHost> {
    /// It is made.
    Ready(Answer),
    /// The store has to be asked.
    Pending(PendingDecision<H>),
}

impl<H: DecisionHost> Decide<H> {
    /// The decision, when it is made.
    pub async fn resolve(self) -> Answer {
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
    let takes = request.op == Op::Charge;
    let begun = match request.subject {
        Subject::Request(facts) => gate.begin_at(facts, takes, began),
        Subject::Rule { rule, key, cost } => {
            let begun = gate.begin_keyed_at(rule, key, cost, takes, began);
            begun.unwrap_or_else(|| {
                Begun::Decided(unlimited(Verdict::Pass, Basis::Unmatched, began))
            })
        }
    };
    let terms = Terms::new(request, began);
    settle_start(host, policy, terms, begun, &|rule| match request.subject {
        Subject::Request(facts) => gate.key_texts(rule, facts),
        Subject::Rule { key, .. } => Some(key.iter().map(|part| (*part).to_owned()).collect()),
    })
}

/// Decides several requests as one: the charges of all are taken, or none. Returns beside the decision what belongs
/// to which of them, in order.
pub fn decide_together<H: DecisionHost>(
    host: &H,
    policy: &Arc<H::Policy>,
    requests: &[Facts<'_>],
    op: Op,
    deadline: Option<Instant>,
) -> (Decide<H>, Vec<Part>) {
    let gate = H::gate(policy);
    let terms = Terms {
        op,
        longest_wait: None,
        deadline,
        began: gate.clock().now(),
    };
    let (begun, parts) = gate.begin_together(requests, op == Op::Charge);
    let refused_by = match &begun {
        Begun::Decided(answer) => refusing(answer, &parts),
        Begun::Asks(_) => None,
    };
    let facts = requests.get(refused_by.unwrap_or(0));
    let decide = settle_start(host, policy, terms, begun, &|rule| {
        gate.key_texts(rule, facts?)
    });
    (decide, parts)
}

/// The request that made all of them be refused.
fn refusing(answer: &Answer, parts: &[Part]) -> Option<usize> {
    parts.iter().position(|part| match answer.basis {
        Basis::Charge(at) => part.charges.contains(&at),
        basis => part.ended.is_some_and(|(_, ended)| ended == basis),
    })
}

/// What a decision needs to know of its request until it is made.
#[derive(Clone, Copy, Debug)]
struct Terms {
    op: Op,
    longest_wait: Option<Span>,
    deadline: Option<Instant>,
    began: Moment,
}

impl Terms {
    fn new(request: &DecisionRequest<'_>, began: Moment) -> Terms {
        Terms {
            op: request.op,
            longest_wait: request.longest_wait,
            deadline: request.deadline,
            began,
        }
    }

    /// Bounds the wait of a decision and observes it.
    fn complete<H: DecisionHost>(
        &self,
        host: &H,
        policy: &H::Policy,
        answer: &mut Answer,
        key: &dyn Fn(usize) -> Option<Vec<String>>,
    ) {
        let gate = H::gate(policy);
        if let (Verdict::Wait { delay }, Some(longest)) = (answer.verdict, self.longest_wait)
            && delay > longest
        {
            if self.op == Op::Charge {
                drop(RefundOnDrop::new(host, gate, answer));
            }
            let retry_after = Span::from_nanos(delay.as_nanos().saturating_sub(longest.as_nanos()));
            answer.verdict = Verdict::Refuse { retry_after };
        }
        let is_observed = match self.op {
            Op::Charge => true,
            Op::Test => !answer.is_admitted(),
            Op::Peek => false,
        };
        if is_observed && host.is_observed() {
            let took = gate.clock().now().since(self.began);
            host.observe(policy, &Observed { answer, took, key });
        }
    }
}

fn settle_start<H: DecisionHost>(
    host: &H,
    policy: &Arc<H::Policy>,
    terms: Terms,
    begun: Begun,
    key: &dyn Fn(usize) -> Option<Vec<String>>,
) -> Decide<H> {
    match begun {
        Begun::Decided(mut answer) => {
            terms.complete(host, policy, &mut answer, key);
            Decide::Ready(answer)
        }
        Begun::Asks(asking) => {
            Decide::Pending(PendingDecision::new(host.clone(), policy, terms, asking))
        }
    }
}

/// A decision that waits for a store. Dropped, it is finished in the background and what it took is refunded.
pub struct PendingDecision<H: DecisionHost> {
    host: H,
    policy: Arc<H::Policy>,
    terms: Terms,
    asking: Asking,
    deadline: Option<BackgroundWork>,
}

impl<H: DecisionHost> fmt::Debug for PendingDecision<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingDecision")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

impl<H: DecisionHost> PendingDecision<H> {
    fn new(host: H, policy: &Arc<H::Policy>, terms: Terms, asking: Asking) -> PendingDecision<H> {
        PendingDecision {
            deadline: terms.deadline.map(|deadline| host.sleep_until(deadline)),
            host,
            policy: Arc::clone(policy),
            terms,
            asking,
        }
    }

    /// The policy that it is made under.
    pub fn policy(&self) -> &Arc<H::Policy> {
        &self.policy
    }

    fn complete(&self, mut answer: Answer) -> Answer {
        let gate = H::gate(&self.policy);
        // Only a charge can refuse a request whose store was asked.
        let refused_by = match answer.basis {
            Basis::Charge(at) => Some(at),
            _ => None,
        };
        let key = |rule: usize| gate.shared_key_texts(rule, self.asking.key(refused_by?)?);
        self.terms
            .complete(&self.host, &self.policy, &mut answer, &key);
        answer
    }

    /// Finishes the operation in the background and refunds what it takes.
    fn detach(&mut self) {
        if let Some(work) = self.asking.detach() {
            self.host.run_in_background(work);
        }
    }
}

impl<H: DecisionHost> Future for PendingDecision<H> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let this = &mut *self;
        let gate = H::gate(&this.policy);
        if let Poll::Ready(answer) = gate.poll_finish(&mut this.asking, context) {
            return Poll::Ready(this.complete(answer));
        }
        let Some(sleep) = &mut this.deadline else {
            return Poll::Pending;
        };
        if !this.asking.waits() || sleep.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        this.detach();
        let answer = H::gate(&this.policy).decide_alone(&mut this.asking);
        Poll::Ready(this.complete(answer))
    }
}

impl<H: DecisionHost> Unpin for PendingDecision<H> {}

impl<H: DecisionHost> Drop for PendingDecision<H> {
    fn drop(&mut self) {
        self.detach();
    }
}

/// What a decision took whose response is not written yet. Dropping it refunds everything.
pub struct RefundOnDrop<H: DecisionHost> {
    host: H,
    reservation: Option<Reservation<H::Clock>>,
}

impl<H: DecisionHost> fmt::Debug for RefundOnDrop<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefundOnDrop").finish_non_exhaustive()
    }
}

impl<H: DecisionHost> RefundOnDrop<H> {
    /// Holds what `answer` took.
    pub fn new(host: &H, gate: &PolicyGate<H::Clock>, answer: &Answer) -> RefundOnDrop<H> {
        RefundOnDrop {
            host: host.clone(),
            reservation: Some(gate.reserve(answer)),
        }
    }

    /// The response is written: what was taken stays taken.
    pub fn keep(mut self) {
        self.reservation = None;
    }
}

impl<H: DecisionHost> Drop for RefundOnDrop<H> {
    fn drop(&mut self) {
        let Some(reservation) = self.reservation.take().filter(|taken| !taken.is_empty()) else {
            return;
        };
        if reservation.is_shared() {
            self.host.run_in_background(Box::pin(async move {
                reservation.settle_everywhere(Settlement::Cancelled).await;
            }));
        } else {
            reservation.settle(Settlement::Cancelled);
        }
    }
}
