//! Bodies: what calls say.

use std::task::Context;

use tokio::time::Instant;

use super::{Fault, Session};
use crate::rls::Served;
use crate::rls::wire::calls::{Asked, Decides};
use crate::rls::wire::frame::{self, Code, END_STREAM, Frame};
use crate::rls::wire::stream::Does;
use crate::rls::wire::unary::{self, Read};
use crate::rls::wire::{CONNECTION_WINDOW, HELD_BYTES, STREAM_WINDOW};

impl<S: Served> Session<S> {
    pub(super) fn data(
        &mut self,
        cx: &mut Context<'_>,
        decides: &mut impl Decides,
        frame: &Frame<'_>,
    ) -> Result<(), Fault> {
        self.is_known(frame.stream)?;
        let Some(bytes) = frame.carried() else {
            return Err(Fault(Code::Protocol, "more padding than there is"));
        };
        let length = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
        self.window = self.window.checked_sub(length).ok_or(Fault(
            Code::FlowControl,
            "more than the connection's window",
        ))?;
        // What is kept has a bound of its own, so the window of all never keeps a call from its end.
        self.taken += length;
        if self.taken >= CONNECTION_WINDOW / 2 {
            frame::write_window(&mut self.out, 0, self.taken);
            self.window += std::mem::take(&mut self.taken);
        }
        let is_all = frame.has(END_STREAM);
        if bytes.is_empty() && !is_all {
            self.bear()?;
        }
        let Some(stream) = self.streams.find(frame.stream) else {
            // It was ended by us, perhaps, and the client has not heard it yet.
            if self.ended.contains(&frame.stream) {
                return Ok(());
            }
            return self.reset(frame.stream, Code::StreamClosed);
        };
        if stream.is_all {
            return self.reset(frame.stream, Code::StreamClosed);
        }
        let Some(window) = stream.window.checked_sub(length) else {
            return self.reset(frame.stream, Code::FlowControl);
        };
        stream.window = window;
        // Padding is nobody's to take out.
        let padding = length - u32::try_from(bytes.len()).unwrap_or(length);
        if padding > 0 && !is_all {
            stream.window += padding;
            frame::write_window(&mut self.out, frame.stream, padding);
        }
        self.arrived(cx, decides, frame.stream, bytes, is_all)
    }

    /// A piece of a body came, and perhaps its end.
    pub(super) fn arrived(
        &mut self,
        cx: &mut Context<'_>,
        decides: &mut impl Decides,
        id: u32,
        bytes: &[u8],
        is_all: bool,
    ) -> Result<(), Fault> {
        let Some(place) = self.streams.place(id) else {
            return Ok(());
        };
        let held = self.streams.held();
        let Some(stream) = self.streams.at(place) else {
            return Ok(());
        };
        stream.is_all = is_all;
        stream.is_stuck &= bytes.is_empty();
        if let Some(missing) = &mut stream.missing {
            let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            match missing.checked_sub(length) {
                Some(left) if left == 0 || !is_all => *missing = left,
                _ => return self.reset(id, Code::Protocol),
            }
        }
        let is_kept = !(is_all && stream.held == 0 && matches!(stream.does, Does::Reads { .. }));
        if is_kept && held + bytes.len() > HELD_BYTES {
            return self.reset(id, Code::EnhanceYourCalm);
        }
        match &mut stream.does {
            Does::Reads { message, timeout } => {
                let timeout = *timeout;
                let whole = match is_kept {
                    true => {
                        message.extend_from_slice(bytes);
                        message.as_slice()
                    }
                    false => bytes,
                };
                let read = match unary::read(whole, is_all) {
                    Read::Message(message) => {
                        let now = &mut self.now;
                        let until = timeout.and_then(|left| {
                            now.get_or_insert_with(Instant::now).checked_add(left)
                        });
                        Some(decides.ask(cx, id, message, until))
                    }
                    Read::Wrong(wrong) => Some(Asked::Wrong(wrong)),
                    Read::More => None,
                };
                match read {
                    None => {
                        // A message may be longer than the window.
                        if stream.window < STREAM_WINDOW / 2 {
                            let more = STREAM_WINDOW - stream.window;
                            stream.window = STREAM_WINDOW;
                            frame::write_window(&mut self.out, id, more);
                        }
                        self.streams.hold(place, bytes.len());
                    }
                    Some(Asked::Now(response)) => self.decided(place, &response),
                    Some(Asked::Wrong(wrong)) => self.refuse(place, wrong),
                    Some(Asked::Later(task)) => {
                        stream.does = Does::Waits { _task: task };
                        self.streams.let_go(place, usize::MAX);
                    }
                }
            }
            Does::Elsewhere { feed, .. } => {
                if !bytes.is_empty() {
                    feed.add(bytes);
                }
                if is_all {
                    feed.end();
                }
                self.streams.hold(place, bytes.len());
            }
            Does::Waits { .. } | Does::Sends => {}
        }
        Ok(())
    }
}
