//! Applies one-time faults to the bytes of one direction.
//!
//! It uses neither time nor sockets: bytes go in as they arrive, and pieces come out in the same order.

use std::sync::Arc;

use fastrand::Rng;

use super::counters::Counters;
use super::faults::{Direction, Fault, Then};
use super::state::FaultState;
use crate::resp::{MessageKind, RespFramer};

/// Bound of the copy of a duplicated reply. The second copy of a longer one is cut.
const COPY: usize = 16 << 20;

/// Bytes that arrive, or an event in their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    Close,
    Stall,
    Reset,
}

/// Applies one-time faults to one direction of one connection. The pipe behind it applies bandwidth and delays.
#[derive(Debug)]
pub(super) struct Shaper {
    direction: Direction,
    state: Arc<FaultState>,
    counters: Arc<Counters>,
    rng: Rng,
    frames: RespFramer,
    /// The stream is not RESP (for example TLS): bytes pass as they come, and faults of replies do not apply.
    opaque: bool,
    /// What happens to the current message.
    action: Action,
    /// The fault behind it, returned if it does not apply.
    drawn: Option<Fault>,
    reset_after: Option<u64>,
    /// The connection has ended.
    over: bool,
    out: Vec<Piece>,
}

#[derive(Debug)]
enum Action {
    Pass,
    Drop,
    Duplicate(Vec<u8>),
    Truncate { left: u64, then: Then },
    Garble { at: u64, seen: u64 },
}

impl Shaper {
    pub(super) fn new(
        direction: Direction,
        state: Arc<FaultState>,
        counters: Arc<Counters>,
        rng: Rng,
    ) -> Shaper {
        Shaper {
            direction,
            state,
            counters,
            rng,
            frames: match direction {
                Direction::ToServer => RespFramer::commands(),
                Direction::ToClient => RespFramer::replies(),
            },
            opaque: false,
            action: Action::Pass,
            drawn: None,
            reset_after: None,
            over: false,
            out: Vec::new(),
        }
    }

    /// Applies the faults to these bytes. Each message is a piece of its own, with its own jitter.
    pub(super) fn shape(&mut self, mut bytes: &[u8]) -> Vec<Piece> {
        while !bytes.is_empty() && !self.over && !self.opaque {
            if self.frames.is_between() {
                self.action = self.next_action(bytes);
            }
            let Ok((used, end)) = self.frames.advance(bytes) else {
                self.opaque = true;
                self.return_fault();
                break;
            };
            let (part, rest) = bytes.split_at(used.min(bytes.len()));
            self.apply(part);
            if let Some(frame) = end {
                self.ended(frame);
            }
            bytes = rest;
        }
        if self.opaque {
            self.emit(bytes.to_vec());
        }
        std::mem::take(&mut self.out)
    }

    /// Counts bytes that went to the receiver.
    pub(super) fn passed(&self, bytes: usize) {
        self.counters.passed(self.direction, bytes);
    }

    fn next_action(&mut self, bytes: &[u8]) -> Action {
        if self.direction == Direction::ToServer || bytes.first() == Some(&b'>') {
            return Action::Pass;
        }
        self.drawn = self.state.for_reply();
        match self.drawn {
            Some(Fault::DropReply) => Action::Drop,
            Some(Fault::DuplicateReply) => Action::Duplicate(Vec::new()),
            Some(Fault::TruncateReply { bytes, then }) => Action::Truncate { left: bytes, then },
            Some(Fault::GarbleReply { at }) => Action::Garble { at, seen: 0 },
            _ => Action::Pass,
        }
    }

    /// Applies the action to the next part of the current message.
    fn apply(&mut self, part: &[u8]) {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        match &mut self.action {
            Action::Pass => self.emit(part.to_vec()),
            Action::Drop => {}
            Action::Duplicate(copy) => {
                let room = COPY.saturating_sub(copy.len());
                copy.extend(part.iter().take(room));
                self.emit(part.to_vec());
            }
            Action::Truncate { left, then } => {
                let then = *then;
                let take = usize::try_from(*left).map_or(part.len(), |left| left.min(part.len()));
                *left = left.saturating_sub(length);
                let cut = *left == 0;
                self.emit(part.iter().take(take).copied().collect());
                if cut {
                    self.finish(match then {
                        Then::Close => Piece::Close,
                        Then::Stall => Piece::Stall,
                    });
                }
            }
            Action::Garble { at, seen } => {
                let place = at.checked_sub(*seen).and_then(|p| usize::try_from(p).ok());
                *seen = seen.saturating_add(length);
                let mut part = part.to_vec();
                if let Some(byte) = place.and_then(|place| part.get_mut(place)) {
                    let mask = u8::try_from(self.rng.u64(1..=255)).unwrap_or(1);
                    *byte ^= mask;
                    self.counters.injected();
                }
                self.emit(part);
            }
        }
    }

    /// The current message is complete.
    fn ended(&mut self, frame: MessageKind) {
        self.counters.message(self.direction, frame);
        match std::mem::replace(&mut self.action, Action::Pass) {
            Action::Pass => {}
            Action::Drop => self.counters.injected(),
            Action::Duplicate(copy) => {
                self.counters.injected();
                self.emit(copy);
            }
            // The reply is shorter than the cut: the next one may be longer.
            Action::Truncate { left, .. } if left > 0 => self.return_fault(),
            Action::Truncate { .. } => {}
            Action::Garble { at, seen } if seen <= at => self.return_fault(),
            Action::Garble { .. } => {}
        }
        self.drawn = None;
    }

    fn return_fault(&mut self) {
        if let Some(fault) = self.drawn.take() {
            self.state.return_fault(fault);
        }
    }

    fn emit(&mut self, mut bytes: Vec<u8>) {
        if bytes.is_empty() || self.over {
            return;
        }
        if self.direction == Direction::ToClient && self.reset_after.is_none() {
            self.reset_after = self.state.for_bytes();
        }
        let Some(left) = &mut self.reset_after else {
            self.out.push(Piece::Bytes(bytes));
            return;
        };
        let take = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
        *left = left.saturating_sub(u64::try_from(take).unwrap_or(*left));
        let end = *left == 0;
        bytes.truncate(take);
        if !bytes.is_empty() {
            self.out.push(Piece::Bytes(bytes));
        }
        if end {
            self.finish(Piece::Reset);
        }
    }

    fn finish(&mut self, last: Piece) {
        if !self.over {
            self.counters.injected();
            self.over = true;
            self.out.push(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client gets of `replies`, fed in pieces of `size`, under these faults.
    fn shaped(faults: &[Fault], replies: &[u8], size: usize) -> (Vec<u8>, Option<Piece>, u64) {
        let (state, counters) = (Arc::new(FaultState::clear()), Arc::new(Counters::new()));
        for &fault in faults {
            state.inject(fault);
        }
        let mut shaper = Shaper::new(
            Direction::ToClient,
            state,
            Arc::clone(&counters),
            Rng::with_seed(1),
        );
        let (mut bytes, mut last) = (Vec::new(), None);
        for piece in replies.chunks(size).flat_map(|part| shaper.shape(part)) {
            assert_eq!(last, None, "something after the end");
            match piece {
                Piece::Bytes(more) => bytes.extend(more),
                end => last = Some(end),
            }
        }
        (bytes, last, counters.counts().injected)
    }

    const REPLIES: &[u8] = b"+one\r\n>1\r\n+push\r\n$3\r\ntwo\r\n:3\r\n";

    #[test]
    fn each_fault_applies_to_its_reply_however_the_bytes_are_split() {
        let (drop, twice) = (Fault::DropReply, Fault::DuplicateReply);
        let cut = |bytes, then| Fault::TruncateReply { bytes, then };
        for size in 1..=REPLIES.len() {
            let expect = |faults: &[Fault], bytes: &[u8], last, injected| {
                let expected = (bytes.to_vec(), last, injected);
                assert_eq!(shaped(faults, REPLIES, size), expected, "{faults:?} {size}");
            };
            expect(&[], REPLIES, None, 0);
            expect(&[drop], b">1\r\n+push\r\n$3\r\ntwo\r\n:3\r\n", None, 1);
            expect(&[drop, drop], b">1\r\n+push\r\n:3\r\n", None, 2);
            expect(
                &[twice, drop],
                b"+one\r\n+one\r\n>1\r\n+push\r\n:3\r\n",
                None,
                2,
            );
            expect(&[cut(2, Then::Close)], b"+o", Some(Piece::Close), 1);
            expect(&[cut(0, Then::Stall)], b"", Some(Piece::Stall), 1);
            expect(
                &[drop, cut(4, Then::Stall)],
                b">1\r\n+push\r\n$3\r\n",
                Some(Piece::Stall),
                2,
            );
            let reset = Fault::ResetAfter { bytes: 8 };
            expect(&[reset], b"+one\r\n>1", Some(Piece::Reset), 1);
            expect(
                &[Fault::ResetAfter { bytes: 0 }],
                b"",
                Some(Piece::Reset),
                1,
            );
        }
    }

    #[test]
    fn a_garbled_byte_is_another_one_and_all_others_are_the_same() {
        for size in 1..=REPLIES.len() {
            // Only the second reply has a byte of this number.
            let (bytes, last, injected) = shaped(&[Fault::GarbleReply { at: 6 }], REPLIES, size);
            assert_eq!((bytes.len(), last, injected), (REPLIES.len(), None, 1));
            let pairs = bytes.iter().zip(REPLIES).enumerate();
            let changed: Vec<usize> = pairs.filter(|(_, (a, b))| a != b).map(|(i, _)| i).collect();
            assert_eq!(changed, [17 + 6]);
        }
    }

    #[test]
    fn other_protocols_pass_and_keep_the_faults() {
        let tls = b"\x16\x03\x01\x00\x05hello";
        assert_eq!(shaped(&[Fault::DropReply], tls, 3), (tls.to_vec(), None, 0));
        let reset = Fault::ResetAfter { bytes: 4 };
        let cut = (tls[..4].to_vec(), Some(Piece::Reset), 1);
        assert_eq!(shaped(&[reset], tls, 3), cut);
    }
}
