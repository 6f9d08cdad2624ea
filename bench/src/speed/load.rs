//! The load: so many connections, each with so many requests under way, on one thread and one epoll.
//!
//! What is said comes from `tollgate-load`; the loop is here. A round of a connection is one read, one write and its share of
//! a poll, however many requests are in it, so that a server on another core is the slower of the two.
//!
//! A pipeline is sent whole and answered whole before the next one, as client libraries do it. Streams of gRPC do not wait
//! for each other.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;
use tollgate_load::{Heard, Histogram, Speaker};

use crate::doors::load::Tally;
use crate::stream::SplitMix;

/// How often the clock is looked at when nothing comes.
const IDLE: Duration = Duration::from_millis(100);
/// A server that says nothing for so long will not.
const SILENCE: Duration = Duration::from_secs(10);
const READ: usize = 64 << 10;
const SEED: u64 = 0x746f_6c6c;

/// How a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) connections: usize,
    /// Requests under way on each.
    pub(crate) depth: usize,
    /// Are all answered before more are asked?
    pub(crate) in_batches: bool,
    /// Acknowledge at once what comes. A server that writes every answer by itself, and did not ask its kernel to send at
    /// once, stalls for 40 ms otherwise.
    pub(crate) acknowledges_at_once: bool,
}

/// Which keys are asked about.
#[derive(Debug)]
pub(crate) enum Order {
    /// Any below this, forever.
    Random(SplitMix, u64),
    /// Each once, from the first up to and without the second.
    Each(u64, u64),
}

impl Order {
    pub(crate) fn random(keys: u64) -> Order {
        Order::Random(SplitMix(SEED), keys)
    }

    fn is_used_up(&self) -> bool {
        matches!(self, Order::Each(next, end) if next >= end)
    }

    fn next(&mut self) -> Option<u64> {
        match self {
            Order::Random(random, keys) => Some(random.below(*keys)),
            Order::Each(next, end) => {
                let key = *next;
                (key < *end).then(|| {
                    *next += 1;
                    key
                })
            }
        }
    }
}

/// All connections to one server.
pub(crate) struct Load {
    poll: Poll,
    events: Events,
    callers: Vec<Caller>,
    shape: Shape,
    order: Order,
    /// What every answer is to say.
    expected: bool,
    begin: Instant,
    /// What the first answer said that was to say something else.
    pub(crate) trouble: Option<String>,
}

struct Caller {
    stream: TcpStream,
    speaker: Speaker,
    out: Vec<u8>,
    read: Vec<u8>,
    come: usize,
    /// When requests were sent, in the order of their numbers from `first` on; `None` once answered.
    flights: VecDeque<Option<Duration>>,
    first: u64,
    under_way: usize,
}

impl Load {
    /// Connects, and asks as much as may be asked at first.
    pub(crate) fn start(
        address: SocketAddr,
        shape: Shape,
        order: Order,
        expected: bool,
        speaker: &dyn Fn() -> io::Result<Speaker>,
    ) -> io::Result<Load> {
        let mut load = Load {
            poll: Poll::new()?,
            events: Events::with_capacity(shape.connections),
            callers: Vec::with_capacity(shape.connections),
            shape,
            order,
            expected,
            begin: Instant::now(),
            trouble: None,
        };
        for number in 0..shape.connections {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let token = Token(number);
            load.poll
                .registry()
                .register(&mut stream, token, Interest::READABLE)?;
            let mut caller = Caller {
                stream,
                speaker: speaker()?,
                out: Vec::new(),
                read: vec![0; READ],
                come: 0,
                flights: VecDeque::new(),
                first: 0,
                under_way: 0,
            };
            caller.speaker.greet(&mut caller.out);
            caller.ask(shape, &mut load.order, load.begin.elapsed())?;
            load.callers.push(caller);
        }
        Ok(load)
    }

    /// Asks on for as long as this.
    pub(crate) fn run(&mut self, time: Duration) -> io::Result<Tally> {
        self.go_on(|tally, _| tally.elapsed >= time)
    }

    /// Asks on until all is answered. Only an order that ends does.
    pub(crate) fn finish(&mut self) -> io::Result<Tally> {
        self.go_on(|_, load| {
            load.order.is_used_up() && load.callers.iter().all(|caller| caller.under_way == 0)
        })
    }

    fn go_on(&mut self, is_over: impl Fn(&Tally, &Load) -> bool) -> io::Result<Tally> {
        let begin = Instant::now();
        let mut heard = begin;
        let mut tally = Tally {
            times: Histogram::default(),
            others: 0,
            elapsed: Duration::ZERO,
        };
        loop {
            match self.poll.poll(&mut self.events, Some(IDLE)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                polled => polled?,
            }
            let mut counted = Counted {
                tally: &mut tally,
                expected: self.expected,
                trouble: &mut self.trouble,
                since: self.begin,
            };
            for event in &self.events {
                let caller = &mut self.callers[event.token().0];
                caller.receive(self.shape, &mut self.order, &mut counted)?;
            }
            let now = Instant::now();
            if !self.events.is_empty() {
                heard = now;
            }
            tally.elapsed = now - begin;
            if is_over(&tally, self) {
                break;
            }
            if now - heard > SILENCE {
                return Err(io::Error::other(format!("no answer within {SILENCE:?}")));
            }
        }
        if tally.times.total() == 0 {
            return Err(io::Error::other("no answer at all"));
        }
        Ok(tally)
    }
}

/// Where answers are counted.
struct Counted<'a> {
    tally: &'a mut Tally,
    expected: bool,
    trouble: &'a mut Option<String>,
    since: Instant,
}

impl Counted<'_> {
    fn answer(&mut self, took: Duration, said: Result<bool, String>) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.tally.times.record(nanos);
        if said.as_ref() == Ok(&self.expected) {
            return;
        }
        self.tally.others += 1;
        self.trouble.get_or_insert_with(|| match said {
            Ok(true) => "it passed what it was to refuse".to_owned(),
            Ok(false) => "it refused what was to pass".to_owned(),
            Err(what) => what,
        });
    }
}

impl Caller {
    /// Asks as much as may be asked, and sends it.
    fn ask(&mut self, shape: Shape, order: &mut Order, now: Duration) -> io::Result<()> {
        if !shape.in_batches || self.under_way == 0 {
            while self.under_way < shape.depth && self.speaker.may_ask(self.under_way) {
                let Some(key) = order.next() else { break };
                self.speaker.ask(key, &mut self.out);
                self.flights.push_back(Some(now));
                self.under_way += 1;
            }
        }
        if self.out.is_empty() {
            return Ok(());
        }
        // So few small requests into an empty buffer always fit.
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Takes what came, counts every whole answer in it and asks again.
    fn receive(
        &mut self,
        shape: Shape,
        order: &mut Order,
        counted: &mut Counted<'_>,
    ) -> io::Result<()> {
        loop {
            let space = self.read.len() - self.come;
            let len = match self.stream.read(&mut self.read[self.come..]) {
                Ok(0) => return Err(io::Error::other("the server closed a connection")),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            if shape.acknowledges_at_once {
                // The kernel forgets it after a while.
                SockRef::from(&self.stream).set_tcp_quickack(true)?;
            }
            self.come += len;
            let now = counted.since.elapsed();
            self.understand(now, counted)?;
            self.ask(shape, order, now)?;
            // What comes after a read that was not full raises an event of its own.
            if len < space {
                return Ok(());
            }
        }
    }

    fn understand(&mut self, now: Duration, counted: &mut Counted<'_>) -> io::Result<()> {
        let mut used = 0;
        while used < self.come {
            let heard = self
                .speaker
                .read(&self.read[used..self.come], &mut self.out);
            match heard.map_err(io::Error::other)? {
                Heard::More if used == 0 && self.come == self.read.len() => {
                    return Err(io::Error::other("an answer is too long"));
                }
                Heard::More => break,
                Heard::Passed(len) => used += len,
                Heard::Answer { len, to, said } => {
                    used += len;
                    let at = to.unwrap_or(self.first).checked_sub(self.first);
                    let at = at.and_then(|at| usize::try_from(at).ok());
                    let flight = at.and_then(|at| self.flights.get_mut(at)?.take());
                    let sent = flight
                        .ok_or_else(|| io::Error::other("an answer that nobody asked for"))?;
                    counted.answer(now.saturating_sub(sent), said);
                    self.under_way -= 1;
                    while let Some(None) = self.flights.front() {
                        self.flights.pop_front();
                        self.first += 1;
                    }
                }
            }
        }
        self.read.copy_within(used..self.come, 0);
        self.come -= used;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_comes_once_and_random_ones_stay_below_their_bound() {
        let mut each = Order::Each(3, 6);
        let all: Vec<u64> = std::iter::from_fn(|| each.next()).collect();
        assert_eq!(all, [3, 4, 5]);
        assert!(each.is_used_up() && !Order::random(1).is_used_up());
        let mut random = Order::random(10);
        assert!((0..1000).all(|_| random.next().is_some_and(|key| key < 10)));
    }

    #[test]
    fn an_answer_that_says_something_else_is_counted_and_the_first_is_told() {
        let mut tally = Tally {
            times: Histogram::default(),
            others: 0,
            elapsed: Duration::ZERO,
        };
        let mut trouble = None;
        let mut counted = Counted {
            tally: &mut tally,
            expected: true,
            trouble: &mut trouble,
            since: Instant::now(),
        };
        counted.answer(Duration::ZERO, Ok(true));
        counted.answer(Duration::ZERO, Ok(false));
        counted.answer(Duration::ZERO, Err("ERR no".to_owned()));
        assert_eq!((tally.times.total(), tally.others), (3, 2));
        assert_eq!(trouble.as_deref(), Some("it refused what was to pass"));
    }
}
