//! `tollgate bench` against real servers: what it counts is right, and its audit tells right limiters from wrong ones.

use serde_json::Value;
use tollgate_trials::servers::{Kind, Server};

use crate::harness::{Nginx, Scratch, Start, Tollgate, bench, policy_with};

/// A token bucket in a script: one every `ARGV[1]` microseconds, `ARGV[2]` microseconds' worth at once.
const BUCKET: &str = r#"
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local until_full = math.max(tonumber(redis.call("GET", KEYS[1]) or 0), now)
if until_full + ARGV[1] - now > tonumber(ARGV[2]) then return REFUSED end
redis.call("SET", KEYS[1], string.format("%d", until_full + ARGV[1]), "PX", 60000)
return 1"#;

/// What the script is told to be.
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
    Server::start(Kind::Redis, &[]).unwrap_or_else(|trouble| panic!("{trouble}"))
}

/// Runs it with `--json`: what it printed, and its exit code.
fn ran(args: &[&str]) -> (Value, Option<i32>) {
    let (out, err, code) = bench(&[args, &["--json"]].concat());
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
    let (told, code) = ran(&asked);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told["errors"], 0, "{told}");
    assert_eq!(told["audit"]["over_admitted"], 0, "{told}");
    let (admitted, allowed) = (&told["audit"]["admitted"], &told["audit"]["allowed"]);
    assert!(number(admitted) * 2 >= number(allowed), "{told}");
    assert_eq!(admitted, &told["admitted"]);
    assert!(number(&told["refused"]) > number(admitted), "{told}");
    assert_eq!(told["audit"]["limit"], "token bucket 1000/s burst 50");
    let times = &told["latency_ns"];
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
    let (told, code) = ran(&asked);
    assert_eq!(code, Some(1), "{told}");
    let over = number(&told["audit"]["over_admitted"]);
    // A tenth of what should have been refused, to within what was not yet earned.
    let too_many = number(&told["refused"]) / 9;
    assert!(
        over > too_many / 4 && over <= too_many + 1,
        "{too_many}: {told}"
    );
    assert_eq!(told["audit"]["worst"][0]["key"], "bench-0");
    let (out, _, code) = bench(&asked);
    assert_eq!(code, Some(1));
    assert!(
        out.contains("OVER-ADMISSION") && out.contains("bench-0"),
        "{out}"
    );
}

#[test]
fn sixty_four_connections_on_one_key_get_no_more_from_our_service_than_its_limit() {
    let limit = "  - { name: per-org, key: header.x-org, allow: 200/s, burst: 20 }\n";
    let service = Tollgate::start(&policy_with(limit));
    let target = format!("http://127.0.0.1:{}/v1/check", service.port());
    let body = r#"{"path":"/","headers":{"x-org":"{key}"}}"#;
    let asked = [
        &target, "--body", body, "-c", "64", "--keys", "1", "-d", "1s",
    ];
    let allowed = ["--allow", "200/s", "--burst", "20"];
    let (told, code) = ran(&[&asked[..], &allowed].concat());
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told["errors"], 0, "{told}");
    assert_eq!(told["audit"]["over_admitted"], 0, "{told}");
    let (admitted, allowed) = (&told["audit"]["admitted"], &told["audit"]["allowed"]);
    assert!(number(admitted) * 2 >= number(allowed), "{told}");
    // A limit that is said to be lower than it is: the same service is called wrong.
    let lower = [
        "--allow",
        "100/s",
        "--burst",
        "20",
        "--key-prefix",
        "lower-",
    ];
    let (told, code) = ran(&[&asked[..], &lower].concat());
    assert_eq!(code, Some(1), "{told}");
}

#[test]
fn nor_do_they_from_the_doors_of_redis_clients_and_of_envoy() {
    let limit = "  - { name: per-user, match: { domain: edge }, key: descriptor.user, allow: 200/s, burst: 20 }\n";
    let scratch = Scratch::new();
    let policy = scratch.write("tollgate.yaml", &policy_with(limit));
    let doors = ["--rls", "127.0.0.1:0", "--resp", "127.0.0.1:0"];
    let service = Start::with(&policy).and(&doors).go();
    let redis = format!("resp://127.0.0.1:{}", service.redis_port());
    let envoy = format!("grpc://127.0.0.1:{}", service.rls_port());
    let load = ["-c", "64", "--keys", "1", "-d", "500ms"];
    let throttle = ["--command", "CL.THROTTLE {key} 19 200 1", "--audit"];
    let descriptor = ["--domain", "edge", "--descriptor", "user={key}"];
    let allowed = ["--allow", "200/s", "--burst", "20"];
    for asked in [
        [&[redis.as_str()][..], &throttle, &load].concat(),
        [&[envoy.as_str()][..], &descriptor, &allowed, &load].concat(),
    ] {
        let (told, code) = ran(&asked);
        assert_eq!(code, Some(0), "{told}");
        assert_eq!(told["errors"], 0, "{told}");
        assert_eq!(told["audit"]["over_admitted"], 0, "{told}");
        let (admitted, allowed) = (&told["audit"]["admitted"], &told["audit"]["allowed"]);
        assert!(number(admitted) * 2 >= number(allowed), "{told}");
    }
}

#[test]
fn two_services_that_should_count_together_and_do_not_are_found_out() {
    let limit = "  - { name: per-org, key: header.x-org, allow: 1/h, burst: 20 }\n";
    let services = [(); 2].map(|()| Tollgate::start(&policy_with(limit)));
    let targets = services
        .each_ref()
        .map(|service| format!("http://127.0.0.1:{}/v1/check", service.port()));
    let body = r#"{"path":"/","headers":{"x-org":"{key}"}}"#;
    let load = ["--body", body, "-c", "4", "--keys", "1", "-n", "200"];
    let allowed = ["--allow", "1/h", "--burst", "20"];
    let both = [targets[0].as_str(), targets[1].as_str()];
    let (told, code) = ran(&[&both[..], &load, &allowed].concat());
    assert_eq!(code, Some(1), "{told}");
    assert_eq!(told["admitted"], 40, "{told}");
    assert_eq!(told["audit"]["over_admitted"], 20, "{told}");
}

#[test]
fn a_server_that_closes_after_a_thousand_requests_loses_none() {
    let nginx = Nginx::start();
    let target = format!("http://127.0.0.1:{}/", nginx.port());
    let asked = [target.as_str(), "-c", "2", "--keys", "1", "-n", "5000"];
    let (told, code) = ran(&asked);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(
        (&told["admitted"], &told["errors"]),
        (&5000.into(), &0.into()),
        "{told}"
    );
    assert_eq!(told["reconnects"], 4, "{told}");
}

#[test]
fn the_limit_of_nginx_is_found_to_be_what_it_says_by_its_coarse_clock() {
    let nginx = Nginx::start();
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
    // Ten beside the one that goes through; the clock tells whole milliseconds, and is looked at once in each round.
    let allowed = ["--allow", "100/s", "--burst", "11", "--slack", "20ms"];
    let (told, code) = ran(&[&asked[..], &allowed, &["-d", "500ms"]].concat());
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told["audit"]["keys"], 3, "{told}");
    let (admitted, allowed) = (&told["audit"]["admitted"], &told["audit"]["allowed"]);
    assert!(number(admitted) * 2 >= number(allowed), "{told}");
}

#[test]
fn an_error_of_the_server_is_told_in_its_words_and_is_no_success() {
    let server = redis();
    let target = format!("resp://127.0.0.1:{}", server.port());
    // This server has no redis-cell.
    let (out, err, code) = bench(&[&target, "-n", "100"]);
    assert_eq!(code, Some(1));
    assert!(
        out.contains("100  ERR unknown command 'CL.THROTTLE'\n"),
        "{out}"
    );
    assert!(
        err.starts_with("error: no answer said yes or no (100 times: ERR unknown command"),
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
    let (told, code) = ran(&[&[target.as_str(), "--command", "INCR {key}"][..], &load].concat());
    assert_eq!(code, Some(0), "{told}");
    let asked = number(&told["answers"]) + number(&told["unsent"]);
    assert!((1990..=2010).contains(&asked), "{told}");
}
