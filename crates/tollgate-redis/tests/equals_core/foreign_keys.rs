//! Values of other programs at a key: they are errors and stay, and an error names the limit but not the key.

use super::edges::{charge, client, kinds, quota, request};
use super::key;
use crate::server;
use tollgate::{LimitId, Moment};
use tollgate_policy::Quota;
use tollgate_policy::shared::SharedSettle;
use tollgate_redis::testing::{ScriptClient, ScriptOp, ScriptOpResult};

/// Lua takes many texts for numbers that no limit writes.
const LIKE_NUMBERS: [&str; 17] = [
    "1e5",
    "0x10",
    " 12",
    "12 ",
    "5.0",
    "+5",
    "-5",
    "007",
    "12\n",
    "1e3:5",
    "5:1e3",
    "007:5",
    "5:007",
    "1:2:3",
    "5:4294967296000",
    "99999999999999999999",
    "99999999999999999999:0",
];

fn failed(client: &mut ScriptClient, op: ScriptOp) -> String {
    match client.run(&[(0, op)]).unwrap().remove(0) {
        ScriptOpResult::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

fn settle(limit: usize, used: u64) -> ScriptOp {
    ScriptOp::Settle(SharedSettle {
        limit: LimitId::new(limit),
        key: key(0),
        issued: Moment::ORIGIN,
        taken: 1,
        used,
    })
}

#[test]
fn what_is_only_like_a_number_is_no_state_and_stays() {
    let server = server();
    let quotas: Vec<Quota> = kinds().into_iter().map(quota).collect();
    let mut client = client(&server, None, &quotas);
    for limit in 0..quotas.len() {
        for value in LIKE_NUMBERS {
            let ScriptOp::Charge(asked) = request(vec![charge(limit, 1)]) else {
                panic!()
            };
            let name = client.commands(&asked)[0].keys[0].clone();
            let mut counted = asked.clone();
            counted.charges[0].enforced = false;
            let _: () = redis::cmd("SET")
                .arg(&name)
                .arg(value)
                .query(client.connection())
                .unwrap();
            for op in [
                ScriptOp::Charge(asked),
                ScriptOp::Charge(counted),
                settle(limit, 0),
                settle(limit, 2),
            ] {
                let error = failed(&mut client, op);
                assert!(error.contains("TOLLGATE"), "limit {limit}: {error}");
            }
            let kept: String = redis::cmd("GET")
                .arg(&name)
                .query(client.connection())
                .unwrap();
            assert_eq!(kept, value, "limit {limit}");
        }
    }
}

#[test]
fn an_error_names_the_limit_and_nothing_of_the_key() {
    let server = server();
    let quotas: Vec<Quota> = kinds().into_iter().map(quota).collect();
    let mut client = client(&server, None, &quotas);
    for limit in 0..quotas.len() {
        for count in 1..=5 {
            for is_list in [false, true] {
                let _: () = redis::cmd("FLUSHALL").query(client.connection()).unwrap();
                let limits = (limit..limit + count).map(|limit| limit % quotas.len());
                let ScriptOp::Charge(asked) =
                    request(limits.map(|limit| charge(limit, 1)).collect())
                else {
                    panic!()
                };
                let name = client.commands(&asked)[0].keys[0].clone();
                let set = if is_list { "RPUSH" } else { "SET" };
                redis::cmd(set)
                    .arg(&name)
                    .arg("x")
                    .exec(client.connection())
                    .unwrap();
                let error = failed(&mut client, ScriptOp::Charge(asked));
                let head = name.split(|byte| *byte == b'{').next().unwrap();
                let head = std::str::from_utf8(head).unwrap().trim_end_matches(':');
                assert!(error.contains(head), "{error}");
                assert!(!error.contains("tenant"), "{error}");
            }
        }
    }
}
