//! One connection for as long as the run lasts: asks, listens, counts, and comes back when it was closed.
//!
//! What may be asked is written into one buffer and sent with one call; what comes is read with one call, and every whole
//! answer in it is counted before the next round. So a round costs two system calls however many requests are in it, and
//! nothing is allocated once the buffers have grown.
//!
//! # What ends a connection
//!
//! - It has asked all it should, and has all answers.
//! - The server closed it, or said nothing for too long: what was under way counts as errors, and it is opened again. If it
//!   ends three times in a row without any answer it is given up, and the others go on: a server that died is part of what is
//!   to be told, and no reason to tell nothing.
//! - What came is of another protocol: the whole run ends, because no further answer would be worth more.
//! - The end of the run, and the time that answers have after it.

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

use crate::clock::{Watch, nanos};
use crate::codec::{Codec, Gibberish, Step};
use crate::keys::Keys;
use crate::pace::Pace;
use crate::run::Progress;
use crate::tally::{Flight, Tally};
use crate::tls::{Stream, TlsRoute};
use crate::wrong::Wrong;

/// What is read into at first, and the largest answer that is waited for.
const READ_START: usize = 16 << 10;
const READ_MAX: usize = 4 << 20;
/// Bytes that are written before the next look at what has come.
const WRITE_MAX: usize = 256 << 10;
/// Times that a connection may end without any answer before it is given up.
const FRUITLESS_MAX: u32 = 3;
/// Before it is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// What a connection needs to know.
pub(crate) struct Caller {
    pub(crate) route: Route,
    /// The number of its target.
    pub(crate) target: usize,
    /// For messages.
    pub(crate) name: String,
    pub(crate) codec: Box<dyn Codec>,
    pub(crate) keys: Keys,
    pub(crate) pace: Pace,
    pub(crate) pipeline: usize,
    pub(crate) watch: Watch,
    pub(crate) tally: Rc<RefCell<Tally>>,
    pub(crate) progress: std::sync::Arc<Progress>,
    pub(crate) is_given_up: bool,
}

/// How a conversation ended.
enum End {
    Done,
    Closed(Option<io::Error>),
    Silent,
    Gibberish(Gibberish),
}

/// How a server is reached.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsRoute>,
    /// How long it may say nothing.
    pub(crate) timeout: Duration,
}

impl Route {
    /// Opens a connection.
    pub(crate) async fn connect(&self) -> io::Result<Stream> {
        let opened = async {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            match &self.tls {
                None => Ok(Stream::Plain(stream)),
                Some(tls) => tls.begin(stream).await,
            }
        };
        let opened = tokio::time::timeout(self.timeout, opened).await;
        opened.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))?
    }
}

impl Caller {
    /// Asks until it is enough, beginning on a connection that is open.
    ///
    /// # Errors
    /// Something that makes the whole run worthless.
    pub(crate) async fn call(mut self, stream: Stream) -> Result<(), Wrong> {
        let mut stream = Some(stream);
        let mut fruitless = 0;
        loop {
            let open = match stream.take() {
                Some(open) => open,
                None => match self.route.connect().await {
                    Ok(open) => open,
                    Err(error) => {
                        fruitless += 1;
                        let kind = format!("cannot connect: {error}");
                        self.tally.borrow_mut().error(self.target, &kind, 1);
                        let why = format!("cannot be reached again: {error}");
                        if self.pace.is_over(self.watch.nanos()) || self.gives_up(fruitless, &why) {
                            break;
                        }
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                },
            };
            let mut talk = Talk::begin(&mut self, open);
            let end = talk.run().await;
            let (lost, answers) = (talk.under_way as u64, talk.answers);
            fruitless = if answers > 0 { 0 } else { fruitless + 1 };
            let Some(why) = self.ended(end, lost)? else {
                break;
            };
            if self.gives_up(fruitless, &why) {
                break;
            }
            if fruitless > 0 {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// Counts what a conversation left unanswered; what is to be said about it, if there is to be another one.
    fn ended(&self, end: End, lost: u64) -> Result<Option<String>, Wrong> {
        let mut tally = self.tally.borrow_mut();
        let why = match end {
            End::Done => return Ok(None),
            End::Gibberish(gibberish) => {
                let what = format!("{}: {}", self.name, gibberish.what);
                return Err(Wrong::new(what, gibberish.hint));
            }
            End::Silent => {
                let kind = format!("no answer within {:?}", self.route.timeout);
                tally.error(self.target, &kind, lost);
                "says nothing".to_owned()
            }
            End::Closed(error) => {
                tally.error(self.target, "closed before the answer", lost);
                error.map_or("closes connections without an answer".into(), |error| {
                    format!("breaks connections without an answer: {error}")
                })
            }
        };
        if self.pace.is_over(self.watch.nanos()) {
            return Ok(None);
        }
        tally.reconnects += 1;
        Ok(Some(why))
    }

    /// Is it to be given up, after so many ends without an answer? That is counted.
    fn gives_up(&mut self, fruitless: u32, why: &str) -> bool {
        self.is_given_up = fruitless >= FRUITLESS_MAX;
        if self.is_given_up {
            let why = format!("{why}, {fruitless} times in a row");
            let now = self.watch.nanos();
            self.tally.borrow_mut().give_up(self.target, now, why);
        }
        self.is_given_up
    }
}

/// Counted when it goes, whether it was done or broken off.
impl Drop for Caller {
    fn drop(&mut self) {
        let now = self.watch.nanos();
        if let Ok(mut tally) = self.tally.try_borrow_mut() {
            match self.is_given_up {
                // What is due on it until all are done is still to come.
                true => tally.abandoned.push(self.pace.clone()),
                false => tally.unsent += self.pace.unsent(now),
            }
            tally.ended = tally.ended.max(now.min(self.pace.stop));
        }
    }
}

/// One connection from its opening to its end.
struct Talk<'a> {
    caller: &'a mut Caller,
    stream: Stream,
    timer: Pin<Box<Sleep>>,
    out: Vec<u8>,
    written: usize,
    read: Vec<u8>,
    /// Bytes of `read` that have come and are not yet understood.
    come: usize,
    /// Requests in the order of their numbers, from `first` on; `None` once answered.
    flights: VecDeque<Option<Flight>>,
    first: u64,
    under_way: usize,
    answers: u64,
    /// When something last came, or when it was last idle.
    heard: u64,
    is_last: bool,
}

impl<'a> Talk<'a> {
    fn begin(caller: &'a mut Caller, stream: Stream) -> Talk<'a> {
        let mut out = Vec::new();
        caller.codec.greet(&mut out);
        let heard = caller.watch.nanos();
        let timer = Box::pin(tokio::time::sleep_until(caller.watch.moment(heard)));
        Talk {
            caller,
            stream,
            timer,
            out,
            written: 0,
            read: vec![0; READ_START],
            come: 0,
            flights: VecDeque::new(),
            first: 0,
            under_way: 0,
            answers: 0,
            heard,
            is_last: false,
        }
    }

    async fn run(&mut self) -> End {
        let timeout = nanos(self.caller.route.timeout);
        loop {
            let now = self.caller.watch.nanos();
            let waits_to_ask = self.fill(now);
            let is_over = self.caller.pace.is_over(now);
            if self.under_way == 0 && is_over {
                return End::Done;
            }
            if self.is_last || self.is_left_alone() {
                return End::Closed(None);
            }
            // Only who waits for something can wait too long.
            if self.under_way == 0 && !waits_to_ask {
                self.heard = now;
            }
            let after_end = self.caller.pace.stop.saturating_add(timeout);
            let deadline = self.heard.saturating_add(timeout).min(after_end);
            if now >= deadline {
                return End::Silent;
            }
            let due = self.caller.pace.due().filter(|_| !waits_to_ask && !is_over);
            let wake = deadline.min(due.unwrap_or(u64::MAX));
            let end = self.caller.pace.stop;
            let wake = if now < end { wake.min(end) } else { wake };
            match self.exchange(wake).await {
                Ok(None) => {}
                Ok(Some(0)) => return End::Closed(None),
                Ok(Some(len)) => {
                    self.come += len;
                    if let Err(gibberish) = self.understand() {
                        return End::Gibberish(gibberish);
                    }
                }
                Err(error) => return End::Closed(Some(error)),
            }
        }
    }

    /// Has the server said that it leaves, and answered all that it will?
    fn is_left_alone(&self) -> bool {
        let Some(end) = self.caller.codec.ends_before() else {
            return false;
        };
        let taken = usize::try_from(end.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.flights.iter().take(taken).all(Option::is_none)
    }

    /// Writes what may be asked now. True if more would be asked if there were room.
    fn fill(&mut self, now: u64) -> bool {
        let caller = &mut *self.caller;
        // Numbers that are answered out of turn are kept until those before them are.
        let most = caller.pipeline.saturating_mul(64).max(4096);
        loop {
            if caller.pace.is_over(now) {
                return false;
            }
            let has_room = self.under_way < caller.pipeline
                && self.flights.len() < most
                && self.out.len() < WRITE_MAX
                && !self.is_last
                && caller.codec.may_ask(self.under_way);
            if caller.pace.due().is_some_and(|due| due > now) {
                caller.pace.is_held_back = false;
                return false;
            }
            if !has_room {
                caller.pace.is_held_back = true;
                return true;
            }
            let start = caller.pace.start(now);
            let key = caller.keys.draw();
            caller.codec.ask(key, &mut self.out);
            caller.pace.note(start);
            if self.under_way == 0 {
                self.heard = now;
            }
            self.flights.push_back(Some(Flight {
                key,
                sent: now,
                start,
            }));
            self.under_way += 1;
        }
    }

    /// Sends what is to be sent and waits for something to come: how much, or `None` when it is `wake`.
    async fn exchange(&mut self, wake: u64) -> io::Result<Option<usize>> {
        if self.come == self.read.len() {
            self.read.resize(self.come * 2, 0);
        }
        // Moving a timer costs more than letting it go off early and looking again, except where it must be exact.
        let wanted = self.caller.watch.moment(wake);
        let set = self.timer.deadline();
        if self.timer.is_elapsed() || wanted < set {
            self.timer.as_mut().reset(wanted);
        }
        let (stream, timer) = (&mut self.stream, &mut self.timer);
        let (out, written) = (&mut self.out, &mut self.written);
        let space = self.read.get_mut(self.come..).unwrap_or_default();
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
                // Over TLS what was written may still wait here. If it has to go on waiting, the next round goes on.
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

    /// Counts every whole answer in what has come.
    fn understand(&mut self) -> Result<(), Gibberish> {
        let now = self.caller.watch.nanos();
        self.heard = now;
        let mut used = 0;
        let mut counted = 0;
        let mut tally = self.caller.tally.borrow_mut();
        while !self.is_last {
            let bytes = self.read.get(used..self.come).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            match self.caller.codec.read(bytes, &mut self.out)? {
                Step::More => break,
                Step::Passed(len) => used += len,
                Step::Answer(answer) => {
                    used += answer.len;
                    self.is_last = answer.last;
                    let number = answer.to.unwrap_or(self.first);
                    let at = number
                        .checked_sub(self.first)
                        .and_then(|at| usize::try_from(at).ok());
                    let flight = at.and_then(|at| self.flights.get_mut(at)?.take());
                    let Some(flight) = flight else {
                        return Err(Gibberish::new(
                            "an answer that nobody asked for",
                            "see that nothing between here and the server adds or repeats answers",
                        ));
                    };
                    tally.answer(self.caller.target, flight, answer.verdict, now);
                    counted += 1;
                    self.under_way -= 1;
                    while let Some(None) = self.flights.front() {
                        self.flights.pop_front();
                        self.first += 1;
                    }
                }
            }
        }
        drop(tally);
        self.answers += counted;
        self.caller.progress.add(counted);
        self.read.copy_within(used..self.come, 0);
        self.come -= used;
        if self.come >= READ_MAX {
            return Err(Gibberish::new(
                "an answer of more than 4 MiB",
                "ask for something that is answered in fewer bytes",
            ));
        }
        Ok(())
    }
}
