//! What is behind the lock: who waits, what is under way, and what it takes to give a turn.
//!
//! # Invariant
//!
//! Whenever the lock is let go, either nobody waits whose flow is below its bound, or no place is free, or the
//! rate has to earn more first and [`State::alarm`] is no later than when it will have. So a turn is never
//! owed to anybody without somebody whose business it is to give it: whoever frees a place, or the pacer.
//! Whoever waits because of the bound of its flow is owed a turn only when one of its flow ends; and that,
//! too, is a place that somebody frees.

mod giving;

use std::sync::Arc;
use std::task::Waker;

use tollgate::shape::fair_queue::{MAX_COST_PER_WEIGHT, NumberHasher};
use tollgate::shape::{FairQueue, FairQueueConfig, RejectReason, Sample, Ticket};
use tollgate::{Clock, Moment, Scale, Span};
use tollgate_policy::{QueuePlace, QueueRule};

use super::at_once::Width;
use super::ledger::Ledger;
use super::outlook::Outlook;
use super::pace::{Pace, Paid};
use super::report::{QueueReport, Unserved, Waits};
use super::roll::Roll;
use super::time::RuntimeClock;
use super::wakes::Wakes;
use super::{Outcome, QueueError, Turned, Why};

/// Nobody is told to come back sooner or later than that.
const SOONEST: Span = Span::from_millis(1);
const LATEST: Span = Span::from_secs(60);

#[derive(Debug)]
pub(super) struct State {
    clock: RuntimeClock,
    queue: FairQueue<u64, usize, NumberHasher>,
    /// Whoever waits, on the list; and whoever has been told something and not yet heard it, off it.
    waiters: Roll<Waiter>,
    /// What is under way and may still time out, if that is to be learned from.
    watched: Roll<Watched>,
    width: Width,
    /// How many of one flow may be under way, before pressure makes it fewer.
    at_once_per_flow: Option<u32>,
    pace: Option<Pace>,
    scale: Scale,
    max_wait: Span,
    /// The cost of everything that waits.
    queued_cost: u128,
    /// When the rate lets the next one go, if that is what it waits for.
    ready_at: Option<Moment>,
    /// When the pacer will look. None: when it is told to.
    pub(super) alarm: Option<Moment>,
    pub(super) is_pacer_there: bool,
    outlook: Outlook,
    waits: Waits,
    ledger: Ledger,
    unserved: Unserved,
}

#[derive(Debug)]
struct Waiter {
    waker: Option<Waker>,
    arrived: Moment,
    cost: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Waiting(Ticket),
    Given(Given),
    Turned(Turned),
}

/// A turn that was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    ticket: Ticket,
    cost: u64,
    pub(super) waited: Span,
    paid: Option<Paid>,
    /// Its place in [`State::watched`].
    watch: Option<usize>,
}

impl Given {
    /// May something still be learned from it?
    pub(super) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Where it is watched, if something may still be learned from it.
    pub(super) fn watch(&self) -> Option<Watch> {
        let seq = self.ticket.seq();
        self.watch.map(|slot| Watch { slot, seq })
    }
}

/// Where a turn is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    slot: usize,
    seq: u64,
}

/// One under way; on the list while its time is the backend's. Arrival numbers are never given twice, so
/// the place of one that timed out can be another's without harm.
#[derive(Debug)]
struct Watched {
    seq: u64,
    started: Moment,
    inflight: u32,
}

/// What becomes of an arrival.
#[derive(Debug)]
pub(super) enum Arrival {
    Given(Given),
    Turned(Turned),
    /// It waits in this place of the roll.
    Waits(usize),
}

impl State {
    pub(super) fn new(rule: &QueueRule, clock: RuntimeClock) -> Result<State, QueueError> {
        let unusable = |why: String| QueueError::Unusable {
            name: Arc::clone(&rule.name),
            why,
        };
        if rule.at_once.is_none() && rule.rate.is_none() {
            let why = "it has neither `at_once` nor `rate`, so nobody would ever wait";
            return Err(unusable(why.to_owned()));
        }
        let width = Width::new(rule.at_once).map_err(|error| unusable(error.to_string()))?;
        let queue = FairQueue::with_hasher(
            FairQueueConfig {
                depth: depth_of(width.limit()),
                max_running_per_flow: depth_of(rule.at_once_per_flow),
                max_queued_per_flow: rule.per_flow,
                max_queued_total: rule.total,
            },
            NumberHasher::new(),
        );
        let pace = rule
            .rate
            .map(|(rate, burst)| Pace::new(rate, burst, Scale::ONE))
            .transpose();
        let mut ledger = Ledger::default();
        ledger.follow(rule);
        Ok(State {
            clock,
            queue: queue.map_err(|error| unusable(error.to_string()))?,
            waiters: Roll::new(),
            watched: Roll::new(),
            width,
            at_once_per_flow: rule.at_once_per_flow,
            pace: pace.map_err(|error| unusable(error.to_string()))?,
            scale: Scale::ONE,
            max_wait: rule.max_wait,
            queued_cost: 0,
            ready_at: None,
            alarm: None,
            is_pacer_there: false,
            outlook: Outlook::default(),
            waits: Waits::default(),
            ledger,
            unserved: Unserved::default(),
        })
    }

    /// Follows another rule from now on. A part of it that cannot be is left as it was: whoever calls
    /// this has built a queue from the rule before, which tells.
    pub(super) fn change(&mut self, rule: &QueueRule) {
        let _ = self.queue.set_bounds(rule.per_flow, rule.total);
        if rule.at_once.is_some() || rule.rate.is_some() {
            let is_usable = Width::new(rule.at_once).is_ok_and(|width| width.limit() != Some(0));
            if is_usable {
                let _ = self.width.change(rule.at_once);
            }
            match (&mut self.pace, rule.rate) {
                (_, None) => self.pace = None,
                (Some(pace), Some((rate, burst))) => {
                    let _ = pace.change(rate, burst, self.clock.now());
                }
                (none, Some((rate, burst))) => {
                    *none = Pace::new(rate, burst, self.scale).ok();
                }
            }
        }
        self.max_wait = rule.max_wait;
        if rule.at_once_per_flow != Some(0) {
            self.at_once_per_flow = rule.at_once_per_flow;
        }
        self.ledger.follow(rule);
        self.set_depth();
        self.set_flow_bound();
    }

    pub(super) fn set_scale(&mut self, scale: Scale) {
        self.scale = scale;
        if let Some(pace) = &mut self.pace {
            pace.set_scale(scale, self.clock.now());
        }
        self.set_depth();
        self.set_flow_bound();
    }

    /// Somebody comes. After [`State::look`], so that whoever could go has gone.
    pub(super) fn arrive(
        &mut self,
        now: Moment,
        place: &QueuePlace,
        waker: &Waker,
        wakes: &mut Wakes,
    ) -> Arrival {
        let weight = u64::from(place.weight.max(1));
        let cost = place
            .cost
            .clamp(1, weight.saturating_mul(MAX_COST_PER_WEIGHT));
        let flow = place.flow;
        if self.queue.is_open_to(&flow) {
            let pay = |pace: &mut Pace| pace.pay(now, None, cost);
            // If the rate has to earn more first, it waits as everybody does, and asks again below.
            if let Ok(paid) = self.pace.as_mut().map(pay).transpose()
                && let Some(ticket) = self.queue.dispatch_arrival(flow, weight, cost)
            {
                // Whoever waits now does so because of the bound of its flow. That others pass by tells
                // nothing about when it goes.
                if self.queue.queued() == 0 {
                    self.outlook.turn(now, now);
                }
                return Arrival::Given(self.start(now, now, ticket, cost, paid));
            }
        }

        let slot = self.waiters.push(Waiter {
            waker: Some(waker.clone()),
            arrived: now,
            cost,
            stage: Stage::Turned(Turned {
                why: Why::Full,
                retry_after: SOONEST,
            }),
        });
        match self.queue.enqueue(flow, weight, cost, slot) {
            Err(rejected) => {
                self.waiters.remove(slot);
                return Arrival::Turned(self.turn_away(now, why_of(rejected.reason)));
            }
            Ok(taken) => {
                if let Some(waiter) = self.waiters.get_mut(slot) {
                    waiter.stage = Stage::Waiting(taken.ticket);
                }
                self.queued_cost = self.queued_cost.saturating_add(cost.into());
                if let Some(displaced) = taken.displaced {
                    self.left(displaced.cost);
                    self.tell_turned(now, displaced.item, Why::Displaced, wakes);
                }
            }
        }
        self.give_turns(now, wakes);
        self.expire(now, wakes);
        self.hear(slot, waker, wakes)
            .map_or(Arrival::Waits(slot), |told| match told {
                Ok(given) => Arrival::Given(given),
                Err(turned) => Arrival::Turned(turned),
            })
    }

    /// What somebody who waits has been told, if anything. Whoever has heard it is off the roll.
    pub(super) fn hear(
        &mut self,
        slot: usize,
        waker: &Waker,
        wakes: &mut Wakes,
    ) -> Option<Result<Given, Turned>> {
        let waiter = self.waiters.get_mut(slot)?;
        if let Stage::Waiting(_) = waiter.stage {
            if !waiter
                .waker
                .as_ref()
                .is_some_and(|known| known.will_wake(waker))
            {
                // The old one may be the last that holds a task, and must not be dropped under the
                // lock. To wake it once too often does no harm.
                wakes.add(waiter.waker.replace(waker.clone()));
            }
            return None;
        }
        match self.waiters.remove(slot)?.stage {
            Stage::Waiting(_) => None,
            Stage::Given(given) => Some(Ok(given)),
            Stage::Turned(turned) => Some(Err(turned)),
        }
    }

    /// Where somebody of this class is counted, by its place in the rule at present.
    pub(super) fn account(&self, tier: Option<usize>) -> Option<usize> {
        self.ledger.account(tier)
    }

    /// Counts a turn that was taken.
    pub(super) fn count_served(&mut self, account: Option<usize>, given: &Given) {
        self.waits.count(given.waited);
        self.ledger.count(account, given.cost);
    }

    /// Somebody who waits, or has been told something and not heard it, goes away. Their waker is not to
    /// be dropped under the lock: it may be the last that holds a task.
    #[must_use]
    pub(super) fn go_away(&mut self, slot: usize) -> Option<Waker> {
        let waiter = self.waiters.remove(slot)?;
        match waiter.stage {
            Stage::Waiting(ticket) => {
                if self.queue.cancel(ticket).is_some() {
                    self.left(waiter.cost);
                }
            }
            Stage::Given(given) => self.take_back(&given),
            // It was counted when it was turned away.
            Stage::Turned(_) => return waiter.waker,
        }
        self.unserved.gone = self.unserved.gone.saturating_add(1);
        waiter.waker
    }

    /// A turn that was given and never used: as if it had not been.
    fn take_back(&mut self, given: &Given) {
        if let (Some(pace), Some(paid)) = (&mut self.pace, &given.paid) {
            pace.give_back(self.clock.now(), paid);
        }
        self.unwatch(given);
        self.queue.complete(given.ticket, 0);
    }

    /// Learns what became of a turn. The first to tell is believed.
    pub(super) fn learn(&mut self, now: Moment, given: &mut Given, outcome: Outcome) {
        let watched = self.unwatch(given);
        given.watch = None;
        let Some((watched, is_timed)) = watched else {
            return;
        };
        let dropped = match outcome {
            Outcome::Failed => true,
            // Answered before it was sent whole: how long that took tells nothing.
            Outcome::Answered if is_timed => false,
            Outcome::Answered | Outcome::Unknown => return,
        };
        let sample = Sample {
            rtt_ns: now.since(watched.started).as_nanos(),
            inflight: watched.inflight,
            dropped,
        };
        self.width.learn(now, sample);
        self.set_depth();
    }

    /// The place of a turn is free again.
    pub(super) fn end(&mut self, given: &Given) {
        self.queue.complete(given.ticket, given.cost);
    }

    /// Turns away who waited too long, learns from what has timed out, and gives what turns there are.
    pub(super) fn look(&mut self, now: Moment, wakes: &mut Wakes) {
        self.time_out(now);
        self.tick(now);
        self.expire(now, wakes);
        self.give_turns(now, wakes);
    }

    /// Has the width see that time passes, and what does not end.
    fn tick(&mut self, now: Moment) {
        if self.width.next_tick().is_some_and(|due| due <= now) {
            let oldest = self.watched.oldest().map(|(_, watched)| watched.started);
            self.width.tick(now, oldest);
            self.set_depth();
        }
    }

    /// When the pacer has to look, if it does not look before: then it must be told.
    pub(super) fn set_alarm(&mut self) -> bool {
        let Some(next) = self.next_event() else {
            return false;
        };
        if self.alarm.is_some_and(|alarm| alarm <= next) {
            return false;
        }
        self.alarm = Some(next);
        true
    }

    /// The next moment at which something happens by itself.
    pub(super) fn next_event(&self) -> Option<Moment> {
        let deadline = self.waiters.oldest();
        let deadline = deadline.map(|(_, waiter)| waiter.arrived.plus(self.max_wait));
        let timeout = self.width.timeout().zip(self.watched.oldest());
        let timeout = timeout.map(|(timeout, (_, watched))| watched.started.plus(timeout));
        let tick = self.width.next_tick().zip(self.watched.oldest());
        // From now on, if nothing was under way for long.
        let tick = tick.map(|(tick, (_, watched))| tick.max(watched.started));
        let ready = self.ready_at;
        let all = [deadline, timeout, tick, ready];
        all.into_iter().flatten().min()
    }

    /// Has everybody who waits look for themselves, because the pacer is gone.
    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) {
        for waiter in self.waiters.values_mut() {
            wakes.add(waiter.waker.take());
        }
    }

    pub(super) fn report(&self) -> QueueReport {
        QueueReport {
            waiting: self.queue.queued(),
            under_way: self.queue.running(),
            at_once: self.at_once(),
            flows_at_bound: self.at_once_per_flow.map(|_| self.queue.flows_at_bound()),
            waits: self.waits,
            served: self.ledger.served(),
            served_of_none: self.ledger.of_none(),
            unserved: self.unserved,
        }
    }

    fn at_once(&self) -> Option<u32> {
        self.width.limit().map(|limit| self.left_of(limit))
    }

    /// What pressure leaves of a number at once.
    fn left_of(&self, at_once: u32) -> u32 {
        u32::try_from(self.scale.of(at_once.into())).unwrap_or(u32::MAX)
    }

    fn set_depth(&mut self) {
        // Never 0: a scale leaves at least 1.
        let _ = self.queue.set_depth(depth_of(self.at_once()));
    }

    /// Looks at every flow if the bound has changed, so it is for rules and pressure, not for requests.
    fn set_flow_bound(&mut self) {
        let bound = self.at_once_per_flow.map(|bound| self.left_of(bound));
        let _ = self.queue.set_running_per_flow(depth_of(bound));
    }
}

fn depth_of(limit: Option<u32>) -> usize {
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

fn why_of(reason: RejectReason) -> Why {
    match reason {
        RejectReason::FlowFull { .. } => Why::FlowFull,
        // Weights and costs that could not be ordered were mended on arrival.
        _ => Why::Full,
    }
}
