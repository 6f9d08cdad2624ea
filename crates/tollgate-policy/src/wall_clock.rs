//! Detects steps of the wall clock, so that calendar periods follow it.
//!
//! # Theory
//!
//! The clock of limits is monotonic: it starts at the wall clock's time and then runs without it, so nothing that sets the
//! wall clock gives units away. Days, weeks and months are those of the wall clock, though, and a process may start before
//! the time of its machine is right. So their periods are looked up at `clock + ahead`, and `ahead` is adjusted when the wall
//! clock was found to have stepped.
//!
//! # Bound
//!
//! After a step into another period each key has the allowance of that period. A step counts only when the wall clock has kept
//! to it for [`SETTLE_TIME`], and there is at most one in [`STEP_INTERVAL`]. So a wall clock that jumps gives each key at most
//! one more allowance in each interval, and two periods next to each other give one in all, however often it jumps between
//! them: a window that is ahead remains.
//!
//! # What it does not adjust
//!
//! Every limit without a calendar, and `expires`.

use std::sync::{Mutex, PoisonError};

use tollgate::{Moment, Span};

/// A smaller difference is left alone: clocks drift, and adjustments of a few milliseconds change no period.
const TOLERANCE: Span = Span::from_secs(2);
/// How long a wall clock must keep to a step.
const SETTLE_TIME: Span = Span::from_secs(10);
/// The least time between two steps.
const STEP_INTERVAL: Span = Span::from_secs(3_600);

/// How far the wall clock is ahead of the clock of limits.
#[derive(Debug, Default)]
pub(crate) struct WallClock(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    ahead: i64,
    /// A difference that may be a step, and when it was seen first.
    seen: Option<(i64, Moment)>,
    stepped: Option<Moment>,
}

impl WallClock {
    /// Nanoseconds that calendars are ahead by.
    pub(crate) fn ahead(&self) -> i64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ahead
    }

    /// Compares the clocks. Returns by how much calendars are ahead from now on, if that has changed.
    pub(crate) fn observe(&self, now: Moment, wall: Moment) -> Option<i64> {
        let nanos = |moment: Moment| i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX);
        let difference = nanos(wall).saturating_sub(nanos(now));
        let is_near = |other: i64| difference.abs_diff(other) < TOLERANCE.as_nanos();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_near(state.ahead) {
            state.seen = None;
            return None;
        }
        let since = match state.seen {
            Some((seen, since)) if is_near(seen) => since,
            _ => {
                state.seen = Some((difference, now));
                return None;
            }
        };
        let is_early = |stepped: Moment| now.since(stepped) < STEP_INTERVAL;
        if now.since(since) < SETTLE_TIME || state.stepped.is_some_and(is_early) {
            return None;
        }
        *state = State {
            ahead: difference,
            seen: None,
            stepped: Some(now),
        };
        Some(difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Steps that are taken for a wall clock that is ahead by these seconds, one for each second.
    fn steps(ahead: impl Iterator<Item = i64>) -> Vec<(u64, i64)> {
        let wall_clock = WallClock::default();
        let start = 1_700_000_000 * S;
        let look = |(second, ahead): (usize, i64)| {
            let now = start + second as u64 * S;
            let wall = now.saturating_add_signed(ahead * S as i64);
            let step = wall_clock.observe(Moment::from_nanos(now), Moment::from_nanos(wall));
            step.map(|step| (second as u64, step / S as i64))
        };
        ahead.enumerate().filter_map(look).collect()
    }

    #[test]
    fn a_step_counts_once_it_has_lasted() {
        let day = 86_400;
        let (before, after) = ((0..30).map(|_| 0), (0..100).map(|_| day));
        assert_eq!(steps(before.chain(after)), [(40, day)]);
        assert_eq!(steps((0..100).map(|_| -day)), [(10, -day)]);
    }

    #[test]
    fn drift_and_steps_that_do_not_last_change_nothing() {
        assert_eq!(steps((0..10_000).map(|_| 1)), []);
        let jumps = (0..10_000).map(|second| if second % 9 == 0 { 0 } else { 86_400 });
        assert_eq!(steps(jumps), []);
    }

    #[test]
    fn a_wall_clock_that_jumps_steps_once_an_hour() {
        let jumps = (0..5 * 3600).map(|second| second / 60 % 2 * 40 * 86_400);
        let steps = steps(jumps);
        assert_eq!(steps.len(), 5, "{steps:?}");
        for pair in steps.windows(2) {
            assert!(pair[1].0 - pair[0].0 >= 3600, "{steps:?}");
        }
    }
}
