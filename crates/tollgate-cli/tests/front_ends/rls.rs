//! An independent gRPC client, grpcio, with its default settings.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use tollgate_testkit::tollgate::Start;
use tollgate_testkit::{Directory, run};

const POLICY: &str = "
default: pass
limits:
  - { name: per-user, match: { domain: edge, entries: [{ user: true }] }, key: descriptor.user, algorithm: fixed-window, allow: 3/day }
";

#[test]
fn a_foreign_client_gets_decisions_health_reflection_and_errors_on_one_connection() {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let python = here.join("../../target/tools/venv/bin/python");
    assert!(python.is_file(), "grpcio is missing: run `make setup`");
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", POLICY);
    let server = Start::serve()
        .policy_file(&policy)
        .args(&["--rls", "127.0.0.1:0"])
        .start()
        .unwrap();
    let mut command = Command::new(python);
    command.arg(here.join("tests/front_ends/rls-client.py"));
    command.arg(server.port_of("envoy").unwrap().to_string());
    let printed = run(&mut command, b"").unwrap().success();
    let got: Value = serde_json::from_str(&printed).expect("JSON");
    let (ok, over) = (1, 2);
    let right = json!({
        "calls": [ok, ok, ok, over],
        "many": { "1": 3, "2": 2_997 },
        "health": 1,
        "watched": 1,
        "services": [
            "envoy.service.ratelimit.v3.RateLimitService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        ],
        "unknown": "UNIMPLEMENTED",
        "empty": "INVALID_ARGUMENT",
        "garbage": "INVALID_ARGUMENT",
        "long": "OUT_OF_RANGE",
        "zipped": "UNIMPLEMENTED",
        // A head of more than 16 KiB is answered by HTTP alone, and the connection stays.
        "large": "UNKNOWN",
        "after": ok,
    });
    assert_eq!(got, right);
}
