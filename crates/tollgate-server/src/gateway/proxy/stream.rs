//! Connects to a server.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Waker};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::idle_pool::{IdlePool, Reusable};
use super::server::Server;

/// A connection to the server, over TLS if configured.
pub(super) async fn connect(server: &Server) -> io::Result<Stream> {
    let spec = &server.spec;
    let stream = TcpStream::connect((spec.host.as_str(), spec.port)).await?;
    let _ = stream.set_nodelay(true);
    match &server.tls {
        None => Ok(Either::Left(stream)),
        Some((config, name)) => {
            let connector = TlsConnector::from(Arc::clone(config));
            let stream = connector.connect(name.clone(), stream).await?;
            Ok(Either::Right(Box::new(stream)))
        }
    }
}

/// Bytes to and from a server, in plain or over TLS.
pub(super) type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

impl Reusable for Stream {
    fn pool(server: &Server, thread: usize) -> Option<MutexGuard<'_, IdlePool<Stream>>> {
        server.idle_streams(thread)
    }

    /// Has the server neither closed it nor sent anything?
    fn is_usable(&mut self) -> bool {
        let mut no_wake = Context::from_waker(Waker::noop());
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let read = poll_fn(|cx| Pin::new(&mut *self).poll_read(cx, &mut buffer));
        // Not under the budget of the task, which would report pending for many connections at once.
        let read = pin!(unconstrained(read)).poll(&mut no_wake);
        read.is_pending()
    }
}
