//! Windows whose number comes with the call.
//!
//! The word of a window is its number and a count; how many fit is compared with the count and kept nowhere. So
//! a call may bring its own number ([`Window::at_most`]) and everything else goes its usual way: found, swapped,
//! taken back and forgotten as for any other window. Purses that are no windows of that kind answer by their
//! own limit.

use super::key_table::{KeyTable, TentativeCharge};
use super::layout::Intent;
use super::packed_table::PendingWrite;
use crate::algorithm::OneWord;
use crate::algorithm::window::Window;
use crate::decision::{Decision, QuotaStatus};
use crate::time::Moment;

impl KeyTable {
    /// [`KeyTable::charge`] of a cost on a window with room for so many.
    pub(crate) fn charge_at_most(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        (cost, most): (u64, u32),
    ) -> Decision {
        let KeyTable::Window(table) = self else {
            return self.charge(hash, now, fresh, cost);
        };
        let applied = table.apply(
            hash,
            Intent::Charge(cost),
            now,
            fresh,
            |limit, word, now| {
                let step = limit.at_most(most).charge(word, now, cost);
                (step.verdict, step.write)
            },
        );
        Decision {
            verdict: applied.result,
            status: left(&applied.limit, most, applied.word, applied.now),
            issued: applied.now,
            origin: applied.origin,
        }
    }

    /// [`KeyTable::peek`], the same.
    pub(crate) fn peek_at_most(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        (cost, most): (u64, u32),
    ) -> Decision {
        let KeyTable::Window(table) = self else {
            return self.peek(hash, now, fresh, cost);
        };
        let applied = table.apply(hash, Intent::Read, now, fresh, |limit, word, now| {
            let step = limit.at_most(most).charge(word, now, cost);
            ((step.verdict, step.write.or(word)), None)
        });
        let (verdict, would_be) = applied.result;
        Decision {
            verdict,
            status: left(&applied.limit, most, would_be, applied.now),
            issued: applied.now,
            origin: applied.origin,
        }
    }

    /// [`KeyTable::offer`], the same.
    pub(crate) fn offer_at_most(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        (cost, most): (u64, u32),
    ) -> TentativeCharge<'_> {
        let offered = match self {
            KeyTable::Window(table) => table.offer_by(hash, now, |limit, word| {
                limit.at_most(most).charge(Some(word), now, cost)
            }),
            _ => return self.offer(hash, now, fresh, cost),
        };
        match offered {
            Some(offer) => TentativeCharge {
                verdict: offer.verdict,
                place: Some(offer.place),
            },
            None => TentativeCharge {
                verdict: self.peek_at_most(hash, now, fresh, (cost, most)).verdict,
                place: None,
            },
        }
    }

    /// [`KeyTable::status_at`], the same.
    pub(crate) fn status_at_most(
        &self,
        place: &PendingWrite<'_>,
        now: Moment,
        made: bool,
        most: u32,
    ) -> QuotaStatus {
        let KeyTable::Window(table) = self else {
            return self.status_at(place, now, made);
        };
        let word = place.write.filter(|_| made).unwrap_or(place.word);
        left(&table.effective(), most, Some(word), now)
    }
}

fn left(limit: &Window, most: u32, word: Option<u64>, now: Moment) -> QuotaStatus {
    limit.at_most(most).status(word, now)
}
