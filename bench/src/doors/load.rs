//! The load: so many connections, each with one request under way, on one thread and one epoll.
//!
//! A request costs this client one read, one write and its share of a poll, so that a server on
//! another core, which pays at least the same, is the slower of the two.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use tollgate_load::Histogram;

use super::KEYS;
use super::answer;
use super::request::Template;
use crate::stream::SplitMix;

/// Connections, each in a closed loop.
pub(crate) const CONNECTIONS: usize = 50;

/// No answer of any contestant comes near it.
const ANSWER_MAX: usize = 4096;

/// How often the clock is looked at when nothing comes.
const IDLE: Duration = Duration::from_millis(100);

const SEED: u64 = 0x746f_6c6c;

/// What is asked, and how an answer looks that lets the request pass.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) template: Template,
    /// The status is 200 and this is somewhere in the body; it may be empty.
    pub(crate) passes: &'static str,
}

/// Answers of one stretch of time.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) times: Histogram,
    /// Answers that let nothing pass.
    pub(crate) others: u64,
    pub(crate) elapsed: Duration,
}

/// All connections to one server, from one pass.
pub(crate) struct Load<'a> {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    random: SplitMix,
    passes: &'a [u8],
}

struct Connection {
    stream: TcpStream,
    template: Template,
    read: Box<[u8; ANSWER_MAX]>,
    read_len: usize,
    sent_at: Instant,
}

impl<'a> Load<'a> {
    /// Connects and sends the first request on every connection.
    pub(crate) fn start(address: SocketAddr, question: &'a Question) -> io::Result<Self> {
        let mut load = Self {
            poll: Poll::new()?,
            events: Events::with_capacity(CONNECTIONS),
            connections: Vec::with_capacity(CONNECTIONS),
            random: SplitMix(SEED),
            passes: question.passes.as_bytes(),
        };
        for number in 0..CONNECTIONS {
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
                template: question.template.clone(),
                read: Box::new([0; ANSWER_MAX]),
                read_len: 0,
                sent_at: Instant::now(),
            };
            connection.send(&mut load.random, Instant::now())?;
            load.connections.push(connection);
        }
        Ok(load)
    }

    /// Asks on for as long as this.
    pub(crate) fn run(&mut self, time: Duration) -> io::Result<Tally> {
        let begin = Instant::now();
        let mut tally = Tally {
            times: Histogram::default(),
            others: 0,
            elapsed: Duration::ZERO,
        };
        while tally.elapsed < time {
            match self.poll.poll(&mut self.events, Some(IDLE)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                polled => polled?,
            }
            for event in &self.events {
                let connection = &mut self.connections[event.token().0];
                connection.receive(self.passes, &mut self.random, &mut tally)?;
            }
            tally.elapsed = begin.elapsed();
        }
        if tally.times.total() == 0 {
            return Err(io::Error::other(format!("no answer within {time:?}")));
        }
        Ok(tally)
    }
}

impl Connection {
    fn send(&mut self, random: &mut SplitMix, now: Instant) -> io::Result<()> {
        let request = self.template.with(random.below(KEYS as u64) as usize);
        self.sent_at = now;
        // One small request into an empty buffer always fits.
        self.stream.write_all(request)
    }

    /// Takes what came; if that completes an answer, counts it and sends the next request.
    ///
    /// Reads once: what comes later raises an event of its own, so there is nothing to drain.
    fn receive(
        &mut self,
        passes: &[u8],
        random: &mut SplitMix,
        tally: &mut Tally,
    ) -> io::Result<()> {
        match self.stream.read(&mut self.read[self.read_len..]) {
            Ok(0) => return Err(io::Error::other("the server closed a connection")),
            Ok(len) => self.read_len += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        let bytes = &self.read[..self.read_len];
        let answer = match answer::parse(bytes) {
            Ok(Some(answer)) => answer,
            Ok(None) if self.read_len < ANSWER_MAX => return Ok(()),
            Ok(None) => return Err(io::Error::other("an answer is too long")),
            Err(gibberish) => {
                let (why, bytes) = (gibberish.0, bytes.escape_ascii());
                return Err(io::Error::other(format!("no answer ({why}): {bytes}")));
            }
        };
        if answer.len != self.read_len {
            return Err(io::Error::other("more than one answer to a request"));
        }
        let now = Instant::now();
        let took = (now - self.sent_at).as_nanos();
        tally.times.record(u64::try_from(took).unwrap_or(u64::MAX));
        tally.others += u64::from(answer.status != 200 || !contains(answer.body, passes));
        self.read_len = 0;
        self.send(random, now)
    }
}

fn contains(body: &[u8], sign: &[u8]) -> bool {
    sign.is_empty() || body.windows(sign.len()).any(|window| window == sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_is_found_wherever_it_is_and_an_empty_one_everywhere() {
        assert!(contains(br#"{"allowed":true}"#, br#""allowed":true"#));
        assert!(!contains(br#"{"allowed":false}"#, br#""allowed":true"#));
        assert!(contains(b"", b""));
        assert!(!contains(b"", b"x"));
    }
}
