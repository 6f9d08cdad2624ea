//! What a client says about the connection, and about calls as a whole.

use super::{ALIVE, ENDING, Fault, Session};
use crate::rls::Served;
use crate::rls::wire::frame::{self, ACK, Code, Frame, PING, SETTINGS, WINDOW_MAX};
use crate::rls::wire::stream::Does;

impl<S: Served> Session<S> {
    pub(super) fn settings(&mut self, frame: &Frame<'_>) -> Result<(), Fault> {
        if frame.stream != 0 {
            return Err(Fault(Code::Protocol, "settings are on no stream"));
        }
        if frame.has(ACK) {
            return match (self.has_settings, frame.payload.is_empty()) {
                (false, _) => Err(Fault(Code::Protocol, "settings come first")),
                (true, true) => Ok(()),
                (true, false) => Err(Fault(Code::FrameSize, "an acknowledgement is empty")),
            };
        }
        if !frame.payload.len().is_multiple_of(6) {
            return Err(Fault(Code::FrameSize, "settings are six bytes each"));
        }
        if self.has_settings {
            self.bear()?;
        }
        self.has_settings = true;
        let mut stream_room = None;
        for (name, value) in frame.settings() {
            match name {
                frame::HEADER_TABLE_SIZE => self.says_no_table |= value < 4_096,
                frame::ENABLE_PUSH if value > 1 => {
                    return Err(Fault(Code::Protocol, "push is 0 or 1"));
                }
                frame::INITIAL_WINDOW_SIZE if i64::from(value) > WINDOW_MAX => {
                    return Err(Fault(Code::FlowControl, "a window is wider than 2^31 - 1"));
                }
                frame::INITIAL_WINDOW_SIZE => stream_room = Some(value),
                frame::MAX_FRAME_SIZE if !(16_384..=0xff_ffff).contains(&value) => {
                    return Err(Fault(Code::Protocol, "a frame size is 16384 to 16777215"));
                }
                _ => {}
            }
        }
        // Who says it many times is gone through once.
        if let Some(value) = stream_room {
            self.new_stream_room(value)?;
        }
        frame::write(&mut self.out, SETTINGS, ACK, 0, &[]);
        Ok(())
    }

    pub(super) fn new_stream_room(&mut self, value: u32) -> Result<(), Fault> {
        let too_wide = Fault(Code::FlowControl, "a window is wider than 2^31 - 1");
        let value = i64::from(value);
        let more = value - self.stream_room;
        self.stream_room = value;
        self.may_send = true;
        for stream in self.streams.iter_mut() {
            stream.room += more;
            if stream.room > WINDOW_MAX {
                return Err(too_wide);
            }
        }
        Ok(())
    }

    pub(super) fn ping(&mut self, frame: &Frame<'_>) -> Result<(), Fault> {
        if frame.stream != 0 {
            return Err(Fault(Code::Protocol, "a ping is on no stream"));
        }
        if frame.payload.len() != ALIVE.len() {
            return Err(Fault(Code::FrameSize, "a ping is eight bytes"));
        }
        if !frame.has(ACK) {
            frame::write(&mut self.out, PING, ACK, 0, frame.payload);
        } else if frame.payload == ENDING {
            self.close();
        }
        Ok(())
    }

    pub(super) fn window_update(&mut self, frame: &Frame<'_>) -> Result<(), Fault> {
        let Some(more) = frame.number() else {
            return Err(Fault(Code::FrameSize, "a window is four bytes"));
        };
        let more = i64::from(more & 0x7fff_ffff);
        if frame.stream == 0 {
            self.room += more;
            if more == 0 {
                return Err(Fault(Code::Protocol, "a window grows by something"));
            }
            if self.room > WINDOW_MAX {
                return Err(Fault(Code::FlowControl, "a window is wider than 2^31 - 1"));
            }
            self.may_send = true;
            return Ok(());
        }
        self.is_known(frame.stream)?;
        // One that is over may still be spoken of.
        let Some(stream) = self.streams.find(frame.stream) else {
            return Ok(());
        };
        stream.room += more;
        let code = match more {
            0 => Some(Code::Protocol),
            _ => (stream.room > WINDOW_MAX).then_some(Code::FlowControl),
        };
        self.may_send = true;
        match code {
            Some(code) => self.reset(frame.stream, code),
            None => Ok(()),
        }
    }

    pub(super) fn priority(&mut self, frame: &Frame<'_>) -> Result<(), Fault> {
        match (frame.stream, frame.payload.len()) {
            (0, _) => Err(Fault(Code::Protocol, "it belongs to a stream")),
            (_, 5) => self.bear(),
            (stream, _) if stream <= self.last => self.reset(stream, Code::FrameSize),
            _ => Err(Fault(Code::FrameSize, "a priority is five bytes")),
        }
    }

    pub(super) fn reset_by_client(&mut self, frame: &Frame<'_>) -> Result<(), Fault> {
        if frame.number().is_none() {
            return Err(Fault(Code::FrameSize, "a reset is four bytes"));
        }
        self.is_known(frame.stream)?;
        let place = self.streams.place(frame.stream);
        let was_asked = match place.and_then(|place| self.streams.at(place)) {
            // Who asked in full and waits no longer has cost us no more than others; but elsewhere it has cost a task.
            Some(stream) => stream.is_all && !matches!(stream.does, Does::Elsewhere { .. }),
            None => true,
        };
        if let Some(place) = place {
            self.streams.remove(place);
        }
        match was_asked {
            true => Ok(()),
            false => self.bear(),
        }
    }
}
