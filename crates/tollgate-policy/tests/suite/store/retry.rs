//! A client that waits for `retry_after` passes: where the store decides, and where this node does.

use super::kit::{Counting, Gate, admit, bucket, node, now, shared, window};
use tollgate::{Limit, ManualClock, Span, Verdict};
use tollgate_policy::Sharing;

/// How often a node synchronises.
const SYNC_EVERY: u64 = 100_000_000;

/// Time passes, and the node synchronises meanwhile.
struct Time {
    clock: ManualClock,
    until_sync: u64,
}

impl Time {
    fn pass(&mut self, gate: &Gate, nanos: u64) {
        let mut left = nanos;
        while left >= self.until_sync {
            left -= self.until_sync;
            self.clock.advance(Span::from_nanos(self.until_sync));
            now(gate.sync_leases());
            self.until_sync = SYNC_EVERY;
        }
        self.until_sync -= left;
        self.clock.advance(Span::from_nanos(left));
    }
}

/// Of the requests that waited for `retry_after`, the number that were refused again.
fn refused_again(sharing: Sharing, limit: Limit, cost: u64, hint_in_ms: bool) -> (u32, u32) {
    let clock = ManualClock::new();
    let store = Counting::new(&clock, 1);
    let gate = node(&clock, store, vec![shared("a", sharing, limit)]);
    let mut time = Time {
        clock,
        until_sync: SYNC_EVERY,
    };
    let (mut waited, mut again, mut has_waited) = (0, 0, false);
    for step in 0..3_000_u64 {
        match admit(&gate, cost).verdict {
            Verdict::Refuse { retry_after } => {
                again += u32::from(has_waited);
                waited += 1;
                has_waited = true;
                let nanos = retry_after.as_nanos();
                time.pass(
                    &gate,
                    match hint_in_ms {
                        true => nanos.div_ceil(1_000_000) * 1_000_000,
                        false => nanos,
                    },
                );
            }
            _ => {
                has_waited = false;
                time.pass(&gate, 137_000 * (step % 7));
            }
        }
    }
    (again, waited)
}

#[test]
fn a_client_that_waits_for_retry_after_passes() {
    let mut wrong = Vec::new();
    for sharing in [Sharing::Exact, Sharing::Lease, Sharing::Sync] {
        for (limit, costs) in [
            (bucket("20/s", 20), [1, 3]),
            (bucket("1000/s", 1_000), [1, 40]),
            (window("100/10s"), [1, 7]),
            (window("1000/s"), [1, 30]),
            (
                Limit::gcra("50/s".parse().unwrap(), Span::from_secs(1)).unwrap(),
                [1, 5],
            ),
        ] {
            for (cost, hint_in_ms) in costs.into_iter().zip([true, false]) {
                let (again, waited) = refused_again(sharing, limit.clone(), cost, hint_in_ms);
                assert!(waited > 0, "{sharing:?} {limit} cost {cost}");
                if again > 0 {
                    wrong.push(format!(
                        "{sharing:?} {limit} cost {cost}: {again} of {waited}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "refused again: {wrong:#?}");
}
