//! What is wrong with a line for `tollgate bench`: said before anything is sent.

use crate::run::tollgate;

/// Exit code 2, this error, and a hint that has this in it.
#[track_caller]
fn says(args: &[&str], error: &str, hint: &str) {
    let ran = tollgate(&[&["bench"], args].concat());
    assert_eq!((ran.out.as_str(), ran.code), ("", Some(2)), "{}", ran.err);
    let (first, rest) = ran.err.split_once('\n').expect("two lines");
    assert_eq!(first, format!("error: {error}"));
    assert!(rest.starts_with("hint: ") && rest.contains(hint), "{rest}");
}

const REDIS: &str = "resp://127.0.0.1:1";

#[test]
fn a_target_says_what_is_spoken_there() {
    says(
        &["127.0.0.1:6379"],
        "`127.0.0.1:6379` does not say what is spoken there",
        "resp://",
    );
    says(
        &["ftp://h"],
        "`ftp://h` names a protocol that is not spoken here",
        "resp://",
    );
    says(
        &["resp://:secret@h"],
        "the target has a name or a password in it",
        "--password-file",
    );
}

#[test]
fn numbers_and_spans_are_looked_at() {
    says(
        &[REDIS, "-c", "0"],
        "`--connections 0` is out of range",
        "1 to 10000",
    );
    says(&[REDIS, "-d", "0s"], "`--duration` is out of range", "10s");
    says(
        &[REDIS, "-d", "ten"],
        "`--duration ten`: a number was expected at `ten`",
        "",
    );
    says(
        &[REDIS, "--zipf", "99"],
        "`--zipf 99` is out of range",
        "0 (all keys alike)",
    );
    says(
        &[REDIS, "--rate", "0"],
        "`--rate 0`: a rate of 0 would refuse everyone for ever",
        "1",
    );
}

#[test]
fn a_flag_for_another_protocol_is_not_ignored() {
    says(
        &[REDIS, "--header", "a: b"],
        "`--header` is for http://, which no target is",
        "http://",
    );
    says(
        &["grpc://h", "--command", "PING"],
        "`--command` is for resp://, which no target is",
        "resp://",
    );
    says(
        &["http://h", "--password-file", "/dev/null"],
        "`--password-file` is for resp://, which no target is",
        "resp://",
    );
    says(
        &[REDIS, "--ca", "/dev/null"],
        "`--ca` is for TLS, which no target speaks",
        "--tls",
    );
    says(
        &[REDIS, "--tls", "--ca", "/dev/null"],
        "`--ca` cannot be used: there is no certificate in the file",
        "PEM",
    );
    says(
        &[REDIS, "--password-file", "/dev/null"],
        "`--password-file /dev/null` is empty",
        "write the password into it",
    );
}

#[test]
fn a_request_without_its_key_or_cost_is_told() {
    let without = "no request to resp://127.0.0.1:1 would have its key in it";
    says(
        &[REDIS, "--command", "INCR {kye}"],
        without,
        "`{key}` in --command",
    );
    let without = "no request to http://127.0.0.1:1/ would have its cost in it";
    says(
        &["http://127.0.0.1:1", "--keys", "1", "--cost", "2"],
        without,
        "`{cost}` in the path",
    );
}

#[test]
fn an_audit_needs_something_to_hold_the_limiter_to() {
    let unsaid = "`--audit` does not say what the limiter should allow";
    says(&["grpc://h", "--audit"], unsaid, "--allow 5/s --burst 10");
    says(
        &[REDIS, "--audit", "--command", "INCR {key}"],
        "the command does not say what it allows",
        "--allow",
    );
    says(
        &[REDIS, "--allow", "5/s", "--command", "INCR {key}"],
        "how `INCR` says yes is not known",
        "--admitted",
    );
    let windows = [
        "--allow",
        "5/s",
        "--burst",
        "9",
        "--algorithm",
        "fixed-window",
    ];
    says(
        &[&[REDIS][..], &windows].concat(),
        "a limit by windows has no `--burst`",
        "leave it out",
    );
    says(
        &[REDIS, "--admitted", "maybe"],
        "`--admitted maybe` is no rule",
        "nonzero",
    );
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let refused = "resp://127.0.0.1:1 cannot be reached: Connection refused (os error 111)";
    says(&[REDIS], refused, "start the server");
}
