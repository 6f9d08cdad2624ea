//! Handles DATA frames: request bodies.

use std::task::Context;

use tokio::time::Instant;

use super::{ConnectionError, Session};
use crate::fallback::Fallback;
use crate::frame::{self, Code, END_STREAM, Frame};
use crate::handler::{Called, Handler};
use crate::message::{self, Read};
use crate::streams::StreamState;
use crate::{CONNECTION_WINDOW, MAX_BUFFERED_BYTES, STREAM_WINDOW};

impl<S: Fallback, H: Handler> Session<S, H> {
    pub(super) fn on_data(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Result<(), ConnectionError> {
        self.check_opened(frame.stream)?;
        let Some(bytes) = frame.content() else {
            return Err(ConnectionError::protocol("the padding exceeds the frame"));
        };
        let length = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
        self.receive_window =
            self.receive_window
                .checked_sub(length)
                .ok_or(ConnectionError::flow_control(
                    "DATA exceeds the connection's window",
                ))?;
        // Buffered bytes have a bound of their own, so the connection's window never blocks a stream.
        self.unacknowledged += length;
        if self.unacknowledged >= CONNECTION_WINDOW / 2 {
            frame::write_window(&mut self.output, 0, self.unacknowledged);
            self.receive_window += std::mem::take(&mut self.unacknowledged);
        }
        let end_stream = frame.has(END_STREAM);
        if bytes.is_empty() && !end_stream {
            self.spend_abuse()?;
        }
        let Some(stream) = self.streams.find(frame.stream) else {
            // The client may not know yet that the stream was reset.
            if self.reset_streams.contains(&frame.stream) {
                return Ok(());
            }
            return self.reset(frame.stream, Code::StreamClosed);
        };
        if stream.end_stream {
            return self.reset(frame.stream, Code::StreamClosed);
        }
        let Some(window) = stream.receive_window.checked_sub(length) else {
            return self.reset(frame.stream, Code::FlowControl);
        };
        stream.receive_window = window;
        // No consumer returns the window that padding took.
        let padding = length - u32::try_from(bytes.len()).unwrap_or(length);
        if padding > 0 && !end_stream {
            stream.receive_window += padding;
            frame::write_window(&mut self.output, frame.stream, padding);
        }
        self.on_body(cx, frame.stream, bytes, end_stream)
    }

    /// Handles a chunk of a body, and perhaps its end.
    pub(super) fn on_body(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        bytes: &[u8],
        end_stream: bool,
    ) -> Result<(), ConnectionError> {
        let Some(index) = self.streams.index_of(id) else {
            return Ok(());
        };
        let buffered = self.streams.buffered();
        let Some(stream) = self.streams.get_mut(index) else {
            return Ok(());
        };
        stream.end_stream = end_stream;
        stream.is_stalled &= bytes.is_empty();
        if let Some(unread) = &mut stream.unread_length {
            let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            match unread.checked_sub(length) {
                Some(left) if left == 0 || !end_stream => *unread = left,
                _ => return self.reset(id, Code::Protocol),
            }
        }
        let is_receiving = matches!(stream.state, StreamState::Receiving { .. });
        let must_buffer = !(end_stream && stream.buffered == 0 && is_receiving);
        if must_buffer && buffered + bytes.len() > MAX_BUFFERED_BYTES {
            return self.reset(id, Code::EnhanceYourCalm);
        }
        match &mut stream.state {
            StreamState::Receiving { message, timeout } => {
                let timeout = *timeout;
                let received = match must_buffer {
                    true => {
                        message.extend_from_slice(bytes);
                        message.as_slice()
                    }
                    false => bytes,
                };
                let called =
                    match message::read(received, end_stream, self.method.max_message_bytes) {
                        Read::Message(message) => {
                            let now = &mut self.now;
                            let deadline = timeout.and_then(|left| {
                                now.get_or_insert_with(Instant::now).checked_add(left)
                            });
                            Some(self.handler.call(cx, id, message, deadline))
                        }
                        Read::Malformed(status) => Some(Called::Failed(status)),
                        Read::Partial => None,
                    };
                match called {
                    None => {
                        // A message may be longer than the window.
                        if stream.receive_window < STREAM_WINDOW / 2 {
                            let more = STREAM_WINDOW - stream.receive_window;
                            stream.receive_window = STREAM_WINDOW;
                            frame::write_window(&mut self.output, id, more);
                        }
                        self.streams.add_buffered(index, bytes.len());
                    }
                    Some(Called::Ready(response)) => self.send_response(index, &response),
                    Some(Called::Failed(status)) => self.send_status(index, status),
                    Some(Called::Pending(task)) => {
                        stream.state = StreamState::Handling { _task: task };
                        self.streams.release_buffered(index, usize::MAX);
                    }
                }
            }
            StreamState::Fallback { body, .. } => {
                if !bytes.is_empty() {
                    body.push(bytes);
                }
                if end_stream {
                    body.end();
                }
                self.streams.add_buffered(index, bytes.len());
            }
            StreamState::Handling { .. } | StreamState::Sending => {}
        }
        Ok(())
    }
}
