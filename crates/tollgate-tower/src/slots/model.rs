//! Lines against a model that knows everything: who was promised what, who waits here, who has left.
//!
//! The model is a list of stretches of time as exact fractions, and is not written like the line: it has no
//! word, and it knows those who do not wait here.

use std::sync::{Arc, Mutex};

use tollgate::{HeldSlot, Limit, Limiter, ManualClock, Moment, Span};

use super::line::Line;

/// A stretch of time that was promised, in parts of a nanosecond.
#[derive(Clone, Debug)]
struct Promise {
    id: u64,
    start: i128,
    length: i128,
    /// As it was when it was made.
    at_first: i128,
    is: Is,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    /// Charged, and not in the line.
    Elsewhere,
    Here,
    /// Left, and not given back.
    Empty,
    /// Its time has come.
    Begun,
}

struct Model {
    /// Parts in a nanosecond, and parts that one unit takes.
    n: i128,
    p: i128,
    capacity: i128,
    end: i128,
    promises: Vec<Promise>,
}

impl Model {
    fn charge(&mut self, now: u64, id: u64, cost: u64) -> bool {
        let now = i128::from(now) * self.n;
        let (start, length) = (self.end.max(now), i128::from(cost) * self.p);
        if start + length - now > self.capacity * self.p {
            return false;
        }
        self.end = start + length;
        self.promises.push(Promise {
            id,
            start,
            length,
            at_first: start,
            is: Is::Elsewhere,
        });
        true
    }

    fn becomes(&mut self, now: u64, id: u64, is: Is) {
        let found = self.promises.iter_mut().find(|p| p.id == id).unwrap();
        found.is = is;
        self.close_up(i128::from(now) * self.n);
    }

    fn close_up(&mut self, now: i128) {
        let mut next = self.end;
        for at in (0..self.promises.len()).rev() {
            let one = self.promises[at].clone();
            if !matches!(one.is, Is::Here | Is::Empty) {
                return;
            }
            if one.is == Is::Empty {
                let left = (one.start + one.length - now).min(one.length);
                if left <= 0 || one.start + one.length != next {
                    return;
                }
                self.promises.remove(at);
                self.promises[at..].iter_mut().for_each(|p| p.start -= left);
                self.end -= left;
                next = self.promises.get(at).map_or(self.end, |p| p.start);
            } else {
                if one.start + one.length != next {
                    next = i128::MAX;
                }
                next = next.min(one.start);
            }
        }
    }

    /// The nanosecond at or after its start.
    fn starts(&self, promise: &Promise) -> u64 {
        u64::try_from((promise.start + self.n - 1).div_euclid(self.n)).unwrap()
    }

    fn begin(&mut self, now: u64) -> Vec<u64> {
        let mut begun = Vec::new();
        for at in 0..self.promises.len() {
            let promise = self.promises[at].clone();
            if !matches!(promise.is, Is::Here | Is::Empty) {
                continue;
            }
            if self.starts(&promise) > now {
                break;
            }
            assert!(promise.start <= promise.at_first, "later than promised");
            self.promises[at].is = Is::Begun;
            if promise.is == Is::Here {
                begun.push(promise.id);
            }
        }
        begun
    }

    /// The law of the output.
    fn check_law(&self) {
        for pair in self.promises.windows(2) {
            assert!(pair[1].start >= pair[0].start + pair[0].length, "{pair:?}");
        }
    }
}

/// A small generator: tests repeat.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

struct World {
    clock: ManualClock,
    limiter: Limiter<ManualClock>,
    line: Line<ManualClock, u64>,
    model: Model,
    now: u64,
    /// The latest that the clock has shown.
    latest: u64,
    outside: Vec<(u64, HeldSlot<ManualClock>)>,
    given_back: usize,
}

impl World {
    fn new(rate: &str, n: i128, p: i128, capacity: u64) -> World {
        let clock = ManualClock::new();
        let limit = Limit::leaky_bucket(rate.parse().unwrap(), capacity).unwrap();
        let now = 10_000_000_000;
        clock.set(Moment::from_nanos(now));
        World {
            limiter: Limiter::with_clock(limit, clock.clone()).unwrap(),
            clock,
            line: Line::new(),
            model: Model {
                n,
                p,
                capacity: i128::from(capacity),
                end: 0,
                promises: Vec::new(),
            },
            now,
            latest: now,
            outside: Vec::new(),
            given_back: 0,
        }
    }

    fn arrive(&mut self, id: u64, cost: u64) -> bool {
        let (decision, slot) = self.limiter.queue_up("k", cost);
        assert_eq!(
            decision.is_admitted(),
            self.model.charge(self.now, id, cost)
        );
        slot.map(|slot| self.outside.push((id, slot))).is_some()
    }

    fn join(&mut self, at: usize) {
        let (id, slot) = self.outside.remove(at);
        self.line.join(id, slot, id);
        self.model.becomes(self.now, id, Is::Here);
    }

    fn leave(&mut self, id: u64) {
        let before = self.model.promises.len();
        self.line.leave(id);
        self.model.becomes(self.now, id, Is::Empty);
        self.given_back += before - self.model.promises.len();
    }

    fn go(&mut self, to: u64, in_time: bool) {
        while let Some(next) = self.line.next_at().filter(|_| in_time) {
            if next.as_nanos() > to {
                break;
            }
            self.set(next.as_nanos());
            self.begin();
        }
        self.set(to);
    }

    fn set(&mut self, to: u64) {
        self.now = to;
        self.latest = self.latest.max(to);
        self.clock.set(Moment::from_nanos(to));
    }

    fn begin(&mut self) {
        let now = self.clock_now();
        let told: Vec<u64> = std::iter::from_fn(|| self.line.due(now)).collect();
        assert_eq!(told, self.model.begin(self.now));
    }

    fn clock_now(&self) -> Moment {
        Moment::from_nanos(self.now)
    }

    fn check(&self) {
        self.model.check_law();
        let of_model = self.model.promises.iter();
        let of_model = of_model.filter(|p| matches!(p.is, Is::Here | Is::Empty));
        let expected: Vec<_> = of_model
            .map(|p| (p.id, self.model.starts(p).max(self.now)))
            .collect();
        let line = self.line.slots();
        let seen: Vec<_> = line.map(|(id, s)| (id, s.starts().as_nanos())).collect();
        assert_eq!(seen, expected);
        let promised = (self.model.end - i128::from(self.now) * self.model.n).max(0);
        // No more than the queue holds is told, though after a step back of the clock more is promised.
        let promised = promised.min(self.model.capacity * self.model.p);
        let promised = (promised + self.model.n - 1) / self.model.n;
        let told = self.limiter.peek("k", 0).standing.full_after;
        assert_eq!(i128::from(told.as_nanos()), promised);
    }
}

#[test]
fn lines_keep_what_a_model_that_knows_everything_says() {
    let rates = [
        ("3000/s", 3, 1_000_000),
        ("10/s", 1, 100_000_000),
        ("7/3s", 7, 3_000_000_000),
    ];
    let (mut given_back, mut left) = (0, 0);
    for round in 0..600 {
        let mut dice = Dice(round);
        let (rate, n, p) = rates[round as usize % rates.len()];
        let unit = u64::try_from(p / n).unwrap();
        let capacity = 3 + dice.below(30);
        let mut world = World::new(rate, n, p, capacity);
        let all_here = round % 3 == 0;
        for id in 0..150 {
            match dice.below(10) {
                0..=4 => {
                    let cost = 1 + dice.below(3);
                    let taken = world.arrive(id, cost);
                    if taken && (all_here || dice.below(4) > 0) {
                        world.join(world.outside.len() - 1);
                    }
                }
                5 if !world.outside.is_empty() => {
                    let at = dice.below(world.outside.len() as u64);
                    world.join(at as usize);
                }
                6 | 7 => {
                    let here: Vec<u64> = world
                        .model
                        .promises
                        .iter()
                        .filter(|p| p.is == Is::Here)
                        .map(|p| p.id)
                        .collect();
                    if !here.is_empty() {
                        let who = here[dice.below(here.len() as u64) as usize];
                        let (was, end) = (world.given_back, world.model.end);
                        let now = i128::from(world.now) * n;
                        let promise = world.model.promises.iter().find(|p| p.id == who).unwrap();
                        let (length, waits) = (promise.length, promise.start >= now);
                        world.leave(who);
                        left += 1;
                        if all_here && waits {
                            assert_eq!(world.given_back, was + 1, "everybody is here");
                            assert_eq!(world.model.end, end - length, "its whole time");
                        }
                    }
                }
                8 => {
                    let to = world.now + dice.below(4 * unit);
                    world.go(to, dice.below(4) > 0);
                    world.begin();
                }
                _ if !all_here => {
                    // A little back: by less than counts as a clock that was set.
                    let back = dice.below(unit.min(400_000_000));
                    let to = (world.now - back).max(world.latest - 900_000_000);
                    world.go(to, false);
                }
                _ => {}
            }
            world.check();
        }
        given_back += world.given_back;
    }
    // Both ways are taken often, or this would prove little.
    assert!(
        given_back > 2_000 && left - given_back > 500,
        "{given_back} of {left}"
    );
}

#[test]
fn threads_that_come_and_leave_never_get_slots_that_overlap_and_free_all_their_time() {
    let limit = Limit::leaky_bucket("3000/s".parse().unwrap(), 1_000_000).unwrap();
    let limiter = Limiter::with_clock(limit, ManualClock::new()).unwrap();
    let line: Arc<Mutex<Line<ManualClock, u64>>> = Arc::new(Mutex::new(Line::new()));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let (limiter, line) = (limiter.clone(), Arc::clone(&line));
            std::thread::spawn(move || {
                let mut dice = Dice(thread);
                let (mut mine, mut stay) = (Vec::new(), 0);
                for turn in 0..2_000 {
                    let cost = 1 + dice.below(3);
                    let slot = limiter.queue_up("k", cost).1.unwrap();
                    let id = thread << 32 | turn;
                    line.lock().unwrap().join(id, slot, id);
                    mine.push((id, cost));
                    stay += cost;
                    if dice.below(10) < 9 {
                        let (gone, cost) = mine.swap_remove(dice.below(mine.len() as u64) as usize);
                        line.lock().unwrap().leave(gone);
                        stay -= cost;
                    }
                }
                stay
            })
        })
        .collect();
    let stay: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    let mut line = line.lock().unwrap();
    // The last to come may have found somebody behind who had not joined yet; now all have.
    let (_, last) = limiter.queue_up("k", 1);
    line.join(u64::MAX, last.unwrap(), 0);
    line.leave(u64::MAX);
    let mut units = 0;
    for (_, slot) in line.slots() {
        let starts = Span::from_nanos((units * 1_000_000_u64).div_ceil(3));
        assert_eq!(slot.starts(), Moment::ORIGIN.plus(starts));
        units += slot.cost();
    }
    assert_eq!(units, stay, "nobody who left holds a slot");
    let promised = limiter.peek("k", 0).standing.full_after;
    assert_eq!(promised.as_nanos(), (units * 1_000_000).div_ceil(3));
}
