//! The calls under way on a connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::elsewhere::Feed;

/// A call under way.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// So much may be sent; a change of settings may make it less than nothing.
    pub(super) room: i64,
    /// So much may come.
    pub(super) window: u32,
    /// The client has said everything.
    pub(super) is_all: bool,
    /// So much has to come, if the client said how much.
    pub(super) missing: Option<u64>,
    /// Bytes of it that are kept.
    pub(super) held: usize,
    pub(super) does: Does,
    /// What waits for room.
    pub(super) sending: Option<Box<Sending>>,
    /// It was waited for when somebody last looked, and nothing came of it since.
    pub(super) is_stuck: bool,
}

/// What becomes of a call.
#[derive(Debug)]
pub(super) enum Does {
    /// Its message is read.
    Reads {
        message: Vec<u8>,
        timeout: Option<Duration>,
    },
    /// It is decided, which takes a while.
    Waits { _task: Task },
    /// It is decided; its answer waits for room.
    Sends,
    /// It is served elsewhere.
    Elsewhere {
        feed: Arc<Feed>,
        /// Told when what it sent last is gone.
        go_on: Arc<Notify>,
        _task: Task,
    },
}

/// What waits for room.
#[derive(Debug, Default)]
pub(super) struct Sending {
    pub(super) data: Bytes,
    /// What comes behind it: fields, or nothing more.
    pub(super) end: Option<Vec<u8>>,
}

/// What runs for a call, and ends with it.
#[derive(Debug)]
pub(super) struct Task(pub(super) AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// All calls under way, by their numbers: later ones have higher numbers, so each new one is the last.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    held: usize,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Bytes that are kept for all of them.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn add(&mut self, stream: Stream) {
        self.all.push(stream);
    }

    /// Where a call stands in the list.
    pub(super) fn place(&self, id: u32) -> Option<usize> {
        // Most often what is spoken of is the last.
        match self.all.last() {
            Some(last) if last.id == id => Some(self.all.len() - 1),
            _ => self.all.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }

    pub(super) fn at(&mut self, place: usize) -> Option<&mut Stream> {
        self.all.get_mut(place)
    }

    pub(super) fn find(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.place(id)?;
        self.at(place)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.all.iter_mut()
    }

    /// So many bytes are kept for this call.
    pub(super) fn hold(&mut self, place: usize, bytes: usize) {
        if let Some(stream) = self.all.get_mut(place) {
            stream.held += bytes;
            self.held += bytes;
        }
    }

    /// So many are not any more.
    pub(super) fn let_go(&mut self, place: usize, bytes: usize) {
        if let Some(stream) = self.all.get_mut(place) {
            let bytes = bytes.min(stream.held);
            stream.held -= bytes;
            self.held -= bytes;
        }
    }

    /// It is over.
    pub(super) fn remove(&mut self, place: usize) {
        if place < self.all.len() {
            let stream = self.all.remove(place);
            self.held -= stream.held;
            if let Does::Elsewhere { feed, .. } = &stream.does {
                feed.break_off();
            }
        }
    }

    /// The calls that wait for their client and did so at the last look: half of a message came, or there is no room for
    /// an answer.
    pub(super) fn stuck(&mut self) -> Vec<u32> {
        let mut stuck = Vec::new();
        for stream in &mut self.all {
            if matches!(stream.does, Does::Reads { .. } | Does::Sends)
                && std::mem::replace(&mut stream.is_stuck, true)
            {
                stuck.push(stream.id);
            }
        }
        stuck
    }

    /// How many of them are served elsewhere.
    pub(super) fn elsewhere(&self) -> usize {
        let is_elsewhere = |stream: &&Stream| matches!(stream.does, Does::Elsewhere { .. });
        self.all.iter().filter(is_elsewhere).count()
    }

    /// Ends those that are served elsewhere and have nothing to send, and tells which they were.
    pub(super) fn end_watches(&mut self) -> Vec<u32> {
        let is_quiet = |stream: &Stream| {
            let sending = stream.sending.as_deref();
            let has_more = |s: &Sending| !s.data.is_empty() || s.end.is_some();
            matches!(stream.does, Does::Elsewhere { .. }) && !sending.is_some_and(has_more)
        };
        let mut ended = Vec::new();
        let mut place = 0;
        while let Some(stream) = self.all.get(place) {
            if is_quiet(stream) {
                ended.push(stream.id);
                self.remove(place);
            } else {
                place += 1;
            }
        }
        ended
    }

    pub(super) fn remove_all(&mut self) {
        while let Some(last) = self.all.len().checked_sub(1) {
            self.remove(last);
        }
    }
}

/// Whatever ends a connection ends its calls: a service may wait for the rest of a request in a task of its own.
impl Drop for Streams {
    fn drop(&mut self) {
        self.remove_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_goes_breaks_off_what_is_served_elsewhere() {
        let feed = Arc::new(Feed::default());
        let mut streams = Streams::default();
        streams.add(Stream {
            id: 1,
            room: 0,
            window: 0,
            is_all: false,
            missing: None,
            held: 0,
            does: Does::Elsewhere {
                feed: Arc::clone(&feed),
                go_on: Arc::default(),
                _task: Task(tokio::spawn(async {}).abort_handle()),
            },
            sending: None,
            is_stuck: false,
        });
        assert_eq!(streams.elsewhere(), 1);
        drop(streams);
        assert!(feed.is_broken_off());
    }
}
