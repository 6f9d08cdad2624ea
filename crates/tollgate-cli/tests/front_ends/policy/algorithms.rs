//! Every algorithm of the policy file, and the features of each.

use super::{asked, play_limits};

use crate::harness::{policy_with, serve};

const ASK: &str = r#"{"path":"/"}"#;

#[test]
fn every_algorithm_admits_what_it_says_and_refuses_the_next() {
    // What it is written as, how many pass at once, how many of these after a wait, and how long the
    // next has to wait, at the least and at the most.
    let table: &[(&str, usize, u64, u64)] = &[
        ("allow: 1/h, burst: 3", 3, 3_590, 3_600),
        ("allow: 3/h", 3, 1_190, 1_200),
        // A span of credit: what two hours earn.
        ("allow: 2/h, burst: 2h", 4, 1_790, 1_800),
        (
            "algorithm: gcra, allow: 1/h, tolerance: 1h",
            2,
            3_590,
            3_600,
        ),
        ("algorithm: fixed-window, allow: 2/52w", 2, 1, 31_449_600),
        ("algorithm: sliding-log, allow: 2/h", 2, 3_590, 3_600),
        ("algorithm: sliding-window, allow: 2/h", 2, 1_000, 7_200),
        (
            "algorithm: sliding-window, allow: 2/h, estimate: strict",
            2,
            3_590,
            4_500,
        ),
        (
            "algorithm: burst-credits, allow: 1/h, times: 3, for: 2h",
            3,
            1_190,
            1_200,
        ),
        (
            "algorithm: burst-credits, allow: 1/h, times: 3, for: 2h, slack: 2",
            2,
            1_190,
            1_200,
        ),
        (
            "algorithm: leaky-bucket, allow: 1/h, queue: 1",
            1,
            3_590,
            3_600,
        ),
        ("algorithm: concurrency, allow: 2, ttl: 1h", 2, 1, 5_400),
    ];
    for (quota, burst, least, most) in table {
        let limits = format!("  - {{ name: one, {quota} }}");
        let server = play_limits(&limits, &[(*burst, ASK, 200), (2, ASK, 429)]);
        let refused = server.check(ASK).expect(429).json();
        assert_eq!(refused["verdict"], "refuse", "{quota}");
        assert_eq!(refused["limit"], "one", "{quota}");
        assert_eq!(refused["remaining"], 0, "{quota}");
        let wait = refused["retry_after_ms"].as_u64().expect("a wait");
        let seconds = wait.div_ceil(1_000);
        assert!(
            (*least..=*most).contains(&seconds),
            "{quota}: {seconds} s in {refused}"
        );
    }
}

#[test]
fn a_leaky_bucket_delays_requests_to_their_slots() {
    let server = play_limits(
        "  - { name: one, algorithm: leaky-bucket, allow: 1/min, queue: 3 }",
        &[(1, ASK, 200)],
    );
    for turn in 1..=2_u64 {
        let answer = server.check(ASK).expect(200).json();
        assert_eq!(answer["verdict"], "wait");
        let delay = answer["delay_ms"].as_u64().expect("a delay");
        let due = turn * 60_000;
        assert!((due - 10_000..=due).contains(&delay), "{answer}");
    }
    server.check(ASK).expect(429);
}

#[test]
fn a_leaky_bucket_refuses_requests_that_would_wait_too_long() {
    let server = play_limits(
        "  - { name: one, algorithm: leaky-bucket, allow: 1/min, queue: 10, max_wait: 90s }",
        &[(2, ASK, 200), (1, ASK, 429)],
    );
    let refused = server.check(ASK).json();
    let wait = refused["retry_after_ms"].as_u64().expect("a wait");
    assert!((20_000..=30_000).contains(&wait), "{refused}");
}

#[test]
fn a_place_of_a_concurrency_limit_is_free_again_once_it_is_settled() {
    let server = serve(&policy_with(
        "  - { name: one, algorithm: concurrency, allow: 2, ttl: 1h }",
    ));
    let mut client = server.client();
    let mut take = || client.post("/v1/check", r#"{"path":"/","reserve":true}"#);
    let first = take().expect(200).json()["reservation"].clone();
    let second = take().expect(200).json()["reservation"].clone();
    assert!(first.is_string() && first != second, "{first} {second}");
    take().expect(429);
    let give = |reservation: &serde_json::Value| {
        let body = format!(r#"{{"reservation":{reservation}}}"#);
        server.client().post("/v1/settle", &body)
    };
    give(&first).expect(200);
    take().expect(200);
    take().expect(429);
    give(&first).expect(404);
    give(&second).expect(200);
    take().expect(200);
}

#[test]
fn what_was_reserved_can_be_settled_to_less_or_given_back() {
    let server = serve(&policy_with("  - { name: one, allow: 1/h, burst: 10 }"));
    let mut client = server.client();
    let mut take = |cost: u64| {
        let ask = format!(r#"{{"path":"/","cost":{cost},"reserve":true}}"#);
        client.post("/v1/check", &ask).expect(200).json()
    };
    let left = || {
        let ask = r#"{"path":"/","cost":0}"#;
        let reply = server.client().post("/v1/peek", ask);
        reply.expect(200).json()["remaining"].clone()
    };
    let settle = |of: &serde_json::Value, how: &str| {
        let body = format!(r#"{{"reservation":{}{how}}}"#, of["reservation"]);
        let mut client = server.client();
        client.post("/v1/settle", &body).expect(200).json()
    };
    let taken = take(8);
    assert_eq!(left(), 2);
    assert_eq!(settle(&taken, r#","actual":3"#)["unpaid"], 0);
    assert_eq!(left(), 7);
    let taken = take(5);
    settle(&taken, r#","cancel":true"#);
    assert_eq!(left(), 7);
    let taken = take(2);
    settle(&taken, "");
    assert_eq!(left(), 5);
}

#[test]
fn a_peek_takes_nothing_and_a_batch_is_asked_in_order() {
    let server = serve(&policy_with("  - { name: one, allow: 1/h, burst: 2 }"));
    let mut client = server.client();
    for _ in 0..5 {
        let peeked = client.post("/v1/peek", ASK).expect(200).json();
        // What would be left after it.
        assert_eq!(peeked["remaining"], 1, "{peeked}");
    }
    let batch = format!(r#"{{"requests":[{ASK},{ASK},{ASK},{{"limit":"gone"}}]}}"#);
    let answers = client.post("/v1/check/batch", &batch).expect(200).json();
    let statuses: Vec<_> = (0..4)
        .map(|at| answers["answers"][at]["status"].clone())
        .collect();
    assert_eq!(statuses, [200, 200, 429, 404], "{answers}");
    client.post("/v1/peek", ASK).expect(429);
    asked(&server, &[(1, ASK, 429)]);
}

#[test]
fn a_calendar_quota_counts_by_the_month_and_says_when_the_next_begins() {
    let limits = "  - { name: month, allow: 2, calendar: { every: month, zone: Europe/Berlin } }
  - { name: day, match: { path: /day }, allow: 100, calendar: { every: day, zone: Asia/Tokyo } }
  - { name: week, match: { path: /week }, allow: 100, calendar: { every: week, starts: sunday } }";
    let server = play_limits(
        limits,
        &[
            (1, r#"{"path":"/day"}"#, 200),
            (1, r#"{"path":"/week"}"#, 200),
        ],
    );
    let refused = server.check(ASK).expect(429);
    let policy = refused.must("ratelimit-policy");
    assert_eq!(policy, r#""month";q=2;w=2592000"#);
    let wait = refused.json()["retry_after_ms"].as_u64().expect("a wait");
    assert!((1..=31 * 86_400_000).contains(&wait), "{wait}");
}
