//! What comes out of a direction if this went in: where strikes hit replies.
//!
//! It knows nothing of time and sockets: bytes go in as they came, and pieces go out in the order in which they
//! shall arrive.

use std::sync::Arc;

use tollgate_sim::property::dice::Dice;

use super::frames::{Frame, Frames};
use super::sky::Sky;
use super::tally::Tally;
use super::weather::{Strike, Then, Way};

/// How much of a reply is kept to say it twice. A longer one comes once and a half.
const COPY: usize = 16 << 20;

/// What shall arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    Close,
    Stall,
    Reset,
}

#[derive(Debug)]
pub(super) struct Shaper {
    way: Way,
    sky: Arc<Sky>,
    tally: Arc<Tally>,
    dice: Dice,
    frames: Frames,
    /// It is not the Redis protocol (TLS, say): bytes pass as they come, and no reply is found to strike.
    opaque: bool,
    /// What happens to the message at hand.
    fate: Fate,
    /// The strike that it comes from, to be given back if it does not hit.
    drawn: Option<Strike>,
    reset_after: Option<u64>,
    /// A piece that ends everything went out.
    over: bool,
    out: Vec<Piece>,
}

#[derive(Debug)]
enum Fate {
    Pass,
    Drop,
    Duplicate(Vec<u8>),
    Truncate { left: u64, then: Then },
    Garble { at: u64, seen: u64 },
}

impl Shaper {
    pub(super) fn new(way: Way, sky: Arc<Sky>, tally: Arc<Tally>, dice: Dice) -> Shaper {
        Shaper {
            way,
            sky,
            tally,
            dice,
            frames: match way {
                Way::ToServer => Frames::commands(),
                Way::ToClient => Frames::replies(),
            },
            opaque: false,
            fate: Fate::Pass,
            drawn: None,
            reset_after: None,
            over: false,
            out: Vec::new(),
        }
    }

    /// What these bytes become. Each message is a piece of its own, so that each has its own luck.
    pub(super) fn shape(&mut self, mut bytes: &[u8]) -> Vec<Piece> {
        while !bytes.is_empty() && !self.over && !self.opaque {
            if self.frames.is_between() {
                self.fate = self.draw_fate(bytes);
            }
            let Ok((used, end)) = self.frames.advance(bytes) else {
                self.opaque = true;
                self.give_back();
                break;
            };
            let (part, rest) = bytes.split_at(used.min(bytes.len()));
            self.suffer(part);
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

    /// So many bytes went to the receiver.
    pub(super) fn passed(&self, bytes: usize) {
        self.tally.passed(self.way, bytes);
    }

    fn draw_fate(&mut self, bytes: &[u8]) -> Fate {
        if self.way == Way::ToServer || bytes.first() == Some(&b'>') {
            return Fate::Pass;
        }
        self.drawn = self.sky.for_reply();
        match self.drawn {
            Some(Strike::DropReply) => Fate::Drop,
            Some(Strike::DuplicateReply) => Fate::Duplicate(Vec::new()),
            Some(Strike::TruncateReply { bytes, then }) => Fate::Truncate { left: bytes, then },
            Some(Strike::GarbleReply { at }) => Fate::Garble { at, seen: 0 },
            _ => Fate::Pass,
        }
    }

    /// The next part of the message at hand meets its fate.
    fn suffer(&mut self, part: &[u8]) {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        match &mut self.fate {
            Fate::Pass => self.emit(part.to_vec()),
            Fate::Drop => {}
            Fate::Duplicate(copy) => {
                let room = COPY.saturating_sub(copy.len());
                copy.extend(part.iter().take(room));
                self.emit(part.to_vec());
            }
            Fate::Truncate { left, then } => {
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
            Fate::Garble { at, seen } => {
                let place = at.checked_sub(*seen).and_then(|p| usize::try_from(p).ok());
                *seen = seen.saturating_add(length);
                let mut part = part.to_vec();
                if let Some(byte) = place.and_then(|place| part.get_mut(place)) {
                    let mask = u8::try_from(self.dice.between(1, 255)).unwrap_or(1);
                    *byte ^= mask;
                    self.tally.struck();
                }
                self.emit(part);
            }
        }
    }

    /// The message at hand is complete.
    fn ended(&mut self, frame: Frame) {
        self.tally.message(self.way, frame);
        match std::mem::replace(&mut self.fate, Fate::Pass) {
            Fate::Pass => {}
            Fate::Drop => self.tally.struck(),
            Fate::Duplicate(copy) => {
                self.tally.struck();
                self.emit(copy);
            }
            // The reply was shorter than where it should be cut: the next one may be longer.
            Fate::Truncate { left, .. } if left > 0 => self.give_back(),
            Fate::Truncate { .. } => {}
            Fate::Garble { at, seen } if seen <= at => self.give_back(),
            Fate::Garble { .. } => {}
        }
        self.drawn = None;
    }

    fn give_back(&mut self) {
        if let Some(strike) = self.drawn.take() {
            self.sky.give_back(strike);
        }
    }

    fn emit(&mut self, mut bytes: Vec<u8>) {
        if bytes.is_empty() || self.over {
            return;
        }
        if self.way == Way::ToClient && self.reset_after.is_none() {
            self.reset_after = self.sky.for_bytes();
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
            self.tally.struck();
            self.over = true;
            self.out.push(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client gets of `replies`, fed in pieces of `size`, under these strikes.
    fn shaped(strikes: &[Strike], replies: &[u8], size: usize) -> (Vec<u8>, Option<Piece>, u64) {
        let (sky, tally) = (Arc::new(Sky::clear()), Arc::new(Tally::new()));
        for &strike in strikes {
            sky.strike(strike);
        }
        let mut shaper = Shaper::new(Way::ToClient, sky, Arc::clone(&tally), Dice::new(1));
        let (mut bytes, mut last) = (Vec::new(), None);
        for piece in replies.chunks(size).flat_map(|part| shaper.shape(part)) {
            assert_eq!(last, None, "something after the end");
            match piece {
                Piece::Bytes(more) => bytes.extend(more),
                end => last = Some(end),
            }
        }
        (bytes, last, tally.seen().struck)
    }

    const REPLIES: &[u8] = b"+one\r\n>1\r\n+push\r\n$3\r\ntwo\r\n:3\r\n";

    #[test]
    fn each_strike_hits_its_reply_however_the_bytes_are_split() {
        let (drop, twice) = (Strike::DropReply, Strike::DuplicateReply);
        let cut = |bytes, then| Strike::TruncateReply { bytes, then };
        for size in 1..=REPLIES.len() {
            let expect = |strikes: &[Strike], bytes: &[u8], last, struck| {
                let expected = (bytes.to_vec(), last, struck);
                assert_eq!(
                    shaped(strikes, REPLIES, size),
                    expected,
                    "{strikes:?} {size}"
                );
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
            let reset = Strike::ResetAfter { bytes: 8 };
            expect(&[reset], b"+one\r\n>1", Some(Piece::Reset), 1);
            expect(
                &[Strike::ResetAfter { bytes: 0 }],
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
            let (bytes, last, struck) = shaped(&[Strike::GarbleReply { at: 6 }], REPLIES, size);
            assert_eq!((bytes.len(), last, struck), (REPLIES.len(), None, 1));
            let pairs = bytes.iter().zip(REPLIES).enumerate();
            let changed: Vec<usize> = pairs.filter(|(_, (a, b))| a != b).map(|(i, _)| i).collect();
            assert_eq!(changed, [17 + 6]);
        }
    }

    #[test]
    fn what_is_not_the_protocol_passes_and_leaves_the_strikes_alone() {
        let tls = b"\x16\x03\x01\x00\x05hello";
        assert_eq!(
            shaped(&[Strike::DropReply], tls, 3),
            (tls.to_vec(), None, 0)
        );
        let reset = Strike::ResetAfter { bytes: 4 };
        let cut = (tls[..4].to_vec(), Some(Piece::Reset), 1);
        assert_eq!(shaped(&[reset], tls, 3), cut);
    }
}
