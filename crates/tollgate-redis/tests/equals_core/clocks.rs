//! Nodes with a wrong clock, and words that wrap.

use super::core::Core;
use super::edges::{charge, client, dump, request, ruled};
use super::key;
use crate::server;
use tollgate::Periods;
use tollgate::{Algorithm, Estimate, Limit, LimitId, Moment, Span};
use tollgate_policy::Quota;
use tollgate_policy::shared::SharedSettle;
use tollgate_redis::testing::{ScriptOp, ScriptOpResult};

const DAY: u64 = 86_400 * 1_000_000_000;

fn monthly() -> Quota {
    let starts = [10, 41, 69, 100, 130, 161].map(|days| Moment::from_nanos(days * DAY));
    let periods = Periods::new("month", &starts, Span::from_nanos(30 * DAY)).unwrap();
    let algorithm = Algorithm::FixedWindow {
        limit: 20,
        window: periods.window(),
        anchor: Span::ZERO,
    };
    Quota {
        periods: Some(periods),
        ..Quota::plain(Limit::new(algorithm).unwrap())
    }
}

#[test]
fn a_node_whose_clock_is_off_by_more_than_a_period_gets_an_error_and_changes_nothing() {
    let server = server();
    let mut client = client(&server, Some(1_000), &[monthly()]);
    // In the middle of the period from day 69 to day 100.
    let now = 85 * DAY / 1_000;
    assert!(ruled(&mut client, now, request(vec![charge(0, 18)])).1);
    let before = dump(&mut client);
    let settle = |used| {
        ScriptOp::Settle(SharedSettle {
            limit: LimitId::new(0),
            key: key(0),
            issued: Moment::from_nanos(85 * DAY),
            taken: 5,
            used,
        })
    };
    for days in [-60_i64, -50, 50, 70] {
        client.set_node_ahead(days * 86_400 * 1_000_000_000);
        for op in [request(vec![charge(0, 1)]), settle(0), settle(9)] {
            let came = client.run(&[(now, op)]).unwrap().remove(0);
            let ScriptOpResult::Failed(error) = came else {
                panic!("{days} days: {came:?}")
            };
            assert!(error.contains("TOLLGATE-CLOCK"), "{error}");
            assert!(error.contains("limit-0"), "{error}");
            assert!(!error.contains("tenant"), "{error}");
        }
        assert_eq!(dump(&mut client), before, "{days} days");
    }
    client.set_node_ahead(0);
    assert!(!ruled(&mut client, now, request(vec![charge(0, 3)])).1);
}

#[test]
fn a_node_whose_clock_is_off_by_less_than_a_period_counts_with_the_others() {
    let server = server();
    let mut client = client(&server, Some(1_000), &[monthly()]);
    for now in [85 * DAY / 1_000, 69 * DAY / 1_000, 100 * DAY / 1_000 - 1] {
        let _: () = redis::cmd("FLUSHALL").query(client.connection()).unwrap();
        for (days, left) in [(0_i64, 17), (-20, 14), (20, 11), (-28, 8), (28, 5)] {
            client.set_node_ahead(days * 86_400 * 1_000_000_000);
            let (outcomes, took) = ruled(&mut client, now, request(vec![charge(0, 3)]));
            assert!(took);
            assert_eq!(outcomes[0].status.remaining, left, "{days} days");
        }
    }
}

/// The core's word keeps eight bits of the number of a part here. A clock that is set back by exactly what
/// they count comes to the same bits for another time.
#[test]
fn a_word_that_wraps_to_itself_is_repaired_as_any_other() {
    let server = server();
    let algorithm = Algorithm::SlidingWindow {
        limit: 40_000,
        window: Span::from_millis(1),
        estimate: Estimate::Span,
    };
    let quota = super::edges::quota(algorithm);
    let mut client = client(&server, Some(1), std::slice::from_ref(&quota));
    let mut core = Core::new(algorithm);
    let ms = 1_000_000_u64;
    let start = 1_u64 << 44;
    // Full; then set back by 256 parts and refused, which repairs; then so far on that it is over.
    for (now, passes) in [
        (start, true),
        (start - 256 * ms, false),
        (start - 250 * ms, true),
    ] {
        let asked = core.decide(Moment::from_nanos(now), 40_000);
        let (outcomes, took) = ruled(&mut client, now, request(vec![charge(0, 40_000)]));
        assert_eq!(took, passes, "the script at {now}");
        assert_eq!(asked.verdict.is_admitted(), passes, "the core at {now}");
        assert_eq!(outcomes[0].verdict, asked.verdict);
        core = if took { asked.taken } else { asked.left };
    }
}
