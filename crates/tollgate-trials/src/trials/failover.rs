//! The primary becomes a replica, and nobody closes the connection to it.
//!
//! This is what `FAILOVER TO` does, and what an address that moves from one server to another looks like: the old
//! server stays reachable on the old connection and refuses every write (`READONLY`). A client that keeps a connection
//! because it works is stuck for good. The proxy is that address: connections that are open stay, new ones go to the
//! new primary.

use std::time::Duration;

use super::Setting;
use super::worlds::{DEADLINE, usual_guests};
use crate::policy::{Policy, one_server};
use crate::service::Service;
use crate::verdicts::{SOON, Verdicts, time};
use tollgate_testkit::Result;
use tollgate_testkit::proxy::Proxy;
use tollgate_testkit::servers::{HOST, Server};
use tollgate_testkit::{Check, sleep, wait_for};

/// How long each primary is used. A server that fails again within a second of its return is left alone for longer,
/// on purpose; that is what `flap` tries.
const UP_FOR: Duration = Duration::from_millis(1_200);

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Result<()> {
    let first = Server::start(setting.kind, &[])?;
    let follows = format!("{HOST} {}", first.port());
    let second = Server::start(setting.kind, &[("replicaof", &follows)])?;
    wait_until_it_follows(&second)?;
    let proxy = Proxy::start_seeded(first.port(), setting.seed)?;
    let service = Service::start(&Policy::on(one_server(proxy.port())))?;
    let crowd = setting.crowd(service.port(), usual_guests())?;
    let (mut stuck, mut slowest) = (0, Some(Duration::ZERO));
    let mut pair = (&first, &second);
    let rounds = setting.either(3, 20);
    for _ in 0..rounds {
        sleep(UP_FOR);
        let (old, new) = pair;
        let port = new.port().to_string();
        old.ask(&["FAILOVER", "TO", HOST, &port, "TIMEOUT", "5000"])?;
        wait_until_it_leads(new)?;
        proxy.set_upstream(new.port());
        let switched = crowd.elapsed();
        let back = crowd.back_after(switched, DEADLINE);
        stuck += u32::from(back.is_none());
        slowest = slowest.zip(back).map(|(slowest, back)| slowest.max(back));
        wait_until_it_follows(old)?;
        pair = (new, old);
    }
    let seen = crowd.end()?;
    verdicts.promise(
        &format!("no connection is stuck after {rounds} failovers"),
        stuck == 0,
        format!("{stuck} stuck"),
    );
    let promised = format!("the new primary is used within {}", time(SOON));
    verdicts.promise_time(&promised, SOON, slowest);
    verdicts.all_answered(&seen);
    verdicts.in_time(&seen);
    verdicts.figures_of(&seen);
    Ok(())
}

fn wait_until_it_leads(server: &Server) -> Result<()> {
    let log = || server.log();
    wait_for("the replica is the primary", DEADLINE, log, || {
        let role = server.info("replication", "role")?;
        Ok(match role == "master" {
            true => Check::Ready(()),
            false => Check::Pending(role),
        })
    })
}

fn wait_until_it_follows(server: &Server) -> Result<()> {
    let log = || server.log();
    wait_for("the replica follows", DEADLINE, log, || {
        let link = server.info("replication", "master_link_status")?;
        Ok(match link == "up" {
            true => Check::Ready(()),
            false => Check::Pending(link),
        })
    })
}
