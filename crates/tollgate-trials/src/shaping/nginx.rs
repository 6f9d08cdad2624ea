//! nginx in place of the gateway, with and without a limit for each tenant.

use tollgate_testkit::HOST;
use tollgate_testkit::Result;
use tollgate_testkit::web::WebServer;

/// The limit of one tenant in nginx: its share of the server.
pub(super) const NGINX_RATE: &str = "10r/s";
/// The burst, without delay: two seconds' worth, so that uneven arrivals are not refused.
pub(super) const NGINX_BURST: u64 = 20;

/// nginx as its manual would have it: a limit by the tenant's header, connections to the upstream kept.
pub(super) fn limiting_nginx(upstream: u16) -> Result<WebServer> {
    WebServer::nginx(|port| {
        nginx(
            port,
            &format!("limit_req_zone $http_x_api_key zone=tenants:10m rate={NGINX_RATE};"),
            &format!("limit_req zone=tenants burst={NGINX_BURST} nodelay; limit_req_status 429;"),
            upstream,
        )
    })
}

/// nginx as a plain proxy that supports WebSocket.
pub(super) fn plain_nginx(upstream: u16) -> Result<WebServer> {
    WebServer::nginx(|port| {
        nginx(
            port,
            "map $http_upgrade $upgrading { default upgrade; '' ''; }",
            "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $upgrading; \
             proxy_set_header Host $host;",
            upstream,
        )
    })
}

fn nginx(port: u16, zone: &str, limit: &str, upstream: u16) -> String {
    let keeps = match limit.contains("Connection") {
        true => "",
        false => "proxy_set_header Connection '';",
    };
    format!(
        // A request goes to the server once.
        "worker_rlimit_nofile 16384; events {{ worker_connections 8192; }}\n\
         http {{\n keepalive_requests 1000000;\n {zone}\n \
         upstream app {{ server {HOST}:{upstream} max_fails=0; keepalive 512; keepalive_requests 1000000; }}\n \
         server {{\n  listen {HOST}:{port} backlog=4096;\n  location / {{\n   {limit}\n   proxy_pass http://app;\n   \
         proxy_http_version 1.1;\n   {keeps}\n   proxy_next_upstream off;\n  }}\n }}\n}}\n",
    )
}
