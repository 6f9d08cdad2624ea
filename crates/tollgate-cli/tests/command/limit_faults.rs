//! `tollgate try` with invalid limits: the complete standard error for each mistake.

use crate::run::{assert_says, tollgate};

#[test]
fn an_empty_limit_is_answered_with_an_example() {
    assert_says(
        &tollgate(&["try", ""]),
        "
error: the limit is empty
  --> limit
hint: write one such as `5/s`, or its fields: `allow: 5/s, burst: 10`

1 error
",
    );
}

#[test]
fn a_misspelt_algorithm_is_recognised() {
    assert_says(
        &tollgate(&["try", "algorithm: tokn-bucket, allow: 5/s"]),
        "
error: `tokn-bucket` is not an algorithm
  --> limit:1:14
   |  { algorithm: tokn-bucket, allow: 5/s }
   |               ^^^^^^^^^^^
hint: did you mean `token-bucket`?

1 error
",
    );
}

#[test]
fn an_unknown_algorithm_is_answered_with_the_list() {
    assert_says(
        &tollgate(&["try", "algorithm: sponge, allow: 5/s"]),
        "
error: `sponge` is not an algorithm
  --> limit:1:14
   |  { algorithm: sponge, allow: 5/s }
   |               ^^^^^^
hint: write `token-bucket`, `gcra`, `leaky-bucket`, `fixed-window`, `sliding-log`, `sliding-window`, `burst-credits` or `concurrency`

1 error
",
    );
}

#[test]
fn a_limit_that_allows_nothing_is_incomplete() {
    assert_says(
        &tollgate(&["try", "algorithm: token-bucket"]),
        "
error: a limit has no `allow`
  --> limit:1:3
   |  { algorithm: token-bucket }
   |    ^^^^^^^^^
hint: write how many in how long: `allow: 5/s`

1 error
",
    );
}

#[test]
fn a_field_without_a_value_is_incomplete() {
    assert_says(
        &tollgate(&["try", "allow:, burst: 10"]),
        "
error: `allow` has no value
  --> limit:1:3
   |  { allow:, burst: 10 }
   |    ^^^^^
hint: write one behind the colon, or leave the field out

1 error
",
    );
}

#[test]
fn a_missing_field_is_shown_with_a_value() {
    assert_says(
        &tollgate(&["try", "algorithm: gcra, allow: 10/s"]),
        "
error: a limit: gcra needs `tolerance`
  --> limit:1:3
   |  { algorithm: gcra, allow: 10/s }
   |    ^^^^^^^^^
hint: add `tolerance: 250ms`

1 error
",
    );
}

#[test]
fn a_number_is_not_a_rate() {
    assert_says(
        &tollgate(&["try", "5"]),
        "
error: `5` is not a rate: it has no `/`
  --> limit:1:1
   |  5
   |  ^
hint: write `5/s` or `5/min`

1 error
",
    );
}

#[test]
fn a_rate_of_zero_is_refused() {
    assert_says(
        &tollgate(&["try", "0/s"]),
        "
error: a rate of 0 would refuse every request for ever
  --> limit:1:1
   |  0/s
   |  ^^^
hint: write at least `1`, over a longer period if it must be slow: `1/day`

1 error
",
    );
}

#[test]
fn a_rate_of_letters_is_refused() {
    assert_says(
        &tollgate(&["try", "x/s"]),
        "
error: `x` is not a whole number of units
  --> limit:1:1
   |  x/s
   |  ^^^
hint: write a whole number, a slash and a period, such as `5/s` or `7/3s`

1 error
",
    );
}

#[test]
fn a_period_that_is_none_is_pointed_at() {
    assert_says(
        &tollgate(&["try", "algorithm: fixed-window, allow: 10/1x"]),
        "
error: the period is wrong: `x` is not a unit of time
  --> limit:1:35
   |  { algorithm: fixed-window, allow: 10/1x }
   |                                    ^^^^^
hint: write numbers with the units `ns us ms s m h d w`, such as `250ms` or `1h30m`

1 error
",
    );
}

#[test]
fn words_without_field_names_are_shown_with_them() {
    assert_says(
        &tollgate(&["try", "5/s burst 10"]),
        "
error: `5/s burst 10` is neither a rate nor the fields of a limit
  --> limit:1:1
   |  5/s burst 10
   |  ^^^^^^^^^^^^
hint: write a rate such as `5/s`, or the fields: `allow: 5/s, burst: 10`

1 error
",
    );
}

#[test]
fn a_misspelt_field_is_recognised() {
    assert_says(
        &tollgate(&["try", "allow: 5/s, brust: 10"]),
        "
error: `brust` is not a field of a limit
  --> limit:1:15
   |  { allow: 5/s, brust: 10 }
   |                ^^^^^
hint: did you mean `burst`?

1 error
",
    );
}

#[test]
fn a_field_of_another_algorithm_names_that_algorithm() {
    assert_says(
        &tollgate(&["try", "allow: 5/s, queue: 10"]),
        "
error: `queue` is not a field of token-bucket
  --> limit:1:15
   |  { allow: 5/s, queue: 10 }
   |                ^^^^^
hint: it belongs to leaky-bucket; token-bucket takes `burst`

1 error
",
    );
}

#[test]
fn a_value_without_its_field_is_refused() {
    assert_says(
        &tollgate(&["try", "allow: 5/s, 10"]),
        "
error: `10` is not a field of a limit
  --> limit:1:15
   |  { allow: 5/s, 10 }
   |                ^^
hint: a limit takes `algorithm`, `allow`, `burst`, `tolerance`, `queue`, `max_wait`, `estimate`, `times`, `for`, `slack`, `ttl` and `max_keys`

1 error
",
    );
}

#[test]
fn an_algorithm_without_fields_says_so() {
    assert_says(
        &tollgate(&["try", "algorithm: sliding-log, allow: 5/s, burst: 3"]),
        "
error: `burst` is not a field of sliding-log
  --> limit:1:39
   |  { algorithm: sliding-log, allow: 5/s, burst: 3 }
   |                                        ^^^^^
hint: it belongs to token-bucket; sliding-log takes only `allow`

1 error
",
    );
}

#[test]
fn a_field_may_not_come_twice() {
    assert_says(
        &tollgate(&["try", "allow: 5/s, burst: 3, burst: 4"]),
        "
error: `burst` is given twice
  --> limit:1:25
   |  { allow: 5/s, burst: 3, burst: 4 }
   |                          ^^^^^
hint: keep one of the two; the first is in line 1

1 error
",
    );
}

#[test]
fn a_field_that_says_for_which_requests_a_limit_is_does_not_belong() {
    assert_says(
        &tollgate(&["try", "allow: 5/s, key: ip"]),
        "
error: `key` is not a field of a limit
  --> limit:1:15
   |  { allow: 5/s, key: ip }
   |                ^^^
hint: remove `key`: it selects requests, and does not say how much the limit allows

1 error
",
    );
}

#[test]
fn a_calendar_needs_a_date() {
    assert_says(
        &tollgate(&["try", "allow: 100, calendar: { every: day }"]),
        "
error: `calendar` is not a field of a limit
  --> limit:1:15
   |  { allow: 100, calendar: { every: day } }
   |                ^^^^^^^^
hint: write a period without a calendar, such as `allow: 100/day`

1 error
",
    );
}

#[test]
fn a_brace_that_is_not_closed_is_pointed_at() {
    assert_says(
        &tollgate(&["try", "{ allow: 5/s"]),
        "
error: a bracket is not closed, or a comma is missing
  --> limit:2:1
   |  
   |  ^
hint: see that every `{` has its `}`, every `[` its `]`, and that a comma stands between entries

1 error
",
    );
}

#[test]
fn a_number_in_letters_is_refused() {
    assert_says(
        &tollgate(&["try", "allow: 5/s, burst: ten"]),
        "
error: `ten` is not a whole number
  --> limit:1:22
   |  { allow: 5/s, burst: ten }
   |                       ^^^
hint: write digits only, such as `10`

1 error
",
    );
}

#[test]
fn a_number_beyond_counting_is_refused() {
    assert_says(
        &tollgate(&["try", "allow: 5/s, burst: 99999999999999999999"]),
        "
error: `99999999999999999999` is too large
  --> limit:1:22
   |  { allow: 5/s, burst: 99999999999999999999 }
   |                       ^^^^^^^^^^^^^^^^^^^^
hint: write a smaller number

1 error
",
    );
}

#[test]
fn a_multiple_beyond_counting_is_refused() {
    assert_says(
        &tollgate(&[
            "try",
            "algorithm: burst-credits, allow: 10/s, times: 99999999999, for: 30s",
        ]),
        "
error: `99999999999` is above 4294967295
  --> limit:1:49
   |  { algorithm: burst-credits, allow: 10/s, times: 99999999999, for: 30s }
   |                                                  ^^^^^^^^^^^
hint: write at most 4294967295

1 error
",
    );
}

#[test]
fn a_span_without_a_unit_is_refused() {
    assert_says(
        &tollgate(&["try", "algorithm: gcra, allow: 5/s, tolerance: 5"]),
        "
error: `5` has no unit of time
  --> limit:1:43
   |  { algorithm: gcra, allow: 5/s, tolerance: 5 }
   |                                            ^
hint: write `5s` or `5ms`

1 error
",
    );
}

#[test]
fn a_concurrency_limit_has_a_number_and_no_rate() {
    assert_says(
        &tollgate(&["try", "algorithm: concurrency, allow: 20/s, ttl: 3s"]),
        "
error: concurrency counts how many run at once
  --> limit:1:34
   |  { algorithm: concurrency, allow: 20/s, ttl: 3s }
   |                                   ^^^^
hint: write a plain number, such as `allow: 20`

1 error
",
    );
}

#[test]
fn a_misspelt_estimate_is_recognised() {
    assert_says(
        &tollgate(&[
            "try",
            "algorithm: sliding-window, allow: 50/min, estimate: stric",
        ]),
        "
error: `stric` is not an estimate
  --> limit:1:55
   |  { algorithm: sliding-window, allow: 50/min, estimate: stric }
   |                                                        ^^^^^
hint: did you mean `strict`?

1 error
",
    );
}

#[test]
fn an_unknown_estimate_is_answered_with_the_list() {
    assert_says(
        &tollgate(&[
            "try",
            "algorithm: sliding-window, allow: 50/min, estimate: foo",
        ]),
        "
error: `foo` is not an estimate
  --> limit:1:55
   |  { algorithm: sliding-window, allow: 50/min, estimate: foo }
   |                                                        ^^^
hint: write `span` or `strict`

1 error
",
    );
}

#[test]
fn a_burst_of_zero_is_refused() {
    assert_says(
        &tollgate(&["try", "allow: 5/s, burst: 0"]),
        "
error: `0` is below 1
  --> limit:1:22
   |  { allow: 5/s, burst: 0 }
   |                       ^
hint: write at least 1, such as `10`

1 error
",
    );
}

#[test]
fn a_queue_of_zero_is_refused() {
    assert_says(
        &tollgate(&["try", "algorithm: leaky-bucket, allow: 5/s, queue: 0"]),
        "
error: `0` is below 1
  --> limit:1:47
   |  { algorithm: leaky-bucket, allow: 5/s, queue: 0 }
   |                                                ^
hint: write at least 1, such as `5000`

1 error
",
    );
}

#[test]
fn the_core_is_quoted_when_a_lease_is_zero() {
    assert_says(
        &tollgate(&["try", "algorithm: concurrency, allow: 5, ttl: 0s"]),
        "
error: a lease of 0 has no duration
  --> limit:1:42
   |  { algorithm: concurrency, allow: 5, ttl: 0s }
   |                                           ^^
hint: write a lease such as `1s` or `1min`

1 error
",
    );
}

#[test]
fn a_multiple_of_one_is_refused() {
    assert_says(
        &tollgate(&[
            "try",
            "algorithm: burst-credits, allow: 10/s, times: 1, for: 30s",
        ]),
        "
error: `1` is below 2
  --> limit:1:49
   |  { algorithm: burst-credits, allow: 10/s, times: 1, for: 30s }
   |                                                  ^
hint: write at least 2, such as `10`

1 error
",
    );
}

#[test]
fn the_core_is_quoted_when_a_duration_is_zero() {
    assert_says(
        &tollgate(&[
            "try",
            "algorithm: burst-credits, allow: 10/s, times: 2, for: 0s",
        ]),
        "
error: a burst duration of 0 has no duration
  --> limit:1:57
   |  { algorithm: burst-credits, allow: 10/s, times: 2, for: 0s }
   |                                                          ^^
hint: write a burst duration such as `1s` or `1min`

1 error
",
    );
}

#[test]
fn a_slack_of_zero_is_refused() {
    assert_says(
        &tollgate(&[
            "try",
            "algorithm: burst-credits, allow: 10/s, times: 10, for: 30s, slack: 0",
        ]),
        "
error: `0` is below 1
  --> limit:1:70
   |  { algorithm: burst-credits, allow: 10/s, times: 10, for: 30s, slack: 0 }
   |                                                                       ^
hint: write at least 1, such as `4`

1 error
",
    );
}

#[test]
fn the_core_is_quoted_when_a_limit_does_not_fit() {
    assert_says(
        &tollgate(&["try", "algorithm: fixed-window, allow: 99999999999/s"]),
        "
error: the limit is above 4294967294
  --> limit:1:35
   |  { algorithm: fixed-window, allow: 99999999999/s }
   |                                    ^^^^^^^^^^^^^
hint: write a limit of at most 4294967294

1 error
",
    );
}

#[test]
fn the_core_is_quoted_when_a_limit_fills_too_slowly() {
    assert_says(
        &tollgate(&["try", "allow: 1/day, burst: 99999999"]),
        "
error: filling this limit would take longer than 73 years
  --> limit:1:24
   |  { allow: 1/day, burst: 99999999 }
   |                         ^^^^^^^^
hint: lower the burst, or raise the rate

1 error
",
    );
}

#[test]
fn all_errors_of_a_limit_are_reported_at_once() {
    assert_says(
        &tollgate(&["try", "algorithm: gcra, allow: 0/s, burst: 3"]),
        "
error: a rate of 0 would refuse every request for ever
  --> limit:1:27
   |  { algorithm: gcra, allow: 0/s, burst: 3 }
   |                            ^^^
hint: write at least `1`, over a longer period if it must be slow: `1/day`

error: `burst` is not a field of gcra
  --> limit:1:32
   |  { algorithm: gcra, allow: 0/s, burst: 3 }
   |                                 ^^^^^
hint: it belongs to token-bucket; gcra takes `tolerance`

2 errors
",
    );
}

#[test]
fn nothing_in_a_limit_can_steer_the_terminal() {
    assert_says(
        &tollgate(&["try", "\u{1b}[2J"]),
        "
error: `�[2J` is not a rate: it has no `/`
  --> limit:1:1
   |  �[2J
   |  ^^^^
hint: write a whole number, a slash and a period, such as `5/s` or `7/3s`

1 error
",
    );
}
