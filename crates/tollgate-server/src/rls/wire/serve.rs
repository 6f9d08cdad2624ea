//! One connection: read what is there, answer all of it, write once.
//!
//! # Time
//!
//! Most of it is watched by whoever accepts connections ([`crate::listen`]): that a client begins, that it ends a frame and
//! a head that it began, that it reads what is written, that it goes when it was told to. Here once in a while
//! the client is asked whether it is still there, and any word from it is an answer; calls that have waited for it since
//! the last time are ended.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, Sleep, sleep};

use super::calls::{Calls, Decides};
use super::elsewhere::{Event, Teller};
use super::session::Session;
use crate::listen::pulse::{Phase, Pulse};
use crate::rls::{Limits, Served};

/// How often a client is asked whether it is still there, and how long it may take to answer.
const ALIVE_EVERY: Duration = Duration::from_secs(60);
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// How long a client that was told of the end may take to say that it heard.
const HEARS_WITHIN: Duration = Duration::from_secs(1);
/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;
/// How often a connection is read before others have their turn.
const READS_AT_ONCE: u32 = 16;
/// Room for answers that a connection keeps while it has none.
const KEPT: usize = 8 * 1024;
/// What is read and thrown away of a connection that has ended, so that the client reads our last word.
const THROWN_AWAY: usize = 1024 * 1024;

thread_local! {
    /// Where all connections of a thread read to. What is not answered at once is taken out of it.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// Serves a connection to its end.
pub(in crate::rls) async fn serve(
    stream: TcpStream,
    limits: Arc<Limits>,
    services: impl Served,
    pulse: Arc<Pulse>,
) {
    // Without it small answers wait for acknowledgements. If it fails, so will writing.
    let _ = stream.set_nodelay(true);
    let (to, events) = mpsc::unbounded_channel();
    let make = move |request, until| {
        let limits = Arc::clone(&limits);
        async move { limits.answer(request, until).await }
    };
    let decides = Calls::new(make, to.clone());
    let mut connection = Connection {
        stream,
        session: Session::new(services, Teller { stream: 0, to }),
        decides,
        events,
        unread: BytesMut::new(),
        written: 0,
        took: false,
        heard: false,
        asked: false,
        pulse,
    };
    connection.pulse.enter(Phase::Head);
    let mut alive = pin!(sleep(ALIVE_EVERY));
    let mut hears: Option<Pin<Box<Sleep>>> = None;
    let mut is_first = true;
    let run = poll_fn(|cx| {
        if std::mem::take(&mut is_first) {
            connection.pulse.wakes_by(cx.waker());
        }
        if connection.pulse.is_hurried() && hears.is_none() {
            connection.session.end();
            hears = Some(Box::pin(sleep(HEARS_WITHIN)));
        }
        if let Some(hears) = &mut hears
            && hears.as_mut().poll(cx).is_ready()
        {
            connection.session.close();
            hears.as_mut().reset(Instant::now() + ALIVE_EVERY);
        }
        while alive.as_mut().poll(cx).is_ready() {
            let Some(again) = connection.look() else {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            };
            alive.as_mut().reset(Instant::now() + again);
        }
        connection.poll(cx)
    });
    if run.await.is_ok() {
        linger(&mut connection.stream, &connection.pulse).await;
    }
}

/// A connection.
struct Connection<S, D> {
    stream: TcpStream,
    session: Session<S>,
    decides: D,
    events: UnboundedReceiver<(u32, Event)>,
    /// What came and was not taken: less than a frame, or whatever came behind as many answers as may wait.
    unread: BytesMut,
    /// How much of what is to be written is.
    written: usize,
    /// Something whole was taken since the phase was last looked at.
    took: bool,
    /// The client said something since it was asked whether it is there.
    heard: bool,
    asked: bool,
    pulse: Arc<Pulse>,
}

impl<S: Served, D: Decides> Connection<S, D> {
    /// Looks whether the client is there; how long until the next look, or None if it is gone.
    fn look(&mut self) -> Option<Duration> {
        if std::mem::replace(&mut self.asked, false) {
            return self.heard.then_some(ALIVE_EVERY - ALIVE_WITHIN);
        }
        self.asked = true;
        self.heard = false;
        self.session.end_what_is_stuck();
        self.session.ask_alive();
        Some(ALIVE_WITHIN)
    }

    /// Does what can be done; comes to its end when everything is said. An error is that the client is gone.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..READS_AT_ONCE {
            let is_all_heard = self.hear(cx);
            self.session.send();
            let is_written = self.poll_write(cx)?.is_ready();
            if self.session.is_over() {
                return match is_written {
                    true => Poll::Ready(Ok(())),
                    false => Poll::Pending,
                };
            }
            // Something waits for room that was just made. Who stopped listening because there was none is woken by nobody.
            if is_written && (!is_all_heard || self.session.wants_to_send()) {
                continue;
            }
            if self.session.is_full() {
                return Poll::Pending;
            }
            ready!(self.poll_receive(cx))?;
        }
        // The others of this thread have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes what became of calls, as far as there is room for answers; true if that was all.
    fn hear(&mut self, cx: &mut Context<'_>) -> bool {
        if self.session.is_idle() {
            // Of calls that were taken back.
            while !self.events.is_empty() && self.events.try_recv().is_ok() {}
            return true;
        }
        while !self.session.is_full() {
            match self.events.poll_recv(cx) {
                Poll::Ready(Some((id, event))) => self.session.tell(id, event),
                Poll::Ready(None) | Poll::Pending => return true,
            }
        }
        false
    }

    /// Writes what is to be written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        while let Some(rest) = self.session.out.get(self.written..)
            && !rest.is_empty()
        {
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => {
                    self.written += written?;
                    // It reads.
                    if self.pulse.is_in(Phase::Writing) {
                        self.pulse.enter(Phase::Writing);
                    }
                }
                Poll::Pending => {
                    if !self.pulse.is_in(Phase::Writing) {
                        self.pulse.enter(Phase::Writing);
                    }
                    // So that what is written already does not count as waiting.
                    self.session.out.drain(..self.written);
                    self.written = 0;
                    return Ok(Poll::Pending);
                }
            }
        }
        self.written = 0;
        self.session.out.clear();
        if self.session.out.capacity() > KEPT {
            self.session.out = Vec::new();
        }
        self.mind_what_is_half();
        Ok(Poll::Ready(()))
    }

    /// What has begun and not come to its end has the time of a head. Bytes that dribble gain none; whatever is whole begins
    /// it anew.
    fn mind_what_is_half(&mut self) {
        let took = std::mem::take(&mut self.took);
        let phase = match !self.unread.is_empty() || self.session.is_half_told() {
            true => Phase::Head,
            false => Phase::Idle,
        };
        if !self.pulse.is_in(phase) || (took && phase == Phase::Head) {
            self.pulse.enter(phase);
        }
    }

    /// Takes what was left, or reads once.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Connection {
            stream,
            session,
            decides,
            unread,
            took,
            ..
        } = self;
        if !unread.is_empty() {
            let taken = session.receive(cx, decides, unread);
            unread.advance(taken);
            if taken > 0 {
                *took = true;
                return Poll::Ready(Ok(()));
            }
        }
        let read = SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
            let bytes = buffer.filled();
            let taken = match unread.is_empty() {
                true => {
                    let taken = session.receive(cx, decides, bytes);
                    *unread = BytesMut::from(bytes.get(taken..).unwrap_or_default());
                    taken
                }
                false => {
                    unread.extend_from_slice(bytes);
                    let taken = session.receive(cx, decides, unread);
                    unread.advance(taken);
                    taken
                }
            };
            *took |= taken > 0;
            Poll::Ready(io::Result::Ok(!bytes.is_empty()))
        });
        match ready!(read)? {
            true => {
                self.heard = true;
                Poll::Ready(Ok(()))
            }
            false => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// Lets the client read our last word: closing while bytes are unread makes the system throw away what was sent.
/// How long that may take is watched by others.
async fn linger(stream: &mut TcpStream, pulse: &Pulse) {
    pulse.enter(Phase::Closing);
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut thrown_away = 0;
    while thrown_away < THROWN_AWAY {
        let read = poll_fn(|cx| {
            if pulse.is_hurried() {
                return Poll::Ready(Ok(0));
            }
            SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
                Poll::Ready(io::Result::Ok(buffer.filled().len()))
            })
        });
        match read.await {
            Ok(0) | Err(_) => return,
            Ok(bytes) => thrown_away += bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tonic_health::pb::health_server::HealthServer;
    use tonic_health::server::{HealthReporter, HealthService};

    use super::super::calls::Asked;
    use super::super::frame::{
        self, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, SETTINGS, WINDOW_UPDATE,
    };
    use super::super::hpack;
    use super::super::stream::Task;
    use super::*;
    use crate::rls::messages::{DescriptorStatus, RateLimitResponse, SHOULD_RATE_LIMIT};

    /// Decides nothing: the test does.
    struct Later;

    impl Decides for Later {
        fn ask(&mut self, _: &mut Context<'_>, _: u32, _: &[u8], _: Option<Instant>) -> Asked {
            Asked::Later(Task(tokio::spawn(async {}).abort_handle()))
        }
    }

    /// A connection that decides so, and the client at its other end.
    async fn connected<D>(
        decides: impl FnOnce(mpsc::UnboundedSender<(u32, Event)>) -> D,
    ) -> (
        Connection<HealthServer<HealthService>, D>,
        TcpStream,
        mpsc::UnboundedSender<(u32, Event)>,
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (stream, _) = listener.accept().await.unwrap();
        let (to, events) = mpsc::unbounded_channel();
        let health = HealthServer::new(HealthService::from_health_reporter(HealthReporter::new()));
        let teller = Teller {
            stream: 0,
            to: to.clone(),
        };
        let connection = Connection {
            stream,
            session: Session::new(health, teller),
            decides: decides(to.clone()),
            events,
            unread: BytesMut::new(),
            written: 0,
            took: false,
            heard: false,
            asked: false,
            pulse: Arc::new(Pulse::beginning(true)),
        };
        (connection, client.unwrap(), to)
    }

    /// What a client says first, and the head of a call.
    fn begins() -> (Vec<u8>, Vec<u8>) {
        let mut said = PREFACE.to_vec();
        frame::write(&mut said, SETTINGS, 0, 0, &[]);
        let mut block = vec![0x83, 0x86];
        hpack::write(&mut block, b":path", SHOULD_RATE_LIMIT.as_bytes());
        (said, block)
    }

    #[tokio::test]
    async fn decisions_that_come_together_are_all_answered_though_they_do_not_fit_at_once() {
        const CALLS: u32 = 500;
        let (mut connection, mut client, to) = connected(|_| Later).await;
        // The client says all it has to say at once, and nothing more: nothing else wakes the connection.
        let (mut said, block) = begins();
        frame::write(
            &mut said,
            WINDOW_UPDATE,
            0,
            0,
            &0x3fff_ffff_u32.to_be_bytes(),
        );
        let ids: Vec<u32> = (0..CALLS).map(|number| number * 2 + 1).collect();
        for id in &ids {
            frame::write(&mut said, HEADERS, END_HEADERS, *id, &block);
            frame::write(&mut said, DATA, END_STREAM, *id, &[0; 5]);
        }
        client.write_all(&said).await.unwrap();
        let running = tokio::spawn(async move { poll_fn(|cx| connection.poll(cx)).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let response = RateLimitResponse {
            statuses: vec![
                DescriptorStatus {
                    limit_remaining: 77,
                    ..DescriptorStatus::default()
                };
                200
            ],
            ..RateLimitResponse::default()
        };
        for id in &ids {
            to.send((*id, Event::Decided(Ok(response.clone()))))
                .unwrap();
        }
        let mut heard = Vec::new();
        let mut room = vec![0; 64 * 1024];
        let mut ends = 0;
        while ends < CALLS {
            let read = tokio::time::timeout(Duration::from_secs(5), client.read(&mut room));
            let count = read.await.expect("all are answered").unwrap();
            heard.extend_from_slice(&room[..count]);
            let mut rest = heard.as_slice();
            ends = 0;
            while let frame::Next::Frame(frame, behind) = frame::Frame::next(rest) {
                ends += u32::from(frame.kind == HEADERS && frame.has(END_STREAM));
                rest = behind;
            }
        }
        running.abort();
    }

    #[tokio::test]
    async fn calls_that_are_asked_and_taken_back_leave_nothing_behind() {
        const CALLS: u32 = 20_000;
        // As with a store that takes its time.
        let never = |_, _| std::future::pending::<Result<RateLimitResponse, tonic::Status>>();
        let (mut connection, mut client, _to) = connected(|to| Calls::new(never, to)).await;
        let (mut said, block) = begins();
        for number in 0..CALLS {
            let id = number * 2 + 1;
            frame::write(&mut said, HEADERS, END_HEADERS, id, &block);
            frame::write(&mut said, DATA, END_STREAM, id, &[0; 5]);
            frame::write_reset(&mut said, id, frame::Code::NoError);
        }
        // The last one is answered, and shows that all before it were read.
        frame::write(&mut said, PING, 0, 0, b"the last");
        let pong = tokio::spawn(async move {
            client.write_all(&said).await.unwrap();
            let (mut heard, mut room) = (Vec::new(), vec![0; 64 * 1024]);
            while !heard.windows(8).any(|bytes| bytes == b"the last") {
                let count = client.read(&mut room).await.unwrap();
                assert!(count > 0, "it was closed");
                heard.extend_from_slice(&room[..count]);
            }
            client
        });
        let mut pong = pin!(pong);
        let over = poll_fn(|cx| match pong.as_mut().poll(cx) {
            Poll::Ready(client) => Poll::Ready(client),
            Poll::Pending => {
                assert!(connection.poll(cx).is_pending(), "it goes on");
                Poll::Pending
            }
        });
        let over = tokio::time::timeout(Duration::from_secs(30), over).await;
        let _client = over.expect("all is read").unwrap();
        // Tasks that were broken off tell their end when they are next looked at.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let _ = poll_fn(|cx| Poll::Ready(connection.poll(cx).is_pending())).await;
        assert!(connection.session.is_idle());
        assert_eq!(connection.events.len(), 0);
    }
}
