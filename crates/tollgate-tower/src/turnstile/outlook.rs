//! When it is worth coming back: an estimate from how turns were lately given.
//!
//! While somebody waits, the time from one turn to the next is what a place in the queue costs. Its
//! moving average over about sixteen turns, times how many wait, is how long the queue takes to empty;
//! if nobody was given a turn for a while although somebody waited, that while is added, since nobody
//! knows when it ends. It is an
//! estimate: the backend may become faster or slower, and who comes back may be overtaken by others
//! with a better right.
//!
//! It assumes that everybody who waits goes before whoever comes back, and that all flows go equally fast.
//! With a bound on the turns of one flow they do not. Those who pass by others that wait for their bound are
//! not counted, so a queue in which only such flows wait tells how fast these go. Where such a flow waits
//! among others that go faster, it is told too early a time, and may be turned away again; and the others
//! are told too late a time, as if they had to wait for it.

use tollgate::{Moment, Span};

/// A new gap counts for one part in `2^4`.
const SMOOTHING_SHIFT: u32 = 4;

/// How turns were lately given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outlook {
    last_turn: Option<Moment>,
    /// The average time between turns while somebody waited, in nanoseconds.
    gap_ns: Option<u64>,
}

impl Outlook {
    /// A turn was given at `now` to somebody who waited since `arrived`.
    pub(super) fn turn(&mut self, now: Moment, arrived: Moment) {
        if let Some(last) = self.last_turn
            && arrived <= last
        {
            let gap = now.since(last).as_nanos();
            self.gap_ns = Some(match self.gap_ns {
                None => gap,
                Some(average) if gap > average => {
                    average.saturating_add((gap - average) >> SMOOTHING_SHIFT)
                }
                // Rounded up, so that it can reach what it goes down to.
                Some(average) => average - (average - gap).div_ceil(1 << SMOOTHING_SHIFT),
            });
        }
        self.last_turn = Some(now);
    }

    /// How long until `queued` have had their turn, of whom the first came at `since`. None if nobody
    /// ever waited.
    pub(super) fn until_served(&self, now: Moment, queued: usize, since: Moment) -> Option<Span> {
        let gap = u128::from(self.gap_ns?);
        let turns = u128::try_from(queued).unwrap_or(u128::MAX);
        let stalled = now.since(self.last_turn?.max(since)).as_nanos();
        let ns = gap.saturating_mul(turns).saturating_add(stalled.into());
        Some(Span::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Moment {
        Moment::ORIGIN.plus(Span::from_millis(ms))
    }

    #[test]
    fn it_follows_the_gaps_while_somebody_waits_and_adds_a_standstill() {
        let mut outlook = Outlook::default();
        assert_eq!(outlook.until_served(ms(0), 5, ms(0)), None);
        outlook.turn(ms(0), ms(0));
        for turn in 1..=100 {
            outlook.turn(ms(turn * 10), ms(0));
        }
        let until = outlook.until_served(ms(1000), 7, ms(0));
        assert_eq!(until, Some(Span::from_millis(70)));
        let until = outlook.until_served(ms(1500), 7, ms(0));
        assert_eq!(until, Some(Span::from_millis(570)));
        let until = outlook.until_served(ms(9000), 7, ms(8998));
        assert_eq!(until, Some(Span::from_millis(72)));
        // A pause in which nobody waited says nothing.
        outlook.turn(ms(60_000), ms(60_000));
        let until = outlook.until_served(ms(60_000), 7, ms(60_000));
        assert_eq!(until, Some(Span::from_millis(70)));
        for turn in 1..=300 {
            outlook.turn(ms(60_000 + turn), ms(60_000));
        }
        let until = outlook.until_served(ms(60_300), 10, ms(60_000)).unwrap();
        assert_eq!(until, Span::from_millis(10));
    }
}
