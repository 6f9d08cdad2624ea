//! The clients of `examples/clients`, run by their own runtimes against the built service.

use std::net::TcpStream;
use std::path::PathBuf;

use tollgate_testkit::http::{Client, Reply};
use tollgate_testkit::tollgate::Start;
use tollgate_testkit::{HOST, Process, free_port, program, wait};

use crate::root;

const POLICY: &str = "
default: pass
trusted_headers: x-api-key
limits:
  - { name: rides, match: { path: /rides }, key: header.x-api-key, allow: 1/h, burst: 3 }
";

/// Where `make setup` installs packages.
fn tools() -> PathBuf {
    let tools = root().join("target/tools").canonicalize();
    tools.unwrap_or_else(|_| panic!("the packages are missing: run `make setup`"))
}

fn rides(port: u16, key: &str) -> Reply {
    Client::new(port).get_with("/rides", &[("x-api-key", key)])
}

/// An application serves three requests of a key, refuses the fourth, and serves without limits when Tollgate is gone.
fn limits_and_fails_open(name: &str, port: u16, command: &[String]) {
    let tollgate = Start::serve().policy(POLICY).start().unwrap();
    let mut arguments = vec![
        format!("TOLLGATE_URL=http://{HOST}:{}", tollgate.port()),
        // The machine may be busy.
        "TOLLGATE_TIMEOUT=10".into(),
        "TOLLGATE_TIMEOUT_MS=10000".into(),
        format!("PORT={port}"),
    ];
    arguments.extend_from_slice(command);
    let app = Process::prepare(name, &program("env").unwrap(), &arguments).unwrap();
    app.start().unwrap();
    wait(&format!("{name} listens"), || {
        app.check().unwrap_or_else(|error| panic!("{error}"));
        TcpStream::connect((HOST, port)).is_ok()
    });
    for _ in 0..3 {
        let reply = rides(port, "acme").expect(200);
        assert_eq!(reply.json()["rides"].as_array().map(Vec::len), Some(0));
    }
    let refused = rides(port, "acme").expect(429);
    assert_eq!(refused.must("retry-after"), "3600");
    rides(port, "globex").expect(200);
    assert_eq!(tollgate.metric("tollgate_decisions_total"), Some(5));
    tollgate.kill();
    rides(port, "acme").expect(200);
    assert!(
        app.log().contains("no answer from Tollgate"),
        "{}",
        app.log()
    );
}

#[test]
fn the_client_for_fastapi_limits_and_fails_open() {
    let python = tools().join("venv/bin/python");
    let port = free_port().unwrap();
    let clients = root().join("examples/clients").canonicalize().unwrap();
    let command = [
        python.display().to_string(),
        "-B".into(),
        "-m".into(),
        "uvicorn".into(),
        "fastapi_app:app".into(),
        "--app-dir".into(),
        clients.display().to_string(),
        "--port".into(),
        port.to_string(),
    ];
    limits_and_fails_open("the FastAPI client", port, &command);
}

#[test]
fn the_client_for_express_limits_and_fails_open() {
    let port = free_port().unwrap();
    // Modules are found from the directory of the program.
    let scratch = tollgate_testkit::Directory::new();
    let text = std::fs::read_to_string(root().join("examples/clients/express_app.mjs")).unwrap();
    let app = scratch.write("express_app.mjs", &text);
    let modules = scratch.file("node_modules");
    std::os::unix::fs::symlink(tools().join("node_modules"), modules).unwrap();
    let node = program("node").unwrap().display().to_string();
    let command = [node, app.display().to_string()];
    limits_and_fails_open("the Express client", port, &command);
}
