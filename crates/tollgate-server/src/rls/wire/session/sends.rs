//! Answers: written at once where there is room, and as far as there is room.

use bytes::Buf;
use tonic::Status;

use super::{Fault, Session};
use crate::rls::Served;
use crate::rls::messages::RateLimitResponse;
use crate::rls::wire::elsewhere::Event;
use crate::rls::wire::frame::{self, Code, DATA, END_STREAM, PAYLOAD};
use crate::rls::wire::stream::{Does, Sending};
use crate::rls::wire::{HELD_BYTES, answer};

impl<S: Served> Session<S> {
    /// A head was written behind `begins`. A client that made its table smaller wants to hear that we follow, although we
    /// never use it.
    pub(super) fn has_head(&mut self, begins: usize) {
        if self.says_no_table {
            self.says_no_table = false;
            answer::say_no_table(&mut self.out, begins);
        }
    }

    /// A call is decided.
    pub(super) fn decided(&mut self, place: usize, response: &RateLimitResponse) {
        let Some(stream) = self.streams.at(place) else {
            return;
        };
        let (id, begins) = (stream.id, self.out.len());
        let room = stream.room.min(self.room);
        if let Some(length) = answer::write_whole(&mut self.out, id, response, room) {
            self.room -= length;
            self.streams.remove(place);
        } else {
            let data = answer::message(response);
            let length = data.len();
            stream.does = Does::Sends;
            stream.is_stuck = false;
            stream.sending = Some(Box::new(Sending {
                data: data.into(),
                end: Some(answer::END.to_vec()),
            }));
            self.streams.let_go(place, usize::MAX);
            if self.streams.held() + length > HELD_BYTES {
                // Whoever makes no room for answers gets no more of them.
                self.streams.remove(place);
                frame::write_reset(&mut self.out, id, Code::EnhanceYourCalm);
                self.has_ended(id);
                return;
            }
            self.streams.hold(place, length);
            answer::write_head(&mut self.out, id);
            self.may_send = true;
        }
        self.has_head(begins);
    }

    /// A call cannot be decided.
    pub(super) fn refuse(&mut self, place: usize, wrong: Status) {
        if let Some(id) = self.streams.at(place).map(|stream| stream.id) {
            let begins = self.out.len();
            answer::write_status(&mut self.out, id, wrong);
            self.has_head(begins);
            self.finish(place);
        }
    }

    /// The answer is written to its end: nobody reads what the client may still have to say.
    fn finish(&mut self, place: usize) {
        if let Some(stream) = self.streams.at(place)
            && !stream.is_all
        {
            let id = stream.id;
            frame::write_reset(&mut self.out, id, Code::NoError);
            self.has_ended(id);
        }
        self.streams.remove(place);
    }

    /// Looks for calls that have waited for their client since the last look, and ends them: room for answers that never
    /// comes, and messages that never end.
    pub(in crate::rls::wire) fn end_what_is_stuck(&mut self) {
        for id in self.streams.stuck() {
            if let Err(fault) = self.reset(id, Code::EnhanceYourCalm) {
                return self.fail(fault);
            }
        }
    }

    /// Takes what became of a call that was not answered at once.
    pub(in crate::rls::wire) fn tell(&mut self, id: u32, event: Event) {
        self.now = None;
        let Some(place) = self.streams.place(id) else {
            return;
        };
        if let Err(fault) = self.happened(place, event) {
            self.fail(fault);
        }
    }

    fn happened(&mut self, place: usize, event: Event) -> Result<(), Fault> {
        let Some(stream) = self.streams.at(place) else {
            return Ok(());
        };
        match event {
            Event::Decided(Ok(response)) => self.decided(place, &response),
            Event::Decided(Err(wrong)) => self.refuse(place, wrong),
            Event::Head(block, is_end) => {
                let begins = self.out.len();
                answer::write_block(&mut self.out, stream.id, &block, is_end);
                stream.sending = Some(Box::default());
                self.has_head(begins);
                if is_end {
                    self.finish(place);
                }
            }
            Event::Data(data) => {
                if let Some(sending) = &mut stream.sending {
                    sending.data = data;
                    self.may_send = true;
                }
            }
            Event::End(fields) => {
                if let Some(sending) = &mut stream.sending {
                    sending.end = Some(fields);
                    self.may_send = true;
                }
            }
            Event::Taken(bytes) => {
                let more = u32::try_from(bytes).unwrap_or(0);
                if more > 0 && !stream.is_all {
                    stream.window += more;
                    frame::write_window(&mut self.out, stream.id, more);
                }
                self.streams.let_go(place, bytes);
            }
            Event::Over => {
                // Whatever has its end only waits for room.
                let has_end = |sending: &Sending| sending.end.is_some();
                if !stream.sending.as_deref().is_some_and(has_end) {
                    let id = stream.id;
                    return self.reset(id, Code::Internal);
                }
            }
        }
        Ok(())
    }

    /// Sends what waits for room, as far as there is room.
    pub(in crate::rls::wire) fn send(&mut self) {
        let mut place = 0;
        while self.may_send && place < self.streams.len() {
            if self.is_full() {
                return;
            }
            match self.send_one(place) {
                true => self.finish(place),
                false => place += 1,
            }
        }
        self.may_send = false;
    }

    /// Sends what one call has; true if that was the end of it.
    fn send_one(&mut self, place: usize) -> bool {
        let out = &mut self.out;
        let Some(stream) = self.streams.at(place) else {
            return false;
        };
        let Some(sending) = &mut stream.sending else {
            return false;
        };
        let had = sending.data.len();
        while !sending.data.is_empty() {
            let room = usize::try_from(stream.room.min(self.room)).unwrap_or(0);
            let fits = room.min(PAYLOAD).min(sending.data.len());
            let Some(piece) = sending.data.get(..fits).filter(|piece| !piece.is_empty()) else {
                let sent = had - sending.data.len();
                stream.is_stuck &= sent == 0;
                // What is kept of others is of their requests.
                if matches!(stream.does, Does::Sends) {
                    self.streams.let_go(place, sent);
                }
                return false;
            };
            frame::write(out, DATA, 0, stream.id, piece);
            sending.data.advance(fits);
            let fits = i64::try_from(fits).unwrap_or(0);
            stream.room -= fits;
            self.room -= fits;
        }
        if had > 0
            && let Does::Elsewhere { go_on, .. } = &stream.does
        {
            go_on.notify_one();
        }
        match sending.end.take() {
            None => return false,
            Some(fields) if fields.is_empty() => {
                frame::write(out, DATA, END_STREAM, stream.id, &[]);
            }
            Some(fields) => {
                let begins = out.len();
                answer::write_block(out, stream.id, &fields, true);
                self.has_head(begins);
            }
        }
        true
    }
}
