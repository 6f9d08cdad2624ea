//! `tollgate try` with invalid arrivals: the complete standard error for each mistake.

use crate::run::{assert_says, fed, tollgate};

#[test]
fn a_limit_without_quotes_is_recognised_by_its_fields() {
    assert_says(
        &tollgate(&["try", "allow:", "5/s,", "burst:", "10"]),
        "
error: `burst:` belongs to a limit, not to the arrivals
  --> ARRIVALS, word 2
   |  burst:
   |  ^^^^^^
hint: put the whole limit in one pair of quotes: tollgate try 'allow: 5/s, burst: 10' '0s*11'
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
fn a_repetition_of_letters_is_an_error() {
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
fn a_repetition_of_zero_is_an_error() {
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

/// One exit code and one text for a file that is not there, whatever the command.
#[test]
fn a_missing_file_is_reported_alike_by_all_commands() {
    for arguments in [
        &["check", "missing.yaml"][..],
        &["explain", "missing.yaml"],
        &["doctor", "missing.yaml"],
        &["serve", "--policy", "missing.yaml"],
        &["gateway", "--policy", "missing.yaml"],
        &["convert", "limitador", "missing.yaml"],
    ] {
        let ran = tollgate(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}");
        let text = "error: `missing.yaml` cannot be read: ";
        assert!(ran.err.starts_with(text), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn values_of_flags_are_checked_when_they_are_parsed() {
    for (arguments, text) in [
        (&["serve", "--threads", "0"][..], "'0' for '--threads"),
        (&["gateway", "--threads", "0"], "'0' for '--threads"),
        (
            &["serve", "--listen", "localhost"],
            "hint: write an address and a port",
        ),
        (
            &["serve", "--admin", "of"],
            "hint: write an address and a port",
        ),
        (
            &["serve", "--state-every", "1ms"],
            "hint: write a span from 100ms to 1h",
        ),
        (
            &["serve", "--log-level", "warning"],
            "possible values: error, warn",
        ),
    ] {
        let ran = tollgate(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}");
        assert!(ran.err.contains(text), "{arguments:?}: {}", ran.err);
    }
}
