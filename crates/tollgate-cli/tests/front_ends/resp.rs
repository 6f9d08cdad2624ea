//! Real Redis clients with their default settings: redis-py, ioredis, node-redis, redis-cli, redis-benchmark.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::servers::{Kind, Server};

use tollgate_testkit::tollgate::{Start, Tollgate};
use tollgate_testkit::{Directory, program, run, wait};

use crate::harness::{policy_with, serve};

const PASSWORD: &str = "fedcba9876543210fedcba9876543210";
const LIMITS: &str = "  - { name: per-user, key: header.x-user, allow: 1/h, burst: 5 }";

/// A server that answers Redis clients, with these arguments besides.
fn server(more: &[&str]) -> (Tollgate, Directory) {
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", &policy_with(LIMITS));
    let start = Start::serve()
        .policy_file(&policy)
        .args(&["--resp", "127.0.0.1:0"]);
    (start.args(more).start().unwrap(), scratch)
}

fn tools() -> PathBuf {
    let tools = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let found = tools.canonicalize();
    found.unwrap_or_else(|_| panic!("the clients are missing: run `make setup`"))
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/front_ends")
        .join(name)
}

fn redis_cli(port: u16, args: &[&str]) -> String {
    let mut command = Command::new(program("redis-cli").unwrap());
    command.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    run(command.args(args), b"").unwrap().success()
}

fn python(port: u16, version: &str, password: &str) -> Value {
    let python = tools().join("venv/bin/python");
    assert!(python.is_file(), "redis-py is missing: run `make setup`");
    let mut command = Command::new(python);
    command.arg(script("resp-client.py"));
    command.args([&port.to_string(), version, password]);
    serde_json::from_str(&run(&mut command, b"").unwrap().success()).expect("JSON")
}

fn node(library: &str, port: u16) -> Value {
    let tools = tools();
    let is_there = tools.join("node_modules").join(library).is_dir();
    assert!(
        is_there,
        "the npm package {library} is missing: run `make setup`"
    );
    let mut command = Command::new(program("node").unwrap());
    command.arg(script("resp-client.mjs")).arg(tools);
    command.args([library, &port.to_string()]);
    serde_json::from_str(&run(&mut command, b"").unwrap().success()).expect("JSON")
}

/// What every library has to get.
#[track_caller]
fn is_right(got: &Value) {
    let calls = json!([
        [0, 3, 2, -1, 3600],
        [0, 3, 1, -1, 7200],
        [0, 3, 0, -1, 10_800],
        [1, 3, 0, 3600, 10_800]
    ]);
    assert_eq!(got["calls"], calls, "{got}");
    let error = got["error"].as_str().unwrap_or_default();
    let message = "Cell error: Store error: Couldn't parse as integer: x";
    assert!(error.ends_with(message), "{got}");
    assert_eq!(got["passed"], 100, "{got}");
    assert_eq!(got["check"]["verdict"], "pass", "{got}");
    assert_eq!(got["check"]["limit"], "per-user", "{got}");
    assert_eq!(got["check"]["remaining"], 4, "{got}");
}

#[test]
fn redis_py_works_untouched_in_both_versions_and_with_a_password() {
    let (server, scratch) = server(&[]);
    let port = server.port_of("redis").unwrap();
    for version in ["", "3"] {
        let got = python(port, version, "");
        is_right(&got);
        assert_eq!(got["binary"], json!([0, 1]));
        let multi = json!([
            [0, 2, 1, -1, 3600],
            [0, 2, 0, -1, 7200],
            [1, 2, 0, 3600, 7200]
        ]);
        assert_eq!(got["multi"], multi, "{got}");
        let aborted = got["aborted"].as_str().unwrap_or_default();
        assert!(aborted.contains("unknown command 'NOPE'"), "{got}");
        assert_eq!(got["untouched"], json!([0, 2, 1, -1, 3600]), "{got}");
        assert_eq!(got["other"][0], 0, "another database has keys of its own");
    }
    let file = scratch.write("password", PASSWORD);
    let file = file.to_string_lossy();
    let (closed, _scratch) = self::server(&["--resp-password-file", &file]);
    let got = python(closed.port_of("redis").unwrap(), "", PASSWORD);
    assert_eq!(got["passed"], 100, "{got}");
    let got = redis_cli(closed.port_of("redis").unwrap(), &["PING"]);
    assert_eq!(got, "NOAUTH Authentication required.\n\n");
    let got = redis_cli(
        closed.port_of("redis").unwrap(),
        &["--no-auth-warning", "-a", PASSWORD, "PING"],
    );
    assert_eq!(got, "PONG\n");
    let failures = |outcome: &str| {
        let labels = format!("reason=\"{outcome}\"");
        closed.metric(&format!("tollgate_resp_auth_failures_total{{{labels}}}"))
    };
    assert_eq!(
        (failures("wrong-password"), failures("rate-limited")),
        (Some(0), Some(0))
    );
    let wrong = ["--no-auth-warning", "-a", "guessed-it", "PING"];
    for _ in 0..2 {
        redis_cli(closed.port_of("redis").unwrap(), &wrong);
    }
    assert_eq!(
        (failures("wrong-password"), failures("rate-limited")),
        (Some(2), Some(0))
    );
    wait("it is logged", || {
        closed
            .log()
            .contains("Redis clients failed to authenticate")
    });
    let lines = closed.log().matches("failed to authenticate").count();
    assert_eq!(lines, 1, "one line for both, within ten seconds");
}

#[test]
fn redis_py_in_the_second_version_gets_pairs_one_after_the_other() {
    let (server, _scratch) = server(&[]);
    let got = python(server.port_of("redis").unwrap(), "2", "");
    assert_eq!(got["passed"], 100, "{got}");
    let pairs = got["check"].as_array().expect("a list");
    assert_eq!(pairs[..4], ["verdict", "pass", "limit", "per-user"]);
}

#[test]
fn ioredis_and_node_redis_work_untouched() {
    let (server, _scratch) = server(&[]);
    for library in ["ioredis", "redis"] {
        let got = node(library, server.port_of("redis").unwrap());
        is_right(&got);
        assert_eq!(got["ping"], "PONG");
    }
}

#[test]
fn redis_cli_works_in_both_versions_and_from_a_pipe() {
    let (server, _scratch) = server(&[]);
    let port = server.port_of("redis").unwrap();
    let once = ["CL.THROTTLE", "cli", "0", "1", "60"];
    assert_eq!(redis_cli(port, &once), "0\n1\n0\n-1\n60\n");
    let mut third = vec!["-3"];
    third.extend(once);
    assert_eq!(redis_cli(port, &third), "1\n1\n0\n60\n60\n");
    let got = redis_cli(
        port,
        &["-3", "TOLLGATE.CHECK", "path", "/", "header.x-user", "cli"],
    );
    assert!(got.starts_with("verdict pass\nlimit per-user\n"), "{got}");
    let mut piped = Command::new("sh");
    let line =
        format!("printf 'PING\\nCL.THROTTLE piped 0 1 60\\n' | redis-cli -h 127.0.0.1 -p {port}");
    assert_eq!(
        run(piped.args(["-c", &line]), b"").unwrap().success(),
        "PONG\n0\n1\n0\n-1\n60\n"
    );
    let counted = |verdict: &str| {
        let labels = format!("verdict=\"{verdict}\"");
        server.metric(&format!("tollgate_throttle_decisions_total{{{labels}}}"))
    };
    assert_eq!((counted("pass"), counted("refuse")), (Some(2), Some(1)));
    let labels = "limit=\"per-user\",verdict=\"pass\",reason=\"limit\",protocol=\"resp\"";
    assert_eq!(
        server.metric(&format!("tollgate_decisions_total{{{labels}}}")),
        Some(1)
    );
}

#[test]
fn redis_benchmark_loads_it_with_and_without_pipelines() {
    let (server, _scratch) = server(&[]);
    let port = server.port_of("redis").unwrap().to_string();
    let load = |args: &[&str]| {
        let mut command = Command::new(program("redis-benchmark").unwrap());
        command
            .args(["-h", "127.0.0.1", "-p", &port, "-q", "--csv"])
            .args(args);
        let ran = run(&mut command, b"").unwrap();
        assert!(ran.err.is_empty(), "{ran:?}");
        ran.success()
    };
    let once = ["CL.THROTTLE", "bench", "99", "1", "3600"];
    for (count, pipeline) in [("2000", "1"), ("50000", "32"), ("200000", "100000")] {
        let mut args = vec!["-n", count, "-P", pipeline, "-c", "8"];
        args.extend(once);
        let output = load(&args);
        assert!(output.contains("CL.THROTTLE bench"), "{output}");
    }
    load(&["-n", "2000", "-t", "ping"]);
    let info = redis_cli(server.port_of("redis").unwrap(), &["INFO"]);
    assert!(info.contains("throttle_pass:100\r\n"), "{info}");
}

/// Sends bytes and reads what comes until the end of the connection, or for a second.
fn talk(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let second = Some(Duration::from_secs(1));
    stream.set_read_timeout(second).expect("a timeout");
    let _ = stream.write_all(bytes);
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    String::from_utf8_lossy(&got).into_owned()
}

#[test]
fn bombs_and_floods_take_no_memory_and_http_is_logged() {
    let (server, _scratch) = server(&["--resp-max-keys", "10000"]);
    let port = server.port_of("redis").unwrap();
    redis_cli(port, &["PING"]);
    let before = server.resident().unwrap();
    let nested = b"*1024\r\n".repeat(200);
    let huge = b"*1024\r\n$65536\r\n".to_vec();
    let mut open = Vec::new();
    for _ in 0..200 {
        assert!(talk(port, &nested).contains("expected '$', got '*'"));
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.write_all(&huge).expect("it reads");
        open.push(stream);
    }
    // More keys than there is room for.
    let mut load = Command::new(program("redis-benchmark").unwrap());
    let port_text = port.to_string();
    load.args([
        "-h",
        "127.0.0.1",
        "-p",
        &port_text,
        "-q",
        "-n",
        "200000",
        "-P",
        "100",
    ]);
    load.args([
        "-r",
        "100000000",
        "CL.THROTTLE",
        "__rand_int__",
        "0",
        "1",
        "3600",
    ]);
    run(&mut load, b"").unwrap().success();
    let grown = server.resident().unwrap().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
    assert_eq!(talk(port, b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"), "");
    wait("it is logged", || {
        server
            .log()
            .contains("HTTP request on the port for Redis clients")
    });
    assert_eq!(redis_cli(port, &["PING"]), "PONG\n");
}

#[test]
fn the_port_is_closed_by_default_and_never_open_to_a_network_without_a_password() {
    let server = serve(&policy_with(LIMITS));
    assert!(!server.out().contains("redis"), "{}", server.out());
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", &policy_with(LIMITS));
    let (output, code) = Start::serve()
        .policy_file(&policy)
        .args(&["--resp", "0.0.0.0:0"])
        .fails()
        .unwrap();
    assert!(output.contains("without a password"), "{output}");
    assert!(
        output.contains("hint: give one with --resp-password-file"),
        "{output}"
    );
    assert_ne!(code, Some(0));
    let (output, _) = Start::serve()
        .policy_file(&policy)
        .args(&["--resp-policy-only"])
        .fails()
        .unwrap();
    assert!(output.contains("--resp <ADDRESS>"), "{output}");
}

#[test]
fn a_fleet_that_shares_a_store_is_asked_by_redis_clients_too() {
    let store = Server::start(Kind::Redis, &[]).unwrap_or_else(|error| panic!("{error}"));
    let text = format!(
        "store: {{ url: 'redis://127.0.0.1:{}', deadline: 1s }}\non_store_error: local\n{}",
        store.port(),
        policy_with(LIMITS)
    );
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", &text);
    let fleet = [(); 2].map(|()| {
        Start::serve()
            .policy_file(&policy)
            .args(&["--resp", "127.0.0.1:0"])
            .start()
            .unwrap()
    });
    for service in &fleet {
        wait("the store is up", || {
            service.ready()["store"]["status"] == "up"
        });
    }
    let check = ["TOLLGATE.CHECK", "path", "/", "header.x-user", "42"];
    for taken in 1..=6 {
        let service = &fleet[taken % 2];
        let got = redis_cli(service.port_of("redis").unwrap(), &check);
        let verdict = if taken <= 5 {
            "verdict\npass\n"
        } else {
            "verdict\nrefuse\n"
        };
        assert!(got.starts_with(verdict), "{taken}: {got}");
    }
    // In a transaction the store is waited for, too, and what stands behind comes after.
    let mut piped = Command::new("sh");
    let line = format!(
        "printf 'MULTI\\n{}\\nPING\\n{}\\nECHO end\\nEXEC\\n' | redis-cli -3 -h 127.0.0.1 -p {}",
        check.join(" "),
        check.join(" "),
        fleet[0].port_of("redis").unwrap()
    );
    let got = run(piped.args(["-c", &line]), b"").unwrap().success();
    let places = ["verdict refuse", "PONG", "verdict refuse", "end"];
    let mut rest = got.as_str();
    for place in places {
        let at = rest
            .find(place)
            .unwrap_or_else(|| panic!("no {place}: {got}"));
        rest = &rest[at + place.len()..];
    }
}
