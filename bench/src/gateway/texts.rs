//! What the servers are told. Every limit is so generous that nothing is refused.

use std::fmt::Write;

/// Requests a second for every key, and as many at once.
const GENEROUS: u64 = 1_000_000;

/// The header that names the key.
pub(super) const KEY_HEADER: &str = "x-rider-id";

/// What the upstream answers.
pub(super) const ANSWER: &str = "a ride is on its way";

/// The upstream: a few bytes for every request.
pub(super) fn upstream(port: u16) -> String {
    nginx_of(
        "upstream",
        "",
        &format!(
            "  server {{
    listen 127.0.0.1:{port};
    location / {{ default_type text/plain; return 200 '{ANSWER}\\n'; }}
  }}
"
        ),
    )
}

/// A reverse proxy with a limit by the header, and connections to the upstream that are kept.
pub(super) fn nginx(port: u16, behind: u16) -> String {
    let variable = KEY_HEADER.replace('-', "_");
    nginx_of(
        "nginx",
        &format!("  limit_req_zone $http_{variable} zone=riders:64m rate={GENEROUS}r/s;\n"),
        &format!(
            "  upstream app {{ server 127.0.0.1:{behind}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      limit_req zone=riders burst={GENEROUS} nodelay;
      proxy_pass http://app;
      proxy_http_version 1.1;
      proxy_set_header Connection '';
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
"
        ),
    )
}

fn nginx_of(name: &str, zone: &str, servers: &str) -> String {
    let mut config = format!(
        "daemon off;
worker_processes 1;
pid {name}.pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
{zone}"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        // Writing to a string cannot fail.
        let _ = writeln!(config, "  {kind}_temp_path {name}-{kind};");
    }
    config.push_str(servers);
    config.push_str("}\n");
    config
}

/// The same for the gateway: one token bucket by the header. What no limit matches passes, too: that is how it is asked
/// whether it is there.
pub(super) fn policy(behind: u16) -> String {
    format!(
        "version: 1\ndefault: pass\nlimits:\n  - name: per-rider\n    match: {{ path: /api/** }}\n    \
         key: header.{KEY_HEADER}\n    allow: {GENEROUS}/s\n    burst: {GENEROUS}\n\
         gateway:\n  upstreams: http://127.0.0.1:{behind}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_fronts_count_by_the_same_header_and_know_the_upstream() {
        let (nginx, policy) = (nginx(1, 4711), policy(4711));
        assert!(nginx.contains("$http_x_rider_id") && nginx.contains("127.0.0.1:4711"));
        assert!(policy.contains("header.x-rider-id") && policy.contains("127.0.0.1:4711"));
    }
}
