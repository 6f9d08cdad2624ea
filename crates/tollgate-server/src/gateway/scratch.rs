//! Where bytes are read to before anybody looks at them, and put together before they are written: one
//! place each for all connections of a thread.
//!
//! A connection that waits keeps no buffer. What is read is taken out of here at once, in exactly the room
//! that it needs.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at once.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// A sheet that has more room is not kept.
const SHEET_BYTES: usize = 128 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
    static SHEET: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Reads once, so many bytes at the most, and hands over what came; nothing at the end. What `take` does
/// must not read.
pub(super) fn poll_read<S: AsyncRead + Unpin, T>(
    io: &mut S,
    cx: &mut Context<'_>,
    most: usize,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let room = scratch.get_mut(..most.min(READ_BYTES)).unwrap_or_default();
        let mut buffer = ReadBuf::new(room);
        ready!(Pin::new(io).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(take(buffer.filled())))
    })
}

/// An empty sheet to write on; with room already, unless somebody else of this thread has it.
pub(super) fn sheet() -> Vec<u8> {
    let mut sheet = SHEET.take();
    sheet.clear();
    sheet
}

/// The sheet is not needed any more.
pub(super) fn put_back(sheet: Vec<u8>) {
    if sheet.capacity() <= SHEET_BYTES {
        SHEET.set(sheet);
    }
}
