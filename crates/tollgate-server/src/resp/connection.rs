//! One connection: reads, replies to all complete commands, writes once.
//!
//! # Theory
//!
//! All commands of a read are answered before anything is written: a hundred commands that arrive together are a
//! hundred replies in one write. Consecutive calls with limits of their own are collected, so that the memory of all of them
//! is prefetched before the first is decided.
//!
//! # Bounds
//!
//! Unsent output is bounded ([`super::output`]): a connection at its bound is not read from. The listener
//! ([`crate::net`]) bounds the time of an incomplete command, of unread output, and of authentication. An
//! unauthenticated connection has a read buffer of 32 KiB.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::PreparedCall;

use super::Shared;
use super::codec::{Bounds, Command, Found, Words};
use super::output::Output;
use super::policy_commands::{PendingReply, PolicyCommand};
use super::repeat_cache::RepeatCache;
use super::reply::Reply;
use super::session::{AfterReply, Session};
use super::throttle::{Dialect, ThrottleCall};
use super::transaction::{Transaction, TransactionCommand, TransactionState};
use crate::net::hangup::unless_hung_up;
use crate::net::io::linger;
use crate::net::register_task;
use crate::net::state::{ConnectionState, Phase};

/// Size of the read buffer: small at first, large for a client that fills it.
const READ_BYTES: usize = 4 * 1024;
const LARGE_READ_BYTES: usize = 64 * 1024;
/// Calls that are decided together.
const BATCH: usize = 32;
/// Bytes that must be sent within the write timeout.
const WRITE_PROGRESS_BYTES: usize = 64 * 1024;

/// Why replying stopped.
pub(super) enum Stop {
    /// All complete commands are answered. The next one needs at least this many bytes.
    NeedsBytes(usize),
    /// The output is full.
    Full,
    /// The connection closes once the output is sent.
    Close,
    /// The output is sent after a delay.
    Delay(Duration),
    /// The next reply is pending.
    Pending(PendingReply),
}

/// One connection.
pub(super) struct Connection<'a> {
    shared: &'a Shared,
    session: Session,
    words: Words,
    pub(super) output: Output<'a>,
    /// Bytes sent since the write phase was last entered.
    progress: usize,
    /// Calls to be decided together, all of one dialect.
    calls: Vec<PreparedCall>,
    dialect: Dialect,
    /// The last call. Empty in a transaction, where nothing is decided before `EXEC`.
    last_call: Option<RepeatCache>,
    /// The open transaction.
    transaction: Option<Transaction>,
    /// The commands of a transaction that are left to execute.
    executing: Bytes,
    is_switched_off: bool,
}

/// Serves a connection to its end.
pub(super) async fn serve(
    mut stream: TcpStream,
    peer: IpAddr,
    state: Arc<ConnectionState>,
    shared: Arc<Shared>,
) {
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
    let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive);
    let port = stream.peer_addr().map_or(0, |peer| peer.port());
    let mut connection = Connection::new(&shared, SocketAddr::new(peer, port));
    register_task(&state).await;
    // An error means that the client is gone.
    if let Ok(ClosedBy::Server) = connection.run(&mut stream, &state).await {
        let _ = linger(stream, &state).await;
    }
}

/// The side that closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClosedBy {
    /// The client may still be sending.
    Server,
    Client,
}

/// An event of the socket.
enum Event {
    Read(usize),
    Wrote(usize),
    /// The server shuts down, and nothing is left to answer.
    Shutdown,
}

impl<'a> Connection<'a> {
    pub(super) fn new(shared: &'a Shared, peer: SocketAddr) -> Connection<'a> {
        Connection {
            shared,
            session: Session::new(shared.next_id(), peer, shared.password.is_none()),
            words: Words::default(),
            output: Output::new(&shared.output_budget),
            progress: 0,
            calls: Vec::with_capacity(BATCH),
            dialect: Dialect::Cell,
            last_call: None,
            transaction: None,
            executing: Bytes::new(),
            is_switched_off: false,
        }
    }

    /// Reads, replies and writes until the connection closes. Fails if the client has disconnected.
    async fn run(
        &mut self,
        stream: &mut TcpStream,
        state: &ConnectionState,
    ) -> io::Result<ClosedBy> {
        let mut read = BytesMut::with_capacity(READ_BYTES);
        let mut needed = 1;
        loop {
            let mut may_read = true;
            if read.len() >= needed || self.is_executing() {
                match self.reply_all(&mut read) {
                    Stop::NeedsBytes(more) => needed = more,
                    Stop::Full => {
                        needed = 1;
                        if self.output.borrow() {
                            self.try_write(stream, state)?;
                            continue;
                        }
                        may_read = false;
                    }
                    Stop::Close => {
                        self.flush(stream, state).await?;
                        return Ok(ClosedBy::Server);
                    }
                    Stop::Delay(delay) => {
                        state.enter(Phase::Handling);
                        tokio::time::sleep(delay).await;
                        needed = 1;
                    }
                    Stop::Pending(pending) => {
                        // Earlier replies need not wait for it.
                        self.flush(stream, state).await?;
                        state.enter(Phase::Handling);
                        match unless_hung_up(stream, pending).await {
                            Some(reply) => reply.write(&mut self.reply()),
                            None => return Ok(ClosedBy::Client),
                        }
                        needed = 1;
                        continue;
                    }
                }
            }
            self.enter_phase(state, read.is_empty());
            match self.event(stream, &mut read, state, may_read).await? {
                Event::Read(0) | Event::Shutdown => {
                    self.flush(stream, state).await?;
                    return Ok(ClosedBy::Client);
                }
                Event::Read(_) => {}
                Event::Wrote(count) => self.sent(count, state),
            }
        }
    }

    /// Waits until bytes were sent or read.
    async fn event(
        &mut self,
        stream: &mut TcpStream,
        read: &mut BytesMut,
        state: &ConnectionState,
        may_read: bool,
    ) -> io::Result<Event> {
        make_room(read, self.session.bounds());
        poll_fn(|cx| {
            let unsent = self.output.next();
            let is_sent = unsent.is_empty();
            if !is_sent && let Poll::Ready(sent) = Pin::new(&mut *stream).poll_write(cx, unsent) {
                return Poll::Ready(sent.map(Event::Wrote));
            }
            if may_read {
                let is_idle = is_sent && read.is_empty();
                if let Poll::Ready(count) = pin!(stream.read_buf(read)).as_mut().poll(cx) {
                    return Poll::Ready(count.map(Event::Read));
                }
                // Commands that arrived before the shutdown signal are answered.
                if is_idle && state.is_shutting_down() {
                    return Poll::Ready(Ok(Event::Shutdown));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Sends what the system takes without waiting.
    fn try_write(&mut self, stream: &TcpStream, state: &ConnectionState) -> io::Result<()> {
        while !self.output.is_empty() {
            match stream.try_write(self.output.next()) {
                Ok(count) => self.sent(count, state),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends all output.
    async fn flush(&mut self, stream: &mut TcpStream, state: &ConnectionState) -> io::Result<()> {
        while !self.output.is_empty() {
            self.enter_phase(state, true);
            match stream.write(self.output.next()).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.sent(count, state),
            }
        }
        Ok(())
    }

    fn sent(&mut self, count: usize, state: &ConnectionState) {
        self.progress += count;
        // Reading a few bytes now and then is no progress.
        if self.progress >= WRITE_PROGRESS_BYTES {
            self.progress = 0;
            state.enter(Phase::Writing);
        }
        self.output.consume(count);
    }

    /// Enters the phase of the connection, unless it continues.
    fn enter_phase(&self, state: &ConnectionState, is_read: bool) {
        // Authentication has the time of a request head, however many commands are answered meanwhile.
        if !self.session.is_authenticated {
            if !state.is_in(Phase::Head) {
                state.enter(Phase::Head);
            }
            return;
        }
        let phase = match (self.output.is_empty(), is_read) {
            (false, _) => Phase::Writing,
            (true, true) => return state.enter(Phase::Idle),
            (true, false) => Phase::Head,
        };
        if !state.is_in(phase) {
            state.enter(phase);
        }
    }

    /// True while commands of a transaction are left to execute.
    pub(super) fn is_executing(&self) -> bool {
        !self.executing.is_empty()
    }

    /// Replies to all complete commands, as far as the output has room: first to those of a transaction that is being
    /// executed.
    pub(super) fn reply_all(&mut self, read: &mut BytesMut) -> Stop {
        // Loaded once for all commands of a read.
        self.is_switched_off = self.shared.service.engine().is_switched_off();
        let mut words = std::mem::take(&mut self.words);
        let stop = loop {
            let mut executing = std::mem::take(&mut self.executing);
            if !executing.is_empty() {
                let (stop, consumed) = self.reply_to(&executing, &mut words);
                executing.advance(consumed);
                self.executing = executing;
                if !matches!(stop, Stop::NeedsBytes(_)) {
                    break stop;
                }
                self.executing = Bytes::new();
            }
            let (stop, consumed) = self.reply_to(read, &mut words);
            read.advance(consumed);
            if !self.is_executing() {
                break stop;
            }
        };
        self.words = words;
        stop
    }

    /// Replies to the commands in `bytes`. Returns why it stopped, and the bytes consumed.
    fn reply_to(&mut self, bytes: &[u8], words: &mut Words) -> (Stop, usize) {
        let mut consumed = 0;
        let stop = loop {
            if self.output.is_full() {
                break Stop::Full;
            }
            self.output.rotate_if_full();
            let rest = bytes.get(consumed..).unwrap_or_default();
            // After `RESET` the client must authenticate again.
            let cache = self.last_call.as_ref();
            let cache = cache.filter(|_| self.session.is_authenticated);
            if let Some((call, size)) = cache.and_then(|cache| cache.find(rest)) {
                consumed += size;
                self.collect(&call);
                continue;
            }
            match words.find(rest, self.session.bounds()) {
                Ok(Found::Command(size)) => {
                    consumed += size;
                    let array = rest.get(..size).unwrap_or_default();
                    if let Some(stop) = self.reply_to_command(&words.command(rest), array) {
                        break stop;
                    }
                }
                Ok(Found::Empty(size)) => consumed += size,
                Ok(Found::Partial(needed)) => break Stop::NeedsBytes(needed),
                Err(malformed) => {
                    self.decide();
                    self.reply().error(&format!("ERR {malformed}"));
                    break Stop::Close;
                }
            }
        };
        self.decide();
        (stop, consumed)
    }

    fn reply_to_command(&mut self, command: &Command<'_>, array: &[u8]) -> Option<Stop> {
        if let Some(transaction) = self.transaction.take() {
            return self.reply_in_transaction(transaction, command, array);
        }
        let dialect = Dialect::from_name(command.word(0));
        let Some(dialect) = dialect.filter(|_| self.session.is_authenticated) else {
            return self.reply_to_other(command);
        };
        let call = match &self.shared.throttle {
            Some(_) => dialect.read(command),
            None => Err(Dialect::OFF.into()),
        };
        match call {
            Ok(call) => {
                self.last_call = RepeatCache::new(array, command, &call);
                self.collect(&call);
            }
            Err(error) => {
                self.decide();
                self.reply().error(&error);
            }
        }
        None
    }

    /// Adds a call to those that are decided together.
    #[inline]
    fn collect(&mut self, call: &ThrottleCall<'_>) {
        let Some(throttle) = &self.shared.throttle else {
            return;
        };
        if self.calls.len() >= BATCH || call.dialect != self.dialect {
            self.decide();
            self.dialect = call.dialect;
        }
        let key = (self.session.database, call.key);
        let quantity = if self.is_switched_off {
            0
        } else {
            call.quantity
        };
        self.calls.push(throttle.call(&key, call.terms, quantity));
    }

    /// Decides the collected calls.
    fn decide(&mut self) {
        let throttle = self.shared.throttle.as_ref();
        let Some(throttle) = throttle.filter(|_| !self.calls.is_empty()) else {
            return;
        };
        let mut reply = Reply {
            out: self.output.buffer(),
            is_resp3: self.session.is_resp3,
        };
        let (mut passed, mut refused, mut failed) = (0, 0, 0);
        throttle.decide(&self.calls, |mut result| {
            if let (true, Ok(result)) = (self.is_switched_off, &mut result) {
                (result.is_limited, result.retry_after) = (false, None);
            }
            match &result {
                Ok(result) if result.is_limited => refused += 1,
                Ok(_) => passed += 1,
                Err(_) => failed += 1,
            }
            self.dialect.write(&mut reply, result);
        });
        self.calls.clear();
        self.shared.counters.add([passed, refused, failed]);
    }

    /// Replies to every command but calls with limits of their own.
    fn reply_to_other(&mut self, command: &Command<'_>) -> Option<Stop> {
        self.decide();
        let name = command.word(0);
        if command.is_line && is_http(name) {
            self.shared.log_http(self.session.peer());
            return Some(Stop::Close);
        }
        if self.session.is_authenticated {
            if let Some(policy_command) = PolicyCommand::from_name(name) {
                let words: Vec<&[u8]> = command.from(1).collect();
                let pending = policy_command.reply(self.shared, &words, &mut self.reply());
                return pending.map(Stop::Pending);
            }
            if let Some(control) = TransactionCommand::from_name(name) {
                if control.reply_outside(command, &mut self.reply()) {
                    self.transaction = Some(Transaction::default());
                    // A repeated call would be decided at once.
                    self.last_call = None;
                }
                return None;
            }
        }
        let Connection {
            session,
            shared,
            output,
            ..
        } = self;
        let password = shared.password.as_ref();
        match session.reply(command, password, output.buffer(), &|| shared.info()) {
            AfterReply::Continue => None,
            AfterReply::Close => Some(Stop::Close),
            AfterReply::Delay(delay) => Some(Stop::Delay(delay)),
        }
    }

    #[cold]
    fn reply_in_transaction(
        &mut self,
        transaction: Transaction,
        command: &Command<'_>,
        array: &[u8],
    ) -> Option<Stop> {
        let name = command.word(0);
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        // These discard the transaction.
        if is(b"RESET") || is(b"QUIT") || command.is_line && is_http(name) {
            return self.reply_to_other(command);
        }
        let allows_throttle = self.shared.throttle.is_some();
        match transaction.reply(command, array, allows_throttle, &mut self.reply()) {
            TransactionState::Open(transaction) => self.transaction = Some(transaction),
            TransactionState::Closed => {}
            TransactionState::Execute(commands) => {
                // The rest of what was read comes after them.
                let stop = (!commands.is_empty()).then_some(Stop::NeedsBytes(1));
                self.executing = commands;
                return stop;
            }
        }
        None
    }

    fn reply(&mut self) -> Reply<'_> {
        Reply {
            out: self.output.buffer(),
            is_resp3: self.session.is_resp3,
        }
    }
}

/// Makes room for the next read: more for a client that filled the buffer, less again for one that did not. An
/// unauthenticated client never gets more than its bound in all, which the growth of a buffer in place would exceed.
fn make_room(read: &mut BytesMut, bounds: &Bounds) {
    let free = read.capacity() - read.len();
    if !bounds.is_authenticated {
        if free == 0 {
            let mut larger = BytesMut::with_capacity(bounds.bytes);
            larger.extend_from_slice(read);
            *read = larger;
        }
        return;
    }
    match free {
        0 => read.reserve(LARGE_READ_BYTES),
        free if free > LARGE_READ_BYTES - READ_BYTES && read.is_empty() => {
            *read = BytesMut::with_capacity(READ_BYTES);
        }
        free if free < READ_BYTES / 4 => read.reserve(READ_BYTES),
        _ => {}
    }
}

/// True if a line begins as HTTP: a browser or a proxy was pointed at this port.
fn is_http(word: &[u8]) -> bool {
    let methods: [&[u8]; 8] = [
        b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT",
    ];
    methods
        .iter()
        .any(|method| word.eq_ignore_ascii_case(method))
        || word.eq_ignore_ascii_case(b"Host:")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client sends as fast as the buffer has room, and nothing of it is consumed.
    #[test]
    fn the_read_buffer_of_an_unauthenticated_client_has_32_kib_at_most() {
        for consumed in [0, 1, 3_000] {
            let bounds = &Bounds::UNAUTHENTICATED;
            let mut read = BytesMut::with_capacity(READ_BYTES);
            read.resize(read.capacity(), b'x');
            read.advance(consumed);
            while read.len() < bounds.bytes {
                make_room(&mut read, bounds);
                assert!(read.capacity() > read.len());
                assert!(read.capacity() <= 32 * 1024, "{}", read.capacity());
                read.resize(read.capacity(), b'x');
            }
        }
    }
}
