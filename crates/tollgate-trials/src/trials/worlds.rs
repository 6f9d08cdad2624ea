//! What several trials have in common.

use std::time::Duration;

use crate::crowd::{Allowance, Crowd, Guest, Seen};
use crate::policy::{MARK, USUAL, bears_the_mark, marked, plain};
use crate::verdicts::{SOON, Verdicts, time};

/// Guests of the usual limit. With the usual rate each offers twice what it may.
pub(super) const GUESTS: u64 = 200;
/// Of those, with marks: half.
pub(super) const MARKED: u64 = 100;
/// How long to wait at most for what should take a second.
pub(super) const DEADLINE: Duration = Duration::from_secs(15);

/// Guests with the usual limit.
pub(super) fn usual_guests() -> Vec<Guest> {
    plain(GUESTS)
}

/// Guests with marks, then guests with the usual limit.
pub(super) fn mixed_guests() -> Vec<Guest> {
    let mut guests = marked(MARKED);
    guests.extend(plain(GUESTS - MARKED));
    guests
}

/// The numbers of the guests with the usual limit among these.
pub(super) fn usual_of(guests: &[Guest]) -> std::ops::Range<usize> {
    guests.iter().take_while(|g| g.cost == MARK).count()..guests.len()
}

/// Promises that nobody with the usual limit had more than its allowance and `bursts` bursts.
pub(super) fn little_too_much(verdicts: &mut Verdicts, seen: &Seen, guests: &[Guest], bursts: u64) {
    let usual = Allowance {
        per_second: 5,
        burst: USUAL.burst,
    };
    let excess = seen.excess(usual_of(guests), usual);
    let most = bursts * USUAL.burst;
    verdicts.promise(
        &format!("no key has more than its allowance and {most}"),
        excess <= most,
        format!("at most {excess} more"),
    );
}

/// Promises that every answer was to its own question.
pub(super) fn none_crossed(verdicts: &mut Verdicts, seen: &Seen) {
    let (mut told, mut crossed) = (0_u64, 0_u64);
    for record in seen.records() {
        let number = u64::try_from(record.guest).unwrap_or(u64::MAX);
        if let Some(remaining) = record.remaining.filter(|_| number < MARKED) {
            told += 1;
            crossed += u64::from(!bears_the_mark(number, remaining));
        }
    }
    verdicts.promise(
        "no answer is another one's",
        crossed == 0 && told > 0,
        format!("{crossed} of {told} that bear a mark"),
    );
}

/// Waits until the store is used again after `event`, and promises that it is, and soon.
pub(super) fn back_soon(
    verdicts: &mut Verdicts,
    crowd: &Crowd,
    event: Duration,
    what: &str,
) -> Option<Duration> {
    let back = crowd.back_after(event, DEADLINE);
    let seen = back.map_or("never".into(), time);
    verdicts.promise(
        &format!("the store is used again {what}"),
        back.is_some(),
        seen,
    );
    let promised = format!("that is within {}", time(SOON));
    verdicts.promise_time(&promised, SOON, back);
    back
}
