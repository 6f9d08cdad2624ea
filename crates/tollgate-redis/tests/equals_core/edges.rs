//! Cases that random histories do not reach: the server's own clock, foreign values, moved limits, calendars.

use super::{Rng, key, limits, quotas};
use crate::server;
use tollgate::Periods;
use tollgate::{Algorithm, Estimate, Limit, LimitId, Moment, Rate, Span, Verdict};
use tollgate_policy::Quota;
use tollgate_policy::shared::{
    SharedCharge, SharedLimit, SharedOutcome, SharedRequest, SharedSettle,
};
use tollgate_redis::testing::{ScriptClient, ScriptOp, ScriptOpResult};
use tollgate_testkit::servers::Server;

pub(crate) fn charge(limit: usize, cost: u64) -> SharedCharge {
    SharedCharge {
        limit: LimitId::new(limit),
        key: key(0),
        cost,
        most: None,
        enforced: true,
        with_next: false,
        owed: 0,
    }
}

pub(crate) fn request(charges: Vec<SharedCharge>) -> ScriptOp {
    ScriptOp::Charge(SharedRequest {
        take: true,
        waited: tollgate::Span::ZERO,
        charges,
    })
}

pub(crate) fn ruled(
    client: &mut ScriptClient,
    now: u64,
    op: ScriptOp,
) -> (Vec<SharedOutcome>, bool) {
    match client.run(&[(now, op)]).unwrap().remove(0) {
        ScriptOpResult::Charged(outcomes, took, disagrees) => {
            assert!(!disagrees, "{outcomes:?}");
            (outcomes, took)
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn quota(algorithm: Algorithm) -> Quota {
    Quota::plain(Limit::new(algorithm).unwrap())
}

fn bucket(rate: &str, burst: u64) -> Algorithm {
    Algorithm::TokenBucket {
        rate: rate.parse().unwrap(),
        burst,
    }
}

/// One of every kind of state.
pub(crate) fn kinds() -> Vec<Algorithm> {
    let second = Span::from_secs(1);
    vec![
        bucket("5/s", 10),
        bucket("11/s", 10),
        Algorithm::FixedWindow {
            limit: 10,
            window: second,
            anchor: Span::ZERO,
        },
        Algorithm::SlidingWindow {
            limit: 10,
            window: second,
            estimate: Estimate::Span,
        },
        Algorithm::SlidingLog {
            limit: 10,
            window: second,
        },
        Algorithm::Gcra {
            rate: "10/s".parse().unwrap(),
            tolerance: Span::from_millis(900),
        },
        Algorithm::Concurrency {
            limit: 10,
            ttl: second,
        },
    ]
}

pub(crate) fn client(server: &Server, unit: Option<u64>, quotas: &[Quota]) -> ScriptClient {
    let ids: Vec<String> = (0..quotas.len()).map(|i| format!("limit-{i}")).collect();
    ScriptClient::connect(server.port(), "tg", unit, &limits(quotas, &ids)).unwrap()
}

#[test]
fn on_the_server_s_clock_every_key_lives_as_long_as_it_counts_and_little_longer() {
    let server = server();
    let quotas: Vec<Quota> = kinds().into_iter().map(quota).collect();
    let mut client = client(&server, None, &quotas);
    for limit in 0..quotas.len() {
        let (outcomes, took) = ruled(&mut client, 0, request(vec![charge(limit, 3)]));
        assert!(took);
        assert_eq!(outcomes[0].verdict, Verdict::Pass);
        assert_eq!(outcomes[0].status.remaining, 7);
        // The server's clock counts from 1970; this was written in this century.
        assert!(outcomes[0].issued > Moment::from_nanos(1_700_000_000 * 1_000_000_000));
        let full_ms = i64::try_from(outcomes[0].status.full_after.as_nanos() / 1_000_000).unwrap();
        let names: Vec<Vec<u8>> = redis::cmd("KEYS")
            .arg(format!("tg:limit-{limit}~*"))
            .query(client.connection())
            .unwrap();
        assert!(!names.is_empty());
        let ttl = |name: &Vec<u8>, client: &mut ScriptClient| -> i64 {
            redis::cmd("PTTL")
                .arg(name)
                .query(client.connection())
                .unwrap()
        };
        let longest = names
            .iter()
            .map(|name| ttl(name, &mut client))
            .max()
            .unwrap();
        // Asking takes a moment; parts are kept until the last one is over, buckets until a step is, which is
        // the time for 64 units.
        let step = match limit {
            0 => 64 * 200,
            5 => 64 * 100,
            _ => 0,
        };
        assert!(
            longest > full_ms + 500 && longest < full_ms + 2_100 + step,
            "limit {limit}: {longest} {full_ms}"
        );
    }
}

/// Most charges of a bucket leave its expiry as it is: it must have been long enough.
#[test]
fn a_bucket_that_is_charged_again_and_again_never_lives_too_short() {
    let server = server();
    let quotas: Vec<Quota> = [
        bucket("1000/s", 1_000_000),
        bucket("7/3s", 400),
        bucket("300/s", 60_000),
        bucket("2/s", 1_000),
    ]
    .into_iter()
    .map(quota)
    .collect();
    let mut client = client(&server, None, &quotas);
    let mut rng = Rng::new(11);
    let name = |client: &ScriptClient, limit| {
        let ScriptOp::Charge(asked) = request(vec![charge(limit, 1)]) else {
            panic!()
        };
        client.commands(&asked)[0].keys[0].clone()
    };
    let (mut kept, mut renewed, mut taken) = (0, 0, 0);
    let expires = |client: &mut ScriptClient, name: &Vec<u8>| -> i64 {
        let now: (i64, i64) = redis::cmd("TIME").query(client.connection()).unwrap();
        let ttl: i64 = redis::cmd("PTTL")
            .arg(name)
            .query(client.connection())
            .unwrap();
        now.0 * 1_000 + now.1 / 1_000 + ttl
    };
    let mut last = [0; 4];
    for _ in 0..3_000 {
        let from = usize::try_from(rng.below(4)).unwrap();
        let count = 1 + usize::try_from(rng.below(4)).unwrap();
        let charged: Vec<usize> = (from..from + count).map(|limit| limit % 4).collect();
        let cost = |limit: &usize| 1 + rng.below([400, 3, 40, 3][*limit]);
        let costs: Vec<u64> = charged.iter().map(cost).collect();
        let charges = charged.iter().zip(&costs);
        let all = request(charges.map(|(limit, cost)| charge(*limit, *cost)).collect());
        let (outcomes, took) = ruled(&mut client, 0, all);
        taken += u32::from(took);
        // Much is given back, so that there is always something to be taken.
        for ((limit, cost), outcome) in charged.iter().zip(&costs).zip(&outcomes) {
            let settle = SharedSettle {
                limit: LimitId::new(*limit),
                key: key(0),
                issued: outcome.issued,
                taken: *cost,
                used: if *limit % 2 == 1 { 0 } else { cost / 2 },
            };
            if took && (*limit % 2 == 1 || rng.below(4) == 0) {
                client.run(&[(0, ScriptOp::Settle(settle))]).unwrap();
            }
        }
        for limit in charged {
            let ScriptOp::Charge(mut look) = request(vec![charge(limit, 1)]) else {
                panic!()
            };
            look.take = false;
            let (outcomes, _) = ruled(&mut client, 0, ScriptOp::Charge(look));
            let full = outcomes[0].issued.as_nanos() / 1_000_000;
            let mut counts = outcomes[0].status.full_after.as_nanos() / 1_000_000;
            if outcomes[0].verdict == Verdict::Pass {
                // The status is as if one more were taken.
                counts = counts.saturating_sub([1, 429, 4, 500][limit]);
            }
            let key = name(&client, limit);
            let until = i64::try_from(full + counts).unwrap();
            let expiry = expires(&mut client, &key);
            if counts > 50 {
                assert!(
                    expiry >= until + 990,
                    "limit {limit}: expires {} ms too early",
                    until + 1_000 - expiry
                );
            }
            if (expiry - last[limit]).abs() < 5 {
                kept += 1;
            } else {
                renewed += 1;
            }
            last[limit] = expiry;
        }
    }
    assert!(kept > 1_000 && renewed > 100, "{kept} {renewed}");
    assert!(taken > 1_000, "only {taken} were taken");
    super::every_key_expires(&mut client);
}

#[test]
fn a_limit_that_is_charged_twice_in_one_request_is_charged_for_both() {
    let server = server();
    let quotas: Vec<Quota> = kinds().into_iter().map(quota).collect();
    let mut client = client(&server, Some(1), &quotas);
    let now = 1_u64 << 44;
    for limit in 0..quotas.len() {
        let other = (limit + 1) % quotas.len();
        let _: () = redis::cmd("FLUSHALL").query(client.connection()).unwrap();
        let twice = |cost| {
            request(vec![
                charge(limit, cost),
                charge(other, 1),
                charge(limit, 2),
            ])
        };
        let (outcomes, took) = ruled(&mut client, now, twice(3));
        assert!(took);
        let left: Vec<u64> = outcomes.iter().map(|o| o.status.remaining).collect();
        assert_eq!(left, [5, 9, 5], "limit {limit}");
        let (outcomes, took) = ruled(&mut client, now, twice(4));
        assert!(!took, "limit {limit}");
        let left: Vec<u64> = outcomes.iter().map(|o| o.status.remaining).collect();
        assert_eq!(left, [5, 9, 5], "limit {limit}");
        let passed: Vec<bool> = outcomes.iter().map(|o| o.verdict.is_admitted()).collect();
        assert_eq!(passed, [false, true, false], "limit {limit}");
    }
}

#[test]
fn several_limits_on_the_server_s_clock_are_taken_all_or_none() {
    let server = server();
    let quotas: Vec<Quota> = kinds().into_iter().map(quota).collect();
    let mut client = client(&server, None, &quotas);
    let all = |cost| request((0..7).map(|limit| charge(limit, cost)).collect());
    assert!(ruled(&mut client, 0, all(6)).1);
    let before: Vec<Option<Vec<u8>>> = dump(&mut client);
    let (outcomes, took) = ruled(&mut client, 0, all(10));
    assert!(!took);
    assert!(
        outcomes
            .iter()
            .any(|outcome| !outcome.verdict.is_admitted())
    );
    assert_eq!(
        dump(&mut client),
        before,
        "a refused request changed something"
    );
}

pub(crate) fn dump(client: &mut ScriptClient) -> Vec<Option<Vec<u8>>> {
    let mut names: Vec<Vec<u8>> = redis::cmd("KEYS")
        .arg("*")
        .query(client.connection())
        .unwrap();
    names.sort();
    let get = |name| {
        redis::cmd("GET")
            .arg(name)
            .query(client.connection())
            .unwrap()
    };
    names.into_iter().map(get).collect()
}

#[test]
fn a_foreign_value_is_an_error_and_stays_as_it_is() {
    let server = server();
    let quotas: Vec<Quota> = kinds().into_iter().map(quota).collect();
    let mut client = client(&server, None, &quotas);
    for limit in 0..quotas.len() {
        for beside in [false, true] {
            for value in [
                "list",
                "text",
                "nan",
                "1e5x",
                "12.5",
                "-7",
                "12345678:",
                "abcdef1C",
                "",
            ] {
                let _: () = redis::cmd("FLUSHALL").query(client.connection()).unwrap();
                let mut charges = vec![charge(limit, 1)];
                if beside {
                    charges.push(charge((limit + 1) % quotas.len(), 1));
                }
                let ScriptOp::Charge(asked) = request(charges) else {
                    panic!()
                };
                let name = client.commands(&asked)[0].keys[0].clone();
                if value == "list" {
                    let _: i64 = redis::cmd("RPUSH")
                        .arg(&name)
                        .arg(1)
                        .query(client.connection())
                        .unwrap();
                } else {
                    let _: () = redis::cmd("SET")
                        .arg(&name)
                        .arg(value)
                        .query(client.connection())
                        .unwrap();
                }
                // Logs are asked last, so the first key is not a log's if there is another.
                let holder = if beside && limit == 4 { 5 } else { limit };
                let settle = ScriptOp::Settle(SharedSettle {
                    limit: LimitId::new(holder),
                    key: key(0),
                    issued: Moment::ORIGIN,
                    taken: 0,
                    used: 1,
                });
                for op in [ScriptOp::Charge(asked), settle] {
                    let came = client.run(&[(0, op)]).unwrap().remove(0);
                    let ScriptOpResult::Failed(error) = came else {
                        panic!("limit {limit}, {value}: {came:?}")
                    };
                    assert!(error.contains("TOLLGATE"), "{error}");
                }
                let names: Vec<Vec<u8>> = redis::cmd("KEYS")
                    .arg("*")
                    .query(client.connection())
                    .unwrap();
                assert_eq!(
                    names,
                    std::slice::from_ref(&name),
                    "something else was written"
                );
                let kind: String = redis::cmd("TYPE")
                    .arg(&name)
                    .query(client.connection())
                    .unwrap();
                assert_eq!(kind, if value == "list" { "list" } else { "string" });
            }
        }
    }
}

/// The same with other numbers, so that its state means something else; the capacity stays.
fn with_other_numbers(algorithm: Algorithm) -> Algorithm {
    let slower = |rate: Rate| Rate::new(rate.units(), twice(rate.per())).unwrap();
    fn twice(span: Span) -> Span {
        Span::from_nanos(2 * span.as_nanos())
    }
    match algorithm {
        Algorithm::TokenBucket { rate, burst } => Algorithm::TokenBucket {
            rate: slower(rate),
            burst,
        },
        Algorithm::FixedWindow {
            limit,
            window,
            anchor,
        } => Algorithm::FixedWindow {
            limit,
            window: twice(window),
            anchor,
        },
        Algorithm::SlidingWindow {
            limit,
            window,
            estimate,
        } => Algorithm::SlidingWindow {
            limit,
            window: twice(window),
            estimate,
        },
        Algorithm::SlidingLog { limit, window } => Algorithm::SlidingLog {
            limit,
            window: twice(window),
        },
        // Cells as many, for twice the time.
        Algorithm::Gcra { rate, tolerance } => Algorithm::Gcra {
            rate: slower(rate),
            tolerance: twice(tolerance),
        },
        Algorithm::Concurrency { limit, ttl } => Algorithm::Concurrency {
            limit,
            ttl: twice(ttl),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_used_counts_on_under_other_numbers() {
    let server = server();
    for (i, kind) in kinds().into_iter().enumerate() {
        let other = with_other_numbers(kind);
        for (old, new) in [(kind, other), (other, kind)] {
            let now = 1_u64 << 44;
            let (was, is) = (quota(old), quota(new));
            let prefix = format!("tg{i}");
            let limit = |quota, before| {
                [SharedLimit {
                    id: "rule",
                    quota,
                    before,
                    plain: true,
                }]
            };
            let mut client =
                ScriptClient::connect(server.port(), &prefix, Some(1), &limit(&was, &[])).unwrap();
            let _: () = redis::cmd("FLUSHALL").query(client.connection()).unwrap();
            assert!(ruled(&mut client, now, request(vec![charge(0, 4)])).1);
            client
                .reload(&prefix, &limit(&is, std::slice::from_ref(&was)))
                .unwrap();
            let (outcomes, took) = ruled(&mut client, now, request(vec![charge(0, 1)]));
            assert!(took);
            assert_eq!(outcomes[0].status.remaining, 5, "{old:?} to {new:?}");
            // Once only.
            let (outcomes, _) = ruled(&mut client, now, request(vec![charge(0, 1)]));
            assert_eq!(outcomes[0].status.remaining, 4, "{old:?} to {new:?}");
        }
    }
}

/// Five hundred units of one key, under a burst of 500 and of 400 by turns: with the rate as it is, and with another one.
#[test]
fn a_burst_that_flaps_gives_nothing_away_in_a_store() {
    let server = server();
    for (i, (low, high)) in [("10/s", "10/s"), ("10/s", "20/s")].iter().enumerate() {
        let limit = |rate: &str, burst| Limit::token_bucket(rate.parse().unwrap(), burst).unwrap();
        let (low, high) = (limit(low, 400), limit(high, 500));
        let low = low.keeping_usage_of(&high);
        let (low, high) = (Quota::plain(low), Quota::plain(high));
        let prefix = format!("flap{i}");
        let known = |quota, before| {
            [SharedLimit {
                id: "rule",
                quota,
                before,
                plain: true,
            }]
        };
        let mut client =
            ScriptClient::connect(server.port(), &prefix, Some(1), &known(&high, &[])).unwrap();
        let now = 1_u64 << 44;
        assert!(ruled(&mut client, now, request(vec![charge(0, 500)])).1);
        for _ in 0..3 {
            client
                .reload(&prefix, &known(&low, std::slice::from_ref(&high)))
                .unwrap();
            let (outcomes, took) = ruled(&mut client, now, request(vec![charge(0, 1)]));
            assert!(!took, "{outcomes:?}");
            client
                .reload(&prefix, &known(&high, std::slice::from_ref(&low)))
                .unwrap();
            let (outcomes, took) = ruled(&mut client, now, request(vec![charge(0, 1)]));
            assert!(!took, "{outcomes:?}");
            assert_eq!(outcomes[0].status.remaining, 0);
        }
    }
}

#[test]
fn what_is_undone_at_once_leaves_nothing() {
    let server = server();
    let quotas: Vec<Quota> = kinds().into_iter().map(quota).collect();
    let mut client = client(&server, Some(1), &quotas);
    let mut charges: Vec<SharedCharge> = (0..7).map(|limit| charge(limit, 3)).collect();
    charges[5].enforced = false;
    let request = SharedRequest {
        take: true,
        waited: tollgate::Span::ZERO,
        charges,
    };
    assert!(client.charge_and_refund(1 << 44, &request).unwrap());
    let names: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query(client.connection())
        .unwrap();
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn nodes_are_counted_until_their_heartbeat_expires() {
    let server = server();
    let mut client = client(&server, None, &[]);
    assert_eq!(client.heartbeat(0, "a", 60_000).unwrap(), 1);
    assert_eq!(client.heartbeat(0, "a", 60_000).unwrap(), 1);
    assert_eq!(client.heartbeat(0, "b", 60_000).unwrap(), 2);
    assert_eq!(client.heartbeat(0, "c", 1).unwrap(), 3);
    // The heartbeat of one millisecond expires, the others do not.
    assert!((0..100_000).any(|_| client.heartbeat(0, "b", 60_000).unwrap() == 2));
    // One that signs off is gone at once.
    client.heartbeat(0, "b", 0).unwrap();
    assert_eq!(client.heartbeat(0, "a", 60_000).unwrap(), 1);
    super::every_key_expires(&mut client);
    // The last one leaves nothing that lasts.
    client.heartbeat(0, "a", 0).unwrap();
    super::every_key_expires(&mut client);
}

#[test]
fn another_capacity_keeps_the_key() {
    let server = server();
    let (small, large) = (quota(bucket("5/s", 10)), quota(bucket("5/s", 20)));
    let limit = |quota, before| {
        [SharedLimit {
            id: "rule",
            quota,
            before,
            plain: true,
        }]
    };
    let now = 1_u64 << 44;
    let mut client =
        ScriptClient::connect(server.port(), "tg", Some(1), &limit(&small, &[])).unwrap();
    assert!(ruled(&mut client, now, request(vec![charge(0, 4)])).1);
    client
        .reload("tg", &limit(&large, std::slice::from_ref(&small)))
        .unwrap();
    let (outcomes, _) = ruled(&mut client, now, request(vec![charge(0, 1)]));
    assert_eq!(outcomes[0].status.remaining, 15);
}

#[test]
fn periods_of_a_calendar_are_counted_as_the_core_counts_them() {
    let server = server();
    let day = 86_400 * 1_000_000_000_u64;
    let starts = [10, 41, 69, 100, 130].map(|days| Moment::from_nanos(days * day));
    let periods = Periods::new("month", &starts, Span::from_nanos(30 * day)).unwrap();
    let algorithm = Algorithm::FixedWindow {
        limit: 20,
        window: periods.window(),
        anchor: Span::ZERO,
    };
    let quota = Quota {
        periods: Some(periods.clone()),
        ..Quota::plain(Limit::new(algorithm).unwrap())
    };
    let unit = 1_000;
    let mut client = client(&server, Some(unit), std::slice::from_ref(&quota));
    let mut rng = Rng::new(7);
    let mut core = super::Core::new(algorithm);
    let mut now = 11 * day / unit;
    let (mut passed, mut refused, mut steps_back) = (0, 0, 0);
    while now < 125 * day / unit {
        now += rng.below(20 * 3_600_000_000);
        // On average the clock moves forward, by three hours in a step: else it would hardly ever arrive.
        if rng.below(24) == 0 {
            let back = rng.below(14 * 24 * 3_600_000_000);
            now -= back.min(now - 11 * day / unit);
            steps_back += 1;
        }
        let cost = rng.below(6);
        let real = Moment::from_nanos(now * unit);
        let face = periods.window_time(real);
        let asked = core.decide(face, cost);
        let (outcomes, took) = ruled(&mut client, now, request(vec![charge(0, cost)]));
        assert_eq!(took, asked.verdict.is_admitted());
        assert_eq!(
            outcomes[0].verdict,
            periods.verdict_in_clock_time(asked.verdict, face)
        );
        let status = if took { asked.after } else { asked.before };
        assert_eq!(
            outcomes[0].status,
            periods.status_in_clock_time(status, face)
        );
        core = if took { asked.taken } else { asked.left };
        if took {
            passed += 1;
        } else {
            refused += 1;
        }
        if took && cost > 0 && rng.below(4) == 0 {
            let settle = SharedSettle {
                limit: LimitId::new(0),
                key: key(0),
                issued: real,
                taken: cost,
                used: 0,
            };
            assert_eq!(
                client.run(&[(now, ScriptOp::Settle(settle))]).unwrap(),
                [ScriptOpResult::Settled(0)]
            );
            core.refund(face, cost, face);
        }
    }
    assert!(passed > 20 && refused > 20, "{passed} {refused}");
    assert!(steps_back > 5, "{steps_back}");
}

/// In microseconds and in coarser units there is no core to compare with but the one that the reply is read
/// with: the script must come to what that comes to.
#[test]
fn script_and_core_agree_in_coarse_units_too() {
    let server = server();
    let day = Span::from_secs(86_400);
    let sliding = |limit, estimate| Algorithm::SlidingWindow {
        limit,
        window: day,
        estimate,
    };
    let mut algorithms: Vec<(Algorithm, u64)> = [
        (sliding(50_000, Estimate::Span), 50_000),
        (sliding(9_000_000, Estimate::Span), 9_000_000),
        (sliding(900, Estimate::Span), 900),
        (bucket("1000/day", 300), 300),
    ]
    .into();
    algorithms.extend(super::algorithms());
    let quotas = quotas(&super::limits_of(&algorithms));
    let mut client = client(&server, Some(1_000), &quotas);
    let mut rng = Rng::new(3);
    let mut now = 1_u64 << 46;
    for _ in 0..40 {
        let ops: Vec<(u64, ScriptOp)> = (0..500)
            .map(|_| {
                now = if rng.below(3) == 0 {
                    now + rng.below(3_600_000_000)
                } else {
                    super::step(&mut rng, now, 1_000)
                };
                let limit = usize::try_from(rng.below(algorithms.len() as u64)).unwrap();
                let cost = super::cost(&mut rng, algorithms[limit].1);
                (now, request(vec![charge(limit, cost)]))
            })
            .collect();
        for ((now, op), came) in ops.iter().zip(client.run(&ops).unwrap()) {
            let ScriptOpResult::Charged(outcomes, _, disagrees) = came else {
                panic!("{came:?}")
            };
            assert!(!disagrees, "at {now}: {op:?}\n{outcomes:?}");
        }
    }
}
