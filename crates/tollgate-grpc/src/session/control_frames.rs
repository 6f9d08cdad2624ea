//! Handles SETTINGS, PING, WINDOW_UPDATE, PRIORITY and RST_STREAM frames.

use super::{ConnectionError, KEEPALIVE_PING, SHUTDOWN_PING, Session};
use crate::fallback::Fallback;
use crate::frame::{self, ACK, Code, Frame, PING, SETTINGS, WINDOW_MAX};
use crate::handler::Handler;
use crate::streams::StreamState;

const WINDOW_TOO_LARGE: ConnectionError =
    ConnectionError::flow_control("a window exceeds 2^31 - 1");

impl<S: Fallback, H: Handler> Session<S, H> {
    pub(super) fn on_settings(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        if frame.stream != 0 {
            return Err(ConnectionError::protocol("SETTINGS on a stream"));
        }
        if frame.has(ACK) {
            return match (self.has_settings, frame.payload.is_empty()) {
                (false, _) => Err(ConnectionError::protocol("the first frame is not SETTINGS")),
                (true, true) => Ok(()),
                (true, false) => Err(ConnectionError::frame_size(
                    "an acknowledgement of SETTINGS has a payload",
                )),
            };
        }
        if !frame.payload.len().is_multiple_of(6) {
            return Err(ConnectionError::frame_size(
                "the length of SETTINGS is no multiple of 6",
            ));
        }
        if self.has_settings {
            self.spend_abuse()?;
        }
        self.has_settings = true;
        let mut initial_send_window = None;
        for (name, value) in frame.settings() {
            match name {
                frame::HEADER_TABLE_SIZE => self.must_update_table_size |= value < 4_096,
                frame::ENABLE_PUSH if value > 1 => {
                    return Err(ConnectionError::protocol("ENABLE_PUSH is not 0 or 1"));
                }
                frame::INITIAL_WINDOW_SIZE if i64::from(value) > WINDOW_MAX => {
                    return Err(WINDOW_TOO_LARGE);
                }
                frame::INITIAL_WINDOW_SIZE => initial_send_window = Some(value),
                frame::MAX_FRAME_SIZE if !(16_384..=0xff_ffff).contains(&value) => {
                    return Err(ConnectionError::protocol(
                        "MAX_FRAME_SIZE is not 16384 to 16777215",
                    ));
                }
                _ => {}
            }
        }
        // Only the last of repeated values costs a pass over the streams.
        if let Some(value) = initial_send_window {
            self.set_initial_send_window(value)?;
        }
        frame::write(&mut self.output, SETTINGS, ACK, 0, &[]);
        Ok(())
    }

    fn set_initial_send_window(&mut self, value: u32) -> Result<(), ConnectionError> {
        let value = i64::from(value);
        let more = value - self.initial_send_window;
        self.initial_send_window = value;
        self.can_send = true;
        for stream in self.streams.iter_mut() {
            stream.send_window += more;
            if stream.send_window > WINDOW_MAX {
                return Err(WINDOW_TOO_LARGE);
            }
        }
        Ok(())
    }

    pub(super) fn on_ping(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        if frame.stream != 0 {
            return Err(ConnectionError::protocol("PING on a stream"));
        }
        if frame.payload.len() != KEEPALIVE_PING.len() {
            return Err(ConnectionError::frame_size("PING is not 8 bytes"));
        }
        if !frame.has(ACK) {
            frame::write(&mut self.output, PING, ACK, 0, frame.payload);
        } else if frame.payload == SHUTDOWN_PING {
            self.drain();
        }
        Ok(())
    }

    pub(super) fn on_window_update(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        let Some(more) = frame.number() else {
            return Err(ConnectionError::frame_size("WINDOW_UPDATE is not 4 bytes"));
        };
        let more = i64::from(more & 0x7fff_ffff);
        if frame.stream == 0 {
            self.send_window += more;
            if more == 0 {
                return Err(ConnectionError::protocol("WINDOW_UPDATE by 0"));
            }
            if self.send_window > WINDOW_MAX {
                return Err(WINDOW_TOO_LARGE);
            }
            self.can_send = true;
            return Ok(());
        }
        self.check_opened(frame.stream)?;
        // It may name a closed stream.
        let Some(stream) = self.streams.find(frame.stream) else {
            return Ok(());
        };
        stream.send_window += more;
        let code = match more {
            0 => Some(Code::Protocol),
            _ => (stream.send_window > WINDOW_MAX).then_some(Code::FlowControl),
        };
        self.can_send = true;
        match code {
            Some(code) => self.reset(frame.stream, code),
            None => Ok(()),
        }
    }

    pub(super) fn on_priority(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        match (frame.stream, frame.payload.len()) {
            (0, _) => Err(ConnectionError::protocol("a stream frame without a stream")),
            (_, 5) => self.spend_abuse(),
            (stream, _) if stream <= self.last_stream => self.reset(stream, Code::FrameSize),
            _ => Err(ConnectionError::frame_size("PRIORITY is not 5 bytes")),
        }
    }

    pub(super) fn on_reset(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        if frame.number().is_none() {
            return Err(ConnectionError::frame_size("RST_STREAM is not 4 bytes"));
        }
        self.check_opened(frame.stream)?;
        let index = self.streams.index_of(frame.stream);
        let has_paid = match index.and_then(|index| self.streams.get_mut(index)) {
            // A complete call costs no more than others; but a fallback call has cost a task.
            Some(stream) => {
                stream.end_stream && !matches!(stream.state, StreamState::Fallback { .. })
            }
            None => true,
        };
        if let Some(index) = index {
            self.streams.remove(index);
        }
        match has_paid {
            true => Ok(()),
            false => self.spend_abuse(),
        }
    }
}
