//! Every feature of the policy file through the real binary: a file in, requests over a socket, responses out. Rates
//! are so slow that no unit is refilled while a test runs.

mod algorithms;
mod answers;
mod costs;
mod keys;
mod lists;
mod matching;
mod modes;
mod privacy;
mod tiers;

use serde_json::Value;

use tollgate_testkit::tollgate::Tollgate;

use crate::harness::{policy_with, serve};

/// Sends this request a number of times, and returns the status of each.
type Step<'a> = (usize, &'a str, u16);

/// Starts a server with this policy and asks these questions.
#[track_caller]
fn play(policy: &str, steps: &[Step<'_>]) -> Tollgate {
    let server = serve(policy);
    asked(&server, steps);
    server
}

/// Asks these questions, in order.
#[track_caller]
fn asked(server: &Tollgate, steps: &[Step<'_>]) {
    let mut client = server.client();
    for (at, (times, ask, status)) in steps.iter().enumerate() {
        for time in 0..*times {
            let reply = client.post("/v1/check", ask);
            assert_eq!(
                reply.status, *status,
                "step {at}, time {time}: {ask} got {reply:?}"
            );
        }
    }
}

/// The same with a policy of only these limits.
#[track_caller]
fn play_limits(limits: &str, steps: &[Step<'_>]) -> Tollgate {
    play(&policy_with(limits), steps)
}

/// The names of the limits that an answer lists.
fn names(answer: &Value) -> Vec<&str> {
    let limits = answer["limits"].as_array().expect("a list of limits");
    limits.iter().filter_map(|l| l["name"].as_str()).collect()
}
