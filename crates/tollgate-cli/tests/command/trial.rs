//! `tollgate try`: whole outputs of the built binary.

use std::process::{Command, Stdio};

use crate::run::{assert_prints, fed, tollgate};

#[test]
fn eleven_requests_when_the_app_opens_meet_a_burst_of_ten() {
    assert_prints(
        &tollgate(&["try", "allow: 5/s, burst: 10", "0s*11", "200ms"]),
        "
token bucket 5/s burst 10

at     key  cost  verdict        remaining  retry after  full after
0s     -       1  pass                   9            -       200ms
                  … 9 more pass          0            -          2s
0s     -       1  refuse                 0        200ms          2s
200ms  -       1  pass                   0            -          2s

12 arrivals: 11 passed, 0 waited, 1 refused, 0 never
",
    );
}

#[test]
fn five_thousand_at_once_queue_for_what_takes_three_thousand_a_second() {
    assert_prints(
        &tollgate(&[
            "try",
            "algorithm: leaky-bucket, allow: 3000/s, queue: 5000, max_wait: 2s",
            "0s*6000",
            "1s",
        ]),
        "
leaky bucket 3000/s queue 5000 max wait 2s

at  key  cost  verdict                        remaining  retry after  full after
0s  -       1  pass                                4999            -   333.334us
0s  -       1  wait 333.334us                      4998            -   666.667us
               … 4998 more wait, last 1.667s          0            -      1.667s
0s  -       1  refuse                                 0    333.334us      1.667s
               … 999 more refuse                      0    333.334us      1.667s
1s  -       1  wait 666.667ms                      2999            -       667ms

6001 arrivals: 1 passed, 5000 waited, 1000 refused, 0 never
",
    );
}

#[test]
fn a_fixed_window_lets_a_double_through_at_its_boundary() {
    assert_prints(
        &tollgate(&[
            "try",
            "algorithm: fixed-window, allow: 10/min",
            "59s*10",
            "60s*11",
        ]),
        "
fixed window 10 in 1m

at   key  cost  verdict        remaining  retry after  full after
59s  -       1  pass                   9            -          1s
                … 9 more pass          0            -          1s
1m   -       1  pass                   9            -          1m
                … 9 more pass          0            -          1m
1m   -       1  refuse                 0           1m          1m

21 arrivals: 20 passed, 0 waited, 1 refused, 0 never
",
    );
}

#[test]
fn one_every_second_uses_a_fixed_window_up_and_then_waits_for_the_next() {
    assert_prints(
        &tollgate(&["try", "algorithm: fixed-window, allow: 3/5s", "1s-6s/1s"]),
        "
fixed window 3 in 5s

at  key  cost  verdict  remaining  retry after  full after
1s  -       1  pass             2            -          4s
2s  -       1  pass             1            -          3s
3s  -       1  pass             0            -          2s
4s  -       1  refuse           0           1s          1s
5s  -       1  pass             2            -          5s
6s  -       1  pass             1            -          4s

6 arrivals: 5 passed, 0 waited, 1 refused, 0 never
",
    );
}

#[test]
fn keys_have_allowances_of_their_own_and_a_cost_above_the_burst_never_passes() {
    assert_prints(
        &tollgate(&[
            "try",
            "allow: 100/min, burst: 20",
            "1.5s,key=bob",
            "0s*2,cost=15,key=alice",
            "0s,cost=15,key=bob",
            "0s,cost=21",
        ]),
        "
token bucket 100/min burst 20

at    key    cost  verdict  remaining  retry after  full after
0s    alice    15  pass             5            -          9s
0s    alice    15  refuse           5           6s          9s
0s    bob      15  pass             5            -          9s
0s    -        21  never           20            -          0s
1.5s  bob       1  pass             6            -        8.1s

5 arrivals: 3 passed, 0 waited, 1 refused, 1 never
",
    );
}

#[test]
fn without_arrivals_a_demonstration_is_run_and_says_what_it_is() {
    assert_prints(
        &tollgate(&["try", "allow: 5/s, burst: 10"]),
        "
token bucket 5/s burst 10
no arrivals given, so these are tried: 0s*20 200ms 400ms 600ms

at     key  cost  verdict          remaining  retry after  full after
0s     -       1  pass                     9            -       200ms
                  … 9 more pass            0            -          2s
0s     -       1  refuse                   0        200ms          2s
                  … 9 more refuse          0        200ms          2s
200ms  -       1  pass                     0            -          2s
400ms  -       1  pass                     0            -          2s
600ms  -       1  pass                     0            -          2s

23 arrivals: 13 passed, 0 waited, 10 refused, 0 never
",
    );
}

#[test]
fn permits_are_held_until_they_expire() {
    assert_prints(
        &tollgate(&[
            "try",
            "algorithm: concurrency, allow: 2, ttl: 30s",
            "0s*3",
            "1m",
        ]),
        "
concurrency 2 ttl 30s (no permit is released here: each one expires)

at  key  cost  verdict  remaining  retry after  full after
0s  -       1  pass             1            -         36s
0s  -       1  pass             0            -         36s
0s  -       1  refuse           0          36s         36s
1m  -       1  pass             1            -         36s

4 arrivals: 3 passed, 0 waited, 1 refused, 0 never
",
    );
}

#[test]
fn a_dash_reads_arrivals_from_standard_input() {
    let input = b"# when the app opens\n\n0s*3\n  200ms,key=a \r\n\n#1s\n1s";
    assert_prints(
        &fed(&["try", "allow: 5/s, burst: 2", "-"], input),
        "
token bucket 5/s burst 2

at     key  cost  verdict  remaining  retry after  full after
0s     -       1  pass             1            -       200ms
0s     -       1  pass             0            -       400ms
0s     -       1  refuse           0        200ms       400ms
200ms  a       1  pass             1            -       200ms
1s     -       1  pass             1            -       200ms

5 arrivals: 4 passed, 0 waited, 1 refused, 0 never
",
    );
}

#[test]
fn empty_standard_input_is_no_arrivals() {
    assert_prints(
        &fed(&["try", "5/s", "-"], b""),
        "
token bucket 5/s burst 5

at  key  cost  verdict  remaining  retry after  full after

0 arrivals: 0 passed, 0 waited, 0 refused, 0 never
",
    );
}

#[test]
fn json_is_one_object_for_each_arrival_and_nothing_else() {
    assert_prints(
        &tollgate(&[
            "try",
            "allow: 5/s, burst: 2",
            "0s*3",
            "1.5s,cost=3,key=a\"b",
            "--json",
        ]),
        r#"
{"at_ns":0,"at":"0s","key":null,"cost":1,"verdict":"pass","delay_ns":null,"delay":null,"retry_after_ns":null,"retry_after":null,"remaining":1,"full_after_ns":200000000,"full_after":"200ms"}
{"at_ns":0,"at":"0s","key":null,"cost":1,"verdict":"pass","delay_ns":null,"delay":null,"retry_after_ns":null,"retry_after":null,"remaining":0,"full_after_ns":400000000,"full_after":"400ms"}
{"at_ns":0,"at":"0s","key":null,"cost":1,"verdict":"refuse","delay_ns":null,"delay":null,"retry_after_ns":200000000,"retry_after":"200ms","remaining":0,"full_after_ns":400000000,"full_after":"400ms"}
{"at_ns":1500000000,"at":"1s500ms","key":"a\"b","cost":3,"verdict":"never","delay_ns":null,"delay":null,"retry_after_ns":null,"retry_after":null,"remaining":2,"full_after_ns":0,"full_after":"0s"}
"#,
    );
}

#[test]
fn json_of_a_queue_has_the_exact_delay() {
    assert_prints(
        &tollgate(&[
            "try",
            "algorithm: leaky-bucket, allow: 3/s, queue: 2",
            "0s*2",
            "--json",
        ]),
        r#"
{"at_ns":0,"at":"0s","key":null,"cost":1,"verdict":"pass","delay_ns":null,"delay":null,"retry_after_ns":null,"retry_after":null,"remaining":1,"full_after_ns":333333334,"full_after":"333ms333us334ns"}
{"at_ns":0,"at":"0s","key":null,"cost":1,"verdict":"wait","delay_ns":333333334,"delay":"333ms333us334ns","retry_after_ns":null,"retry_after":null,"remaining":0,"full_after_ns":666666667,"full_after":"666ms666us667ns"}
"#,
    );
}

#[test]
fn a_closed_output_pipe_ends_the_program_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["try", "5/s", "0s-100s/1ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert_eq!(ended.status.code(), Some(0));
}
