//! Responses: written at once where the window allows it, otherwise as it opens.

use bytes::Buf;
use tonic::Status;

use super::{ConnectionError, Session};
use crate::fallback::{Event, Fallback};
use crate::frame::{self, Code, DATA, END_STREAM, PAYLOAD};
use crate::handler::Handler;
use crate::streams::{StreamState, Unsent};
use crate::{MAX_BUFFERED_BYTES, response};

impl<S: Fallback, H: Handler> Session<S, H> {
    /// Sends the handler's response.
    pub(super) fn send_response(&mut self, index: usize, response: &H::Response) {
        let Some(stream) = self.streams.get_mut(index) else {
            return;
        };
        let (id, start) = (stream.id, self.output.len());
        let window = stream.send_window.min(self.send_window);
        if let Some(length) = response::write(&mut self.output, id, response, window) {
            self.send_window -= length;
            self.streams.remove(index);
        } else {
            let data = response::encode_message(response);
            let length = data.len();
            stream.state = StreamState::Sending;
            stream.is_stalled = false;
            stream.unsent = Some(Box::new(Unsent {
                data: data.into(),
                trailers: Some(response::TRAILERS.to_vec()),
            }));
            self.streams.release_buffered(index, usize::MAX);
            if self.streams.buffered() + length > MAX_BUFFERED_BYTES {
                // A client that opens no window gets no further responses.
                self.streams.remove(index);
                self.write_reset(id, Code::EnhanceYourCalm);
                return;
            }
            self.streams.add_buffered(index, length);
            response::write_head(&mut self.output, id);
            self.can_send = true;
        }
        self.after_headers(start);
    }

    /// Sends the handler's error.
    pub(super) fn send_status(&mut self, index: usize, status: Status) {
        if let Some(id) = self.streams.get_mut(index).map(|stream| stream.id) {
            let start = self.output.len();
            response::write_status(&mut self.output, id, status);
            self.after_headers(start);
            self.finish(index);
        }
    }

    /// Closes a stream whose response is written. The rest of the request is not read.
    fn finish(&mut self, index: usize) {
        if let Some(stream) = self.streams.get_mut(index)
            && !stream.end_stream
        {
            let id = stream.id;
            self.write_reset(id, Code::NoError);
        }
        self.streams.remove(index);
    }

    /// Resets streams that have waited for their client since the last check: for a window, or for the rest of a
    /// message.
    pub fn reset_stalled(&mut self) {
        for id in self.streams.take_stalled() {
            if let Err(error) = self.reset(id, Code::EnhanceYourCalm) {
                return self.fail(error);
            }
        }
    }

    /// Handles an event of a pending call.
    pub fn on_event(&mut self, id: u32, event: Event<H::Response>) {
        self.now = None;
        let Some(index) = self.streams.index_of(id) else {
            return;
        };
        if let Err(error) = self.apply_event(index, event) {
            self.fail(error);
        }
    }

    fn apply_event(
        &mut self,
        index: usize,
        event: Event<H::Response>,
    ) -> Result<(), ConnectionError> {
        let Some(stream) = self.streams.get_mut(index) else {
            return Ok(());
        };
        match event {
            Event::Response(Ok(response)) => self.send_response(index, &response),
            Event::Response(Err(status)) => self.send_status(index, status),
            Event::Headers(block, end_stream) => {
                let start = self.output.len();
                response::write_block(&mut self.output, stream.id, &block, end_stream);
                stream.unsent = Some(Box::default());
                self.after_headers(start);
                if end_stream {
                    self.finish(index);
                }
            }
            Event::Data(data) => {
                if let Some(unsent) = &mut stream.unsent {
                    unsent.data = data;
                    self.can_send = true;
                }
            }
            Event::Trailers(fields) => {
                if let Some(unsent) = &mut stream.unsent {
                    unsent.trailers = Some(fields);
                    self.can_send = true;
                }
            }
            Event::Consumed(bytes) => {
                let more = u32::try_from(bytes).unwrap_or(0);
                if more > 0 && !stream.end_stream {
                    stream.receive_window += more;
                    frame::write_window(&mut self.output, stream.id, more);
                }
                self.streams.release_buffered(index, bytes);
            }
            Event::Closed => {
                // A complete response only waits for its window.
                let is_complete = |unsent: &Unsent| unsent.trailers.is_some();
                if !stream.unsent.as_deref().is_some_and(is_complete) {
                    let id = stream.id;
                    return self.reset(id, Code::Internal);
                }
            }
        }
        Ok(())
    }

    /// Writes what is unsent, as far as the windows and the output allow.
    pub fn send(&mut self) {
        let mut index = 0;
        while self.can_send && index < self.streams.len() {
            if self.is_full() {
                return;
            }
            match self.send_stream(index) {
                true => self.finish(index),
                false => index += 1,
            }
        }
        self.can_send = false;
    }

    /// Writes what one stream has. Returns true if its response is complete.
    fn send_stream(&mut self, index: usize) -> bool {
        let output = &mut self.output;
        let Some(stream) = self.streams.get_mut(index) else {
            return false;
        };
        let Some(unsent) = &mut stream.unsent else {
            return false;
        };
        let before = unsent.data.len();
        while !unsent.data.is_empty() {
            let window = usize::try_from(stream.send_window.min(self.send_window)).unwrap_or(0);
            let fits = window.min(PAYLOAD).min(unsent.data.len());
            let Some(chunk) = unsent.data.get(..fits).filter(|chunk| !chunk.is_empty()) else {
                let sent = before - unsent.data.len();
                stream.is_stalled &= sent == 0;
                // A fallback's buffered bytes are those of its request.
                if matches!(stream.state, StreamState::Sending) {
                    self.streams.release_buffered(index, sent);
                }
                return false;
            };
            frame::write(output, DATA, 0, stream.id, chunk);
            unsent.data.advance(fits);
            let fits = i64::try_from(fits).unwrap_or(0);
            stream.send_window -= fits;
            self.send_window -= fits;
        }
        if before > 0
            && let StreamState::Fallback { sent, .. } = &stream.state
        {
            sent.notify_one();
        }
        match unsent.trailers.take() {
            None => return false,
            Some(fields) if fields.is_empty() => {
                frame::write(output, DATA, END_STREAM, stream.id, &[]);
            }
            Some(fields) => {
                let start = output.len();
                response::write_block(output, stream.id, &fields, true);
                self.after_headers(start);
            }
        }
        true
    }
}
