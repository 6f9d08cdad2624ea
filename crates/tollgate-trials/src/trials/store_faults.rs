//! Faults of one kind under load: a store that is killed, replaced, stopped, flushed, emptied or unstable.

use std::time::Duration;

use super::TrialOptions;
use super::common::{
    DEADLINE, Promises, TAGGED, mixed_clients, recovers, recovers_soon, slots_of, usual_clients,
};
use crate::policy::{LONG_DEADLINE, TrialPolicy, behind_sentinels, in_cluster, one_server, tagged};
use crate::verdicts::{SOON, Verdicts, time};
use tollgate_testkit::proxy::{Fault, Faults, Proxy};
use tollgate_testkit::servers::{Cluster, HOST, Sentinels, Server};
use tollgate_testkit::{Check, Result, now, sleep, wait_for};

/// After how much silence a sentinel counts a server as down.
const DOWN_AFTER_MS: u32 = 1_500;
/// How long each primary is used. The breaker stays open longer, on purpose, for a server that fails again within a
/// second of its return; that is what `flap` covers.
const UP_FOR: Duration = Duration::from_millis(1_200);
/// Time between two flushes.
const FLUSH_EVERY: Duration = Duration::from_millis(10);
/// How long an unstable store is up, and how long it is down.
const FLAP_HALF: Duration = Duration::from_millis(500);
/// The primary that is killed in a cluster.
const VICTIM: usize = 1;

/// `kill -9` of the primary under sentinels.
///
/// Until they have elected another one, the service decides with its share of every limit. What the old
/// primary had not replicated is lost: one burst of each key at most.
pub(super) fn kill(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let sentinels = Sentinels::start(options.kind, 2, 3, DOWN_AFTER_MS)?;
    let policy = TrialPolicy::on(behind_sentinels(&sentinels));
    let (service, clients, load) = options.load_on(&policy, usual_clients())?;
    sleep(options.span(1_000, 5_000));
    let killed = load.elapsed();
    let old = sentinels.kill_primary()?;
    sentinels.wait_for_another_primary(old, DEADLINE)?;
    let switched = load.elapsed();
    recovers_soon(verdicts, &load, switched, "after the sentinels switched");
    sleep(options.span(500, 5_000));
    let new = sentinels.primary()?.port();
    let is_up = service.metric(&format!("tollgate_store_up{{server=\"{HOST}:{new}\"}}"))?;
    verdicts.promise(
        "the service uses the new primary",
        is_up == 1,
        format!("up at port {new}: {is_up}"),
    );
    Promises::in_time()
        .with_bursts(1)
        .check(verdicts, &load.end()?, &clients);
    verdicts.figure("from the kill to the switch", time(switched - killed));
    Ok(())
}

/// The primary becomes a replica, and its connections stay open.
///
/// This is what `FAILOVER TO` does, and what an address that moves from one server to another looks like: the old
/// server stays reachable on the old connection and refuses every write (`READONLY`). A client that keeps a connection
/// because it works is stuck for good. The proxy is that address: open connections stay, new ones go to the new primary.
pub(super) fn failover(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let first = Server::start(options.kind, &[])?;
    let follows = format!("{HOST} {}", first.port());
    let second = Server::start(options.kind, &[("replicaof", &follows)])?;
    wait_for_role(&second, "master_link_status", "up")?;
    let proxy = Proxy::start_seeded(first.port(), options.seed)?;
    let policy = TrialPolicy::on(one_server(proxy.port()));
    let (_service, clients, load) = options.load_on(&policy, usual_clients())?;
    let (mut stuck, mut slowest) = (0, Some(Duration::ZERO));
    let (mut old, mut new) = (&first, &second);
    let rounds = options.quick_or_full(3, 20);
    for _ in 0..rounds {
        sleep(UP_FOR);
        let port = new.port().to_string();
        old.ask(&["FAILOVER", "TO", HOST, &port, "TIMEOUT", "5000"])?;
        wait_for_role(new, "role", "master")?;
        proxy.set_upstream(new.port());
        let recovered = load.recovered_after(load.elapsed(), DEADLINE);
        stuck += u32::from(recovered.is_none());
        slowest = slowest
            .zip(recovered)
            .map(|(slowest, one)| slowest.max(one));
        wait_for_role(old, "master_link_status", "up")?;
        (old, new) = (new, old);
    }
    verdicts.promise(
        &format!("no connection is stuck after {rounds} failovers"),
        stuck == 0,
        format!("{stuck} stuck"),
    );
    let promised = format!("the new primary is used within {}", time(SOON));
    verdicts.promise_time(&promised, SOON, slowest);
    Promises::in_time().check(verdicts, &load.end()?, &clients);
    Ok(())
}

fn wait_for_role(server: &Server, field: &str, value: &str) -> Result<()> {
    let what = format!("`{field}` is `{value}`");
    wait_for(
        &what,
        DEADLINE,
        || server.log(),
        || {
            let found = server.info("replication", field)?;
            Ok(match found == value {
                true => Check::Ready(()),
                false => Check::Pending(found),
            })
        },
    )
}

/// The store is stopped (SIGSTOP): its connections stay open and no request is answered. When it continues, it answers
/// all queued requests, long after their deadlines.
pub(super) fn freeze(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(options.kind, &[])?;
    let policy = TrialPolicy::on(one_server(store.port())).tag(&tagged(TAGGED));
    let (_service, clients, load) = options.load_on(&policy, mixed_clients())?;
    sleep(Duration::from_secs(options.quick_or_full(1, 3)));
    store.freeze()?;
    sleep(options.span(1_500, 10_000));
    store.thaw()?;
    recovers_soon(verdicts, &load, load.elapsed(), "after it continues");
    sleep(Duration::from_millis(500));
    let promises = Promises::in_time().with_bursts(1).with_tags();
    promises.check(verdicts, &load.end()?, &clients);
    Ok(())
}

/// `SCRIPT FLUSH`, a hundred times a second: the server loses the scripts, and no decision is affected.
pub(super) fn flush(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(options.kind, &[])?;
    let policy = TrialPolicy::on(one_server(store.port())).deadline(LONG_DEADLINE);
    let (service, clients, load) = options.load_on(&policy, usual_clients())?;
    let (start, span) = (now(), options.span(3_000, 20_000));
    let mut flushes: u32 = 0;
    while start.elapsed() < span {
        store.ask(&["SCRIPT", "FLUSH"])?;
        flushes += 1;
        sleep((FLUSH_EVERY * flushes).saturating_sub(start.elapsed()));
    }
    Promises::with_store().check(verdicts, &load.end()?, &clients);
    let reloaded = service.metric("tollgate_store_script_reloads_total")?;
    let errors = service.metric("tollgate_store_script_errors_total")?;
    verdicts.promise("no script fails", errors == 0, format!("{errors} errors"));
    verdicts.promise(
        "the scripts were really flushed",
        reloaded > 0,
        format!("loaded again {reloaded} times"),
    );
    verdicts.figure("flushes", flushes);
    Ok(())
}

/// The store is killed and restarts empty. The service reports its own usage, so the loss is one burst of each key at
/// most.
pub(super) fn restart(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(options.kind, &[])?;
    let policy = TrialPolicy::on(one_server(store.port()));
    let (_service, clients, load) = options.load_on(&policy, usual_clients())?;
    sleep(options.span(1_500, 5_000));
    store.kill();
    sleep(Duration::from_millis(500));
    store.restart()?;
    recovers_soon(verdicts, &load, load.elapsed(), "after its restart");
    sleep(options.span(1_000, 5_000));
    Promises::in_time()
        .with_bursts(1)
        .check(verdicts, &load.end()?, &clients);
    Ok(())
}

/// `kill -9` of one primary of a cluster. Its slots are decided without the store until its replica takes over; all
/// other slots are not affected.
///
/// The cluster serves the slots it has (`cluster-require-full-coverage no`): by default all of it refuses to
/// work while a slot has no primary.
pub(super) fn node_loss(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let coverage = [("cluster-require-full-coverage", "no")];
    let cluster = Cluster::start_with(options.kind, 3, 1, &coverage)?;
    // Above the delays of a busy machine, so that an answer without the store means that it was down and not late.
    let policy = TrialPolicy::on(in_cluster(&cluster)).deadline(LONG_DEADLINE);
    let slots = slots_of(&cluster, &usual_clients())?;
    let mut is_hit = Vec::new();
    for &slot in &slots {
        is_hit.push(cluster.owner(slot, 0)? == VICTIM);
    }
    let hit_slot = slots.iter().zip(&is_hit).find(|(_, hit)| **hit);
    let hit_slot = hit_slot.map_or(0, |(slot, _)| *slot);
    let (_service, clients, load) = options.load_on(&policy, usual_clients())?;
    sleep(options.span(1_000, 5_000));
    let killed = load.elapsed();
    cluster.kill_primary(VICTIM)?;
    cluster.wait_for_another_owner(hit_slot, VICTIM, DEADLINE)?;
    let switched = load.elapsed();
    recovers_soon(verdicts, &load, switched, "after the replica took over");
    sleep(options.span(500, 5_000));
    let responses = load.end()?;
    let of_hit = |client: usize| is_hit.get(client) == Some(&true);
    let others = responses.count(|record| record.degraded && !of_hit(record.client));
    verdicts.promise(
        "no other slot is decided without the store",
        others == 0,
        format!("{others} requests"),
    );
    let hit = responses.count(|record| record.degraded && of_hit(record.client));
    verdicts.promise("its own slots really were without the store", hit > 0, hit);
    Promises::in_time()
        .with_bursts(1)
        .check(verdicts, &responses, &clients);
    verdicts.figure("from the kill to the switch", time(switched - killed));
    Ok(())
}

/// The store is up for half a second and down for half a second, by turns as a server that refuses connections
/// and as a network that drops everything.
pub(super) fn flap(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(options.kind, &[])?;
    let proxy = Proxy::start_seeded(store.port(), options.seed)?;
    let policy = TrialPolicy::on(one_server(proxy.port()));
    let (_service, clients, load) = options.load_on(&policy, usual_clients())?;
    let refusing = Faults {
        refuse: true,
        ..Faults::none().and(Fault::Reset)
    };
    let mut faults = [refusing, Faults::black_hole()].into_iter().cycle();
    let (start, span) = (now(), options.span(4_000, 20_000));
    let mut times = 0_u32;
    while start.elapsed() < span {
        sleep(FLAP_HALF);
        proxy.set(faults.next().unwrap_or_default())?;
        sleep(FLAP_HALF);
        proxy.set(Faults::none())?;
        times += 1;
    }
    // Not within a second: the breaker stays open for up to two after repeated failures.
    recovers(verdicts, &load, load.elapsed(), "when it stays up");
    Promises::in_time()
        .with_bursts(1)
        .check(verdicts, &load.end()?, &clients);
    verdicts.figure("times down", times);
    Ok(())
}
