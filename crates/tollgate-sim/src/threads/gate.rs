//! Two limits behind one gate: both are charged or neither.

use super::{ThreadOutcome, Workers, burst, per_second, still};
use tollgate::{Gate, Limit};

/// The key of each limit.
const KEYS: [u64; 2] = [42, 43];

/// A gate admits what the smaller of its limits holds, and charges the other with just as much.
///
/// The threads name the limits in opposite order, as two handlers of one service might.
pub(super) fn all_or_none(workers: &mut Workers<'_>) -> Result<ThreadOutcome, String> {
    let large = burst(workers.charges());
    let small = (large / 4 * 3).max(1);
    let mut gate = Gate::with_clock(still());
    let mut add = |burst| {
        let limit = Limit::token_bucket(per_second(1_000)?, burst);
        limit
            .and_then(|limit| gate.add(limit.with_max_keys(1_000)))
            .map_err(|error| error.to_string())
    };
    let limits = [add(large)?, add(small)?];
    let admitted = workers.charge(|block| {
        let mut charges = [
            gate.charge(limits[0], &KEYS[0], 1),
            gate.charge(limits[1], &KEYS[1], 1),
        ];
        if block.thread % 2 == 1 {
            charges.reverse();
        }
        let admit = |_| u64::from(gate.admit(&charges).decision.is_admitted());
        (0..block.charges).map(admit).sum()
    })?;
    let mut outcome = ThreadOutcome::exactly(small, admitted);
    for ((limit, key), burst) in limits.into_iter().zip(KEYS).zip([large, small]) {
        let left = gate.limiter(limit).peek(&key, 0).remaining();
        let what = format!("what is left of {burst}");
        outcome.expect_equal(&what, burst - small, left);
        outcome.notes.push(format!("{left} left of {burst}"));
    }
    Ok(outcome)
}
