//! Buffers that all connections of a thread share: one to read into, one to write from.
//!
//! An idle connection holds no buffer. Bytes that were read are copied out in exactly the room that they need.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at once.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// A write buffer that has grown beyond this is dropped.
const KEPT_BYTES: usize = 128 * 1024;

thread_local! {
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
    static WRITE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Reads at most `max` bytes once and hands them to `take`; an empty slice at the end. `take` must not read itself.
pub(crate) fn poll_read<S: AsyncRead + Unpin, T>(
    io: &mut S,
    cx: &mut Context<'_>,
    max: usize,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    READ.with_borrow_mut(|read| {
        let room = read.get_mut(..max.min(READ_BYTES)).unwrap_or_default();
        let mut buffer = ReadBuf::new(room);
        ready!(Pin::new(io).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(take(buffer.filled())))
    })
}

/// Takes the empty write buffer of this thread; a new one if it is in use.
pub(crate) fn take_write_buffer() -> Vec<u8> {
    let mut buffer = WRITE.take();
    buffer.clear();
    buffer
}

/// Gives a write buffer back.
pub(crate) fn put_back(buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_BYTES {
        WRITE.set(buffer);
    }
}
