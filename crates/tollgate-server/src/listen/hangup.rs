//! Work for a client that may leave before it is done.

use std::future::Future;
use std::pin::pin;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Room for each read.
const ROOM: usize = 1024;

/// What `work` comes to; none if the client closes its connection before. What it sends meanwhile is kept in `read`,
/// up to `most` bytes; beyond them the client is not watched.
///
/// Like hyper, this takes the end of what a client sends for its end: a client that waits for an answer keeps its
/// side open.
pub(crate) async fn unless_hung_up<T>(
    stream: &mut TcpStream,
    read: &mut BytesMut,
    most: usize,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    while read.len() < most {
        read.reserve(ROOM);
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            more = stream.read_buf(read) => match more {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
    Some(work.await)
}
