//! Header fields of real responses, as client libraries read them.
//!
//! `ratelimit-header-parser` knows the generations before the present draft: `X-RateLimit-*` and the
//! triples. `structured-headers` reads what the present draft is written in (RFC 9651).

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use tollgate_testkit::http::Reply;
use tollgate_testkit::program;

use crate::harness::serve;

/// What a library understands of an answer.
fn parsed(library: &str, reply: &Reply) -> Value {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let tools = here.join("../../target/tools");
    assert!(
        tools.join("node_modules").is_dir(),
        "the npm packages are missing: run `make setup`"
    );
    let mut child = Command::new(program("node").unwrap())
        .arg(here.join("tests/front_ends/parse-headers.mjs"))
        .arg(tools.canonicalize().expect("a folder"))
        .arg(library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("node starts");
    let headers: serde_json::Map<String, Value> = reply
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().into()))
        .collect();
    let text = Value::Object(headers).to_string();
    let mut to = child.stdin.take().expect("piped");
    to.write_all(text.as_bytes()).expect("node reads");
    drop(to);
    let ran = child.wait_with_output().expect("node ends");
    assert!(ran.status.success(), "{ran:?}");
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

/// The answers to a request that passes and to one that is refused.
fn answers(settings: &str) -> [Reply; 2] {
    let policy = format!(
        "default: pass\nheaders: {{ {settings} }}\nlimits:\n  - {{ name: wide, allow: 100/h }}\n  - {{ name: one, allow: 1/min, burst: 3 }}\n"
    );
    let server = serve(&policy);
    let ask = |cost: u64| server.check(&format!(r#"{{"path":"/","cost":{cost}}}"#));
    [ask(2).expect(200), ask(2).expect(429)]
}

/// In how many seconds the answer says that it is worth asking again.
fn seconds(reply: &Reply) -> u64 {
    let body = reply.json();
    let wait = body
        .get("retry_after_ms")
        .unwrap_or(&body["reset_after_ms"]);
    wait.as_u64().expect("a wait").div_ceil(1_000)
}

#[test]
fn a_client_library_reads_x_ratelimit_headers_as_the_answer_means_them() {
    for settings in [
        "ratelimit: false",
        "ratelimit: false, x_ratelimit: epoch",
        "ratelimit: false, retry_after: false",
    ] {
        for reply in answers(settings) {
            let read = parsed("classic", &reply);
            assert_eq!(read["limit"], 3, "{settings}: {read}");
            assert_eq!(read["remaining"], reply.json()["remaining"], "{settings}");
            let parsed = read["seconds"].as_f64().expect("seconds");
            // It adds whole seconds to a clock of its own, and time has gone on.
            let slack = seconds(&reply) as f64 - parsed;
            assert!((-1.5..5.0).contains(&slack), "{settings}: {read} {reply:?}");
        }
    }
}

#[test]
fn a_structured_field_parser_reads_ratelimit_as_the_answer_means_it() {
    for reply in answers("") {
        let read = parsed("structured", &reply);
        let policies = json!([
            {"name": "wide", "q": 100, "w": 3600},
            {"name": "one", "q": 3, "w": 180},
        ]);
        assert_eq!(read["policies"], policies);
        let limit = &read["limits"][0];
        assert_eq!(limit["name"], reply.json()["limit"]);
        assert_eq!(limit["r"], reply.json()["remaining"], "{read}");
        let is_refused = reply.status == 429;
        // One is left, which a minute earns; or the wait.
        let lasts = if is_refused { seconds(&reply) } else { 60 };
        assert_eq!(limit["t"], lasts, "{read} {reply:?}");
    }
}
