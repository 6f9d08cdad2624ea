//! The state of a queue behind its lock: arrivals, departures, rule changes, samples.
//!
//! # Invariant
//!
//! Whenever the lock is released, one of these holds, so a dispatch is never due without a party that performs it:
//!
//! | state | dispatched by |
//! |---|---|
//! | no request waits whose flow is below its limit | the release of a permit of that flow |
//! | the concurrency limit is reached | the release of any permit |
//! | the rate has to earn more, and [`State::alarm`] is no later than that moment | the timer task |

use std::sync::Arc;
use std::task::Waker;

use tollgate::shape::fair_queue::{MAX_COST_PER_WEIGHT, NumberHasher};
use tollgate::shape::{FairQueue, FairQueueConfig, Sample, Ticket};
use tollgate::{Moment, Scale, Span};
use tollgate_policy::{QueuePlace, QueueRule};

use super::concurrency_limit::ConcurrencyLimit;
use super::dispatch_rate::{DispatchRate, RateCharge};
use super::stats::{QueueStats, TierCounters, UnservedCounts, WaitHistogram};
use super::timer::{RuntimeClock, Wakers};
use super::wait_estimate::WaitEstimate;
use super::waiter_list::WaiterList;
use super::{BackendOutcome, QueueError, RejectReason, Rejected};

/// The bounds of [`Rejected::retry_after`].
pub(super) const MIN_RETRY_AFTER: Span = Span::from_millis(1);
pub(super) const MAX_RETRY_AFTER: Span = Span::from_secs(60);

#[derive(Debug)]
pub(super) struct State {
    pub(super) clock: RuntimeClock,
    pub(super) queue: FairQueue<u64, usize, NumberHasher>,
    /// Listed: requests that wait. Unlisted: requests with a result that they have not taken yet.
    pub(super) waiters: WaiterList<Waiter>,
    /// Requests in flight that may still time out. Listed: those whose service timer runs.
    pub(super) samples: WaiterList<PendingSample>,
    pub(super) limit: ConcurrencyLimit,
    /// The concurrency limit of one flow, before scaling.
    limit_per_flow: Option<u32>,
    pub(super) rate: Option<DispatchRate>,
    scale: Scale,
    pub(super) max_wait: Span,
    /// The cost of all waiting requests.
    pub(super) queued_cost: u128,
    /// When the rate allows the next dispatch, if that is what the queue waits for.
    pub(super) rate_ready_at: Option<Moment>,
    /// When the timer task wakes next. `None`: when it is notified.
    pub(super) alarm: Option<Moment>,
    pub(super) has_timer: bool,
    pub(super) estimate: WaitEstimate,
    waits: WaitHistogram,
    tiers: TierCounters,
    pub(super) unserved: UnservedCounts,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) waker: Option<Waker>,
    pub(super) arrived: Moment,
    pub(super) cost: u64,
    pub(super) state: WaiterState,
}

#[derive(Debug)]
pub(super) enum WaiterState {
    Queued(Ticket),
    Decided(Result<Grant, Rejected>),
}

/// A granted permit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) ticket: Ticket,
    pub(super) cost: u64,
    pub(super) waited: Span,
    pub(super) charge: Option<RateCharge>,
    /// Its sample, until the outcome is recorded.
    pub(super) sample: Option<SampleKey>,
}

/// Where the sample of a request is. A slot is reused after a timeout; arrival numbers never are.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleKey {
    pub(super) slot: usize,
    pub(super) seq: u64,
}

/// The sample of a request in flight.
#[derive(Debug)]
pub(super) struct PendingSample {
    pub(super) seq: u64,
    pub(super) started: Moment,
    pub(super) in_flight: u32,
}

/// The result of an arrival.
#[derive(Debug)]
pub(super) enum Arrival {
    Decided(Result<Grant, Rejected>),
    /// The request waits in this slot of the waiter list.
    Waiting(usize),
}

impl State {
    pub(super) fn new(rule: &QueueRule, clock: RuntimeClock) -> Result<State, QueueError> {
        let unusable = |problem: String| QueueError {
            queue: Arc::clone(&rule.name),
            problem,
        };
        if rule.at_once.is_none() && rule.rate.is_none() {
            let problem = "it has neither `at_once` nor `rate`, so no request would ever wait";
            return Err(unusable(problem.to_owned()));
        }
        let limit =
            ConcurrencyLimit::new(rule.at_once).map_err(|error| unusable(error.to_string()))?;
        let queue = FairQueue::with_hasher(
            FairQueueConfig {
                depth: depth(limit.limit()),
                max_running_per_flow: depth(rule.at_once_per_flow),
                max_queued_per_flow: rule.per_flow,
                max_queued_total: rule.total,
            },
            NumberHasher::new(),
        );
        let rate = rule
            .rate
            .map(|(rate, burst)| DispatchRate::new(rate, burst, Scale::ONE))
            .transpose();
        let mut tiers = TierCounters::default();
        tiers.change(rule);
        Ok(State {
            clock,
            queue: queue.map_err(|error| unusable(error.to_string()))?,
            waiters: WaiterList::new(),
            samples: WaiterList::new(),
            limit,
            limit_per_flow: rule.at_once_per_flow,
            rate: rate.map_err(|error| unusable(error.to_string()))?,
            scale: Scale::ONE,
            max_wait: rule.max_wait,
            queued_cost: 0,
            rate_ready_at: None,
            alarm: None,
            has_timer: false,
            estimate: WaitEstimate::default(),
            waits: WaitHistogram::default(),
            tiers,
            unserved: UnservedCounts::default(),
        })
    }

    /// Applies another rule. An unusable part leaves that part as it was: the caller has validated the rule by building a
    /// queue from it.
    pub(super) fn change(&mut self, rule: &QueueRule) {
        let _ = self.queue.set_bounds(rule.per_flow, rule.total);
        if rule.at_once.is_some() || rule.rate.is_some() {
            let is_usable =
                ConcurrencyLimit::new(rule.at_once).is_ok_and(|limit| limit.limit() != Some(0));
            if is_usable {
                let _ = self.limit.change(rule.at_once);
            }
            match (&mut self.rate, rule.rate) {
                (_, None) => self.rate = None,
                (Some(current), Some((rate, burst))) => {
                    let _ = current.change(rate, burst, self.clock.now());
                }
                (none, Some((rate, burst))) => {
                    *none = DispatchRate::new(rate, burst, self.scale).ok();
                }
            }
        }
        self.max_wait = rule.max_wait;
        if rule.at_once_per_flow != Some(0) {
            self.limit_per_flow = rule.at_once_per_flow;
        }
        self.tiers.change(rule);
        self.apply_limit();
        self.apply_limit_per_flow();
    }

    pub(super) fn set_scale(&mut self, scale: Scale) {
        self.scale = scale;
        if let Some(rate) = &mut self.rate {
            rate.set_scale(scale, self.clock.now());
        }
        self.apply_limit();
        self.apply_limit_per_flow();
    }

    /// A request arrives. Called after [`State::advance`], so that all earlier requests that can be dispatched are.
    pub(super) fn arrive(
        &mut self,
        now: Moment,
        place: &QueuePlace,
        waker: &Waker,
        wakers: &mut Wakers,
    ) -> Arrival {
        let weight = u64::from(place.weight.max(1));
        let cost = place
            .cost
            .clamp(1, weight.saturating_mul(MAX_COST_PER_WEIGHT));
        let flow = place.flow;
        if self.queue.is_open_to(&flow) {
            let charge = |rate: &mut DispatchRate| rate.charge(now, None, cost);
            // If the rate has to earn more first, the request waits like all others and is charged below.
            if let Ok(charge) = self.rate.as_mut().map(charge).transpose()
                && let Some(ticket) = self.queue.dispatch_arrival(flow, weight, cost)
            {
                // Requests that wait now wait for their flow's limit. That others overtake them does not predict when
                // they go.
                if self.queue.queued() == 0 {
                    self.estimate.record(now, now);
                }
                return Arrival::Decided(Ok(self.grant(now, now, ticket, cost, charge)));
            }
        }

        let slot = self.waiters.push(Waiter {
            waker: Some(waker.clone()),
            arrived: now,
            cost,
            state: WaiterState::Decided(Err(Rejected {
                reason: RejectReason::QueueFull,
                retry_after: MIN_RETRY_AFTER,
            })),
        });
        match self.queue.enqueue(flow, weight, cost, slot) {
            Err(rejected) => {
                self.waiters.remove(slot);
                let reason = match rejected.reason {
                    tollgate::shape::RejectReason::FlowFull { .. } => RejectReason::FlowFull,
                    // Weights and costs out of range were clamped above.
                    _ => RejectReason::QueueFull,
                };
                return Arrival::Decided(Err(self.rejection(now, reason)));
            }
            Ok(queued) => {
                if let Some(waiter) = self.waiters.get_mut(slot) {
                    waiter.state = WaiterState::Queued(queued.ticket);
                }
                self.queued_cost = self.queued_cost.saturating_add(cost.into());
                if let Some(displaced) = queued.displaced {
                    self.subtract_queued_cost(displaced.cost);
                    self.reject(now, displaced.item, RejectReason::Displaced, wakers);
                }
            }
        }
        self.dispatch(now, wakers);
        self.expire(now, wakers);
        match self.take_result(slot, waker, wakers) {
            Some(result) => Arrival::Decided(result),
            None => Arrival::Waiting(slot),
        }
    }

    /// Removes and returns the result of a waiting request, if there is one.
    pub(super) fn take_result(
        &mut self,
        slot: usize,
        waker: &Waker,
        wakers: &mut Wakers,
    ) -> Option<Result<Grant, Rejected>> {
        let waiter = self.waiters.get_mut(slot)?;
        if let WaiterState::Queued(_) = waiter.state {
            let is_known = |known: &Waker| known.will_wake(waker);
            if !waiter.waker.as_ref().is_some_and(is_known) {
                // The old waker may be the last owner of a task, which must not be dropped under the lock. A spurious
                // wake-up is harmless.
                wakers.add(waiter.waker.replace(waker.clone()));
            }
            return None;
        }
        match self.waiters.remove(slot)?.state {
            WaiterState::Queued(_) => None,
            WaiterState::Decided(result) => Some(result),
        }
    }

    /// The counter of a tier, by its index in the current rule.
    pub(super) fn tier_counter(&self, tier: Option<usize>) -> Option<usize> {
        self.tiers.index_of(tier)
    }

    /// Counts a permit that was taken.
    pub(super) fn count_served(&mut self, counter: Option<usize>, grant: &Grant) {
        self.waits.record(grant.waited);
        self.tiers.count(counter, grant.cost);
    }

    /// A request is cancelled while it waits, or before it takes its result. The returned waker must be dropped after the
    /// lock is released: it may be the last owner of a task.
    #[must_use]
    pub(super) fn cancel(&mut self, slot: usize) -> Option<Waker> {
        let waiter = self.waiters.remove(slot)?;
        match waiter.state {
            WaiterState::Queued(ticket) => {
                if self.queue.cancel(ticket).is_some() {
                    self.subtract_queued_cost(waiter.cost);
                }
            }
            WaiterState::Decided(Ok(grant)) => self.revoke(&grant),
            // Counted when it was rejected.
            WaiterState::Decided(Err(_)) => return waiter.waker,
        }
        self.unserved.cancelled = self.unserved.cancelled.saturating_add(1);
        waiter.waker
    }

    /// Records the outcome of a request. Only the first outcome counts.
    pub(super) fn record(&mut self, now: Moment, grant: &mut Grant, outcome: BackendOutcome) {
        let Some((sample, is_timed)) = grant.sample.take().and_then(|key| self.take_sample(key))
        else {
            return;
        };
        let dropped = match outcome {
            BackendOutcome::Overloaded => true,
            // A response before the upload has ended: its time is no sample.
            BackendOutcome::Answered if is_timed => false,
            BackendOutcome::Answered | BackendOutcome::Ignored => return,
        };
        let sample = Sample {
            rtt_ns: now.since(sample.started).as_nanos(),
            inflight: sample.in_flight,
            dropped,
        };
        self.limit.record(now, sample);
        self.apply_limit();
    }

    /// Releases a permit.
    pub(super) fn release(&mut self, grant: &Grant) {
        self.queue.complete(grant.ticket, grant.cost);
    }

    /// Applies everything that is due: timeouts, ticks, expired requests, dispatches.
    pub(super) fn advance(&mut self, now: Moment, wakers: &mut Wakers) {
        self.time_out(now);
        if self.limit.next_tick().is_some_and(|due| due <= now) {
            let oldest = self.samples.oldest().map(|(_, sample)| sample.started);
            self.limit.tick(now, oldest);
            self.apply_limit();
        }
        self.expire(now, wakers);
        self.dispatch(now, wakers);
    }

    /// Moves the alarm to the next event. True if it became earlier: the timer task must know.
    pub(super) fn advance_alarm(&mut self) -> bool {
        let Some(next) = self.next_event() else {
            return false;
        };
        if self.alarm.is_some_and(|alarm| alarm <= next) {
            return false;
        }
        self.alarm = Some(next);
        true
    }

    /// The next moment at which time alone changes the state.
    pub(super) fn next_event(&self) -> Option<Moment> {
        let deadline = self.waiters.oldest();
        let deadline = deadline.map(|(_, waiter)| waiter.arrived.plus(self.max_wait));
        let timeout = self.limit.timeout().zip(self.samples.oldest());
        let timeout = timeout.map(|(timeout, (_, sample))| sample.started.plus(timeout));
        let tick = self.limit.next_tick().zip(self.samples.oldest());
        // After an idle period ticks start with the first request.
        let tick = tick.map(|(tick, (_, sample))| tick.max(sample.started));
        let all = [deadline, timeout, tick, self.rate_ready_at];
        all.into_iter().flatten().min()
    }

    /// Wakes all waiting requests, because the timer task has ended.
    pub(super) fn wake_all(&mut self, wakers: &mut Wakers) {
        for waiter in self.waiters.values_mut() {
            wakers.add(waiter.waker.take());
        }
    }

    pub(super) fn stats(&self) -> QueueStats {
        QueueStats {
            waiting: self.queue.queued(),
            in_flight: self.queue.running(),
            concurrency_limit: self.limit.limit().map(|limit| self.scaled(limit)),
            saturated_flows: self.limit_per_flow.map(|_| self.queue.flows_at_bound()),
            waits: self.waits,
            served: self.tiers.served(),
            served_without_tier: self.tiers.without_tier,
            unserved: self.unserved,
        }
    }

    fn scaled(&self, limit: u32) -> u32 {
        u32::try_from(self.scale.apply_to(limit.into())).unwrap_or(u32::MAX)
    }

    pub(super) fn apply_limit(&mut self) {
        let limit = self.limit.limit().map(|limit| self.scaled(limit));
        // Never 0: a scale leaves at least 1.
        let _ = self.queue.set_depth(depth(limit));
    }

    /// Visits every flow if the limit has changed: for rules and load shedding, not for requests.
    fn apply_limit_per_flow(&mut self) {
        let limit = self.limit_per_flow.map(|limit| self.scaled(limit));
        let _ = self.queue.set_running_per_flow(depth(limit));
    }

    pub(super) fn subtract_queued_cost(&mut self, cost: u64) {
        self.queued_cost = self.queued_cost.saturating_sub(cost.into());
    }
}

fn depth(limit: Option<u32>) -> usize {
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}
