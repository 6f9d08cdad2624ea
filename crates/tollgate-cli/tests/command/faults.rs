//! What is wrong, where, and how to mend it: the whole of standard error, for each mistake.

use crate::run::{Ran, fed, tollgate};

/// The run failed with exit code 2 and said this.
fn assert_says(ran: &Ran, err: &str) {
    let err = err.strip_prefix('\n').unwrap_or(err);
    assert_eq!(ran.out, "");
    assert!(ran.err == err, "expected:\n{err}\nsaid:\n{}", ran.err);
    assert_eq!(ran.code, Some(2));
}

#[test]
fn an_empty_limit_is_answered_with_an_example() {
    assert_says(
        &tollgate(&["try", ""]),
        "
error: the limit is empty
hint: write one such as `5/s burst 10`
",
    );
}

#[test]
fn a_misspelt_algorithm_is_recognised() {
    assert_says(
        &tollgate(&["try", "tokn-bucket 5/s"]),
        "
error: `tokn-bucket` is neither an algorithm nor a rate
  --> LIMIT, word 1
   |  tokn-bucket 5/s
   |  ^^^^^^^^^^^
hint: did you mean `token-bucket`?
",
    );
}

#[test]
fn a_misspelt_algorithm_of_two_words_is_recognised() {
    assert_says(
        &tollgate(&["try", "leeky bucket 5/s"]),
        "
error: `leeky` is neither an algorithm nor a rate
  --> LIMIT, word 1
   |  leeky bucket 5/s
   |  ^^^^^
hint: did you mean `leaky-bucket`?
",
    );
}

#[test]
fn an_unknown_algorithm_is_answered_with_the_list() {
    assert_says(&tollgate(&["try", "sponge 5/s"]), "
error: `sponge` is neither an algorithm nor a rate
  --> LIMIT, word 1
   |  sponge 5/s
   |  ^^^^^^
hint: start with a rate such as `5/s`, or with an algorithm: `token-bucket`, `gcra`, `leaky-bucket`, `fixed-window`, `sliding-log`, `sliding-window`, `burst-credits` and `concurrency`
");
}

#[test]
fn an_algorithm_without_its_rate_is_shown_whole() {
    assert_says(
        &tollgate(&["try", "token-bucket"]),
        "
error: token-bucket has no rate
  --> LIMIT, word 2
   |  token-bucket
   |               ^
hint: write the whole limit in one pair of quotes: \"token-bucket 5/s burst 10\"
",
    );
}

#[test]
fn an_option_where_the_rate_should_be_is_a_missing_rate() {
    assert_says(
        &tollgate(&["try", "token-bucket burst 10"]),
        "
error: token-bucket has no rate
  --> LIMIT, word 2
   |  token-bucket burst 10
   |               ^^^^^
hint: write the whole limit in one pair of quotes: \"token-bucket 5/s burst 10\"
",
    );
}

#[test]
fn a_missing_option_is_shown_in_an_example() {
    assert_says(
        &tollgate(&["try", "gcra 10/s"]),
        "
error: gcra needs `tolerance`
  --> LIMIT, word 3
   |  gcra 10/s
   |            ^
hint: write \"gcra 10/s tolerance 250ms\"
",
    );
}

#[test]
fn a_number_is_not_a_rate() {
    assert_says(
        &tollgate(&["try", "5"]),
        "
error: `5` is not a rate: it has no `/`
  --> LIMIT, word 1
   |  5
   |  ^
hint: write `5/s` or `5/min`
",
    );
}

#[test]
fn a_rate_of_zero_is_refused() {
    assert_says(
        &tollgate(&["try", "0/s"]),
        "
error: a rate of 0 would refuse everyone for ever
  --> LIMIT, word 1
   |  0/s
   |  ^^^
hint: write at least `1`, over a longer period if it must be slow: `1/day`
",
    );
}

#[test]
fn a_rate_of_letters_is_refused() {
    assert_says(
        &tollgate(&["try", "x/s"]),
        "
error: `x` is not a whole number of units
  --> LIMIT, word 1
   |  x/s
   |  ^^^
hint: write a whole number, a slash and a period, such as `5/s` or `7/3s`
",
    );
}

#[test]
fn a_period_that_is_none_is_pointed_at() {
    assert_says(
        &tollgate(&["try", "fixed window 10 in 1x"]),
        "
error: the period is wrong: `x` is not a unit of time
  --> LIMIT, word 3
   |  fixed window 10 in 1x
   |               ^^^^^^^^
hint: write numbers with the units `ns us ms s m h d w`, such as `250ms` or `1h30m`
",
    );
}

#[test]
fn a_misspelt_option_is_recognised() {
    assert_says(
        &tollgate(&["try", "5/s brust 10"]),
        "
error: `brust` is not an option of token-bucket
  --> LIMIT, word 2
   |  5/s brust 10
   |      ^^^^^
hint: did you mean `burst`?
",
    );
}

#[test]
fn an_option_of_another_algorithm_says_whose_it_is() {
    assert_says(
        &tollgate(&["try", "5/s queue 10"]),
        "
error: `queue` is not an option of token-bucket
  --> LIMIT, word 2
   |  5/s queue 10
   |      ^^^^^
hint: it belongs to leaky-bucket; token-bucket takes `burst 10`
",
    );
}

#[test]
fn a_number_without_its_option_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s 10"]),
        "
error: `10` is not an option of token-bucket
  --> LIMIT, word 2
   |  5/s 10
   |      ^^
hint: token-bucket takes `burst 10`
",
    );
}

#[test]
fn an_algorithm_without_options_says_so() {
    assert_says(
        &tollgate(&["try", "sliding-log 5/s 3"]),
        "
error: `3` is not an option of sliding-log
  --> LIMIT, word 3
   |  sliding-log 5/s 3
   |                  ^
hint: sliding-log takes no options
",
    );
}

#[test]
fn an_option_without_its_value_is_shown_with_one() {
    assert_says(
        &tollgate(&["try", "5/s burst"]),
        "
error: `burst` has no value
  --> LIMIT, word 2
   |  5/s burst
   |      ^^^^^
hint: write `burst 10`
",
    );
}

#[test]
fn an_option_may_not_come_twice() {
    assert_says(
        &tollgate(&["try", "5/s burst 3 burst 4"]),
        "
error: `burst` is given twice
  --> LIMIT, word 4
   |  5/s burst 3 burst 4
   |              ^^^^^
hint: keep one of the two
",
    );
}

#[test]
fn a_number_in_letters_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s burst ten"]),
        "
error: `ten` is not a whole number
  --> LIMIT, word 3
   |  5/s burst ten
   |            ^^^
hint: write digits only, such as `burst 10`
",
    );
}

#[test]
fn a_number_beyond_counting_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s burst 99999999999999999999"]),
        "
error: `99999999999999999999` is too large
  --> LIMIT, word 3
   |  5/s burst 99999999999999999999
   |            ^^^^^^^^^^^^^^^^^^^^
hint: write at most 18446744073709551615
",
    );
}

#[test]
fn a_multiple_beyond_counting_is_refused() {
    assert_says(
        &tollgate(&["try", "burst-credits 10/s times 99999999999 for 30s"]),
        "
error: `99999999999` is too large
  --> LIMIT, word 4
   |  burst-credits 10/s times 99999999999 for 30s
   |                           ^^^^^^^^^^^
hint: write at most 4294967295
",
    );
}

#[test]
fn a_span_without_a_unit_is_refused() {
    assert_says(
        &tollgate(&["try", "gcra 5/s tolerance 5"]),
        "
error: `5` has no unit of time
  --> LIMIT, word 4
   |  gcra 5/s tolerance 5
   |                     ^
hint: write `5s` or `5ms`
",
    );
}

#[test]
fn a_concurrency_limit_has_a_number_and_no_rate() {
    assert_says(
        &tollgate(&["try", "concurrency 20/s ttl 3s"]),
        "
error: `20/s` is not a whole number
  --> LIMIT, word 2
   |  concurrency 20/s ttl 3s
   |              ^^^^
hint: write digits only, such as `concurrency 20 ttl 30s`
",
    );
}

#[test]
fn a_misspelt_estimate_is_recognised() {
    assert_says(
        &tollgate(&["try", "sliding-window 50/min estimate clasic"]),
        "
error: `clasic` is not an estimate
  --> LIMIT, word 4
   |  sliding-window 50/min estimate clasic
   |                                 ^^^^^^
hint: did you mean `classic`?
",
    );
}

#[test]
fn an_unknown_estimate_is_answered_with_the_list() {
    assert_says(
        &tollgate(&["try", "sliding-window 50/min estimate foo"]),
        "
error: `foo` is not an estimate
  --> LIMIT, word 4
   |  sliding-window 50/min estimate foo
   |                                 ^^^
hint: write `estimate span`, `estimate classic parts 3` or `estimate strict parts 3`
",
    );
}

#[test]
fn the_span_estimate_takes_no_parts() {
    assert_says(
        &tollgate(&["try", "sliding-window 50/min parts 3"]),
        "
error: the span estimate chooses its parts itself
  --> LIMIT, word 3
   |  sliding-window 50/min parts 3
   |                        ^^^^^
hint: leave `parts` out, or write `estimate classic parts 3`
",
    );
}

#[test]
fn the_strict_estimate_needs_its_parts() {
    assert_says(
        &tollgate(&["try", "sliding-window 50/min estimate strict"]),
        "
error: the strict estimate needs `parts`
  --> LIMIT, word 4
   |  sliding-window 50/min estimate strict
   |                                 ^^^^^^
hint: write `estimate strict parts 3`; the more parts, the less throughput is lost
",
    );
}

#[test]
fn the_core_is_quoted_when_a_burst_is_zero() {
    assert_says(
        &tollgate(&["try", "5/s burst 0"]),
        "
error: a burst of 0 would refuse every request
  --> LIMIT, word 3
   |  5/s burst 0
   |            ^
hint: write a burst of at least 1; to block requests, refuse them before they are limited
",
    );
}

#[test]
fn the_core_is_quoted_when_a_queue_is_zero() {
    assert_says(
        &tollgate(&["try", "leaky-bucket 5/s queue 0"]),
        "
error: a queue of 0 would refuse every request
  --> LIMIT, word 4
   |  leaky-bucket 5/s queue 0
   |                         ^
hint: write a queue of at least 1; to block requests, refuse them before they are limited
",
    );
}

#[test]
fn the_core_is_quoted_when_a_lease_is_zero() {
    assert_says(
        &tollgate(&["try", "concurrency 5 ttl 0s"]),
        "
error: a lease of 0 is no time at all
  --> LIMIT, word 4
   |  concurrency 5 ttl 0s
   |                    ^^
hint: write a lease such as `1s` or `1min`
",
    );
}

#[test]
fn the_core_is_quoted_when_a_multiple_is_no_burst() {
    assert_says(
        &tollgate(&["try", "burst-credits 10/s times 1 for 30s"]),
        "
error: a burst multiple below 2 is no burst
  --> LIMIT, word 4
   |  burst-credits 10/s times 1 for 30s
   |                           ^
hint: write a multiple of at least 2, or use a plain token bucket
",
    );
}

#[test]
fn the_core_is_quoted_when_a_duration_is_zero() {
    assert_says(
        &tollgate(&["try", "burst-credits 10/s times 2 for 0s"]),
        "
error: a burst duration of 0 is no time at all
  --> LIMIT, word 6
   |  burst-credits 10/s times 2 for 0s
   |                                 ^^
hint: write a burst duration such as `1s` or `1min`
",
    );
}

#[test]
fn the_core_is_quoted_when_a_slack_is_zero() {
    assert_says(
        &tollgate(&["try", "burst-credits 10/s times 10 for 30s slack 0"]),
        "
error: a burst of 0 would refuse every request
  --> LIMIT, word 8
   |  burst-credits 10/s times 10 for 30s slack 0
   |                                            ^
hint: write a burst of at least 1; to block requests, refuse them before they are limited
",
    );
}

#[test]
fn the_core_is_quoted_when_parts_do_not_fit() {
    assert_says(
        &tollgate(&["try", "sliding-window 50/min estimate classic parts 9"]),
        "
error: 9 parts of a window do not fit one word beside this limit (most: 7)
  --> LIMIT, word 6
   |  sliding-window 50/min estimate classic parts 9
   |                                               ^
hint: use at most 7 parts, or lower the limit
",
    );
}

#[test]
fn the_core_is_quoted_when_a_limit_does_not_fit() {
    assert_says(
        &tollgate(&["try", "fixed-window 99999999999/s"]),
        "
error: the limit is above 4294967294
  --> LIMIT, word 2
   |  fixed-window 99999999999/s
   |               ^^^^^^^^^^^^^
hint: write a limit of at most 4294967294
",
    );
}

#[test]
fn the_core_is_quoted_when_a_limit_fills_too_slowly() {
    assert_says(
        &tollgate(&["try", "1/day burst 99999999"]),
        "
error: filling this limit would take longer than 73 years
  --> LIMIT, word 1
   |  1/day burst 99999999
   |  ^^^^^
hint: lower the burst, or raise the rate
",
    );
}

#[test]
fn a_limit_without_quotes_is_recognised_by_its_words() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "burst"]),
        "
error: `burst` belongs to a limit, not to the arrivals
  --> ARRIVALS, word 2
   |  burst
   |  ^^^^^
hint: put the whole limit in one pair of quotes: tollgate try \"5/s burst 10\" '0s*11'
",
    );
}

#[test]
fn a_time_without_a_unit_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0"]),
        "
error: `0` has no unit of time
  --> ARRIVALS, word 2
   |  0
   |  ^
hint: write `0s` or `0ms`
",
    );
}

#[test]
fn a_time_with_a_wrong_unit_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "1x"]),
        "
error: `x` is not a unit of time
  --> ARRIVALS, word 2
   |  1x
   |  ^^
hint: write numbers with the units `ns us ms s m h d w`, such as `250ms` or `1h30m`
",
    );
}

#[test]
fn a_range_without_a_step_is_answered_with_one() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "1s-20s"]),
        "
error: `1s-20s` does not say how often
  --> ARRIVALS, word 2
   |  1s-20s
   |  ^^^^^^
hint: write `1s-20s/1s` for one every second
",
    );
}

#[test]
fn a_rate_is_no_arrival() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "5/s"]),
        "
error: `5/s` does not say from when to when
  --> ARRIVALS, word 2
   |  5/s
   |  ^^^
hint: write from, to and how often, such as `1s-20s/1s`
",
    );
}

#[test]
fn a_range_with_a_bad_end_points_at_it() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "1s-2/1s"]),
        "
error: `2` has no unit of time
  --> ARRIVALS, word 2
   |  1s-2/1s
   |     ^
hint: write `2s` or `2ms`
",
    );
}

#[test]
fn a_range_without_an_end_points_at_the_gap() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s-/1s"]),
        "
error: a span of time is missing
  --> ARRIVALS, word 2
   |  0s-/1s
   |     ^
hint: write numbers with the units `ns us ms s m h d w`, such as `250ms` or `1h30m`
",
    );
}

#[test]
fn a_step_of_zero_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "1s-2s/0s"]),
        "
error: one every 0s would never end
  --> ARRIVALS, word 2
   |  1s-2s/0s
   |        ^^
hint: write a step such as `1s`, or `0s*11` for eleven at once
",
    );
}

#[test]
fn a_range_that_runs_backwards_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "20s-1s/1s"]),
        "
error: `1s` is before `20s`
  --> ARRIVALS, word 2
   |  20s-1s/1s
   |  ^^^^^^
hint: write the earlier time first, such as `1s-20s/1s`
",
    );
}

#[test]
fn a_crowd_of_letters_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s*x"]),
        "
error: `x` is not a whole number of arrivals
  --> ARRIVALS, word 2
   |  0s*x
   |     ^
hint: write digits only, such as `0s*11`
",
    );
}

#[test]
fn a_crowd_of_nobody_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s*0"]),
        "
error: `*0` is no arrival at all
  --> ARRIVALS, word 2
   |  0s*0
   |     ^
hint: write at least `*1`, or leave the word out
",
    );
}

#[test]
fn more_than_a_million_arrivals_are_refused() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s*1000000"]),
        "
error: more than 1000000 arrivals
  --> ARRIVALS, word 2
   |  0s*1000000
   |  ^^^^^^^^^^
hint: try fewer; a limit shows what it does in a few periods
",
    );
}

#[test]
fn more_arrivals_than_can_be_counted_are_refused() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s*99999999999999999999"]),
        "
error: more than 1000000 arrivals
  --> ARRIVALS, word 2
   |  0s*99999999999999999999
   |     ^^^^^^^^^^^^^^^^^^^^
hint: try fewer; a limit shows what it does in a few periods
",
    );
}

#[test]
fn a_misspelt_cost_is_recognised() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s,cots=5"]),
        "
error: `cots=5` is neither `cost=…` nor `key=…`
  --> ARRIVALS, word 2
   |  0s,cots=5
   |     ^^^^^^
hint: did you mean `cost=`?
",
    );
}

#[test]
fn an_unknown_part_is_answered_with_both() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s,foo"]),
        "
error: `foo` is neither `cost=…` nor `key=…`
  --> ARRIVALS, word 2
   |  0s,foo
   |     ^^^
hint: write `0s,cost=5`, `0s,key=alice` or both; a key has no comma in it
",
    );
}

#[test]
fn a_cost_without_a_value_is_shown_with_one() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s,cost"]),
        "
error: `cost=` has no value
  --> ARRIVALS, word 2
   |  0s,cost
   |     ^^^^
hint: write `cost=5`
",
    );
}

#[test]
fn a_key_without_a_value_is_shown_with_one() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s,key="]),
        "
error: `key=` has no value
  --> ARRIVALS, word 2
   |  0s,key=
   |     ^^^^
hint: write `key=alice`
",
    );
}

#[test]
fn a_cost_of_letters_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s,cost=x"]),
        "
error: `x` is not a whole number
  --> ARRIVALS, word 2
   |  0s,cost=x
   |          ^
hint: write digits only, such as `cost=5`
",
    );
}

#[test]
fn a_cost_beyond_counting_is_refused() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s,cost=99999999999999999999"]),
        "
error: `99999999999999999999` is too large
  --> ARRIVALS, word 2
   |  0s,cost=99999999999999999999
   |          ^^^^^^^^^^^^^^^^^^^^
hint: write at most 18446744073709551615
",
    );
}

#[test]
fn a_cost_may_not_come_twice() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "0s,cost=1,cost=2"]),
        "
error: `cost` is given twice
  --> ARRIVALS, word 2
   |  0s,cost=1,cost=2
   |            ^^^^^^
hint: keep one of the two
",
    );
}

#[test]
fn an_empty_word_is_no_arrival() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", ""]),
        "
error: a span of time is missing
  --> ARRIVALS, word 2
   |  
   |  ^
hint: write numbers with the units `ns us ms s m h d w`, such as `250ms` or `1h30m`
",
    );
}

#[test]
fn a_dash_stands_alone() {
    assert_says(
        &tollgate(&["try", "5/s", "1s", "-"]),
        "
error: `-` stands beside other arrivals
  --> ARRIVALS, word 2
   |  -
   |  ^
hint: put all arrivals into standard input, or write all of them as arguments
",
    );
}

#[test]
fn a_bad_line_of_standard_input_is_named_by_its_number() {
    assert_says(
        &fed(&["try", "5/s", "-"], b"# c\n\n0s*2\nbad\n"),
        "
error: a number was expected at `bad`
  --> standard input, line 4
   |  bad
   |  ^^^
hint: write numbers with the units `ns us ms s m h d w`, such as `250ms` or `1h30m`
",
    );
}

#[test]
fn a_line_that_is_not_text_is_refused() {
    assert_says(
        &fed(&["try", "5/s", "-"], b"0s\n\xff\xfe\n"),
        "
error: a line that is not UTF-8
  --> standard input, line 2
   |  ��
   |  ^^
hint: write the arrivals as plain text
",
    );
}

#[test]
fn nothing_in_a_line_can_steer_the_terminal() {
    assert_says(
        &fed(&["try", "5/s", "-"], b"\x1b[2J\n"),
        "
error: a number was expected at `�[2J`
  --> standard input, line 1
   |  �[2J
   |  ^^^^
hint: write numbers with the units `ns us ms s m h d w`, such as `250ms` or `1h30m`
",
    );
}

#[test]
fn a_line_without_an_end_is_refused_before_it_is_read() {
    let endless = [b'k'; 5000];
    let ran = fed(&["try", "5/s", "-"], &endless);
    assert_says(
        &ran,
        "
error: a line longer than 4096 bytes
  --> standard input, line 1
   |  kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk
   |  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
hint: write one arrival on each line, such as `0s*11,key=alice`
",
    );
}

#[test]
fn a_mistake_prints_no_json_either() {
    let ran = tollgate(&["try", "5/s", "0s", "1x", "--json"]);
    assert_eq!((ran.out.as_str(), ran.code), ("", Some(2)));
}
