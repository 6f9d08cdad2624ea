//! The load: connections with a fixed number of requests in flight each, on one thread and one epoll.
//!
//! `tollgate-load` provides the protocols; this loop replaces its scheduling. A round of a connection is one read, one write and its
//! share of a poll, however many requests are in it, so that a server on another core is the slower of the two.
//!
//! A pipeline is sent and answered as a whole before the next one, as client libraries do it. Streams of gRPC do not wait for each
//! other.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;
use tollgate_load::{Codec, Event, Histogram, Judgement, KeyPicker};

/// Longest wait between two readings of the clock.
const IDLE: Duration = Duration::from_millis(100);
/// A server that is silent for this long has failed.
const SILENCE: Duration = Duration::from_secs(10);
const READ: usize = 64 << 10;
const SEED: u64 = 0x746f_6c6c;

/// How a server is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestShape {
    pub(crate) connections: usize,
    /// Requests in flight on each.
    pub(crate) depth: usize,
    /// Whether all are answered before more are sent.
    pub(crate) in_batches: bool,
    /// Acknowledge segments at once. Otherwise a server that writes every answer by itself, without TCP_NODELAY, stalls for
    /// 40 ms.
    pub(crate) quick_ack: bool,
}

/// The order of keys.
#[derive(Debug)]
pub(crate) enum KeySequence {
    /// Random ones, forever.
    Random(KeyPicker),
    /// Each of this range once.
    Each(u64, u64),
}

impl KeySequence {
    pub(crate) fn random(keys: u64) -> KeySequence {
        KeySequence::Random(KeyPicker::new(keys, None, SEED))
    }

    fn is_used_up(&self) -> bool {
        matches!(self, KeySequence::Each(next, end) if next >= end)
    }

    fn next(&mut self) -> Option<u64> {
        match self {
            KeySequence::Random(keys) => Some(keys.pick()),
            KeySequence::Each(next, end) => {
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
    connections: Vec<Connection>,
    shape: RequestShape,
    order: KeySequence,
    /// Whether every answer is to admit.
    expected: bool,
    begin: Instant,
    /// The first unexpected answer.
    pub(crate) unexpected: Option<String>,
}

struct Connection {
    stream: TcpStream,
    codec: Box<dyn Codec>,
    out: Vec<u8>,
    read: Vec<u8>,
    received: usize,
    /// When requests were sent, by their numbers from `first` on; `None` once answered.
    sent_at: VecDeque<Option<Duration>>,
    first: u64,
    in_flight: usize,
}

impl Load {
    /// Connects and sends the first requests.
    pub(crate) fn start(
        address: SocketAddr,
        shape: RequestShape,
        order: KeySequence,
        expected: bool,
        codec: &dyn Fn() -> io::Result<Box<dyn Codec>>,
    ) -> io::Result<Load> {
        let mut load = Load {
            poll: Poll::new()?,
            events: Events::with_capacity(shape.connections),
            connections: Vec::with_capacity(shape.connections),
            shape,
            order,
            expected,
            begin: Instant::now(),
            unexpected: None,
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
            let mut connection = Connection {
                stream,
                codec: codec()?,
                out: Vec::new(),
                read: vec![0; READ],
                received: 0,
                sent_at: VecDeque::new(),
                first: 0,
                in_flight: 0,
            };
            connection.codec.start(&mut connection.out);
            connection.ask(shape, &mut load.order, load.begin.elapsed())?;
            load.connections.push(connection);
        }
        Ok(load)
    }

    /// Runs for this long.
    pub(crate) fn run(&mut self, time: Duration) -> io::Result<Tally> {
        self.run_until(|tally, _| tally.elapsed >= time)
    }

    /// Runs until everything is answered. Only for an order that ends.
    pub(crate) fn finish(&mut self) -> io::Result<Tally> {
        self.run_until(|_, load| {
            load.order.is_used_up()
                && load
                    .connections
                    .iter()
                    .all(|connection| connection.in_flight == 0)
        })
    }

    fn run_until(&mut self, is_over: impl Fn(&Tally, &Load) -> bool) -> io::Result<Tally> {
        let begin = Instant::now();
        let mut last_answer = begin;
        let mut tally = Tally {
            times: Histogram::default(),
            unexpected: 0,
            elapsed: Duration::ZERO,
        };
        loop {
            match self.poll.poll(&mut self.events, Some(IDLE)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                polled => polled?,
            }
            let mut counters = ReplyCounters {
                tally: &mut tally,
                expected: self.expected,
                unexpected: &mut self.unexpected,
                since: self.begin,
            };
            for event in &self.events {
                let connection = &mut self.connections[event.token().0];
                connection.receive(self.shape, &mut self.order, &mut counters)?;
            }
            let now = Instant::now();
            if !self.events.is_empty() {
                last_answer = now;
            }
            tally.elapsed = now - begin;
            if is_over(&tally, self) {
                break;
            }
            if now - last_answer > SILENCE {
                return Err(io::Error::other(format!("no answer within {SILENCE:?}")));
            }
        }
        if tally.times.total() == 0 {
            return Err(io::Error::other("no answer at all"));
        }
        Ok(tally)
    }
}

/// The answers of one stretch of time.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) times: Histogram,
    /// Answers other than expected.
    pub(crate) unexpected: u64,
    pub(crate) elapsed: Duration,
}

/// Counts replies.
struct ReplyCounters<'a> {
    tally: &'a mut Tally,
    expected: bool,
    unexpected: &'a mut Option<String>,
    since: Instant,
}

impl ReplyCounters<'_> {
    fn answer(&mut self, took: Duration, verdict: Result<bool, String>) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.tally.times.record(nanos);
        if verdict.as_ref() == Ok(&self.expected) {
            return;
        }
        self.tally.unexpected += 1;
        self.unexpected.get_or_insert_with(|| match verdict {
            Ok(true) => "it admitted what it should refuse".to_owned(),
            Ok(false) => "it refused what it should admit".to_owned(),
            Err(what) => what,
        });
    }
}

impl Connection {
    /// Sends as many requests as the shape allows.
    fn ask(
        &mut self,
        shape: RequestShape,
        order: &mut KeySequence,
        now: Duration,
    ) -> io::Result<()> {
        if !shape.in_batches || self.in_flight == 0 {
            while self.in_flight < shape.depth
                && self.codec.can_send(self.in_flight)
                && self.codec.request_limit().is_none()
            {
                let Some(key) = order.next() else { break };
                self.codec.write_request(key, &mut self.out);
                self.sent_at.push_back(Some(now));
                self.in_flight += 1;
            }
        }
        if self.out.is_empty() {
            return Ok(());
        }
        // A few small requests always fit an empty buffer.
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Reads, counts every complete answer and sends the next requests.
    fn receive(
        &mut self,
        shape: RequestShape,
        order: &mut KeySequence,
        counters: &mut ReplyCounters<'_>,
    ) -> io::Result<()> {
        loop {
            let space = self.read.len() - self.received;
            let len = match self.stream.read(&mut self.read[self.received..]) {
                Ok(0) => return Err(io::Error::other("the server closed a connection")),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            if shape.quick_ack {
                // The kernel forgets it after a while.
                SockRef::from(&self.stream).set_tcp_quickack(true)?;
            }
            self.received += len;
            let now = counters.since.elapsed();
            self.parse_answers(now, counters)?;
            self.ask(shape, order, now)?;
            // Bytes after a short read raise an event of their own.
            if len < space {
                return Ok(());
            }
        }
    }

    fn parse_answers(&mut self, now: Duration, counters: &mut ReplyCounters<'_>) -> io::Result<()> {
        let mut used = 0;
        while used < self.received {
            let event = self
                .codec
                .read(&self.read[used..self.received], &mut self.out);
            match event.map_err(io::Error::other)? {
                Event::Incomplete if used == 0 && self.received == self.read.len() => {
                    return Err(io::Error::other("an answer is too long"));
                }
                Event::Incomplete => break,
                Event::Skip(len) => used += len,
                Event::Response(response) => {
                    used += response.len;
                    let at = response
                        .request
                        .unwrap_or(self.first)
                        .checked_sub(self.first);
                    let at = at.and_then(|at| usize::try_from(at).ok());
                    let flight = at.and_then(|at| self.sent_at.get_mut(at)?.take());
                    let sent =
                        flight.ok_or_else(|| io::Error::other("an answer without a request"))?;
                    let admitted = match response.judgement {
                        Judgement::Admitted => Ok(true),
                        Judgement::Refused => Ok(false),
                        Judgement::Unjudged => Err("no rule judges this command".to_owned()),
                        Judgement::Failed(failure) => Err(failure.to_string()),
                    };
                    counters.answer(now.saturating_sub(sent), admitted);
                    self.in_flight -= 1;
                    while let Some(None) = self.sent_at.front() {
                        self.sent_at.pop_front();
                        self.first += 1;
                    }
                }
            }
        }
        self.read.copy_within(used..self.received, 0);
        self.received -= used;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_comes_once_and_random_ones_stay_below_their_bound() {
        let mut each = KeySequence::Each(3, 6);
        let all: Vec<u64> = std::iter::from_fn(|| each.next()).collect();
        assert_eq!(all, [3, 4, 5]);
        assert!(each.is_used_up() && !KeySequence::random(1).is_used_up());
        let mut random = KeySequence::random(10);
        assert!((0..1000).all(|_| random.next().is_some_and(|key| key < 10)));
    }

    #[test]
    fn unexpected_answers_are_counted_and_the_first_is_kept() {
        let mut tally = Tally {
            times: Histogram::default(),
            unexpected: 0,
            elapsed: Duration::ZERO,
        };
        let mut unexpected = None;
        let mut counters = ReplyCounters {
            tally: &mut tally,
            expected: true,
            unexpected: &mut unexpected,
            since: Instant::now(),
        };
        counters.answer(Duration::ZERO, Ok(true));
        counters.answer(Duration::ZERO, Ok(false));
        counters.answer(Duration::ZERO, Err("ERR no".to_owned()));
        assert_eq!((tally.times.total(), tally.unexpected), (3, 2));
        assert_eq!(
            unexpected.as_deref(),
            Some("it refused what it should admit")
        );
    }
}
