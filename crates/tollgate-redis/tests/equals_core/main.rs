//! Random histories on a real server, step by step equal to the core's own algorithms.
//!
//! `TOLLGATE_OPS` says how many operations (100 000 by default), `TOLLGATE_SEED` from where.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod clocks;
mod core;
mod edges;
mod foreign_keys;
mod hierarchy;
mod long_logs;
mod overrides;
mod timelines;

use std::collections::HashMap;

use core::Core;
use tollgate::{Algorithm, Estimate, Limit, LimitId, Moment, Span, Verdict};
use tollgate_policy::Quota;
use tollgate_policy::shared::{
    KeyKind, SharedCharge, SharedKey, SharedLimit, SharedOutcome, SharedRequest, SharedSettle,
};
use tollgate_redis::testing::{ScriptClient, ScriptOp, ScriptOpResult};
use tollgate_sim::rng::Rng;
use tollgate_testkit::servers::{Kind, Server};

/// A server of the kind that `TOLLGATE_TEST_STORE` names.
fn server() -> Server {
    Server::start(Kind::from_environment().unwrap(), &[]).unwrap()
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// Every algorithm, with windows of about a second so that random steps meet their boundaries.
fn algorithms() -> Vec<(Algorithm, u64)> {
    let rate = |text: &str| text.parse().unwrap();
    let ms = Span::from_millis;
    let sliding = |limit, window, estimate| Algorithm::SlidingWindow {
        limit,
        window,
        estimate,
    };
    vec![
        (
            Algorithm::TokenBucket {
                rate: rate("5/s"),
                burst: 10,
            },
            10,
        ),
        (
            Algorithm::TokenBucket {
                rate: rate("7/3s"),
                burst: 4,
            },
            4,
        ),
        (
            Algorithm::TokenBucket {
                rate: rate("9999991/s"),
                burst: 3_000_000,
            },
            3_000_000,
        ),
        (
            Algorithm::Gcra {
                rate: rate("10/s"),
                tolerance: ms(250),
            },
            3,
        ),
        (
            Algorithm::Gcra {
                rate: rate("11/s"),
                tolerance: Span::ZERO,
            },
            1,
        ),
        (
            Algorithm::LeakyBucket {
                rate: rate("13/s"),
                queue: 20,
                max_wait: None,
            },
            20,
        ),
        (
            Algorithm::LeakyBucket {
                rate: rate("4/s"),
                queue: 8,
                max_wait: Some(ms(700)),
            },
            8,
        ),
        (
            Algorithm::FixedWindow {
                limit: 20,
                window: ms(1_000),
                anchor: Span::ZERO,
            },
            20,
        ),
        (
            Algorithm::FixedWindow {
                limit: 4_000_000_000,
                window: ms(700),
                anchor: ms(123),
            },
            4_000_000_000,
        ),
        (sliding(12, ms(900), Estimate::Span), 12),
        (sliding(500, ms(1_000), Estimate::Span), 500),
        (sliding(40_000, ms(1), Estimate::Span), 40_000),
        (sliding(70_000, ms(1_001), Estimate::Span), 70_000),
        (sliding(200_000, ms(7), Estimate::Span), 200_000),
        (sliding(25, ms(1_000), Estimate::Strict), 25),
        (sliding(9_000, ms(1_001), Estimate::Strict), 9_000),
        (
            Algorithm::SlidingLog {
                limit: 12,
                window: ms(1_000),
            },
            12,
        ),
        (
            Algorithm::SlidingLog {
                limit: 150,
                window: ms(400),
            },
            150,
        ),
        (
            Algorithm::Concurrency {
                limit: 9,
                ttl: ms(1_000),
            },
            9,
        ),
        (
            Algorithm::Concurrency {
                limit: 3_000,
                ttl: ms(500),
            },
            3_000,
        ),
        (
            Algorithm::Concurrency {
                limit: 60_000,
                ttl: ms(333),
            },
            60_000,
        ),
    ]
}

fn limits_of(algorithms: &[(Algorithm, u64)]) -> Vec<(Limit, u64)> {
    let limit =
        |(algorithm, capacity): &(Algorithm, u64)| (Limit::new(*algorithm).unwrap(), *capacity);
    algorithms.iter().map(limit).collect()
}

fn quotas(limits: &[(Limit, u64)]) -> Vec<Quota> {
    let quota = |(limit, _): &(Limit, u64)| Quota::plain(limit.clone());
    limits.iter().map(quota).collect()
}

fn limits<'a>(quotas: &'a [Quota], ids: &'a [String]) -> Vec<SharedLimit<'a>> {
    quotas
        .iter()
        .zip(ids)
        .map(|(quota, id)| SharedLimit {
            id,
            quota,
            before: &[],
            plain: true,
        })
        .collect()
}

fn key(name: u64) -> SharedKey {
    let mut key = SharedKey::new(KeyKind::Own);
    key.push(b"tenant");
    key.push(&name.to_le_bytes());
    key
}

fn cost(rng: &mut Rng, capacity: u64) -> u64 {
    match rng.below(20) {
        0 => 0,
        1 => capacity,
        2 => capacity + 1,
        3 if rng.below(20) == 0 => u64::MAX,
        4..8 => 1 + rng.below(capacity),
        8..12 => 1 + rng.below(capacity / 8),
        _ => 1 + rng.below(3),
    }
}

/// The next time: mostly on by little, at times by much, at times back.
fn step(rng: &mut Rng, now: u64, unit: u64) -> u64 {
    let ms = 1_000_000 / unit;
    match rng.below(100) {
        0..15 => now,
        15..60 => now + rng.below(20 * ms),
        60..80 => now + rng.below(300 * ms),
        80..90 => now + rng.below(1_500 * ms),
        90..93 => now + rng.below(20_000 * ms),
        93..97 => now - rng.below(400 * ms),
        97..99 => now - rng.below(1_400 * ms),
        _ => now - rng.below(9_000 * ms),
    }
}

#[derive(Debug, PartialEq)]
enum Expected {
    Ruled(Vec<SharedOutcome>, bool),
    Settled(u64),
}

/// The core's answers to the operations that it makes up.
struct Mirror<'a> {
    limits: &'a [(Limit, u64)],
    cores: HashMap<(usize, u64), Core>,
    charged: Vec<(usize, u64, u64, Moment)>,
}

impl Mirror<'_> {
    fn core(&mut self, limit: usize, name: u64) -> &mut Core {
        let (of, _) = &self.limits[limit];
        self.cores
            .entry((limit, name))
            .or_insert_with(|| Core::for_limit(of))
    }

    fn charge(&mut self, rng: &mut Rng, now: Moment) -> (ScriptOp, Expected) {
        let count = if rng.below(2) == 0 {
            1
        } else {
            1 + rng.below(5)
        };
        let mut charges: Vec<SharedCharge> = Vec::new();
        let mut owed = Vec::new();
        for _ in 0..count {
            let limit = usize::try_from(rng.below(self.limits.len() as u64)).unwrap();
            if charges.iter().any(|charge| charge.limit.index() == limit) {
                continue;
            }
            let name = rng.below(3);
            let extra = if rng.below(40) == 0 { rng.below(5) } else { 0 };
            owed.push((limit, name, extra));
            charges.push(SharedCharge {
                limit: LimitId::new(limit),
                key: key(name),
                cost: cost(rng, self.limits[limit].1),
                most: None,
                enforced: rng.below(5) > 0,
                with_next: rng.below(2) == 0,
                owed: extra,
            });
        }
        // Only what is counted can be with another, and no log.
        for at in 0..charges.len() {
            let is_log = |id: LimitId| {
                let (limit, _) = &self.limits[id.index()];
                matches!(limit.algorithm(), Algorithm::SlidingLog { .. })
            };
            let is_counted = |at: usize| {
                let charge = charges.get(at);
                charge.is_some_and(|charge| !charge.enforced && !is_log(charge.limit))
            };
            let is_taken = at > 0 && charges[at - 1].with_next;
            charges[at].with_next &= is_counted(at) && is_counted(at + 1) && !is_taken;
        }
        let take = rng.below(8) > 0;
        let mut unpaid = vec![0; owed.len()];
        if take {
            for ((limit, name, extra), unpaid) in owed.iter().zip(&mut unpaid) {
                if *extra > 0 {
                    *unpaid = self.core(*limit, *name).charge_saturating(now, *extra);
                }
            }
        }
        let asked: Vec<_> = owed
            .iter()
            .zip(&charges)
            .map(|((limit, name, _), charge)| self.core(*limit, *name).decide(now, charge.cost))
            .collect();
        let passes = asked
            .iter()
            .zip(&charges)
            .all(|(a, c)| !c.enforced || a.verdict.is_admitted());
        let mut verdicts: Vec<Verdict> = asked.iter().map(|asked| asked.verdict).collect();
        for (at, _) in charges.iter().enumerate().filter(|(_, c)| c.with_next) {
            let both = verdicts[at].stricter(verdicts[at + 1]);
            verdicts[at..at + 2].fill(both);
        }
        let mut outcomes = Vec::new();
        let asked = asked.into_iter().zip(&charges).zip(&owed).zip(unpaid);
        for ((((asked, charge), (limit, name, _)), unpaid), verdict) in asked.zip(verdicts) {
            let taken = passes && verdict.is_admitted();
            outcomes.push(SharedOutcome {
                verdict,
                status: if taken { asked.after } else { asked.before },
                issued: asked.issued,
                unpaid,
            });
            if take {
                if taken && charge.cost > 0 {
                    self.charged
                        .push((*limit, *name, charge.cost, asked.issued));
                }
                // What fits by itself and is not taken stays as it is.
                let next = if taken { asked.taken } else { asked.left };
                self.cores.insert((*limit, *name), next);
            }
        }
        (
            ScriptOp::Charge(SharedRequest {
                take,
                waited: tollgate::Span::ZERO,
                charges,
            }),
            Expected::Ruled(outcomes, take && passes),
        )
    }

    fn settle(&mut self, rng: &mut Rng, now: Moment) -> Option<(ScriptOp, Expected)> {
        let recent = self
            .charged
            .len()
            .checked_sub(1 + usize::try_from(rng.below(8)).unwrap())?;
        let (limit, name, taken, issued) = self.charged.swap_remove(recent);
        let used = match rng.below(3) {
            0 => 0,
            1 => rng.below(taken + 1),
            _ => taken + rng.below(taken * 2),
        };
        let core = self.core(limit, name);
        let mut unpaid = 0;
        if used < taken {
            core.refund(now, taken - used, issued);
        } else if used > taken {
            unpaid = core.charge_saturating(now, used - taken);
        }
        let op = SharedSettle {
            limit: LimitId::new(limit),
            key: key(name),
            issued,
            taken,
            used,
        };
        Some((ScriptOp::Settle(op), Expected::Settled(unpaid)))
    }
}

#[test]
fn random_histories_are_the_core_s() {
    compare(&limits_of(&algorithms()), number("TOLLGATE_OPS", 100_000));
}

/// Requests on buckets alone have scripts of their own, by how many they are.
#[test]
fn random_histories_of_buckets_are_the_core_s() {
    let rate = |text: &str| text.parse().unwrap();
    let bucket = |text, burst| {
        let rate = rate(text);
        (Algorithm::TokenBucket { rate, burst }, burst)
    };
    let mut buckets = vec![
        bucket("5/s", 10),
        bucket("20/s", 300),
        bucket("100/min", 30),
        bucket("1/h", 500),
        bucket("1000/s", 1_000),
        bucket("11/s", 10),
    ];
    buckets.push((
        Algorithm::LeakyBucket {
            rate: rate("4/s"),
            queue: 8,
            max_wait: Some(Span::from_millis(700)),
        },
        8,
    ));
    compare(&limits_of(&buckets), number("TOLLGATE_OPS", 100_000) / 2);
}

/// Buckets with a debt, and buckets that were deeper before, alone and beside another kind.
#[test]
fn random_histories_of_buckets_in_debt_are_the_core_s() {
    let bucket = |text: &str, burst| Limit::token_bucket(text.parse().unwrap(), burst).unwrap();
    let gcra = Limit::gcra("11/s".parse().unwrap(), Span::from_millis(500)).unwrap();
    let queue = |queue| Limit::leaky_bucket("9/s".parse().unwrap(), queue).unwrap();
    let mut limits = vec![
        (bucket("5/s", 10).with_max_debt(25).unwrap(), 10),
        (bucket("7/3s", 4).with_max_debt(1).unwrap(), 4),
        (bucket("1000/s", 500).with_max_debt(2_000).unwrap(), 500),
        (gcra.with_max_debt(8).unwrap(), 6),
        (bucket("20/s", 20).keeping_usage_of(&bucket("20/s", 90)), 20),
        (queue(5).keeping_usage_of(&queue(20)), 5),
    ];
    compare(&limits, number("TOLLGATE_OPS", 100_000) / 2);
    let window = Limit::fixed_window("20/s".parse().unwrap()).unwrap();
    limits.push((window, 20));
    compare(&limits, number("TOLLGATE_OPS", 100_000) / 2);
}

fn compare(of: &[(Limit, u64)], ops: u64) {
    let server = server();
    let quotas = quotas(of);
    let ids: Vec<String> = (0..quotas.len()).map(|i| format!("limit-{i}")).collect();
    let mut client =
        ScriptClient::connect(server.port(), "tg", Some(1), &limits(&quotas, &ids)).unwrap();
    let mut rng = Rng::new(number("TOLLGATE_SEED", 1));
    let mut mirror = Mirror {
        limits: of,
        cores: HashMap::new(),
        charged: Vec::new(),
    };
    let (mut now, mut left) = (1_u64 << 44, ops);
    let (mut passed, mut refused) = (0, 0);
    while left > 0 {
        let mut ops = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..left.min(500) {
            now = step(&mut rng, now, 1);
            let at = Moment::from_nanos(now);
            let settled = if rng.below(6) == 0 {
                mirror.settle(&mut rng, at)
            } else {
                None
            };
            let (op, expect) = match settled {
                Some(settled) => settled,
                None => mirror.charge(&mut rng, at),
            };
            ops.push((now, op));
            expected.push(expect);
        }
        left -= ops.len() as u64;
        let came = client.run(&ops).unwrap();
        assert_eq!(came.len(), ops.len());
        for (((now, op), expected), came) in ops.iter().zip(&expected).zip(came) {
            let found = match came {
                ScriptOpResult::Charged(outcomes, took, disagrees) => {
                    assert!(
                        !disagrees,
                        "script and core disagree at {now}: {op:?}\n{outcomes:?}"
                    );
                    if took {
                        passed += 1;
                    } else {
                        refused += 1;
                    }
                    Expected::Ruled(outcomes, took)
                }
                ScriptOpResult::Settled(unpaid) => Expected::Settled(unpaid),
                ScriptOpResult::Failed(error) => panic!("{error}: {op:?}"),
            };
            assert_eq!(found, *expected, "at {now}: {op:?}");
        }
    }
    assert!(passed > 0 && refused > 0);
    every_key_expires(&mut client);
}

fn every_key_expires(client: &mut ScriptClient) {
    let names: Vec<Vec<u8>> = redis::cmd("KEYS")
        .arg("*")
        .query(client.connection())
        .unwrap();
    for name in names {
        let ttl: i64 = redis::cmd("PTTL")
            .arg(&name)
            .query(client.connection())
            .unwrap();
        assert!(ttl > 0, "{} has no expiry: {ttl}", name.escape_ascii());
    }
}
