//! One connection during a run: sends requests, reads and counts responses, and reconnects after a close.
//!
//! All requests that may be sent are written into one buffer and sent with one call. Received bytes are read with one call, and
//! all complete responses are counted before the next round. So a round costs two system calls for any number of requests, and
//! nothing is allocated once the buffers have grown.
//!
//! # What ends a connection
//!
//! - All requests are sent and answered.
//! - The server closes it, or is silent for longer than the timeout: requests in flight count as errors, and it is reopened. If it
//!   ends three times in a row without any response it is given up, and the others continue: a server that dies is part of the
//!   report.
//! - The server violates the protocol: the run fails.
//! - The run ends, and the timeout after it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::codec::{Codec, Event};
use crate::counters::{Counters, SentRequest};
use crate::error::LoadError;
use crate::keys::KeyPicker;
use crate::run::Progress;
use crate::schedule::Schedule;
use crate::stopwatch::{Stopwatch, nanos};
use crate::tls::{Stream, TlsEndpoint};

/// The initial read buffer, and the largest response.
const READ_START: usize = 16 << 10;
const READ_MAX: usize = 4 << 20;
/// Bytes that are written before the next read.
const WRITE_MAX: usize = 256 << 10;
/// Sessions without any response before a connection is given up.
const MAX_FAILED_SESSIONS: u32 = 3;
/// The pause before reconnecting.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// A connection of the plan, across reconnects.
pub(crate) struct Connection {
    pub(crate) endpoint: Endpoint,
    /// The number of its target.
    pub(crate) target: usize,
    /// The target, for messages.
    pub(crate) name: String,
    pub(crate) codec: Box<dyn Codec>,
    pub(crate) keys: KeyPicker,
    pub(crate) schedule: Schedule,
    pub(crate) pipeline: usize,
    pub(crate) stopwatch: Stopwatch,
    pub(crate) counters: Rc<RefCell<Counters>>,
    pub(crate) progress: std::sync::Arc<Progress>,
    pub(crate) is_given_up: bool,
}

/// How a session ended.
enum SessionEnd {
    Done,
    Closed(Option<io::Error>),
    TimedOut,
    TargetProtocol(LoadError),
}

/// How to reach a server.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsEndpoint>,
    /// How long it may be silent.
    pub(crate) timeout: Duration,
}

impl Endpoint {
    /// Opens a connection.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let opened = async {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            match &self.tls {
                None => Ok(Box::new(stream) as Box<dyn Stream>),
                Some(tls) => tls.begin(stream).await,
            }
        };
        let opened = tokio::time::timeout(self.timeout, opened).await;
        opened.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no response in time"))?
    }
}

impl Connection {
    /// Runs sessions until the schedule ends, the first on an open stream.
    ///
    /// # Errors
    /// A protocol violation, which ends the run.
    pub(crate) async fn run(mut self, stream: Box<dyn Stream>) -> Result<(), LoadError> {
        let mut stream = Some(stream);
        let mut failed_sessions = 0;
        loop {
            let open = match stream.take() {
                Some(open) => open,
                None => match self.endpoint.connect().await {
                    Ok(open) => open,
                    Err(error) => {
                        failed_sessions += 1;
                        let kind = format!("cannot connect: {error}");
                        self.counters.borrow_mut().error(self.target, &kind, 1);
                        let why = format!("cannot be reached again: {error}");
                        if self.schedule.is_over(self.stopwatch.nanos())
                            || self.should_give_up(failed_sessions, &why)
                        {
                            break;
                        }
                        tokio::time::sleep(RECONNECT_PAUSE).await;
                        continue;
                    }
                },
            };
            let mut session = Session::begin(&mut self, open);
            let end = session.run().await;
            let (lost, responses) = (session.in_flight as u64, session.responses);
            failed_sessions = if responses > 0 {
                0
            } else {
                failed_sessions + 1
            };
            let Some(why) = self.ended(end, lost)? else {
                break;
            };
            if self.should_give_up(failed_sessions, &why) {
                break;
            }
            if failed_sessions > 0 {
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        }
        Ok(())
    }

    /// Counts what a session left unanswered; returns why it ended if there is to be another one.
    fn ended(&self, end: SessionEnd, lost: u64) -> Result<Option<String>, LoadError> {
        let mut counters = self.counters.borrow_mut();
        let why = match end {
            SessionEnd::Done => return Ok(None),
            SessionEnd::TargetProtocol(error) => {
                let problem = format!("{}: {}", self.name, error.problem);
                return Err(LoadError::new(problem, error.hint));
            }
            SessionEnd::TimedOut => {
                let kind = format!("no response within {:?}", self.endpoint.timeout);
                counters.error(self.target, &kind, lost);
                "does not respond".to_owned()
            }
            SessionEnd::Closed(error) => {
                counters.error(self.target, "closed before the response", lost);
                error.map_or("closes connections without a response".into(), |error| {
                    format!("breaks connections without a response: {error}")
                })
            }
        };
        if self.schedule.is_over(self.stopwatch.nanos()) {
            return Ok(None);
        }
        counters.reconnects += 1;
        Ok(Some(why))
    }

    /// Whether to give up after this many sessions without a response. Counts it.
    fn should_give_up(&mut self, failed_sessions: u32, why: &str) -> bool {
        self.is_given_up = failed_sessions >= MAX_FAILED_SESSIONS;
        if self.is_given_up {
            let why = format!("{why}, {failed_sessions} times in a row");
            let now = self.stopwatch.nanos();
            self.counters.borrow_mut().give_up(self.target, now, why);
        }
        self.is_given_up
    }
}

/// Adds its last counters, whether it is done or interrupted.
impl Drop for Connection {
    fn drop(&mut self) {
        let now = self.stopwatch.nanos();
        if let Ok(mut counters) = self.counters.try_borrow_mut() {
            match self.is_given_up {
                // What is due on it until all are done is counted later.
                true => counters.abandoned.push(self.schedule.clone()),
                false => counters.unsent += self.schedule.unsent(now),
            }
            counters.ended = counters.ended.max(now.min(self.schedule.stop));
        }
    }
}

/// One connection from its opening to its close.
struct Session<'a> {
    connection: &'a mut Connection,
    stream: Box<dyn Stream>,
    timer: Pin<Box<Sleep>>,
    out: Vec<u8>,
    written: usize,
    read: Vec<u8>,
    /// Bytes of `read` that have arrived and are not processed.
    received: usize,
    /// Requests by number, from `first` on; `None` once answered.
    requests: VecDeque<Option<SentRequest>>,
    first: u64,
    in_flight: usize,
    responses: u64,
    /// When bytes last arrived, or when it was last idle.
    last_activity: u64,
    is_last: bool,
}

impl<'a> Session<'a> {
    fn begin(connection: &'a mut Connection, stream: Box<dyn Stream>) -> Session<'a> {
        let mut out = Vec::new();
        connection.codec.start(&mut out);
        let last_activity = connection.stopwatch.nanos();
        let timer = Box::pin(tokio::time::sleep_until(
            connection.stopwatch.moment(last_activity),
        ));
        Session {
            connection,
            stream,
            timer,
            out,
            written: 0,
            read: vec![0; READ_START],
            received: 0,
            requests: VecDeque::new(),
            first: 0,
            in_flight: 0,
            responses: 0,
            last_activity,
            is_last: false,
        }
    }

    async fn run(&mut self) -> SessionEnd {
        let timeout = nanos(self.connection.endpoint.timeout);
        loop {
            let now = self.connection.stopwatch.nanos();
            let is_blocked = self.fill(now);
            let is_over = self.connection.schedule.is_over(now);
            if self.in_flight == 0 && is_over {
                return SessionEnd::Done;
            }
            if self.is_last || self.is_drained() {
                return SessionEnd::Closed(None);
            }
            // Without requests in flight the server may be silent.
            if self.in_flight == 0 && !is_blocked {
                self.last_activity = now;
            }
            let after_end = self.connection.schedule.stop.saturating_add(timeout);
            let deadline = self.last_activity.saturating_add(timeout).min(after_end);
            if now >= deadline {
                return SessionEnd::TimedOut;
            }
            let due = self
                .connection
                .schedule
                .due()
                .filter(|_| !is_blocked && !is_over);
            let wake = deadline.min(due.unwrap_or(u64::MAX));
            let end = self.connection.schedule.stop;
            let wake = if now < end { wake.min(end) } else { wake };
            match self.transfer(wake).await {
                Ok(None) => {}
                Ok(Some(0)) => return SessionEnd::Closed(None),
                Ok(Some(len)) => {
                    self.received += len;
                    if let Err(error) = self.process_input() {
                        return SessionEnd::TargetProtocol(error);
                    }
                }
                Err(error) => return SessionEnd::Closed(Some(error)),
            }
        }
    }

    /// Whether the server has announced its close and answered all that it will.
    fn is_drained(&self) -> bool {
        let Some(end) = self.connection.codec.request_limit() else {
            return false;
        };
        let taken = usize::try_from(end.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.requests.iter().take(taken).all(Option::is_none)
    }

    /// Writes all requests that may be sent now. True if more are due than there is room for.
    fn fill(&mut self, now: u64) -> bool {
        let connection = &mut *self.connection;
        // Requests that are answered out of order are kept until those before them are.
        let most = connection.pipeline.saturating_mul(64).max(4096);
        loop {
            if connection.schedule.is_over(now) {
                return false;
            }
            let has_room = self.in_flight < connection.pipeline
                && self.requests.len() < most
                && self.out.len() < WRITE_MAX
                && !self.is_last
                && connection.codec.can_send(self.in_flight);
            if connection.schedule.due().is_some_and(|due| due > now) {
                connection.schedule.is_delayed = false;
                return false;
            }
            if !has_room {
                connection.schedule.is_delayed = true;
                return true;
            }
            let start = connection.schedule.start(now);
            let key = connection.keys.pick();
            connection.codec.write_request(key, &mut self.out);
            connection.schedule.record_sent(start);
            if self.in_flight == 0 {
                self.last_activity = now;
            }
            self.requests.push_back(Some(SentRequest {
                key,
                sent: now,
                start,
            }));
            self.in_flight += 1;
        }
    }

    /// Writes, and waits until bytes arrive (how many) or until `wake` (`None`).
    async fn transfer(&mut self, wake: u64) -> io::Result<Option<usize>> {
        if self.received == self.read.len() {
            self.read.resize(self.received * 2, 0);
        }
        // Moving a timer costs more than an early wake-up, except where it must be exact.
        let wanted = self.connection.stopwatch.moment(wake);
        let set = self.timer.deadline();
        if self.timer.is_elapsed() || wanted < set {
            self.timer.as_mut().reset(wanted);
        }
        let (stream, timer) = (&mut self.stream, &mut self.timer);
        let (out, written) = (&mut self.out, &mut self.written);
        let space = self.read.get_mut(self.received..).unwrap_or_default();
        poll_fn(|cx| {
            while *written < out.len() {
                let rest = out.get(*written..).unwrap_or_default();
                match Pin::new(&mut *stream).poll_write(cx, rest)? {
                    Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(len) => *written += len,
                    Poll::Pending => break,
                }
            }
            if *written == out.len() {
                // TLS may buffer written bytes; the next round continues to flush.
                let _ = Pin::new(&mut *stream).poll_flush(cx)?;
                out.clear();
                *written = 0;
            }
            let mut buffer = ReadBuf::new(space);
            if Pin::new(&mut *stream)
                .poll_read(cx, &mut buffer)?
                .is_ready()
            {
                return Poll::Ready(Ok(Some(buffer.filled().len())));
            }
            timer.as_mut().poll(cx).map(|()| Ok(None))
        })
        .await
    }

    /// Counts all complete responses among the received bytes.
    fn process_input(&mut self) -> Result<(), LoadError> {
        let now = self.connection.stopwatch.nanos();
        self.last_activity = now;
        let mut used = 0;
        let mut counted = 0;
        let mut counters = self.connection.counters.borrow_mut();
        while !self.is_last {
            let bytes = self.read.get(used..self.received).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            match self.connection.codec.read(bytes, &mut self.out)? {
                Event::Incomplete => break,
                Event::Skip(len) => used += len,
                Event::Response(response) => {
                    used += response.len;
                    self.is_last = response.is_last;
                    let number = response.request.unwrap_or(self.first);
                    let at = number
                        .checked_sub(self.first)
                        .and_then(|at| usize::try_from(at).ok());
                    let request = at.and_then(|at| self.requests.get_mut(at)?.take());
                    let Some(request) = request else {
                        return Err(LoadError::new(
                            "a response to no request",
                            "check that no proxy adds or repeats responses",
                        ));
                    };
                    counters.record_response(
                        self.connection.target,
                        request,
                        response.judgement,
                        now,
                    );
                    counted += 1;
                    self.in_flight -= 1;
                    while let Some(None) = self.requests.front() {
                        self.requests.pop_front();
                        self.first += 1;
                    }
                }
            }
        }
        drop(counters);
        self.responses += counted;
        self.connection.progress.add(counted);
        self.read.copy_within(used..self.received, 0);
        self.received -= used;
        if self.received >= READ_MAX {
            return Err(LoadError::new(
                "a response of more than 4 MiB",
                "send a request with a shorter response",
            ));
        }
        Ok(())
    }
}
