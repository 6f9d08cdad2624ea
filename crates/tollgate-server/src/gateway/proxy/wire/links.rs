//! Connections to a server that rest between two requests, each thread with its own.
//!
//! # Theory
//!
//! The one that rested least is used first. Whoever rested for longer than [`REST`], or whose server has
//! said something since, which can only be that it ends, is dropped: when it is met, and by a look once a
//! second for as long as any rests.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep};

use crate::gateway::proxy::pool::{REST, RESTING};
use crate::gateway::proxy::server::Server;
use crate::gateway::proxy::stream::Stream;

/// How often those that rest are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A connection with no request on it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: Stream,
    rested_since: Instant,
}

impl Link {
    pub(super) fn new(stream: Stream) -> Link {
        Link {
            stream,
            rested_since: Instant::now(),
        }
    }

    /// Has the server neither ended it nor said anything?
    fn is_fresh(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let said = poll_fn(|cx| Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
        // A task that has done much has to wait even for what is there. This is asked of many, and must know.
        let said = pin!(unconstrained(said)).poll(&mut nobody);
        said.is_pending()
    }
}

/// The connections of one thread to one server that rest.
#[derive(Debug, Default)]
pub(in crate::gateway::proxy) struct Links {
    /// The oldest are in front.
    resting: VecDeque<Link>,
    is_looked_after: bool,
}

impl Links {
    fn look(&mut self, now: Instant) {
        self.resting
            .retain_mut(|link| now.duration_since(link.rested_since) <= REST && link.is_fresh());
        self.is_looked_after = !self.resting.is_empty();
    }
}

/// One that rested, and can be used.
pub(super) fn take(server: &Server, thread: usize) -> Option<Link> {
    let mut links = server.links(thread)?;
    while let Some(mut link) = links.resting.pop_back() {
        if link.rested_since.elapsed() > REST {
            // All others have rested for longer.
            links.resting.clear();
            return None;
        }
        if link.is_fresh() {
            return Some(link);
        }
    }
    None
}

/// Its request was answered: it rests.
pub(super) fn rest(server: &Arc<Server>, thread: usize, mut link: Link) {
    let Some(mut links) = server.links(thread) else {
        return;
    };
    link.rested_since = Instant::now();
    if links.resting.len() >= RESTING {
        links.resting.pop_front();
    }
    links.resting.push_back(link);
    if !links.is_looked_after {
        links.is_looked_after = true;
        tokio::spawn(look_after(Arc::downgrade(server), thread));
    }
}

async fn look_after(server: Weak<Server>, thread: usize) {
    loop {
        sleep(LOOK).await;
        let Some(server) = server.upgrade() else {
            return;
        };
        let Some(mut links) = server.links(thread) else {
            return;
        };
        links.look(Instant::now());
        if !links.is_looked_after {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tollgate_config::ServerSpec;

    use super::*;

    #[tokio::test]
    async fn none_that_its_server_has_ended_is_used_however_many_rest() {
        let spec = ServerSpec {
            tls: false,
            host: "127.0.0.1".into(),
            port: 1,
        };
        let server = Arc::new(Server::new(spec, None, 1));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut theirs = Vec::new();
        for _ in 0..RESTING {
            let stream = TcpStream::connect(at).await.unwrap();
            theirs.push(listener.accept().await.unwrap());
            rest(&server, 0, Link::new(Stream::Plain(stream)));
        }
        assert!(take(&server, 0).is_some());
        drop(theirs);
        // The ends are seen when the loop has come round.
        sleep(Duration::from_millis(50)).await;
        assert!(take(&server, 0).is_none());
    }
}
