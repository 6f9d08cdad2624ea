//! Waiting for the slot that a leaky bucket promised, and giving it back when nobody waits any more.
//!
//! # Theory
//!
//! A leaky bucket admits a request with a delay: it has a slot, and may go on when that begins
//! ([`tollgate::algorithm::queue`]). Whoever waits for it does so here: in one line for each bucket and
//! key, first slot first, with one alarm of an exact timer for the first of each line. If a request
//! vanishes while it waits (its client hung up), its slot is given back, and everybody behind it in the
//! line moves up by exactly that time.
//!
//! # Guarantees
//!
//! 1. Nobody goes on before its slot, and slots never overlap. Nobody's slot is ever moved back.
//! 2. If everybody behind a slot waits here, leaving frees its whole time. If not (the same limit is
//!    also charged by those who do not wait here), it is given back as soon as those have gone on; what is
//!    not given back until the slot begins stays idle: at most `cost * T` of the output for each who left.
//!    A slot in a store that a fleet shares is never given back, because nobody here knows who is behind
//!    it: it stays idle.
//! 3. What a request that vanished took from its other limits (token buckets, windows, places in
//!    concurrency limits) is given back, in the store that a fleet shares, too.
//!
//! # Who gives back what
//!
//! From [`Slots::wait`] until it is ready, the [`SlotWait`] answers for everything that the request took:
//! dropping it gives all of it back. A [`tollgate::policy::Reservation`] of the same answer must not be
//! cancelled as well; take it after the wait.
//!
//! # Memory
//!
//! One entry for each who waits; the limits bound how many that are (`queue` units for each key).

mod line;
mod timer;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tollgate::policy::{Answer, PolicyGate, Reservation, Settlement};
use tollgate::{Clock, HeldSlot, Moment, MonotonicClock, Span, Verdict};

use line::Line;
pub(crate) use timer::Alarm;
use timer::system_now;
pub use timer::{Sleep, sleep};

/// A clock need not follow the system's (a manual one moves when it is told to), so nobody sleeps longer
/// than this without looking at it.
const ASKED_AGAIN: Span = Span::from_secs(1);
/// Lines are spread over so many locks.
const SHARDS: usize = 16;

/// Those who wait for their slots. Clones are the same.
#[derive(Clone, Debug)]
pub struct Slots<C = MonotonicClock> {
    shared: Arc<Shared<C>>,
}

type Name = (usize, u64);
type Shard<C> = HashMap<Name, Watched<C>>;

#[derive(Debug)]
struct Shared<C> {
    shards: [Mutex<Shard<C>>; SHARDS],
    // Relaxed: a number that nobody else gets is all that is asked of it.
    next_id: AtomicU64,
}

/// A line and the alarm for its first slot.
#[derive(Debug)]
struct Watched<C> {
    line: Line<C, oneshot::Sender<()>>,
    clock: C,
    alarm: Alarm,
    /// What the alarm is set for; none if it has rung.
    set_for: Option<Moment>,
    rings: Waker,
}

/// What the alarm of a line rings.
struct Bell<C> {
    shared: Weak<Shared<C>>,
    name: Name,
}

impl<C: Clock> Wake for Bell<C> {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.advance(self.name, true);
        }
    }
}

impl<C: Clock> Default for Slots<C> {
    fn default() -> Slots<C> {
        Slots::new()
    }
}

impl<C: Clock> Slots<C> {
    /// Nobody waits.
    pub fn new() -> Slots<C> {
        Slots {
            shared: Arc::new(Shared {
                shards: std::array::from_fn(|_| Mutex::default()),
                next_id: AtomicU64::new(0),
            }),
        }
    }

    /// Waits for the slot of an answer that `gate` gave. Ready at once if it has none to wait for.
    pub fn wait(&self, gate: &PolicyGate<C>, answer: &Answer) -> SlotWait<C> {
        let Verdict::Wait { delay } = answer.verdict else {
            return SlotWait::for_places(Vec::new());
        };
        let promised = answer.issued.plus(delay);
        let held = gate.queue_slots(answer);
        // What is promised by somebody else (a store that a fleet shares) is later than all that are held.
        let is_held = held.iter().any(|slot| slot.starts() >= promised);
        let clock = gate.clock().clone();
        SlotWait {
            places: held.into_iter().map(|slot| self.join(slot)).collect(),
            promised: (!is_held).then_some((clock, promised)),
            alarm: Alarm::default(),
            beside: Some(gate.reserve_beside_queues(answer)),
            is_over: false,
        }
    }

    /// Waits for one slot; see [`tollgate::Limiter::queue_up`].
    pub fn wait_for(&self, slot: HeldSlot<C>) -> SlotWait<C> {
        SlotWait::for_places(vec![self.join(slot)])
    }

    /// How many lines there are.
    pub fn lines(&self) -> usize {
        let shards = self.shared.shards.iter();
        shards.map(|shard| locked(shard).len()).sum()
    }

    fn join(&self, slot: HeldSlot<C>) -> Place<C> {
        let (told, goes) = oneshot::channel();
        let shared = &self.shared;
        let id = shared.next_id.fetch_add(1, Relaxed);
        let name = slot.queue();
        let mut shard = shared.shard(name);
        let watched = shard.entry(name).or_insert_with(|| Watched {
            line: Line::new(),
            clock: slot.clock().clone(),
            alarm: Alarm::default(),
            set_for: None,
            rings: Waker::from(Arc::new(Bell {
                shared: Arc::downgrade(shared),
                name,
            })),
        });
        watched.line.join(id, slot, told);
        drop(shard);
        shared.advance(name, false);
        let shared = Arc::clone(shared);
        Place {
            shared,
            name,
            id,
            goes,
            went: false,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: Clock> Shared<C> {
    fn shard(&self, (limiter, hash): Name) -> MutexGuard<'_, Shard<C>> {
        let at = (limiter / 64) as u64 ^ hash;
        // Fewer than there are shards, so it fits.
        locked(&self.shards[(at % SHARDS as u64) as usize])
    }

    /// Tells those whose slots have begun, and sets the alarm for the next. False if nobody will ring it.
    fn advance(&self, name: Name, has_rung: bool) -> bool {
        let mut go = Vec::new();
        let mut is_set = true;
        let mut shard = self.shard(name);
        let mut forgotten = None;
        if let Entry::Occupied(mut entry) = shard.entry(name) {
            let Watched {
                line,
                clock,
                alarm,
                set_for,
                rings,
            } = entry.get_mut();
            let now = clock.now();
            while let Some(told) = line.due(now) {
                go.push(told);
            }
            let next = line.next_at();
            if let Some(at) = next.filter(|_| has_rung || next != *set_for) {
                is_set = alarm.set(instant_of(clock, at), rings);
                *set_for = next.filter(|_| is_set);
            }
            if line.is_empty() {
                forgotten = Some(entry.remove());
            }
        }
        drop(shard);
        drop(forgotten);
        for told in go {
            // Whoever has just left misses nothing: its slot has begun.
            let _ = told.send(());
        }
        is_set
    }

    fn leave(&self, name: Name, id: u64) {
        if let Some(watched) = self.shard(name).get_mut(&name) {
            watched.line.leave(id);
        }
        self.advance(name, false);
    }
}

/// When a clock shows `moment`, by the system's clock; at the latest when it has to be asked again.
pub(crate) fn instant_of<C: Clock>(clock: &C, moment: Moment) -> Instant {
    // The clock first: what passes between the two readings makes the alarm late, not early.
    let now = clock.now();
    system_now() + Duration::from(moment.since(now).min(ASKED_AGAIN))
}

/// A place in a line. Dropped before its slot, it leaves.
struct Place<C: Clock> {
    shared: Arc<Shared<C>>,
    name: Name,
    id: u64,
    goes: oneshot::Receiver<()>,
    went: bool,
}

impl<C: Clock> Place<C> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.went {
            return Poll::Ready(());
        }
        // It is told before its end of the channel is dropped.
        if Pin::new(&mut self.goes).poll(context).is_ready() {
            self.went = true;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl<C: Clock> Drop for Place<C> {
    fn drop(&mut self) {
        if !self.went && self.goes.try_recv().is_err() {
            self.shared.leave(self.name, self.id);
        }
    }
}

/// Ready when the slot has come. Dropped before, it gives back all that the request took.
#[must_use = "the slot is given back when this is dropped"]
pub struct SlotWait<C: Clock = MonotonicClock> {
    places: Vec<Place<C>>,
    /// What was promised by somebody else.
    promised: Option<(C, Moment)>,
    alarm: Alarm,
    /// What was taken besides.
    beside: Option<Reservation<C>>,
    is_over: bool,
}

// Nothing in it is pinned.
impl<C: Clock> Unpin for SlotWait<C> {}

impl<C: Clock> fmt::Debug for SlotWait<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("SlotWait");
        told.field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl<C: Clock> SlotWait<C> {
    fn for_places(places: Vec<Place<C>>) -> SlotWait<C> {
        SlotWait {
            is_over: places.is_empty(),
            places,
            promised: None,
            alarm: Alarm::default(),
            beside: None,
        }
    }

    /// Is there nothing to wait for, or not any more?
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

impl<C: Clock> Future for SlotWait<C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let wait = self.get_mut();
        if wait.is_over {
            return Poll::Ready(());
        }
        let mut waits = false;
        for place in &mut wait.places {
            if place.poll(context).is_pending() {
                waits = true;
                if !place.shared.advance(place.name, false) {
                    context.waker().wake_by_ref();
                }
            }
        }
        if let Some((clock, promised)) = &wait.promised
            && clock.now() < *promised
        {
            waits = true;
            let at = instant_of(clock, *promised);
            if !wait.alarm.set(at, context.waker()) {
                context.waker().wake_by_ref();
            }
        }
        if waits {
            return Poll::Pending;
        }
        wait.is_over = true;
        wait.beside = None;
        Poll::Ready(())
    }
}

impl<C: Clock> Drop for SlotWait<C> {
    fn drop(&mut self) {
        let Some(beside) = self.beside.take().filter(|_| !self.is_over) else {
            return;
        };
        if !beside.is_shared() {
            beside.settle(Settlement::Cancelled);
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(beside.settle_everywhere(Settlement::Cancelled))),
            // Nobody can tell the store: there it stays taken until it is earned back.
            Err(_) => drop(beside.settle(Settlement::Cancelled)),
        }
    }
}
