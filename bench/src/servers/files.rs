//! Configuration files: policies of Tollgate, nginx, Envoy, a script, and the limit that all have in common.
//!
//! The limit is out of reach, so that nothing is refused, and recovers slowly, so that a key that was used once stays live
//! for an hour. A request that no limit matches is refused, so an answer that passes is one that was counted.

use std::fmt::Write;

/// Units that a key may spend at once.
pub(crate) const BURST: u64 = 100_000;
/// Seconds in which a key earns one unit.
pub(crate) const SECONDS: u64 = 3_600;
/// The length of a key.
pub(crate) const KEY_BYTES: usize = 14;
/// The capacity of servers that have one: a few keys more than are used.
pub(crate) const CAPACITY: &str = "1002000";
/// The domain of the rate limit service.
pub(crate) const DOMAIN: &str = "bench";
/// The path of requests over HTTP.
pub(crate) const PATH: &str = "/api/rides";
/// The header with the key.
pub(crate) const KEY_HEADER: &str = "x-rider-id";
/// The name of the limit by that header.
pub(crate) const LIMIT: &str = "per-rider";

/// A token bucket in Lua, as it is commonly written.
pub(crate) const TOKEN_BUCKET: &str = include_str!("token_bucket.lua");

/// The load is the proxy in front of the clients.
const HEAD: &str = "version: 1\ndefault: refuse\ntrusted_proxies: [127.0.0.0/8]\n";

fn limit(name: &str, matches: &str, key: &str) -> String {
    format!(
        "  - name: {name}\n    match: {{ {matches} }}\n    key: {key}\n    allow: 1/h\n    burst: {BURST}\n    \
         max_keys: {CAPACITY}\n"
    )
}

fn limit_by_header(name: &str, path: &str) -> String {
    limit(
        name,
        &format!("path: {path}"),
        &format!("header.{KEY_HEADER}"),
    )
}

/// One limit by header and one by descriptor; with the default header fields in answers, or without.
pub(crate) fn policy(has_fields: bool) -> String {
    let fields = if has_fields {
        ""
    } else {
        "headers: { ratelimit: false, x_ratelimit: off }\n"
    };
    let by_header = limit_by_header(LIMIT, PATH);
    let entries = format!("domain: {DOMAIN}, entries: [{{ key: true }}]");
    let by_entry = limit("per-account", &entries, "descriptor.key");
    format!("{HEAD}{fields}limits:\n{by_header}{by_entry}")
}

/// This many limits, each for a path of its own: `/api/p007/rides`.
pub(crate) fn policy_with(limits: usize) -> String {
    let width = (limits - 1).to_string().len();
    let mut policy = format!("{HEAD}limits:\n");
    for number in 0..limits {
        let path = format!("/api/p{number:0width$}/rides");
        let limit = limit_by_header(&format!("per-rider-{number}"), &path);
        // Room for each limit's share of the keys.
        policy.push_str(&limit.replace(CAPACITY, &(1_100_000 / limits).to_string()));
    }
    policy
}

/// A policy for the gateway in front of `upstream`. What no limit matches passes.
pub(crate) fn gateway_policy(upstream: u16) -> String {
    let limit = limit_by_header(LIMIT, "/api/**");
    format!(
        "version: 1\ndefault: pass\nlimits:\n{limit}gateway:\n  upstreams: http://127.0.0.1:{upstream}\n"
    )
}

/// The task of an nginx.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nginx {
    /// Limits by the header and answers by itself.
    ///
    /// The answer is an `empty_gif`, because `return` runs before `limit_req` and would skip it.
    Limit,
    /// Answers a few bytes to every request.
    Upstream,
    /// Limits by the header and proxies to this port.
    Proxy(u16),
}

/// One worker. Its files are in its working directory, so that it needs no rights.
pub(crate) fn nginx(port: u16, task: Nginx) -> String {
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
  limit_req_zone $http_{variable} zone=riders:64m rate=1000000r/s;
"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        // Writing to a string cannot fail.
        let _ = writeln!(config, "  {kind}_temp_path {kind};");
    }
    let location = match task {
        Nginx::Limit => "limit_req zone=riders burst=1000000 nodelay; empty_gif;".to_owned(),
        Nginx::Upstream => {
            "default_type text/plain; return 200 'a ride is on its way\\n';".to_owned()
        }
        Nginx::Proxy(upstream) => {
            let _ = writeln!(
                config,
                "  upstream app {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000; }}"
            );
            "limit_req zone=riders burst=1000000 nodelay;
      proxy_pass http://app;
      proxy_http_version 1.1;
      proxy_set_header Connection '';
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
                .to_owned()
        }
    };
    let _ = write!(
        config,
        "  server {{
    listen 127.0.0.1:{port};
    location / {{
      {location}
    }}
  }}
}}
"
    );
    config
}

/// Envoy in front of an upstream. It calls a rate limit service for every request, by one header.
pub(crate) fn envoy(port: u16, service: u16, upstream: u16) -> String {
    let cluster = |name: &str, port: u16, options: &str| {
        format!(
            "    - name: {name}
      connect_timeout: 1s
{options}      load_assignment:
        cluster_name: {name}
        endpoints:
          - lb_endpoints:
              - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}
"
        )
    };
    let http2 = "      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
";
    let (upstream, service) = (
        cluster("upstream", upstream, ""),
        cluster("limits", service, http2),
    );
    format!(
        "static_resources:
  listeners:
    - name: clients
      address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: clients
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: [\"*\"]
                      rate_limits:
                        - actions:
                            - request_headers: {{ header_name: {KEY_HEADER}, descriptor_key: key }}
                      routes:
                        - match: {{ prefix: / }}
                          route: {{ cluster: upstream }}
                http_filters:
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: {DOMAIN}
                      timeout: 10s
                      failure_mode_deny: true
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service:
                          envoy_grpc: {{ cluster_name: limits }}
                  - name: envoy.filters.http.router
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
{upstream}{service}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_denies_what_is_not_answered_and_knows_both_ports() {
        let config = envoy(1, 4711, 4712);
        for part in [
            "port_value: 4711",
            "port_value: 4712",
            "failure_mode_deny: true",
        ] {
            assert_eq!(config.matches(part).count(), 1, "{part}");
        }
    }

    #[test]
    fn a_policy_refuses_what_no_limit_counts() {
        let policy = policy(true);
        assert!(policy.contains("default: refuse") && policy.matches("- name:").count() == 2);
    }

    #[test]
    fn every_limit_has_a_name_and_a_path_of_its_own() {
        let policy = policy_with(1000);
        for part in [
            "- name: per-rider-999\n",
            "/api/p000/rides",
            "/api/p999/rides",
        ] {
            assert_eq!(policy.matches(part).count(), 1, "{part}");
        }
        assert_eq!(policy.matches("- name:").count(), 1000);
    }

    #[test]
    fn both_proxies_limit_by_the_same_header_and_know_the_upstream() {
        let (nginx, policy) = (nginx(1, Nginx::Proxy(4711)), gateway_policy(4711));
        assert!(nginx.contains("$http_x_rider_id") && nginx.contains("127.0.0.1:4711"));
        assert!(policy.contains("header.x-rider-id") && policy.contains("127.0.0.1:4711"));
    }
}
