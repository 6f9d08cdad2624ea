//! Two services on one store behind a real nginx that balances between them: together they admit exactly the limit.

use super::TrialOptions;
use super::common::Promises;
use crate::policy::{LONG_DEADLINE, TrialPolicy, once, one_server, plain};
use crate::service::Service;
use crate::verdicts::Verdicts;
use tollgate_testkit::servers::Server;
use tollgate_testkit::sleep;
use tollgate_testkit::web::WebServer;
use tollgate_testkit::{HOST, Result};

/// How many keys there are.
const CLIENTS: u64 = 50;

pub(super) fn run(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(options.kind, &[])?;
    let span = options.span(2_000, 10_000);
    let sent = u64::try_from(span.as_millis()).unwrap_or(u64::MAX) * options.rate / CLIENTS / 1000;
    let limit = (sent / 2).max(1);
    let policy = TrialPolicy::on(one_server(store.port()))
        .deadline(LONG_DEADLINE)
        .quota(once(limit));
    let services = [Service::start(&policy)?, Service::start(&policy)?];
    let ports = services.each_ref().map(Service::port);
    let nginx = WebServer::nginx(|port| round_robin(port, &ports))?;
    let decided = || -> Result<[u64; 2]> {
        let [first, second] = services.each_ref();
        let count = |service: &Service| service.metric("tollgate_store_latency_seconds_count");
        Ok([count(first)?, count(second)?])
    };
    let before = decided()?;
    let load = options.load(nginx.port(), plain(CLIENTS))?;
    sleep(span);
    let responses = load.end()?;
    let after = decided()?;
    let limits: Vec<u64> = (0..CLIENTS).map(|_| limit).collect();
    let promises = Promises::with_store().with_limits(&limits);
    promises.check(verdicts, &responses, &plain(CLIENTS));
    let [first, second] = [0, 1].map(|i: usize| {
        let of = |counts: &[u64; 2]| counts.get(i).copied().unwrap_or_default();
        of(&after).saturating_sub(of(&before))
    });
    let third = u64::try_from(responses.len()).unwrap_or(u64::MAX) / 3;
    verdicts.promise(
        "both services really decide",
        first > third && second > third,
        format!("{first} and {second} requests"),
    );
    verdicts.figure("limit of each key", limit);
    Ok(())
}

/// nginx that sends each request to one of the services in turn, without retries.
fn round_robin(port: u16, services: &[u16]) -> String {
    let servers = services
        .iter()
        .map(|service| format!("server {HOST}:{service} max_fails=0;"));
    let servers: Vec<String> = servers.collect();
    format!(
        "events {{ worker_connections 1024; }}\n\
         http {{\n keepalive_requests 1000000;\n \
         upstream services {{ {} keepalive 64; keepalive_requests 1000000; }}\n \
         server {{\n  listen {HOST}:{port};\n  location / {{\n   proxy_pass http://services;\n   \
         proxy_http_version 1.1;\n   proxy_set_header Connection '';\n   proxy_next_upstream off;\n  }}\n }}\n}}\n",
        servers.join(" "),
    )
}
