//! `cost`: how many units a request takes.

use super::play_limits;

#[test]
fn a_constant_cost_is_taken_whatever_the_caller_says() {
    play_limits(
        "  - { name: one, allow: 1/h, burst: 7, cost: 3 }",
        &[
            (1, r#"{"path":"/","cost":1}"#, 200),
            (1, r#"{"path":"/","cost":7}"#, 200),
            (1, r#"{"path":"/"}"#, 429),
        ],
    );
}

#[test]
fn without_a_cost_the_caller_says_it() {
    let server = play_limits(
        "  - { name: one, allow: 1/h, burst: 7 }",
        &[
            (1, r#"{"path":"/","cost":5}"#, 200),
            (1, r#"{"path":"/","cost":3}"#, 429),
            (2, r#"{"path":"/"}"#, 200),
            (1, r#"{"path":"/"}"#, 429),
        ],
    );
    let never = server.check(r#"{"path":"/","cost":8}"#).expect(422);
    assert_eq!(never.json()["verdict"], "never");
    assert_eq!(never.header("retry-after"), None);
}

#[test]
fn a_cost_goes_by_the_route() {
    play_limits(
        r#"  - { name: one, key: header.u, allow: 1/h, burst: 10, cost: { "POST /export/pdf": 10, "/export/**": 5, default: 2 } }"#,
        &[
            (
                1,
                r#"{"method":"POST","path":"/export/pdf","headers":{"u":"a"}}"#,
                200,
            ),
            (
                1,
                r#"{"method":"GET","path":"/x","headers":{"u":"a"}}"#,
                429,
            ),
            (
                2,
                r#"{"method":"GET","path":"/export/pdf","headers":{"u":"b"}}"#,
                200,
            ),
            (
                1,
                r#"{"method":"GET","path":"/x","headers":{"u":"b"}}"#,
                429,
            ),
            (
                5,
                r#"{"method":"GET","path":"/x","headers":{"u":"c"}}"#,
                200,
            ),
            (
                1,
                r#"{"method":"GET","path":"/x","headers":{"u":"c"}}"#,
                429,
            ),
        ],
    );
}

#[test]
fn a_cost_that_the_request_names_is_bounded_on_both_sides() {
    let limits = "  - { name: h, match: { path: /h }, key: ip, allow: 1/h, burst: 10,
      cost: { from: header.x-cost, default: 2, min: 2, max: 5 } }
  - { name: f, match: { path: /f }, key: ip, allow: 1/h, burst: 10, cost: { from: field.tokens, max: 10 } }";
    let cost = |ask: &str, cost: u64| {
        let server = play_limits(limits, &[]);
        let answer = server.check(ask).expect(200).json();
        assert_eq!(answer["limits"][0]["cost"], cost, "{ask}: {answer}");
        assert_eq!(answer["remaining"], 10 - cost, "{ask}: {answer}");
    };
    cost(r#"{"path":"/h"}"#, 2);
    cost(r#"{"path":"/h","headers":{"x-cost":"4"}}"#, 4);
    cost(r#"{"path":"/h","headers":{"x-cost":"1"}}"#, 2);
    cost(r#"{"path":"/h","headers":{"x-cost":"0"}}"#, 2);
    cost(
        r#"{"path":"/h","headers":{"x-cost":"99999999999999999999"}}"#,
        5,
    );
    cost(r#"{"path":"/h","headers":{"x-cost":"-1"}}"#, 5);
    cost(r#"{"path":"/h","headers":{"x-cost":"1e0"}}"#, 5);
    cost(r#"{"path":"/f"}"#, 1);
    cost(r#"{"path":"/f","fields":{"tokens":7}}"#, 7);
}
