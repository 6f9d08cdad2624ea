//! What the servers are told: a policy, a configuration of Envoy, a script, and the limit that all have in common.
//!
//! The limit is far away, so that nothing is refused, and comes back slowly, so that a key that was asked about once stays in
//! use for an hour. A request that no limit matches is refused, so an answer that passes is one that was counted.

/// What may come at once.
pub(crate) const BURST: u64 = 100_000;
/// In how long one more may come.
pub(crate) const SECONDS: u64 = 3_600;
/// How long a key is.
pub(crate) const KEY_BYTES: usize = 14;
/// Keys that there is to be room for, in a server that has bounds: a few more than are asked about.
pub(crate) const ROOM: &str = "1002000";
/// The domain that the rate limit service is asked in.
pub(crate) const DOMAIN: &str = "bench";
/// The path that is asked for over HTTP.
pub(crate) const PATH: &str = "/api/rides";

/// A token bucket in Lua, as people write it.
pub(crate) const TOKEN_BUCKET: &str = include_str!("token_bucket.lua");

const KEY_HEADER: &str = crate::doors::texts::KEY_HEADER;

/// The headers of a request, for a door that is asked by a proxy or for the proxy itself.
pub(crate) fn headers(of_auth: bool) -> Vec<(String, String)> {
    let mut headers = vec![(KEY_HEADER, "{key}")];
    if of_auth {
        headers.extend([
            ("x-forwarded-method", "GET"),
            ("x-forwarded-uri", PATH),
            ("x-forwarded-for", "203.0.113.7"),
        ]);
    }
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    headers.into_iter().map(own).collect()
}

/// One limit for each door that counts by a policy; with the header fields that are sent unless told otherwise, or without.
pub(crate) fn policy(has_fields: bool) -> String {
    let fields = if has_fields {
        ""
    } else {
        "headers: { ratelimit: false, x_ratelimit: off }\n"
    };
    let limit = |name: &str, which: &str, key: &str| {
        format!(
            "  - name: {name}\n    match: {{ {which} }}\n    key: {key}\n    allow: 1/h\n    burst: {BURST}\n    \
             max_keys: {ROOM}\n"
        )
    };
    let by_header = limit(
        "per-rider",
        &format!("path: {PATH}"),
        &format!("header.{KEY_HEADER}"),
    );
    let entries = format!("domain: {DOMAIN}, entries: [{{ key: true }}]");
    let by_entry = limit("per-account", &entries, "descriptor.key");
    // The load plays the proxy that asks for its clients.
    format!(
        "version: 1\ndefault: refuse\ntrusted_proxies: [127.0.0.0/8]\n{fields}limits:\n{by_header}{by_entry}"
    )
}

/// Envoy before an upstream, asking a rate limit service about every request by one header.
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
        for sign in [
            "port_value: 4711",
            "port_value: 4712",
            "failure_mode_deny: true",
        ] {
            assert_eq!(config.matches(sign).count(), 1, "{sign}");
        }
    }

    #[test]
    fn the_policy_refuses_what_no_limit_counts() {
        let policy = policy(true);
        assert!(policy.contains("default: refuse") && policy.matches("- name:").count() == 2);
    }
}
