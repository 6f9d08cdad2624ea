//! A flood of keys that never come back: what a limiter holds, and whether anyone gains by it.
//!
//! # Method
//!
//! The limit is one unit an hour with a burst of one, so that every key that was ever admitted stays
//! in use to the end. First a *victim* spends its unit. Then so many distinct keys are asked about
//! once each, and after every thousand the victim asks again: it must be refused every time, because
//! a limiter that forgets it under pressure lets whoever floods it start anew.
//!
//! Each limiter is flooded in a fresh child process of this same program, so that the growth is its
//! own. One that states no cap is stopped when the process holds [`RESIDENT_MAX`].
//!
//! # What is demanded
//!
//! Of Tollgate: that it grows by no more than the cap it states, give or take [`OVER_MAX_PERCENT`],
//! and never admits the victim.

mod report;
mod wave;

use std::io::{self, Write};
use std::time::Instant;

use self::wave::{Wave, wave};
use crate::args::{Flood, FloodChild, Flooded};
use crate::contestants::Contestant;
use crate::contestants::governor::Governor;
use crate::contestants::tollgate::Exact;
use crate::process::{Resident, no_proc, numbers_of_child};
use crate::workload::{Config, Mode};

/// Where a limiter without a cap is stopped.
const RESIDENT_MAX: u64 = 2 << 30;

/// What the growth may exceed the stated cap by: the process is more than its limiter.
const OVER_MAX_PERCENT: u64 = 10;

/// How a flood ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    wave: Wave,
    before_bytes: u64,
    after_bytes: u64,
    /// What only one of the two can tell.
    own: Own,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Tollgate {
        cap_bytes: u64,
        crowded: u64,
    },
    /// `retain_recent` was called at the end: how long it took and how many keys it kept.
    Governor {
        retain_ns: u64,
        kept: u64,
    },
}

impl Outcome {
    fn growth_bytes(&self) -> u64 {
        self.after_bytes.saturating_sub(self.before_bytes)
    }

    fn is_good(&self) -> bool {
        match self.own {
            Own::Tollgate { cap_bytes, .. } => {
                let most = cap_bytes + cap_bytes * OVER_MAX_PERCENT / 100;
                self.growth_bytes() <= most && self.wave.victim_admitted == 0
            }
            Own::Governor { .. } => true,
        }
    }
}

/// Floods both; returns whether Tollgate kept within its cap and held the victim back.
pub(crate) fn run(wanted: &Flood, out: &mut dyn Write) -> io::Result<bool> {
    let json = wanted.json;
    let outcomes = [Flooded::Tollgate, Flooded::Governor].map(|whom| in_child(whom, wanted));
    let [ours, theirs] = outcomes;
    let outcomes = [ours?, theirs?];
    if json {
        report::print_json(wanted, &outcomes, out)?;
    } else {
        report::print_table(wanted, &outcomes, out)?;
    }
    out.flush()?;
    Ok(outcomes.iter().all(Outcome::is_good))
}

/// What the child does: flood one limiter and print its numbers.
pub(crate) fn run_child(child: FloodChild, out: &mut dyn Write) -> io::Result<()> {
    let wanted = &Flood {
        keys: child.keys,
        max_keys: child.max_keys,
        json: false,
    };
    let outcome = match child.limiter {
        Flooded::Tollgate => flood::<Exact>(wanted, None, |limiter| Own::Tollgate {
            cap_bytes: limiter.memory_cap() as u64,
            crowded: limiter.crowded(),
        }),
        Flooded::Governor => flood::<Governor>(wanted, Some(RESIDENT_MAX), |limiter| {
            let begin = Instant::now();
            let kept = limiter.retain_recent() as u64;
            let retain_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            Own::Governor { retain_ns, kept }
        }),
    };
    let outcome = outcome.ok_or_else(no_proc)?;
    let numbers = outcome.to_numbers().map(|number| number.to_string());
    writeln!(out, "{}", numbers.join(" "))
}

/// Floods one limiter in this process. `None` if the system does not tell the memory of a process.
fn flood<C: Contestant>(
    wanted: &Flood,
    resident_max: Option<u64>,
    own: impl Fn(&C) -> Own,
) -> Option<Outcome> {
    let resident = Resident::new()?;
    let limiter = |max_keys| C::new(&Config::new(max_keys, Mode::Refuse));
    // A small one for nothing, so that loading the code from the file is not part of the growth.
    wave(&limiter(1_000), 5_000, None);
    let before_bytes = resident.bytes()?;
    let limiter = limiter(wanted.max_keys);
    let until = resident_max.map(|most| (resident, most));
    let wave = wave(&limiter, wanted.keys, until);
    let after_bytes = resident.bytes()?;
    Some(Outcome {
        wave,
        before_bytes,
        after_bytes,
        own: own(&limiter),
    })
}

fn in_child(whom: Flooded, wanted: &Flood) -> io::Result<Outcome> {
    let (keys, max_keys) = (wanted.keys.to_string(), wanted.max_keys.to_string());
    let args = ["flood-child", whom.name(), &keys, &max_keys];
    let what = format!("flooding `{}`", whom.name());
    Ok(Outcome::from_numbers(whom, numbers_of_child(&args, &what)?))
}

impl Outcome {
    fn to_numbers(self) -> [u64; 9] {
        let Wave {
            keys,
            admitted,
            victim_polls,
            victim_admitted,
            elapsed_ns,
        } = self.wave;
        let (first, second) = match self.own {
            Own::Tollgate { cap_bytes, crowded } => (cap_bytes, crowded),
            Own::Governor { retain_ns, kept } => (retain_ns, kept),
        };
        [
            keys,
            admitted,
            victim_polls,
            victim_admitted,
            elapsed_ns,
            self.before_bytes,
            self.after_bytes,
            first,
            second,
        ]
    }

    fn from_numbers(whom: Flooded, numbers: [u64; 9]) -> Self {
        let [
            keys,
            admitted,
            victim_polls,
            victim_admitted,
            elapsed_ns,
            before_bytes,
            after_bytes,
            first,
            second,
        ] = numbers;
        Self {
            wave: Wave {
                keys,
                admitted,
                victim_polls,
                victim_admitted,
                elapsed_ns,
            },
            before_bytes,
            after_bytes,
            own: match whom {
                Flooded::Tollgate => Own::Tollgate {
                    cap_bytes: first,
                    crowded: second,
                },
                Flooded::Governor => Own::Governor {
                    retain_ns: first,
                    kept: second,
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(growth: u64, victim_admitted: u64) -> Outcome {
        let numbers = [10, 5, 1, victim_admitted, 100, 50, 50 + growth, 1_000, 5];
        let outcome = Outcome::from_numbers(Flooded::Tollgate, numbers);
        assert_eq!(outcome.to_numbers(), numbers);
        outcome
    }

    #[test]
    fn a_tenth_above_the_cap_is_the_process_and_more_is_the_limiter() {
        assert!(outcome(1_100, 0).is_good());
        assert!(!outcome(1_101, 0).is_good());
    }

    #[test]
    fn a_victim_that_was_admitted_once_is_once_too_often() {
        assert!(!outcome(1_000, 1).is_good());
    }
}
