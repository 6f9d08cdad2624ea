//! Logs of many entries: a server does nothing else while it works on one.

use super::core::Core;
use super::edges::{charge, client, quota, request, ruled};
use super::{Rng, key, number};
use crate::server;
use tollgate::{Algorithm, LimitId, Moment, Span};
use tollgate_policy::shared::SharedSettle;
use tollgate_redis::testing::{ScriptClient, ScriptOp, ScriptOpResult};

const WINDOW: u64 = 1_000_000_000;

fn log(limit: u64) -> Algorithm {
    Algorithm::SlidingLog {
        limit,
        window: Span::from_nanos(WINDOW),
    }
}

/// One unit at each of this many moments from `start` on, a microsecond apart.
fn fill(client: &mut ScriptClient, start: u64, entries: u64) {
    let _: () = redis::cmd("FLUSHALL").query(client.connection()).unwrap();
    let ops: Vec<(u64, ScriptOp)> = (0..entries)
        .map(|i| (start + i * 1_000, request(vec![charge(0, 1)])))
        .collect();
    for ops in ops.chunks(1_000) {
        for came in client.run(ops).unwrap() {
            assert!(
                matches!(came, ScriptOpResult::Charged(_, true, false)),
                "{came:?}"
            );
        }
    }
}

fn refund(issued: u64) -> ScriptOp {
    ScriptOp::Settle(SharedSettle {
        limit: LimitId::new(0),
        key: key(0),
        issued: Moment::from_nanos(issued),
        taken: 1,
        used: 0,
    })
}

/// How many commands ran, and how long the longest script took in microseconds.
fn cost_of(client: &mut ScriptClient, now: u64, op: ScriptOp) -> (u64, u64) {
    for (section, value) in [("slowlog-log-slower-than", "0"), ("slowlog-max-len", "10")] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(section).arg(value);
        set.exec(client.connection()).unwrap();
    }
    let reset = |what: &str, client: &mut ScriptClient| {
        let done = redis::cmd(what).arg("RESET").exec(client.connection());
        let _: () = done.unwrap();
    };
    redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .exec(client.connection())
        .unwrap();
    reset("SLOWLOG", client);
    client.run(&[(now, op)]).unwrap();
    let slow: Vec<redis::Value> = redis::cmd("SLOWLOG")
        .arg("GET")
        .arg(10)
        .query(client.connection())
        .unwrap();
    let took = slow.iter().filter_map(|entry| match entry {
        redis::Value::Array(items) => match items.get(2) {
            Some(redis::Value::Int(micros)) => u64::try_from(*micros).ok(),
            _ => None,
        },
        _ => None,
    });
    let took = took.max().unwrap();
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(client.connection())
        .unwrap();
    let calls = stats.lines().filter_map(|line| {
        let (_, calls) = line.split_once(":calls=")?;
        calls.split(',').next()?.parse::<u64>().ok()
    });
    (calls.sum(), took)
}

/// `TOLLGATE_ENTRIES` says how many, `--nocapture` shows how long it takes.
#[test]
fn the_work_on_a_long_log_is_a_few_commands() {
    let server = server();
    let entries = number("TOLLGATE_ENTRIES", 10_000);
    let mut client = client(&server, Some(1), &[quota(log(entries))]);
    let start = 1_u64 << 44;
    let end = start + entries * 1_000;
    let far = end - 2 * WINDOW;
    for (what, now, op) in [
        ("refund of the first", end, refund(start)),
        (
            "refund of an early one",
            end,
            refund(start + entries / 10 * 1_000),
        ),
        (
            "refund in the middle",
            end,
            refund(start + entries / 2 * 1_000),
        ),
        ("refund of the last", end, refund(end - 1_000)),
        (
            "refusal after a step back",
            far,
            request(vec![charge(0, 2)]),
        ),
        ("peek at a full one", end, {
            let ScriptOp::Charge(mut asked) = request(vec![charge(0, 1)]) else {
                panic!()
            };
            asked.take = false;
            ScriptOp::Charge(asked)
        }),
    ] {
        fill(&mut client, start, entries);
        let (calls, micros) = cost_of(&mut client, now, op);
        println!("{entries} entries, {what}: {calls} commands, {micros} us");
        assert!(calls < 100, "{what}: {calls} commands");
    }
    fill(&mut client, start, entries);
    client.run(&[(end, refund(start))]).unwrap();
    let (calls, micros) = cost_of(&mut client, far, request(vec![charge(0, 1)]));
    println!("{entries} entries, a charge after a step back: {calls} commands, {micros} us");
    assert!(calls < 100, "{calls} commands");
}

#[test]
fn random_histories_of_a_long_log_are_the_core_s() {
    let server = server();
    let algorithm = log(4_000);
    let mut client = client(&server, Some(1), &[quota(algorithm)]);
    let mut core = Core::new(algorithm);
    let mut rng = Rng::new(number("TOLLGATE_SEED", 1));
    let mut now = 1_u64 << 44;
    let mut charged: Vec<(u64, Moment)> = Vec::new();
    let (mut refunds, mut refused, mut back) = (0, 0, 0);
    for step in 1..=15_000 {
        // Long enough between those that it is full before.
        let is_set = step % 4_000 == 0;
        now = match rng.below(1_000) {
            _ if is_set => {
                back += 1;
                now - WINDOW - rng.below(2 * WINDOW)
            }
            0..5 => now - rng.below(WINDOW / 100),
            5 => now + rng.below(WINDOW / 4),
            6..100 => now,
            _ => now + rng.below(WINDOW / 4_000),
        };
        let at = Moment::from_nanos(now);
        if rng.below(5) == 0 && !charged.is_empty() {
            let place = usize::try_from(rng.below(charged.len() as u64)).unwrap();
            let (taken, issued) = charged.swap_remove(place);
            let used = rng.below(taken);
            let settle = SharedSettle {
                limit: LimitId::new(0),
                key: key(0),
                issued,
                taken,
                used,
            };
            core.refund(at, taken - used, issued);
            let came = client.run(&[(now, ScriptOp::Settle(settle))]).unwrap();
            assert_eq!(came, [ScriptOpResult::Settled(0)]);
            refunds += 1;
            continue;
        }
        let cost = 1 + rng.below(3);
        let asked = core.decide(at, cost);
        let (outcomes, took) = ruled(&mut client, now, request(vec![charge(0, cost)]));
        assert_eq!(outcomes[0].verdict, asked.verdict, "at {now}");
        let status = if took { asked.after } else { asked.before };
        assert_eq!(outcomes[0].status, status, "at {now}");
        if took {
            charged.push((cost, outcomes[0].issued));
        } else {
            refused += 1;
        }
        core = if took { asked.taken } else { asked.left };
    }
    assert!(
        refunds > 1_000 && refused > 100 && back == 3,
        "{refunds} {refused} {back}"
    );
}
