//! `tollgate bench` against real servers: its counts are right, and its audit detects limiters that admit too much.

use serde_json::Value;
use tollgate_testkit::servers::{Kind, Plan, Server};

use tollgate_testkit::tollgate::{Start, binary};
use tollgate_testkit::wait::DEADLINE;
use tollgate_testkit::{Directory, Process, Ran, Signal, wait};

use crate::harness::{bench, nginx_upstream, policy_with, serve};

/// A token bucket in a script: one every `ARGV[1]` microseconds, `ARGV[2]` microseconds' worth at once.
const BUCKET: &str = r#"
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local until_full = math.max(tonumber(redis.call("GET", KEYS[1]) or 0), now)
if until_full + ARGV[1] - now > tonumber(ARGV[2]) then return REFUSED end
redis.call("SET", KEYS[1], string.format("%d", until_full + ARGV[1]), "PX", 60000)
return 1"#;

/// The mode of the script.
const LIMIT: [&str; 6] = [
    "--admitted",
    "nonzero",
    "--allow",
    "1000/s",
    "--burst",
    "50",
];

/// The script as one command: a thousand a second, fifty at once.
fn command(refused: &str) -> String {
    let script = BUCKET.replace("REFUSED", refused);
    format!("EVAL '{script}' 1 {{key}} 1000 50000")
}

fn redis() -> Server {
    Server::start(Kind::Redis, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs it with `--json`: what it printed, and its exit code.
fn ran(args: &[&str]) -> (Value, Option<i32>) {
    let Ran { out, err, code } = bench(&[args, &["--json"]].concat());
    let object = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    (object, code)
}

fn number(of: &Value) -> u64 {
    of.as_u64().unwrap_or_else(|| panic!("{of} is no number"))
}

#[test]
fn a_script_that_limits_rightly_passes_the_audit_with_its_allowance_used() {
    let server = redis();
    let target = format!("resp://127.0.0.1:{}", server.port());
    let command = command("0");
    let load = ["-c", "16", "-P", "4", "--keys", "1", "-d", "500ms"];
    let asked = [&[target.as_str(), "--command", &command][..], &LIMIT, &load].concat();
    let (report, code) = ran(&asked);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["errors"], 0, "{report}");
    assert_eq!(report["audit"]["over_admitted"], 0, "{report}");
    let (admitted, allowed) = (&report["audit"]["admitted"], &report["audit"]["allowed"]);
    assert!(number(admitted) * 2 >= number(allowed), "{report}");
    assert_eq!(admitted, &report["admitted"]);
    assert!(number(&report["refused"]) > number(admitted), "{report}");
    assert_eq!(report["audit"]["limit"], "token bucket 1000/s burst 50");
    let times = &report["latency_ns"];
    let order = ["p50", "p90", "p99", "p99.9", "max"].map(|name| number(&times[name]));
    assert!(order[0] > 0 && order.is_sorted(), "{times}");
}

#[test]
fn a_script_that_admits_one_in_ten_too_many_is_found_out() {
    let server = redis();
    let target = format!("resp://127.0.0.1:{}", server.port());
    let broken = command(r#"redis.call("INCR", "broken") % 10 == 0 and 1 or 0"#);
    let load = ["-c", "16", "--keys", "1", "-d", "500ms"];
    let asked = [&[target.as_str(), "--command", &broken][..], &LIMIT, &load].concat();
    let (report, code) = ran(&asked);
    assert_eq!(code, Some(1), "{report}");
    let over = number(&report["audit"]["over_admitted"]);
    // A tenth of what should have been refused, to within what was not yet earned.
    let too_many = number(&report["refused"]) / 9;
    assert!(
        over > too_many / 4 && over <= too_many + 1,
        "{too_many}: {report}"
    );
    assert_eq!(report["audit"]["worst"][0]["key"], "bench-0");
    let Ran { out, code, .. } = bench(&asked);
    assert_eq!(code, Some(1));
    assert!(
        out.contains("OVER-ADMISSION") && out.contains("bench-0"),
        "{out}"
    );
}

#[test]
fn sixty_four_connections_on_one_key_get_no_more_from_our_service_than_its_limit() {
    let limit = "  - { name: per-org, key: header.x-org, allow: 200/s, burst: 20 }\n";
    let service = serve(&policy_with(limit));
    let target = format!("http://127.0.0.1:{}/v1/check", service.port());
    let body = r#"{"path":"/","headers":{"x-org":"{key}"}}"#;
    let asked = [
        &target, "--body", body, "-c", "64", "--keys", "1", "-d", "1s",
    ];
    let allowed = ["--allow", "200/s", "--burst", "20"];
    let (report, code) = ran(&[&asked[..], &allowed].concat());
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["errors"], 0, "{report}");
    assert_eq!(report["audit"]["over_admitted"], 0, "{report}");
    let (admitted, allowed) = (&report["audit"]["admitted"], &report["audit"]["allowed"]);
    assert!(number(admitted) * 2 >= number(allowed), "{report}");
    // A limit that is said to be lower than it is: the same service is called wrong.
    let lower = [
        "--allow",
        "100/s",
        "--burst",
        "20",
        "--key-prefix",
        "lower-",
    ];
    let (report, code) = ran(&[&asked[..], &lower].concat());
    assert_eq!(code, Some(1), "{report}");
}

#[test]
fn nor_do_they_from_the_ports_for_redis_clients_and_envoy() {
    let limit = "  - { name: per-user, match: { domain: edge }, key: descriptor.user, allow: 200/s, burst: 20 }\n";
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", &policy_with(limit));
    let addresses = ["--rls", "127.0.0.1:0", "--resp", "127.0.0.1:0"];
    let service = Start::serve()
        .policy_file(&policy)
        .args(&addresses)
        .start()
        .unwrap();
    let redis = format!("resp://127.0.0.1:{}", service.port_of("redis").unwrap());
    let envoy = format!("grpc://127.0.0.1:{}", service.port_of("envoy").unwrap());
    let load = ["-c", "64", "--keys", "1", "-d", "500ms"];
    let throttle = ["--command", "CL.THROTTLE {key} 19 200 1", "--audit"];
    let descriptor = ["--domain", "edge", "--descriptor", "user={key}"];
    let allowed = ["--allow", "200/s", "--burst", "20"];
    for asked in [
        [&[redis.as_str()][..], &throttle, &load].concat(),
        [&[envoy.as_str()][..], &descriptor, &allowed, &load].concat(),
    ] {
        let (report, code) = ran(&asked);
        assert_eq!(code, Some(0), "{report}");
        assert_eq!(report["errors"], 0, "{report}");
        assert_eq!(report["audit"]["over_admitted"], 0, "{report}");
        let (admitted, allowed) = (&report["audit"]["admitted"], &report["audit"]["allowed"]);
        assert!(number(admitted) * 2 >= number(allowed), "{report}");
    }
}

#[test]
fn two_services_that_should_count_together_and_do_not_are_found_out() {
    let limit = "  - { name: per-org, key: header.x-org, allow: 1/h, burst: 20 }\n";
    let services = [(); 2].map(|()| serve(&policy_with(limit)));
    let targets = services
        .each_ref()
        .map(|service| format!("http://127.0.0.1:{}/v1/check", service.port()));
    let body = r#"{"path":"/","headers":{"x-org":"{key}"}}"#;
    let load = ["--body", body, "-c", "4", "--keys", "1", "-n", "200"];
    let allowed = ["--allow", "1/h", "--burst", "20"];
    let both = [targets[0].as_str(), targets[1].as_str()];
    let (report, code) = ran(&[&both[..], &load, &allowed].concat());
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["admitted"], 40, "{report}");
    assert_eq!(report["audit"]["over_admitted"], 20, "{report}");
}

#[test]
fn a_server_that_closes_after_a_thousand_requests_loses_none() {
    let nginx = nginx_upstream();
    let target = format!("http://127.0.0.1:{}/", nginx.port());
    let asked = [target.as_str(), "-c", "2", "--keys", "1", "-n", "5000"];
    let (report, code) = ran(&asked);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(
        (&report["admitted"], &report["errors"]),
        (&5000.into(), &0.into()),
        "{report}"
    );
    assert_eq!(report["reconnects"], 4, "{report}");
}

#[test]
fn the_limit_of_nginx_is_found_to_be_what_it_says_by_its_coarse_clock() {
    let nginx = nginx_upstream();
    let target = format!("http://127.0.0.1:{}/limited", nginx.port());
    let asked = [
        &target,
        "--header",
        "x-api-key: {key}",
        "--keys",
        "3",
        "-c",
        "12",
    ];
    // Ten beside the one that goes through; the clock has whole milliseconds, and is read once in each round.
    let allowed = ["--allow", "100/s", "--burst", "11", "--slack", "20ms"];
    let (report, code) = ran(&[&asked[..], &allowed, &["-d", "500ms"]].concat());
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["audit"]["keys"], 3, "{report}");
    let (admitted, allowed) = (&report["audit"]["admitted"], &report["audit"]["allowed"]);
    assert!(number(admitted) * 2 >= number(allowed), "{report}");
}

#[test]
fn an_error_of_the_server_is_reported_verbatim_and_is_a_failure() {
    let server = redis();
    let target = format!("resp://127.0.0.1:{}", server.port());
    // This server has no redis-cell.
    let Ran { out, err, code } = bench(&[&target, "-n", "100"]);
    assert_eq!(code, Some(1));
    assert!(
        out.contains("100  ERR unknown command 'CL.THROTTLE'\n"),
        "{out}"
    );
    assert!(
        err.starts_with("error: no response was a verdict (100 times: ERR unknown command"),
        "{err}"
    );
    assert!(err.contains("\nhint: "), "{err}");
}

#[test]
fn by_the_clock_as_many_are_asked_as_were_wanted() {
    let server = redis();
    let target = format!("resp://127.0.0.1:{}", server.port());
    let load = [
        "--rate",
        "4000/s",
        "-d",
        "500ms",
        "--warm-up",
        "100ms",
        "--zipf",
        "1.1",
    ];
    let (report, code) = ran(&[&[target.as_str(), "--command", "INCR {key}"][..], &load].concat());
    assert_eq!(code, Some(0), "{report}");
    let asked = number(&report["answers"]) + number(&report["unsent"]);
    assert!((1990..=2010).contains(&asked), "{report}");
}

#[test]
fn a_script_that_admits_twice_its_burst_and_makes_up_for_it_is_found_out() {
    let server = redis();
    let target = format!("resp://127.0.0.1:{}", server.port());
    // Twenty at once and then nothing for the rest of 400 ms: fifty a second, where a hundred may pass and ten at once.
    let script = r#"
local time = redis.call("TIME")
local turn = math.floor((time[1] * 1000000 + time[2]) / 400000)
local name = KEYS[1] .. ":" .. turn
if redis.call("INCR", name) > EACH then return 0 end
redis.call("PEXPIRE", name, 10000)
return 1"#;
    let asked = |each: &str, burst: &str, prefix: &str| {
        let script = script.replace("EACH", each);
        let command = format!("EVAL '{script}' 1 {{key}}");
        let load = [
            "-c",
            "16",
            "--keys",
            "2",
            "-d",
            "1500ms",
            "--key-prefix",
            prefix,
        ];
        let limit = [
            "--admitted",
            "nonzero",
            "--allow",
            "100/s",
            "--burst",
            burst,
        ];
        ran(&[&[target.as_str(), "--command", &command][..], &limit, &load].concat())
    };
    let (report, code) = asked("20", "10", "cheats-");
    assert_eq!(code, Some(1), "{report}");
    let audit = &report["audit"];
    assert!(
        number(&audit["admitted"]) < number(&audit["allowed"]),
        "{report}"
    );
    assert_eq!(
        (&audit["keys_over"], &audit["looked_at"]),
        (&2.into(), &report["admitted"])
    );
    let worst = &audit["worst"][0];
    // The next turn may have begun soon after the first.
    assert!(number(&worst["window_ns"]) < 400_000_000, "{report}");
    assert!(number(&worst["admitted"]) >= 20, "{report}");
    // Ten at once, and perhaps ten more at the turn, is no more than twenty.
    let (report, code) = asked("10", "20", "fair-");
    assert_eq!(
        (code, &report["audit"]["over_admitted"]),
        (Some(0), &0.into()),
        "{report}"
    );
}

#[test]
fn throttle_allows_its_burst_and_not_one_more() {
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", &policy_with("  []"));
    let service = Start::serve()
        .policy_file(&policy)
        .args(&["--resp", "127.0.0.1:0"])
        .start()
        .unwrap();
    let target = format!("resp://127.0.0.1:{}", service.port_of("redis").unwrap());
    let load = [
        "-c",
        "16",
        "--keys",
        "1",
        "-n",
        "500",
        "--audit",
        "--command",
    ];
    for command in [
        "THROTTLE {key} 20 1 3600",
        "CL.THROTTLE {key}-cell 19 1 3600",
    ] {
        let (report, code) = ran(&[&[target.as_str()][..], &load, &[command]].concat());
        assert_eq!(code, Some(0), "{report}");
        assert_eq!(report["audit"]["admitted"], 20, "{report}");
        assert_eq!(report["audit"]["allowed"], 20, "{report}");
    }
}

#[test]
fn a_password_and_tls_are_used_if_the_server_needs_them() {
    const PASSWORD: &str = "correct-horse-battery";
    let server = Plan::new(Kind::Redis).password(PASSWORD).tls().start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let scratch = Directory::new();
    let (right, wrong) = (
        scratch.write("right", &format!("{PASSWORD}\n")),
        scratch.write("wrong", "no"),
    );
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let certificates = server.certificates().expect("certificates");
    let (right, wrong, ca) = (text(&right), text(&wrong), text(&certificates.ca_file));
    let port = server.port();
    let asked = ["--command", "INCR {key}", "-n", "500", "-c", "8", "-P", "4"];
    for (target, more) in [
        (format!("resps://127.0.0.1:{port}"), &[][..]),
        (format!("resp://127.0.0.1:{port}"), &["--tls"]),
    ] {
        let trusted = ["--ca", &ca, "--password-file", &right];
        let (report, code) = ran(&[&[target.as_str()][..], more, &trusted, &asked].concat());
        assert_eq!(code, Some(0), "{report}");
        assert_eq!(
            (&report["answers"], &report["errors"]),
            (&500.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["targets"][0], target.replace("resp:", "resps:"));
    }
    let target = format!("resps://127.0.0.1:{port}");
    for (more, error, hint) in [
        (
            &["--ca", &ca, "--password-file", &wrong][..],
            "the server rejects the password: `WRONGPASS",
            "--password-file",
        ),
        (
            &["--password-file", &right],
            "cannot be reached: invalid peer certificate",
            "--ca",
        ),
    ] {
        let Ran { out, err, code } = bench(&[&[target.as_str()][..], more, &asked].concat());
        assert_eq!((out.as_str(), code), ("", Some(2)), "{err}");
        assert!(err.contains(error) && err.contains(hint), "{err}");
        assert!(!err.contains(PASSWORD), "{err}");
    }
    // Without TLS the server says nothing that makes sense.
    let plain = format!("resp://127.0.0.1:{port}");
    let Ran { err, code, .. } = bench(&[&[plain.as_str()][..], &asked].concat());
    assert_eq!(code, Some(2), "{err}");
}

#[test]
fn ctrl_c_ends_a_run_and_reports_its_results() {
    let server = redis();
    let target = format!("resp://127.0.0.1:{}", server.port());
    let asked = [&target, "--command", "INCR {key}", "-d", "1h", "--json"];
    for (signal, more) in [
        (Signal::INT, &[][..]),
        (Signal::TERM, &["--rate", "2000/s"]),
    ] {
        let process = start(&[&["bench"], &asked[..], more].concat());
        let before = processed(&server);
        wait("it is running", || processed(&server) > before + 500);
        process.signal(signal).unwrap();
        assert_eq!(
            process.wait(DEADLINE).unwrap().code(),
            Some(130),
            "{}",
            process.err()
        );
        let report: Value = serde_json::from_str(&process.out()).expect("JSON");
        assert_eq!(report["interrupted"], true, "{report}");
        assert!(number(&report["answers"]) >= 400, "{report}");
        assert_eq!(
            report["errors"], 0,
            "a request in flight is no error: {report}"
        );
        assert!(
            report["seconds"]
                .as_f64()
                .is_some_and(|s| s > 0.0 && s < 60.0),
            "{report}"
        );
    }
}

#[test]
fn an_interrupted_run_is_still_audited() {
    let server = redis();
    let target = format!("resp://127.0.0.1:{}", server.port());
    let asked = [
        &target,
        "--command",
        "INCR {key}",
        "-d",
        "1h",
        "--keys",
        "1",
    ];
    let limit = ["--admitted", "any", "--allow", "1/h", "--burst", "1"];
    let process = start(&[&["bench"], &asked[..], &limit].concat());
    let before = processed(&server);
    wait("it is running", || processed(&server) > before + 500);
    process.signal(Signal::INT).unwrap();
    assert_eq!(
        process.wait(DEADLINE).unwrap().code(),
        Some(1),
        "{}",
        process.err()
    );
    assert!(
        process.out().contains("OVER-ADMISSION"),
        "{}",
        process.out()
    );
    assert!(
        process.out().contains(" s, interrupted\n"),
        "{}",
        process.out()
    );
}

/// Starts the binary with these arguments.
fn start(arguments: &[&str]) -> Process {
    let process = Process::prepare("tollgate bench", &binary().unwrap(), arguments).unwrap();
    process.start().unwrap();
    process
}

fn processed(server: &Server) -> u64 {
    let count = server.info("stats", "total_commands_processed");
    let count = count.unwrap_or_else(|error| panic!("{error}"));
    count.parse().expect("a number")
}
