//! How turns are given, how they are refused, and what is seen of them.

use tollgate::shape::{Sample, Ticket};
use tollgate::{Moment, Span};

use super::{Given, LATEST, SOONEST, Stage, State, Watch, Watched};
use crate::turnstile::at_once::Width;
use crate::turnstile::pace::{Pace, Paid};
use crate::turnstile::wakes::Wakes;
use crate::turnstile::{Turned, Why};

impl State {
    pub(super) fn give_turns(&mut self, now: Moment, wakes: &mut Wakes) {
        let mut due = self.ready_at.take();
        while let Some(cost) = self.queue.next_cost() {
            let pay = |pace: &mut Pace| pace.pay(now, due, cost);
            let paid = match self.pace.as_mut().map(pay).transpose() {
                Ok(paid) => paid,
                Err(at) => {
                    self.ready_at = Some(at);
                    return;
                }
            };
            // What is due next counts from when this one was, not from when the timer came.
            due = due.and(paid.as_ref().map(Paid::at));
            let Some(next) = self.queue.dispatch() else {
                return;
            };
            self.left(next.cost);
            let arrived = self.waiters.get(next.item).map(|waiter| waiter.arrived);
            let arrived = arrived.unwrap_or(now);
            self.outlook.turn(now, arrived);
            let given = self.start(now, arrived, next.ticket, next.cost, paid);
            self.waiters.strike(next.item);
            match self.waiters.get_mut(next.item) {
                Some(waiter) => {
                    waiter.stage = Stage::Given(given);
                    wakes.add(waiter.waker.take());
                }
                // Whoever goes away takes the item along, so this is never so; if it were, a place
                // would be lost for good.
                None => self.take_back(&given),
            }
        }
    }

    pub(super) fn start(
        &mut self,
        now: Moment,
        arrived: Moment,
        ticket: Ticket,
        cost: u64,
        paid: Option<Paid>,
    ) -> Given {
        let inflight = u32::try_from(self.queue.running()).unwrap_or(u32::MAX);
        let watch = self.width.timeout().map(|_| {
            self.watched.push(Watched {
                seq: ticket.seq(),
                started: now,
                inflight,
            })
        });
        Given {
            ticket,
            cost,
            waited: now.since(arrived),
            paid,
            watch,
        }
    }

    /// Stops watching a turn; what was seen of it if it was still watched, and whether its clock ran.
    pub(super) fn unwatch(&mut self, given: &Given) -> Option<(Watched, bool)> {
        let slot = self.find(given.watch()?)?;
        let is_timed = self.watched.is_listed(slot);
        Some((self.watched.remove(slot)?, is_timed))
    }

    /// The clock of a turn stands still: it cannot time out, nor be the oldest.
    pub(in crate::turnstile) fn stop_clock(&mut self, watch: Watch) {
        if let Some(slot) = self.find(watch) {
            self.watched.strike(slot);
        }
    }

    /// The clock of a turn starts anew.
    pub(in crate::turnstile) fn start_clock(&mut self, now: Moment, watch: Watch) {
        if let Some(slot) = self.find(watch) {
            self.watched.list(slot);
            if let Some(watched) = self.watched.get_mut(slot) {
                watched.started = now;
            }
        }
    }

    fn find(&self, Watch { slot, seq }: Watch) -> Option<usize> {
        let watched = self.watched.get(slot)?;
        (watched.seq == seq).then_some(slot)
    }

    pub(super) fn time_out(&mut self, now: Moment) {
        let Some(timeout) = self.width.timeout() else {
            return;
        };
        let mut has_learned = false;
        while let Some((slot, oldest)) = self.watched.oldest() {
            if oldest.started.plus(timeout) > now {
                break;
            }
            let sample = Sample {
                rtt_ns: now.since(oldest.started).as_nanos(),
                inflight: oldest.inflight,
                dropped: true,
            };
            self.watched.remove(slot);
            self.width.learn(now, sample);
            has_learned = true;
        }
        if has_learned {
            self.set_depth();
        }
    }

    pub(super) fn expire(&mut self, now: Moment, wakes: &mut Wakes) {
        while let Some((slot, oldest)) = self.waiters.oldest() {
            if oldest.arrived.plus(self.max_wait) > now {
                return;
            }
            if let Stage::Waiting(ticket) = oldest.stage {
                let cost = oldest.cost;
                self.queue.cancel(ticket);
                self.left(cost);
            }
            self.tell_turned(now, slot, Why::TooLong, wakes);
        }
    }

    pub(super) fn tell_turned(&mut self, now: Moment, slot: usize, why: Why, wakes: &mut Wakes) {
        let turned = self.turn_away(now, why);
        self.waiters.strike(slot);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.stage = Stage::Turned(turned);
            wakes.add(waiter.waker.take());
        }
    }

    pub(super) fn turn_away(&mut self, now: Moment, why: Why) -> Turned {
        self.unserved.count(why);
        Turned {
            why,
            retry_after: self.retry_after(now),
        }
    }

    /// How long until what waits now has had its turn, as far as can be known.
    pub(super) fn retry_after(&self, now: Moment) -> Span {
        let by_rate = self
            .pace
            .as_ref()
            .map(|pace| pace.time_for(self.queued_cost));
        let by_turns = match self.width {
            Width::Unbounded => None,
            _ => {
                let since = self
                    .waiters
                    .oldest()
                    .map_or(now, |(_, oldest)| oldest.arrived);
                let known = self.outlook.until_served(now, self.queue.queued(), since);
                Some(known.unwrap_or(self.max_wait))
            }
        };
        let latest = self.max_wait.min(LATEST);
        let until = by_rate.max(by_turns).unwrap_or(latest);
        until.min(latest).max(SOONEST)
    }

    pub(super) fn left(&mut self, cost: u64) {
        self.queued_cost = self.queued_cost.saturating_sub(cost.into());
    }
}
