//! One connection: read what is there, answer all of it, write once.
//!
//! # Theory
//!
//! Whatever a read brings is parsed to its end before anything is written: a hundred commands that came
//! together are a hundred answers in one write. Calls with limits of their own that stand behind each other
//! are gathered, so that the memory of all of them is on its way before the first is decided.
//!
//! # Invariant
//!
//! What is not yet written is bounded ([`super::stock`]): a connection with as many answers as it may have is
//! not read from until its client has read some.
//!
//! Time is bounded as everywhere ([`crate::listen`]): a command that has begun must end, answers must be read,
//! and who has not shown its password has to do so soon.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod transactions;

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate::Call;

use super::Shared;
use super::answers::Answers;
use super::by_policy::{PendingAnswer, Question};
use super::codec::{Command, Found, Words};
use super::pattern::{Again, Pattern};
use super::reply::Reply;
use super::session::{Session, Then};
use super::stock::Loan;
use super::throttle::{Form, Said};
use super::transaction::{Run, Step, Transaction};
use crate::listen::hangup::unless_hung_up;
use crate::listen::pulse::{Phase, Pulse};

/// Room for reading: a small one at first, and a large one for who fills it.
const ROOM: usize = 4 * 1024;
const LARGE_ROOM: usize = 64 * 1024;
/// Calls that are decided together.
const BATCH: usize = 32;
/// What must be written in the time that writing may take.
const STRETCH: usize = 64 * 1024;
/// What is read and thrown away of a connection that has ended, so that the client reads its last answer.
const THROWN_AWAY: usize = 1024 * 1024;

/// How long a client has to read its last answer.
const LINGER: Duration = Duration::from_secs(1);

/// Why answering stopped.
enum Stop {
    /// All that came is answered. It is not worth looking again before so many bytes are there.
    Needs(usize),
    /// There are as many answers as may be.
    Full,
    /// The connection ends once the answers are written.
    Close,
    /// The last answer goes out after a pause.
    Pause(Duration),
    /// The next answer has to be waited for.
    Waits(PendingAnswer),
}

/// One connection.
struct Connection<'a> {
    shared: &'a Shared,
    session: Session,
    words: Words,
    out: Answers,
    /// Written since the pulse was last told.
    stretch: usize,
    calls: Vec<Call>,
    /// The form of all of them.
    form: Form,
    /// The call that was read last.
    pattern: Option<Pattern>,
    /// The transaction that has begun. While there is one there is no pattern: nothing is decided before it ends.
    open: Option<Transaction>,
    /// The transaction that is being run.
    run: Option<Run>,
    /// Is limiting switched off?
    is_off: bool,
    loan: Loan<'a>,
}

/// Serves a connection to its end.
pub(super) async fn serve(
    mut stream: TcpStream,
    peer: IpAddr,
    pulse: Arc<Pulse>,
    shared: Arc<Shared>,
) {
    // Without it answers wait for acknowledgements. If it fails, so will writing.
    let _ = stream.set_nodelay(true);
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
    let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive);
    let port = stream.peer_addr().map_or(0, |peer| peer.port());
    let mut connection = Connection::new(&shared, SocketAddr::new(peer, port));
    poll_fn(|cx| {
        pulse.wakes_by(cx.waker());
        Poll::Ready(())
    })
    .await;
    // Errors are those of the client, which is gone.
    if let Ok(End::Ours) = connection.converse(&mut stream, &pulse).await {
        pulse.enter(Phase::Closing);
        let _ = timeout(LINGER, see_off(&mut stream)).await;
    }
}

/// Lets the client read its last answer: closing while bytes are unread would throw it away.
async fn see_off(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut thrown = BytesMut::with_capacity(ROOM);
    let mut count = 0;
    while count < THROWN_AWAY {
        thrown.clear();
        match stream.read_buf(&mut thrown).await? {
            0 => break,
            more => count += more,
        }
    }
    Ok(())
}

/// Who ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// We do, and the client may still be sending.
    Ours,
    /// The client does, or nothing of it is unread.
    Theirs,
}

/// What happened on the socket.
enum Event {
    Read(usize),
    Wrote(usize),
    /// The server stops, and there is nothing to answer.
    Ends,
}

impl<'a> Connection<'a> {
    fn new(shared: &'a Shared, peer: SocketAddr) -> Connection<'a> {
        Connection {
            shared,
            session: Session::new(shared.next_id(), peer, shared.password.is_none()),
            words: Words::default(),
            out: Answers::default(),
            stretch: 0,
            calls: Vec::with_capacity(BATCH),
            form: Form::Cell,
            pattern: None,
            open: None,
            run: None,
            is_off: false,
            loan: shared.stock.loan(),
        }
    }

    /// Reads, answers and writes until the connection is to end. Fails if the client is gone.
    async fn converse(&mut self, stream: &mut TcpStream, pulse: &Pulse) -> io::Result<End> {
        let mut read = BytesMut::with_capacity(ROOM);
        let mut needed = 1;
        loop {
            let mut may_read = true;
            if read.len() >= needed || self.run.is_some() {
                match self.answer_all(&mut read) {
                    Stop::Needs(more) => needed = more,
                    Stop::Full => {
                        needed = 1;
                        if self.loan.more() {
                            self.write_at_once(stream, pulse)?;
                            continue;
                        }
                        may_read = false;
                    }
                    Stop::Close => {
                        self.flush(stream, pulse).await?;
                        return Ok(End::Ours);
                    }
                    Stop::Pause(pause) => {
                        pulse.enter(Phase::Handling);
                        tokio::time::sleep(pause).await;
                        needed = 1;
                    }
                    Stop::Waits(pending) => {
                        // What was asked before need not wait for it.
                        self.flush(stream, pulse).await?;
                        pulse.enter(Phase::Handling);
                        let answered = unless_hung_up(stream, &mut read, LARGE_ROOM, pending);
                        match answered.await {
                            Some(answered) => answered.write(&mut self.reply()),
                            None => return Ok(End::Theirs),
                        }
                        needed = 1;
                        continue;
                    }
                }
            }
            self.enter_phase(pulse, read.is_empty());
            match self.event(stream, &mut read, pulse, may_read).await? {
                Event::Read(0) | Event::Ends => {
                    self.flush(stream, pulse).await?;
                    return Ok(End::Theirs);
                }
                Event::Read(_) => {}
                Event::Wrote(count) => self.wrote(count, pulse),
            }
        }
    }

    /// Waits until something was written or read, whichever can be.
    async fn event(
        &mut self,
        stream: &mut TcpStream,
        read: &mut BytesMut,
        pulse: &Pulse,
        may_read: bool,
    ) -> io::Result<Event> {
        make_room(read);
        poll_fn(|cx| {
            let unwritten = self.out.next();
            let is_silent = unwritten.is_empty();
            if !is_silent
                && let Poll::Ready(wrote) = Pin::new(&mut *stream).poll_write(cx, unwritten)
            {
                return Poll::Ready(wrote.map(Event::Wrote));
            }
            if may_read {
                let is_idle = is_silent && read.is_empty();
                if let Poll::Ready(count) = pin!(stream.read_buf(read)).as_mut().poll(cx) {
                    return Poll::Ready(count.map(Event::Read));
                }
                // What came before the word to stop is answered; then there is nothing to wait for.
                if is_idle && pulse.is_hurried() {
                    return Poll::Ready(Ok(Event::Ends));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Writes what the system takes now, and does not wait.
    fn write_at_once(&mut self, stream: &TcpStream, pulse: &Pulse) -> io::Result<()> {
        while !self.out.is_empty() {
            match stream.try_write(self.out.next()) {
                Ok(count) => self.wrote(count, pulse),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes everything.
    async fn flush(&mut self, stream: &mut TcpStream, pulse: &Pulse) -> io::Result<()> {
        while !self.out.is_empty() {
            self.enter_phase(pulse, true);
            match stream.write(self.out.next()).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.wrote(count, pulse),
            }
        }
        Ok(())
    }

    fn wrote(&mut self, count: usize, pulse: &Pulse) {
        self.stretch += count;
        // Who reads a little now and then does not look alive: only a stretch counts.
        if self.stretch >= STRETCH {
            self.stretch = 0;
            pulse.enter(Phase::Writing);
        }
        match self.out.sent(count) {
            true => self.loan.give_back(),
            false => self.loan.give_back_beyond(self.out.left()),
        }
    }

    /// What the connection is doing now. What merely goes on is entered once.
    fn enter_phase(&self, pulse: &Pulse, is_read: bool) {
        // Who has not shown its password has the time of a head for it, however much it is answered.
        if !self.session.is_known {
            if !pulse.is_in(Phase::Head) {
                pulse.enter(Phase::Head);
            }
            return;
        }
        let phase = match (self.out.is_empty(), is_read) {
            (false, _) => Phase::Writing,
            (true, true) => return pulse.enter(Phase::Idle),
            (true, false) => Phase::Head,
        };
        if !pulse.is_in(phase) {
            pulse.enter(phase);
        }
    }

    /// Answers all whole commands, as long as there is room for answers.
    fn answer_all(&mut self, read: &mut BytesMut) -> Stop {
        // Asked once for all that came together.
        self.is_off = self.shared.service.engine().is_switched_off();
        let mut words = std::mem::take(&mut self.words);
        let stop = loop {
            if let Some(stop) = self.run(&mut words) {
                break stop;
            }
            let (stop, at) = self.answer_bytes(read, &mut words);
            read.advance(at);
            if self.run.is_none() {
                break stop;
            }
        };
        self.words = words;
        stop
    }

    /// Answers the commands in `bytes`: why it stopped, and behind which byte.
    fn answer_bytes(&mut self, all: &[u8], words: &mut Words) -> (Stop, usize) {
        let mut at = 0;
        let stop = loop {
            if self.out.left() >= self.loan.allows() {
                break Stop::Full;
            }
            self.out.make_room();
            let bytes = all.get(at..).unwrap_or_default();
            if let Some(again) = self.again(bytes) {
                at += again.size;
                self.gather(again.form, &again.said);
                continue;
            }
            match words.find(bytes, self.session.bounds()) {
                Ok(Found::Command(size)) => {
                    at += size;
                    if let Some(stop) = self.answer(&words.command(bytes), bytes, size) {
                        break stop;
                    }
                }
                Ok(Found::Nothing(size)) => at += size,
                Ok(Found::Part(needed)) => break Stop::Needs(needed),
                Err(malformed) => {
                    self.decide();
                    self.reply().error(&format!("ERR {malformed}"));
                    break Stop::Close;
                }
            }
        };
        self.decide();
        (stop, at)
    }

    /// A call like the one before, if that is what comes next.
    #[inline]
    fn again<'b>(&self, bytes: &'b [u8]) -> Option<Again<'b>> {
        // Whoever starts anew has to show its password again.
        let pattern = self.pattern.as_ref().filter(|_| self.session.is_known);
        pattern?.find(bytes)
    }

    fn answer(&mut self, command: &Command<'_>, bytes: &[u8], size: usize) -> Option<Stop> {
        if let Some(open) = self.open.take() {
            return self.answer_open(open, command, bytes.get(..size).unwrap_or_default());
        }
        if self.session.is_known
            && let Some(form) = Form::of(command.word(0))
        {
            if let Some(said) = self.throttle(form, command) {
                self.pattern = Pattern::of(bytes, size, command, form, &said);
                self.gather(form, &said);
            }
            return None;
        }
        self.answer_other(command)
    }

    /// What a call says; None if it is answered already, because it cannot be decided.
    fn throttle<'b>(&mut self, form: Form, command: &Command<'b>) -> Option<Said<'b>> {
        let said = match &self.shared.throttle {
            Some(_) => form.read(command),
            None => Err(Form::OFF.into()),
        };
        match said {
            Ok(said) => Some(said),
            Err(error) => {
                self.decide();
                self.reply().error(&error);
                None
            }
        }
    }

    /// Gathers a call, to be decided with those beside it.
    #[inline]
    fn gather(&mut self, form: Form, said: &Said<'_>) {
        let Some(throttle) = &self.shared.throttle else {
            return;
        };
        if self.calls.len() >= BATCH || form != self.form {
            self.decide();
            self.form = form;
        }
        let key = (self.session.database, said.key);
        let quantity = if self.is_off { 0 } else { said.quantity };
        self.calls.push(throttle.call(&key, said.terms, quantity));
    }

    /// Decides the calls that were gathered.
    fn decide(&mut self) {
        let Some(throttle) = self
            .shared
            .throttle
            .as_ref()
            .filter(|_| !self.calls.is_empty())
        else {
            return;
        };
        let mut reply = Reply {
            out: self.out.sheet(),
            is_third: self.session.is_third,
        };
        let (mut passed, mut limited, mut failed) = (0, 0, 0);
        throttle.decide(&self.calls, |mut told| {
            if let (true, Ok(told)) = (self.is_off, &mut told) {
                (told.is_limited, told.retry_after) = (false, None);
            }
            match &told {
                Ok(told) if told.is_limited => limited += 1,
                Ok(_) => passed += 1,
                Err(_) => failed += 1,
            }
            self.form.write(&mut reply, told);
        });
        self.calls.clear();
        self.shared.counts.add(passed, limited, failed);
    }

    /// Answers everything but calls with their own limits.
    fn answer_other(&mut self, command: &Command<'_>) -> Option<Stop> {
        self.decide();
        if command.is_line && is_http(command.word(0)) {
            self.shared.note_http(self.session.peer());
            return Some(Stop::Close);
        }
        if self.session.is_known
            && let Some(question) = Question::of(command.word(0))
        {
            return self.ask(question, command);
        }
        if self.session.is_known
            && let Some(step) = Step::of(command.word(0))
        {
            self.step(step, command);
            return None;
        }
        let Connection {
            session,
            shared,
            out,
            ..
        } = self;
        let password = shared.password.as_ref();
        match session.answer(command, password, out.sheet(), &|| shared.told()) {
            Then::Next => None,
            Then::Close => Some(Stop::Close),
            Then::Pause(pause) => Some(Stop::Pause(pause)),
        }
    }

    fn ask(&mut self, question: Question, command: &Command<'_>) -> Option<Stop> {
        let words: Vec<&[u8]> = command.from(1).collect();
        let shared = self.shared;
        let pending = question.answer(shared, &words, &mut self.reply())?;
        Some(Stop::Waits(pending))
    }

    fn reply(&mut self) -> Reply<'_> {
        Reply {
            out: self.out.sheet(),
            is_third: self.session.is_third,
        }
    }
}

/// Room for the next read: more for who has filled the last, and little again for who has not.
fn make_room(read: &mut BytesMut) {
    match read.capacity() - read.len() {
        0 => read.reserve(LARGE_ROOM),
        free if free > LARGE_ROOM - ROOM && read.is_empty() => {
            *read = BytesMut::with_capacity(ROOM);
        }
        free if free < ROOM / 4 => read.reserve(ROOM),
        _ => {}
    }
}

/// Is this the first word of HTTP? Somebody makes a browser or a proxy talk to us.
fn is_http(word: &[u8]) -> bool {
    let methods: [&[u8]; 8] = [
        b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT",
    ];
    methods
        .iter()
        .any(|method| word.eq_ignore_ascii_case(method))
        || word.eq_ignore_ascii_case(b"Host:")
}
