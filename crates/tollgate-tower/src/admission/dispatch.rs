//! Dispatch and rejection of waiting requests, and the samples of those in flight.

use tollgate::shape::{Sample, Ticket};
use tollgate::{Moment, Span};

use super::concurrency_limit::ConcurrencyLimit;
use super::dispatch_rate::{DispatchRate, RateCharge};
use super::state::{
    Grant, MAX_RETRY_AFTER, MIN_RETRY_AFTER, PendingSample, SampleKey, State, WaiterState,
};
use super::timer::Wakers;
use super::{RejectReason, Rejected};

impl State {
    /// Grants permits for as long as the limits and the rate allow it.
    pub(super) fn dispatch(&mut self, now: Moment, wakers: &mut Wakers) {
        let mut due = self.rate_ready_at.take();
        while let Some(cost) = self.queue.next_cost() {
            let charge = |rate: &mut DispatchRate| rate.charge(now, due, cost);
            let charge = match self.rate.as_mut().map(charge).transpose() {
                Ok(charge) => charge,
                Err(at) => {
                    self.rate_ready_at = Some(at);
                    return;
                }
            };
            // The next dispatch is due from when this one was, not from when the timer fired.
            due = due.and(charge.as_ref().map(RateCharge::at));
            let Some(next) = self.queue.dispatch() else {
                return;
            };
            self.subtract_queued_cost(next.cost);
            let arrived = self.waiters.get(next.item).map(|waiter| waiter.arrived);
            let arrived = arrived.unwrap_or(now);
            self.estimate.record(now, arrived);
            let grant = self.grant(now, arrived, next.ticket, next.cost, charge);
            self.waiters.unlist(next.item);
            match self.waiters.get_mut(next.item) {
                Some(waiter) => {
                    waiter.state = WaiterState::Decided(Ok(grant));
                    wakers.add(waiter.waker.take());
                }
                // Unreachable: a cancelled request leaves the queue. Without this a permit would be lost for good.
                None => self.revoke(&grant),
            }
        }
    }

    pub(super) fn grant(
        &mut self,
        now: Moment,
        arrived: Moment,
        ticket: Ticket,
        cost: u64,
        charge: Option<RateCharge>,
    ) -> Grant {
        let in_flight = u32::try_from(self.queue.running()).unwrap_or(u32::MAX);
        let seq = ticket.seq();
        let sample = self.limit.timeout().map(|_| {
            let slot = self.samples.push(PendingSample {
                seq,
                started: now,
                in_flight,
            });
            SampleKey { slot, seq }
        });
        Grant {
            ticket,
            cost,
            waited: now.since(arrived),
            charge,
            sample,
        }
    }

    /// Takes back a permit that was never used, as if it had not been granted.
    pub(super) fn revoke(&mut self, grant: &Grant) {
        if let (Some(rate), Some(charge)) = (&mut self.rate, &grant.charge) {
            rate.refund(self.clock.now(), charge);
        }
        if let Some(key) = grant.sample {
            self.take_sample(key);
        }
        self.queue.complete(grant.ticket, 0);
    }

    /// Removes a sample; returns it with whether its timer was running.
    pub(super) fn take_sample(&mut self, key: SampleKey) -> Option<(PendingSample, bool)> {
        let slot = self.find_sample(key)?;
        let is_timed = self.samples.is_listed(slot);
        Some((self.samples.remove(slot)?, is_timed))
    }

    /// Stops the timer of a sample: it cannot time out, nor be the oldest.
    pub(super) fn pause_sample(&mut self, key: SampleKey) {
        if let Some(slot) = self.find_sample(key) {
            self.samples.unlist(slot);
        }
    }

    /// Restarts the timer of a sample.
    pub(super) fn restart_sample(&mut self, now: Moment, key: SampleKey) {
        if let Some(slot) = self.find_sample(key) {
            self.samples.relist(slot);
            if let Some(sample) = self.samples.get_mut(slot) {
                sample.started = now;
            }
        }
    }

    fn find_sample(&self, SampleKey { slot, seq }: SampleKey) -> Option<usize> {
        let sample = self.samples.get(slot)?;
        (sample.seq == seq).then_some(slot)
    }

    /// Counts requests that exceeded the adaptive timeout as failed.
    pub(super) fn time_out(&mut self, now: Moment) {
        let Some(timeout) = self.limit.timeout() else {
            return;
        };
        let mut has_changed = false;
        while let Some((slot, oldest)) = self.samples.oldest() {
            if oldest.started.plus(timeout) > now {
                break;
            }
            let sample = Sample {
                rtt_ns: now.since(oldest.started).as_nanos(),
                inflight: oldest.in_flight,
                dropped: true,
            };
            self.samples.remove(slot);
            self.limit.record(now, sample);
            has_changed = true;
        }
        if has_changed {
            self.apply_limit();
        }
    }

    /// Rejects requests that have waited for `max_wait`.
    pub(super) fn expire(&mut self, now: Moment, wakers: &mut Wakers) {
        while let Some((slot, oldest)) = self.waiters.oldest() {
            if oldest.arrived.plus(self.max_wait) > now {
                return;
            }
            if let WaiterState::Queued(ticket) = oldest.state {
                let cost = oldest.cost;
                self.queue.cancel(ticket);
                self.subtract_queued_cost(cost);
            }
            self.reject(now, slot, RejectReason::MaxWait, wakers);
        }
    }

    /// Rejects a waiting request that has left the queue.
    pub(super) fn reject(
        &mut self,
        now: Moment,
        slot: usize,
        reason: RejectReason,
        wakers: &mut Wakers,
    ) {
        let rejected = self.rejection(now, reason);
        self.waiters.unlist(slot);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.state = WaiterState::Decided(Err(rejected));
            wakers.add(waiter.waker.take());
        }
    }

    /// Counts a rejection.
    pub(super) fn rejection(&mut self, now: Moment, reason: RejectReason) -> Rejected {
        self.unserved.count(reason);
        Rejected {
            reason,
            retry_after: self.retry_after(now),
        }
    }

    /// An estimate of when all requests that wait now are dispatched.
    fn retry_after(&self, now: Moment) -> Span {
        let by_rate = self
            .rate
            .as_ref()
            .map(|rate| rate.time_to_earn(self.queued_cost));
        let by_dispatches = match self.limit {
            ConcurrencyLimit::Unlimited => None,
            _ => {
                let oldest = self.waiters.oldest();
                let since = oldest.map_or(now, |(_, oldest)| oldest.arrived);
                let queued = self.queue.queued();
                let known = self.estimate.time_to_drain(now, queued, since);
                Some(known.unwrap_or(self.max_wait))
            }
        };
        let latest = self.max_wait.min(MAX_RETRY_AFTER);
        let until = by_rate.max(by_dispatches).unwrap_or(latest);
        until.min(latest).max(MIN_RETRY_AFTER)
    }
}
