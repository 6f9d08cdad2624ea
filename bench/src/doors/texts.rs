//! What the servers are told: the policies of Tollgate, the configuration of nginx.
//!
//! Every limit is so generous that nothing is refused, and a request that no limit matches is
//! refused, so an answer that passes is one that was counted.

use std::fmt::Write;

/// Requests a second for every key, and as many at once.
pub(crate) const GENEROUS: u64 = 1_000_000;

/// The header that names the key, in all doors that read one.
pub(crate) const KEY_HEADER: &str = "x-rider-id";

/// The name of the limit in [`one_limit`].
pub(crate) const LIMIT: &str = "per-rider";

/// One limit, for one path.
pub(crate) fn one_limit() -> String {
    let mut policy = head();
    add_limit(&mut policy, LIMIT, "/api/rides");
    policy
}

/// So many limits, each for a path of its own: `/api/p0007/rides`.
pub(crate) fn many_limits(count: usize) -> String {
    let mut policy = head();
    for number in 0..count {
        let path = format!("/api/p{number:04}/rides");
        add_limit(&mut policy, &format!("per-rider-{number:04}"), &path);
    }
    policy
}

fn head() -> String {
    // The load plays the proxy that asks for its clients.
    "version: 1\ndefault: refuse\ntrusted_proxies: [127.0.0.0/8]\nlimits:\n".to_owned()
}

fn add_limit(policy: &mut String, name: &str, path: &str) {
    // Writing to a string cannot fail.
    let _ = write!(
        policy,
        "  - name: {name}\n    match: {{ path: {path} }}\n    key: header.{KEY_HEADER}\n    \
         allow: {GENEROUS}/s\n    burst: {GENEROUS}\n"
    );
}

/// One worker that counts by the same header and answers by itself.
///
/// The answer is an `empty_gif` because `return` comes before `limit_req` and would skip it. Files
/// are kept below the folder that nginx is started in, so that it needs no rights.
pub(crate) fn nginx(port: u16) -> String {
    let variable = KEY_HEADER.replace('-', "_");
    let mut config = format!(
        "daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  limit_req_zone $http_{variable} zone=riders:64m rate={GENEROUS}r/s;
"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(config, "  {kind}_temp_path {kind};");
    }
    let _ = write!(
        config,
        "  server {{
    listen 127.0.0.1:{port};
    location = /health {{ return 200; }}
    location / {{ limit_req zone=riders burst={GENEROUS} nodelay; empty_gif; }}
  }}
}}
"
    );
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_name_and_a_path_of_its_own() {
        let policy = many_limits(1000);
        for sign in [
            "- name: per-rider-0999\n",
            "/api/p0000/rides",
            "/api/p0999/rides",
        ] {
            assert_eq!(policy.matches(sign).count(), 1, "{sign}");
        }
        assert_eq!(policy.matches("- name:").count(), 1000);
    }

    #[test]
    fn nginx_counts_by_the_header_of_the_key() {
        let config = nginx(8080);
        assert!(config.contains("limit_req_zone $http_x_rider_id "));
        assert!(config.contains("listen 127.0.0.1:8080;"));
    }
}
