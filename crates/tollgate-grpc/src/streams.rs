//! The open streams of a connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::fallback::BodyChannel;

/// An open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    /// Bytes that may be sent. A change of settings may make it negative.
    pub(crate) send_window: i64,
    /// Bytes that may be received.
    pub(crate) receive_window: u32,
    /// The client has sent END_STREAM.
    pub(crate) end_stream: bool,
    /// Bytes of the body not received yet, if the client sent `content-length`.
    pub(crate) unread_length: Option<u64>,
    /// Bytes buffered for it.
    pub(crate) buffered: usize,
    pub(crate) state: StreamState,
    /// What waits for the send window.
    pub(crate) unsent: Option<Box<Unsent>>,
    /// It waited for its client at the last check and has not progressed since.
    pub(crate) is_stalled: bool,
}

/// The state of a stream.
#[derive(Debug)]
pub(crate) enum StreamState {
    /// Its message is being received.
    Receiving {
        message: Vec<u8>,
        timeout: Option<Duration>,
    },
    /// The handler is pending.
    Handling { _task: Task },
    /// Its response waits for the send window.
    Sending,
    /// The fallback serves it.
    Fallback {
        body: Arc<BodyChannel>,
        /// Notified when the last chunk of the response is sent.
        sent: Arc<Notify>,
        _task: Task,
    },
}

/// A part of a response that waits for the send window.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    pub(crate) data: Bytes,
    /// The encoded trailers after it (possibly none); `None` if more data follows.
    pub(crate) trailers: Option<Vec<u8>>,
}

/// The task of a call, aborted with its stream.
#[derive(Debug)]
pub struct Task(pub(crate) AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The open streams in the order of their ids: a new one has the highest id, so it is the last.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: Vec<Stream>,
    buffered: usize,
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Bytes buffered for all streams.
    pub(crate) fn buffered(&self) -> usize {
        self.buffered
    }

    pub(crate) fn push(&mut self, stream: Stream) {
        self.all.push(stream);
    }

    /// The index of a stream.
    pub(crate) fn index_of(&self, id: u32) -> Option<usize> {
        // Most frames belong to the newest stream.
        match self.all.last() {
            Some(last) if last.id == id => Some(self.all.len() - 1),
            _ => self.all.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Stream> {
        self.all.get_mut(index)
    }

    pub(crate) fn find(&mut self, id: u32) -> Option<&mut Stream> {
        let index = self.index_of(id)?;
        self.get_mut(index)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.all.iter_mut()
    }

    /// Counts bytes buffered for a stream.
    pub(crate) fn add_buffered(&mut self, index: usize, bytes: usize) {
        if let Some(stream) = self.all.get_mut(index) {
            stream.buffered += bytes;
            self.buffered += bytes;
        }
    }

    /// Counts bytes no longer buffered, at most all of them.
    pub(crate) fn release_buffered(&mut self, index: usize, bytes: usize) {
        if let Some(stream) = self.all.get_mut(index) {
            let bytes = bytes.min(stream.buffered);
            stream.buffered -= bytes;
            self.buffered -= bytes;
        }
    }

    /// Closes a stream.
    pub(crate) fn remove(&mut self, index: usize) {
        if index < self.all.len() {
            let stream = self.all.remove(index);
            self.buffered -= stream.buffered;
            if let StreamState::Fallback { body, .. } = &stream.state {
                body.abort();
            }
        }
    }

    /// The streams that wait for their client now and did at the last check: an incomplete message, or no send window for a
    /// response.
    pub(crate) fn take_stalled(&mut self) -> Vec<u32> {
        let mut stalled = Vec::new();
        for stream in &mut self.all {
            let waits = matches!(
                stream.state,
                StreamState::Receiving { .. } | StreamState::Sending
            );
            if waits && std::mem::replace(&mut stream.is_stalled, true) {
                stalled.push(stream.id);
            }
        }
        stalled
    }

    /// Streams served by the fallback.
    pub(crate) fn fallback_count(&self) -> usize {
        let is_fallback = |stream: &&Stream| matches!(stream.state, StreamState::Fallback { .. });
        self.all.iter().filter(is_fallback).count()
    }

    /// Closes the fallback streams with nothing to send, such as watches, and returns their ids.
    pub(crate) fn close_idle_fallbacks(&mut self) -> Vec<u32> {
        let is_idle = |stream: &Stream| {
            let has_more = |unsent: &Unsent| !unsent.data.is_empty() || unsent.trailers.is_some();
            matches!(stream.state, StreamState::Fallback { .. })
                && !stream.unsent.as_deref().is_some_and(has_more)
        };
        let mut closed = Vec::new();
        let mut index = 0;
        while let Some(stream) = self.all.get(index) {
            if is_idle(stream) {
                closed.push(stream.id);
                self.remove(index);
            } else {
                index += 1;
            }
        }
        closed
    }

    pub(crate) fn remove_all(&mut self) {
        while let Some(last) = self.all.len().checked_sub(1) {
            self.remove(last);
        }
    }
}

/// The end of a connection ends its calls: a service may wait for the rest of a request body in a task of its own.
impl Drop for Streams {
    fn drop(&mut self) {
        self.remove_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_closed_connection_aborts_fallback_bodies() {
        let body = Arc::new(BodyChannel::default());
        let mut streams = Streams::default();
        streams.push(Stream {
            id: 1,
            send_window: 0,
            receive_window: 0,
            end_stream: false,
            unread_length: None,
            buffered: 0,
            state: StreamState::Fallback {
                body: Arc::clone(&body),
                sent: Arc::default(),
                _task: Task(tokio::spawn(async {}).abort_handle()),
            },
            unsent: None,
            is_stalled: false,
        });
        assert_eq!(streams.fallback_count(), 1);
        drop(streams);
        assert!(body.is_aborted());
    }
}
