//! nginx, Caddy and Envoy with the recipes of `examples/`, on free ports.

use std::path::PathBuf;
use std::process::Command;

use super::client::Client;
use super::process::{Process, free_port, program};
use super::scratch::Scratch;
use super::time::until;

/// A proxy in front of an upstream, asking a limiter.
#[derive(Debug)]
pub(crate) struct Proxy {
    process: Process,
    port: u16,
    _scratch: Scratch,
}

impl Proxy {
    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        Client::to(self.port)
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        self.process.err()
    }

    fn listening(process: Process, port: u16, scratch: Scratch) -> Proxy {
        let mut proxy = Proxy {
            process,
            port,
            _scratch: scratch,
        };
        until("the proxy listens", || {
            if let Some(status) = proxy.process.ended() {
                panic!("the proxy ended with {status}: {}", proxy.log());
            }
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        proxy
    }
}

/// A recipe with other ports. Each of them must be in it.
fn recipe(name: &str, ports: &[(&str, u16)]) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let file = root.join(name);
    let mut text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    for (usual, port) in ports {
        assert!(text.contains(usual), "{name} does not name {usual}");
        let (front, _) = usual.rsplit_once(':').expect("an address");
        text = text.replace(usual, &format!("{front}:{port}"));
    }
    text
}

/// nginx with `examples/nginx/nginx.conf`.
pub(crate) fn nginx(limiter: u16, upstream: u16) -> Proxy {
    nginx_with(limiter, upstream, |recipe| recipe)
}

/// The same, with something changed in the recipe.
pub(crate) fn nginx_with(
    limiter: u16,
    upstream: u16,
    change: impl FnOnce(String) -> String,
) -> Proxy {
    let scratch = Scratch::new();
    let port = free_port();
    let ports = [
        ("127.0.0.1:8000", port),
        ("127.0.0.1:8080", limiter),
        ("127.0.0.1:3000", upstream),
    ];
    let text = change(recipe("nginx/nginx.conf", &ports));
    // Only where it keeps what it does not need, and that it says nothing about what goes well.
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let here = kinds.map(|kind| format!("{kind}_temp_path {kind};"));
    let opened = format!("http {{ access_log off; {}", here.join(" "));
    let conf = scratch.write("nginx.conf", &text.replacen("http {", &opened, 1));
    let mut command = Command::new(program("nginx"));
    command
        .arg("-p")
        .arg(scratch.path())
        .arg("-c")
        .arg(conf)
        .args(["-e", "stderr"])
        // One process, so that ending it ends all of it.
        .args([
            "-g",
            "daemon off; master_process off; pid nginx.pid; error_log stderr;",
        ]);
    Proxy::listening(Process::start(&mut command), port, scratch)
}

/// Caddy with `examples/caddy/Caddyfile`.
pub(crate) fn caddy(limiter: u16, upstream: u16) -> Proxy {
    let scratch = Scratch::new();
    let port = free_port();
    let ports = [
        ("127.0.0.1:8000", port),
        ("127.0.0.1:8080", limiter),
        ("127.0.0.1:3000", upstream),
    ];
    let file = scratch.write("Caddyfile", &recipe("caddy/Caddyfile", &ports));
    let mut command = Command::new(program("caddy"));
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(file)
        // It would keep its last configuration in the home of whoever runs the test.
        .env("XDG_CONFIG_HOME", scratch.path())
        .env("XDG_DATA_HOME", scratch.path())
        .env("HOME", scratch.path());
    Proxy::listening(Process::start(&mut command), port, scratch)
}

/// Envoy with `examples/envoy/envoy.yaml`, and something changed in it.
pub(crate) fn envoy(limiter: u16, upstream: u16, change: impl FnOnce(String) -> String) -> Proxy {
    let scratch = Scratch::new();
    let port = free_port();
    let mut text = change(recipe("envoy/envoy.yaml", &[]));
    for (usual, port) in [(8000, port), (8081, limiter), (3000, upstream)] {
        let usual = format!("port_value: {usual}");
        assert!(text.contains(&usual), "the recipe does not name {usual}");
        text = text.replace(&usual, &format!("port_value: {port}"));
    }
    // A machine that runs all tests at once is slower than one that serves.
    let timeout = "timeout: 0.05s";
    assert!(text.contains(timeout));
    let file = scratch.write("envoy.yaml", &text.replace(timeout, "timeout: 10s"));
    let mut command = Command::new(envoy_program());
    command
        .args(["--concurrency", "1", "--disable-hot-restart"])
        .args(["--log-level", "warn", "-c"])
        .arg(file);
    Proxy::listening(Process::start(&mut command), port, scratch)
}

/// Where `make setup` puts Envoy, which comes with a Python package: one folder for each version of Python.
fn envoy_program() -> PathBuf {
    let venv = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/venv/lib");
    let pythons = std::fs::read_dir(&venv).into_iter().flatten().flatten();
    let mut programs = pythons.map(|python| python.path().join("site-packages/envoy/_bin/envoy"));
    let found = programs.find(|program| program.is_file());
    found.unwrap_or_else(|| panic!("Envoy is not in {}: run `make setup`", venv.display()))
}
