//! Two services on one store behind a real nginx that asks them in turn: together they let pass exactly the limit.

use super::Setting;
use super::reshard::exact;
use crate::policy::{PATIENT, Policy, once, one_server, plain};
use crate::service::Service;
use crate::verdicts::Verdicts;
use tollgate_testkit::servers::Server;
use tollgate_testkit::sleep;
use tollgate_testkit::web::WebServer;
use tollgate_testkit::{HOST, Result};

/// How many keys there are.
const GUESTS: u64 = 50;

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(setting.kind, &[])?;
    let span = setting.span(2_000, 10_000);
    let offered =
        u64::try_from(span.as_millis()).unwrap_or(u64::MAX) * setting.rate / GUESTS / 1000;
    let limit = (offered / 2).max(1);
    let policy = Policy::on(one_server(store.port()))
        .deadline(PATIENT)
        .quota(once(limit));
    let services = [Service::start(&policy)?, Service::start(&policy)?];
    let ports = services.each_ref().map(Service::port);
    let nginx = WebServer::nginx(|port| in_turn(port, &ports))?;
    let asked = || -> Result<[u64; 2]> {
        let [first, second] = services.each_ref();
        let count = |service: &Service| service.metric("tollgate_store_latency_seconds_count");
        Ok([count(first)?, count(second)?])
    };
    let before = asked()?;
    let crowd = setting.crowd(nginx.port(), plain(GUESTS))?;
    sleep(span);
    let seen = crowd.end()?;
    let after = asked()?;
    verdicts.all_answered(&seen);
    let degraded = seen.degraded();
    verdicts.promise(
        "no request is decided without the store",
        degraded == 0,
        format!("{degraded} are"),
    );
    let limits: Vec<u64> = (0..GUESTS).map(|_| limit).collect();
    exact(verdicts, &seen, &limits);
    let [first, second] = [0, 1].map(|i: usize| {
        let of = |counts: &[u64; 2]| counts.get(i).copied().unwrap_or_default();
        of(&after).saturating_sub(of(&before))
    });
    let third = u64::try_from(seen.len()).unwrap_or(u64::MAX) / 3;
    verdicts.promise(
        "both services really are asked",
        first > third && second > third,
        format!("{first} and {second} requests"),
    );
    verdicts.figures_of(&seen);
    verdicts.figure("limit of each key", limit);
    Ok(())
}

/// nginx that sends each request to one of the services in turn, and never to a second one.
fn in_turn(port: u16, services: &[u16]) -> String {
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
