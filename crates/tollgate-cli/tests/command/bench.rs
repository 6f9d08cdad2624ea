//! `tollgate bench`: errors in its arguments, which are reported before anything is sent, and its results on a service
//! of Tollgate that runs, then is killed.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::run::tollgate;

/// Exit code 2, this error, and a hint that has this in it.
#[track_caller]
fn expect_error(args: &[&str], error: &str, hint: &str) {
    let ran = tollgate(&[&["bench"], args].concat());
    assert_eq!((ran.out.as_str(), ran.code), ("", Some(2)), "{}", ran.err);
    let (first, rest) = ran.err.split_once('\n').expect("two lines");
    assert_eq!(first, format!("error: {error}"));
    assert!(rest.starts_with("hint: ") && rest.contains(hint), "{rest}");
}

const REDIS: &str = "resp://127.0.0.1:1";

#[test]
fn a_target_names_its_protocol() {
    expect_error(
        &["127.0.0.1:6379"],
        "`127.0.0.1:6379` names no protocol",
        "resp://",
    );
    expect_error(
        &["ftp://h"],
        "`ftp://h` names an unknown protocol",
        "resp://",
    );
    expect_error(
        &["resp://:secret@h"],
        "the target contains a name or a password",
        "--password-file",
    );
}

#[test]
fn numbers_and_spans_are_looked_at() {
    expect_error(
        &[REDIS, "-c", "0"],
        "`--connections 0` is out of range",
        "1 to 10000",
    );
    expect_error(&[REDIS, "-d", "0s"], "`--duration` is out of range", "10s");
    expect_error(
        &[REDIS, "-d", "ten"],
        "`--duration ten`: a number was expected at `ten`",
        "",
    );
    expect_error(
        &[REDIS, "--zipf", "99"],
        "`--zipf 99` is out of range",
        "0 (uniform)",
    );
    expect_error(
        &[REDIS, "--rate", "0"],
        "`--rate 0`: a rate of 0 would refuse every request for ever",
        "1",
    );
}

#[test]
fn a_flag_for_another_protocol_is_not_ignored() {
    expect_error(
        &[REDIS, "--header", "a: b"],
        "`--header` is for http://, which no target is",
        "http://",
    );
    expect_error(
        &["grpc://h", "--command", "PING"],
        "`--command` is for resp://, which no target is",
        "resp://",
    );
    expect_error(
        &["http://h", "--password-file", "/dev/null"],
        "`--password-file` is for resp://, which no target is",
        "resp://",
    );
    expect_error(
        &[REDIS, "--ca", "/dev/null"],
        "`--ca` is for TLS, which no target uses",
        "--tls",
    );
    expect_error(
        &[REDIS, "--tls", "--ca", "/dev/null"],
        "`--ca` cannot be used: there is no certificate in the file",
        "PEM",
    );
    expect_error(
        &[REDIS, "--password-file", "/dev/null"],
        "`--password-file /dev/null` is empty",
        "write only the password into it",
    );
}

#[test]
fn a_request_without_its_key_or_cost_is_an_error() {
    let without = "no request to resp://127.0.0.1:1 contains its key";
    expect_error(
        &[REDIS, "--command", "INCR {kye}"],
        without,
        "`{key}` in --command",
    );
    let without = "no request to http://127.0.0.1:1/ contains its cost";
    expect_error(
        &["http://127.0.0.1:1", "--keys", "1", "--cost", "2"],
        without,
        "`{cost}` in the path",
    );
}

#[test]
fn an_audit_needs_something_to_hold_the_limiter_to() {
    let unsaid = "`--audit` needs the limit that the target should enforce";
    expect_error(&["grpc://h", "--audit"], unsaid, "--allow 5/s --burst 10");
    expect_error(
        &[REDIS, "--audit", "--command", "INCR {key}"],
        "the command does not state its limit",
        "--allow",
    );
    expect_error(
        &[REDIS, "--allow", "5/s", "--command", "INCR {key}"],
        "the replies of `INCR` cannot be classified: the command is unknown",
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
    expect_error(
        &[&[REDIS][..], &windows].concat(),
        "a limit by windows has no `--burst`",
        "omit it",
    );
    let check = "TOLLGATE.CHECK path / header.x-org {key}";
    expect_error(
        &[REDIS, "--audit", "--command", check],
        "`TOLLGATE.CHECK` does not state its limit",
        "--allow",
    );
    let peek = "TOLLGATE.PEEK path / header.x-org {key}";
    expect_error(
        &[REDIS, "--allow", "5/s", "--command", peek],
        "`TOLLGATE.PEEK` takes nothing, so there is nothing to audit",
        "TOLLGATE.CHECK",
    );
    expect_error(
        &[REDIS, "--admitted", "maybe"],
        "`--admitted maybe` is no rule",
        "nonzero",
    );
}

#[test]
fn an_unreachable_server_is_reported() {
    let refused = "resp://127.0.0.1:1 cannot be reached: Connection refused (os error 111)";
    expect_error(&[REDIS], refused, "start the server");
}

/// A service that answers Redis clients; it is killed when this value goes.
struct Service {
    child: Child,
    port: u16,
    /// Kept open: a service that cannot print is another test.
    _out: BufReader<ChildStdout>,
}

impl Service {
    /// Twenty for each organization on `/hot`, and then one an hour.
    fn start(name: &str) -> Service {
        let policy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}.yaml"));
        let limit =
            "{ name: hot, match: { path: /hot }, key: header.x-org, allow: 1/h, burst: 20 }";
        let text = format!("default: pass\nlimits:\n  - {limit}\n");
        std::fs::write(&policy, text).expect("a policy that can be written");
        let addresses = ["--listen", "--admin", "--resp"].map(|flag| [flag, "127.0.0.1:0"]);
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .arg("serve")
            .arg("--policy")
            .arg(policy)
            .args(addresses.as_flattened())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary was built");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let port = (&mut out).lines().find_map(|line| {
            let line = line.expect("UTF-8");
            let address = line.strip_prefix("redis ")?;
            address.rsplit(':').next()?.parse().ok()
        });
        Service {
            child,
            port: port.expect("it says where Redis clients ask"),
            _out: out,
        }
    }

    fn target(&self) -> String {
        format!("resp://127.0.0.1:{}", self.port)
    }

    /// Peeks until this organization is refused: another client has taken all units.
    fn wait_until_refused(&self, organization: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let timeout = stream.set_read_timeout(Some(Duration::from_secs(10)));
        timeout.expect("a socket");
        let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
        let command = format!("TOLLGATE.PEEK path /hot header.x-org {organization}\r\n");
        let mut ask = || {
            stream.write_all(command.as_bytes()).expect("it reads");
            let mut next = || lines.next().expect("an answer").expect("UTF-8");
            let mut is_refused = false;
            // The last name of the answer, and then its value.
            let mut line = next();
            while line != "policy_version" {
                is_refused |= line == "refuse";
                line = next();
            }
            next();
            is_refused
        };
        let is_refused = (0..500_000).any(|_| ask());
        assert!(
            is_refused,
            "{organization} is not refused, so there is no load"
        );
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The JSON report and the exit code.
fn run_json(args: &[&str]) -> (Value, Option<i32>) {
    let ran = tollgate(&[&["bench", "--json"], args].concat());
    let report: Result<Value, _> = serde_json::from_str(&ran.out);
    assert!(report.is_ok(), "{report:?}: {}{}", ran.out, ran.err);
    (report.expect("JSON"), ran.code)
}

#[test]
fn tollgate_check_is_judged_without_a_flag() {
    let service = Service::start("judged");
    let target = service.target();
    let check = "tollgate.check path /hot header.x-org {key}";
    let load = ["-c", "8", "-P", "4", "--keys", "1", "-n", "500"];
    for (prefix, burst, code) in [("right-", "20", 0), ("wrong-", "15", 1)] {
        let limit = ["--allow", "1/h", "--burst", burst, "--key-prefix", prefix];
        let asked = [&[target.as_str(), "--command", check][..], &load, &limit];
        let (report, ended) = run_json(&asked.concat());
        assert_eq!(
            (&report["admitted"], &report["refused"]),
            (&20.into(), &480.into()),
            "{report}"
        );
        assert_eq!(
            (&report["errors"], &report["unjudged"]),
            (&0.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["audit"]["over_admitted"], 5 * code, "{report}");
        assert_eq!(ended, Some(code), "{report}");
    }
    for (word, prefix, admitted) in [
        ("PEEK", "right-", 0),
        ("EXPLAIN", "right-", 0),
        ("PEEK", "fresh-", 500),
        ("EXPLAIN", "fresh-", 500),
    ] {
        let command = format!("TOLLGATE.{word} path /hot header.x-org {{key}}");
        let asked = [&target, "--command", &command, "--key-prefix", prefix];
        let (report, code) = run_json(&[&asked[..], &load].concat());
        assert_eq!(
            (code, &report["admitted"]),
            (Some(0), &admitted.into()),
            "{report}"
        );
        assert_eq!(report["answers"], 500, "{report}");
    }
}

#[test]
fn responses_that_cannot_be_judged_do_not_count_as_admitted() {
    let service = Service::start("unjudged");
    let target = service.target();
    let asked = [&target, "--command", "ECHO {key}", "-n", "1000"];
    let ran = tollgate(&[&["bench"][..], &asked].concat());
    assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)), "{}", ran.out);
    let line = "not judged      1,000  how `ECHO` admits is unknown: set it with `--admitted`\n";
    assert!(ran.out.contains(line), "{}", ran.out);
    assert!(!ran.out.contains("\nadmitted"), "{}", ran.out);
    let (report, code) = run_json(&asked);
    assert_eq!(
        (code, &report["unjudged"]),
        (Some(0), &1000.into()),
        "{report}"
    );
    assert_eq!(
        (&report["admitted"], &report["answers"]),
        (&0.into(), &1000.into()),
        "{report}"
    );
    let (report, _) = self::run_json(&[&asked[..], &["--admitted", "any"]].concat());
    assert_eq!(report["admitted"], 1000, "{report}");
}

#[test]
fn a_target_that_dies_is_reported_with_its_results_and_the_other_continues() {
    let (lives, mut dies) = (Service::start("lives"), Service::start("dies"));
    let check = "TOLLGATE.CHECK path /hot header.x-org {key}";
    // Each of the two counts for itself, so together they may admit twice twenty.
    let limit = ["--allow", "1/h", "--burst", "40", "-d", "3s"];
    for (prefix, is_json) in [("one-", true), ("two-", false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["bench", &lives.target(), &dies.target()]);
        command.args(["--command", check, "--keys", "1", "-c", "8"]);
        command.args(["--key-prefix", prefix]).args(limit);
        command.args(is_json.then_some("--json"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let bench = command.spawn().expect("the binary was built");
        for service in [&lives, &dies] {
            service.wait_until_refused(&format!("{prefix}0"));
        }
        let lost = dies.target();
        dies.child.kill().expect("a child of ours");
        let ended = bench.wait_with_output().expect("it ends");
        let out = String::from_utf8(ended.stdout).expect("UTF-8");
        let err = String::from_utf8(ended.stderr).expect("UTF-8");
        assert_eq!(ended.status.code(), Some(1), "{out}{err}");
        assert!(
            err.starts_with(&format!("error: {lost} answered nothing after ")),
            "{err}"
        );
        assert!(err.contains(", 3 times in a row\nhint: "), "{err}");
        match is_json {
            true => check_by_target(&serde_json::from_str(&out).expect("JSON")),
            false => {
                for text in [
                    "\nadmitted        40  ",
                    "\nby target ",
                    "\nover-admission  0\n",
                ] {
                    assert!(out.contains(text), "{text:?}: {out}");
                }
                let line = format!("\nLOST            {lost} answered nothing after ");
                assert!(out.contains(&line), "{out}");
            }
        }
        dies = Service::start("dies");
    }
}

fn check_by_target(report: &Value) {
    let (lives, died) = (&report["by_target"][0], &report["by_target"][1]);
    assert_eq!(
        (&lives["admitted"], &died["admitted"]),
        (&20.into(), &20.into()),
        "{report}"
    );
    assert_eq!(
        (&lives["errors"], &died["errors"]),
        (&0.into(), &report["errors"]),
        "{report}"
    );
    assert_eq!(
        (&lives["is_lost"], &died["is_lost"]),
        (&false.into(), &true.into()),
        "{report}"
    );
    assert_eq!(
        (&lives["given_up"], &died["given_up"]["connections"]),
        (&Value::Null, &4.into())
    );
    assert_eq!(report["audit"]["admitted"], 40, "{report}");
    assert_eq!(report["audit"]["over_admitted"], 0, "{report}");
    let last = |of: &Value| of["last_answer_seconds"].as_f64().expect("a number");
    assert!(last(lives) > last(died), "{report}");
    let is_whole = report["seconds"]
        .as_f64()
        .is_some_and(|seconds| seconds >= 3.0);
    assert!(is_whole, "it continues to its end: {report}");
}
