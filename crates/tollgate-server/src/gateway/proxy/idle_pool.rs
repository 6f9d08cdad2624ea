//! Idle connections to a server, each thread with its own.
//!
//! # Theory
//!
//! The connection that was idle for the shortest time is used first. A connection is dropped after [`IDLE_TIMEOUT`], which
//! is below what common servers allow, so a server seldom closes one just as a request is sent. It is dropped, too, if its
//! server has closed it. Both are checked when it is taken, and once a second while any is idle.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::server::Server;

/// Idle connections are dropped after this time: servers that close after five seconds are common.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Idle connections of one kind, of one thread to one server.
const MAX_IDLE: usize = 256;
/// How often idle connections are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A connection that can be used for another request.
pub(super) trait Reusable: Sized + Send + 'static {
    /// The connections of this kind.
    fn pool(server: &Server, thread: usize) -> Option<MutexGuard<'_, IdlePool<Self>>>;

    /// Can it be used?
    fn is_usable(&mut self) -> bool;
}

/// Idle connections of one kind, the oldest first.
#[derive(Debug)]
pub(super) struct IdlePool<C> {
    connections: VecDeque<(C, Instant)>,
    has_sweeper: bool,
}

impl<C> Default for IdlePool<C> {
    fn default() -> IdlePool<C> {
        IdlePool {
            connections: VecDeque::new(),
            has_sweeper: false,
        }
    }
}

/// Takes a connection that can be used.
pub(super) fn take<C: Reusable>(server: &Server, thread: usize) -> Option<C> {
    let mut pool = C::pool(server, thread)?;
    while let Some((mut connection, since)) = pool.connections.pop_back() {
        if since.elapsed() > IDLE_TIMEOUT {
            // All others were idle for longer.
            pool.connections.clear();
            return None;
        }
        if connection.is_usable() {
            return Some(connection);
        }
    }
    None
}

/// Puts a connection back after its response was read.
pub(super) fn put_back<C: Reusable>(server: &Arc<Server>, thread: usize, connection: C) {
    let Some(mut pool) = C::pool(server, thread) else {
        return;
    };
    if pool.connections.len() >= MAX_IDLE {
        pool.connections.pop_front();
    }
    pool.connections.push_back((connection, Instant::now()));
    if !pool.has_sweeper {
        pool.has_sweeper = true;
        tokio::spawn(sweep_until_empty::<C>(Arc::downgrade(server), thread));
    }
}

async fn sweep_until_empty<C: Reusable>(server: Weak<Server>, thread: usize) {
    loop {
        sleep(SWEEP_INTERVAL).await;
        let Some(server) = server.upgrade() else {
            return;
        };
        let Some(mut pool) = C::pool(&server, thread) else {
            return;
        };
        let now = Instant::now();
        pool.connections.retain_mut(|(connection, since)| {
            now.duration_since(*since) <= IDLE_TIMEOUT && connection.is_usable()
        });
        if pool.connections.is_empty() {
            pool.has_sweeper = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tollgate_config::ServerSpec;

    use super::*;
    use crate::gateway::proxy::stream::Stream;

    #[tokio::test]
    async fn no_closed_connection_is_used_however_many_are_idle() {
        let spec = ServerSpec {
            tls: false,
            host: "127.0.0.1".into(),
            port: 1,
        };
        let server = Arc::new(Server::new(spec, None, 1));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut theirs = Vec::new();
        for _ in 0..MAX_IDLE {
            let stream = TcpStream::connect(at).await.unwrap();
            theirs.push(listener.accept().await.unwrap());
            put_back(&server, 0, Stream::Left(stream));
        }
        assert!(take::<Stream>(&server, 0).is_some());
        drop(theirs);
        // The event loop sees the ends at its next turn.
        sleep(Duration::from_millis(50)).await;
        assert!(take::<Stream>(&server, 0).is_none());
    }
}
