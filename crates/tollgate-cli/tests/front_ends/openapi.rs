//! The OpenAPI document, compared with the server by schemathesis.

use std::path::PathBuf;
use std::process::Command;

use tollgate_testkit::{Directory, run};

use crate::harness::serve;

const POLICY: &str = "default: pass
limits:
  - { name: wide, key: ip, allow: 1000000/s }
  - { name: places, match: { path: /places }, algorithm: concurrency, allow: 2, ttl: 1h }
  - { name: tight, match: { path: /tight }, allow: 1/h, burst: 2 }
";

/// A question can be well formed and still be refused for what it says: an ambiguous path (400),
/// a cost that never fits (422). Everything else that is right by the document must be accepted.
const SETTINGS: &str = r#"
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 403, 404, 422, 429]
"#;

#[test]
fn schemathesis_finds_nothing() {
    let tools = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let st = tools.join("venv/bin/st");
    assert!(st.is_file(), "schemathesis is missing: run `make setup`");
    let server = serve(POLICY);
    let scratch = Directory::new();
    scratch.write("schemathesis.toml", SETTINGS);
    let ran = run(
        Command::new(st.canonicalize().expect("a program"))
            .arg("run")
            .arg(format!("http://127.0.0.1:{}/openapi.json", server.port()))
            .args(["--checks", "all", "--max-examples", "50", "--seed", "7"])
            .args(["--phases", "examples,coverage,fuzzing", "--no-color"])
            // Where its settings are, and where it leaves what it found.
            .current_dir(scratch.path()),
        b"",
    );
    let ran = ran.unwrap();
    let log = server.log();
    assert_eq!(ran.code, Some(0), "{}\n{}\nlog: {log}", ran.out, ran.err);
    server.client().get("/health").expect(200);
}
