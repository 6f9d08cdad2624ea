//! Detects that a client has disconnected while its request waits, without reading from it.
//!
//! # Theory
//!
//! Reading sees the end of a stream only behind all bytes before it: a body, or pipelined requests that wait unread. The
//! system knows the end without reading, so nothing has to be kept, however much was sent.
//!
//! A client that ends its side while a request of it waits counts as disconnected. Whether it would still read cannot be seen,
//! and a request of a disconnected client must not wait in a queue or reach an upstream. hyper does the same.
//!
//! # Bounds
//!
//! The end is not seen while more bytes wait before it than the system buffers; a reset is seen at once. On systems other
//! than Linux the end is seen only by reading.

use std::future::{Future, pending};
use std::pin::pin;

use tokio::net::TcpStream;

/// Returns when the client has ended its side.
pub(crate) async fn hung_up(stream: &TcpStream) {
    // Readiness for priority data includes the end of the stream, but not ordinary bytes.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Ok(ready) = stream.ready(tokio::io::Interest::PRIORITY).await
        && ready.is_read_closed()
    {
        return;
    }
    pending::<()>().await;
}

/// The output of `work`; `None` if the client ends its side first.
pub(crate) async fn unless_hung_up<T>(
    stream: &TcpStream,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        output = &mut work => Some(output),
        () = hung_up(stream) => None,
    }
}
