//! Shared parts of these tests, beyond `tollgate-testkit`: a client of Envoy's rate limit service, an upstream that
//! counts, and the configurations of `examples/`.

pub(crate) mod grpc;
mod upstream;

use tollgate_testkit::tollgate::{Start, Tollgate, command};
use tollgate_testkit::web::{WebServer, example};
use tollgate_testkit::{Ran, run};

pub(crate) use upstream::Upstream;

/// `tollgate serve` with this policy.
pub(crate) fn serve(policy: &str) -> Tollgate {
    Start::serve().policy(policy).start().unwrap()
}

/// The same with these arguments.
pub(crate) fn serve_with(policy: &str, arguments: &[&str]) -> Tollgate {
    let start = Start::serve().policy(policy).args(arguments);
    start.start().unwrap()
}

/// Runs the binary with these arguments to its end.
pub(crate) fn tollgate(arguments: &[&str]) -> Ran {
    run(command().unwrap().args(arguments), b"").unwrap()
}

/// Runs `tollgate bench` to its end.
pub(crate) fn bench(arguments: &[&str]) -> Ran {
    run(command().unwrap().arg("bench").args(arguments), b"").unwrap()
}

/// A policy with these limits, in which nothing else is limited.
pub(crate) fn policy_with(limits: &str) -> String {
    format!("default: pass\nlimits:\n{limits}")
}

/// nginx with `examples/nginx/nginx.conf`.
pub(crate) fn nginx(limiter: u16, upstream: u16) -> WebServer {
    nginx_with(limiter, upstream, |text| text)
}

/// The same, with something changed in it.
pub(crate) fn nginx_with(
    limiter: u16,
    upstream: u16,
    change: impl FnOnce(String) -> String,
) -> WebServer {
    let text = |port| change(example("nginx/nginx.conf", &ports(port, limiter, upstream)).unwrap());
    WebServer::nginx(text).unwrap()
}

/// Caddy with `examples/caddy/Caddyfile`.
pub(crate) fn caddy(limiter: u16, upstream: u16) -> WebServer {
    let text = |port| example("caddy/Caddyfile", &ports(port, limiter, upstream)).unwrap();
    WebServer::caddy(text).unwrap()
}

/// The addresses in the examples, and the ports of a test.
fn ports(port: u16, limiter: u16, upstream: u16) -> [(&'static str, u16); 3] {
    [
        ("127.0.0.1:8000", port),
        ("127.0.0.1:8080", limiter),
        ("127.0.0.1:3000", upstream),
    ]
}

/// Envoy with `examples/envoy/envoy.yaml`, and something changed in it.
pub(crate) fn envoy(
    limiter: u16,
    upstream: u16,
    change: impl FnOnce(String) -> String,
) -> WebServer {
    let text = |port| {
        let ports = [
            ("port_value: 8000", port),
            ("port_value: 8081", limiter),
            ("port_value: 3000", upstream),
        ];
        let text = change(example("envoy/envoy.yaml", &ports).unwrap());
        // A machine that runs all tests at once is slower than one that serves.
        let timeout = "timeout: 0.05s";
        assert!(text.contains(timeout));
        text.replace(timeout, "timeout: 10s")
    };
    WebServer::envoy(text).unwrap()
}

/// nginx as the server behind a gateway.
pub(crate) fn nginx_upstream() -> WebServer {
    let text = |port| {
        format!(
            "events {{}}
             http {{
               limit_req_zone $http_x_api_key zone=keys:1m rate=100r/s;
               server {{
                 listen 127.0.0.1:{port};
                 location /limited {{
                   limit_req zone=keys burst=10 nodelay; limit_req_status 429; limit_req_log_level info;
                   empty_gif;
                 }}
                 location / {{ return 200 \"from nginx\\n\"; }}
                 location /length {{ return 200 \"$content_length\\n\"; }}
                 location /forwarded {{ return 200 \"$http_x_forwarded_for $http_x_forwarded_proto\\n\"; }}
               }}
             }}"
        )
    };
    WebServer::nginx(text).unwrap()
}

/// `tollgate gateway` in front of this server, with these arguments as well.
pub(crate) fn gateway(upstream: &WebServer, arguments: &[&str]) -> Tollgate {
    let url = format!("http://127.0.0.1:{}", upstream.port());
    let start = Start::gateway().args(&["--upstream", &url]).args(arguments);
    start.start().unwrap()
}
