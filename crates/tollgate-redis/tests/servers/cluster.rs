//! A cluster: slots that migrate, and requests that span several slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::cluster::{self, keys_in, owner_of, slot_of};
use crate::common::fake_server::FakeServer;
use crate::common::{DEADLINE, charge, one, open, passes, prepare, request, wait_async};
use tollgate_policy::shared::{FaultKind, SharedLimits, SharedStore};
use tollgate_redis::{ACCESS_RULE, CLUSTER_RULE, RedisStore, Secret, Settings, Topology};
use tollgate_testkit::servers::{Cluster, Kind};

const SOON: Duration = Duration::from_secs(10);

async fn left(limits: &Arc<dyn SharedLimits>, limit: usize, part: &str) -> u64 {
    let mut question = request(vec![charge(limit, part)]);
    question.take = false;
    question.charges[0].cost = 0;
    limits.charge(&question).await.unwrap()[0].status.remaining
}

/// Two keys that live on two servers.
fn apart(cluster: &Cluster) -> (String, String) {
    let owner = |part: &String| owner_of(cluster, &format!("{{{part}}}"));
    let mut parts = (0..).map(|number| format!("key{number}"));
    let first = parts.next().unwrap();
    let at = owner(&first);
    let second = parts.find(|part| owner(part) != at).unwrap();
    (first, second)
}

#[tokio::test]
async fn a_cluster_is_one_store() {
    let cluster = Cluster::start_with_spares(Kind::Redis, 3, 2).unwrap();
    for server in cluster.nodes() {
        let mut args = vec!["acl", "setuser", "tollgate", "on", ">secret"];
        args.extend(
            ACCESS_RULE
                .split_whitespace()
                .chain(CLUSTER_RULE.split_whitespace()),
        );
        assert_eq!(server.cli(&args), "OK");
    }
    let mut wanted = cluster::settings(&cluster);
    wanted.username = Some("tollgate".into());
    wanted.password = Some(Secret::Text("secret".into()));
    let store = open(wanted);
    let limits = prepare(&store, &[1000, 2]);
    wait_async("the store is up", SOON, async || {
        let servers = store.report().servers;
        servers.len() == 3 && servers.iter().all(|server| server.is_up)
    })
    .await;

    all_slots_are_served(&limits).await;
    what_was_taken_is_given_back(&cluster, &store, &limits).await;
    a_failed_shadow_charge_fails_no_request(&cluster, &limits).await;
    a_moving_slot_is_followed(&cluster, &store, &limits).await;
    a_dead_server_fails_only_its_slots_until_it_is_replaced(cluster, &limits).await;
}

async fn all_slots_are_served(limits: &Arc<dyn SharedLimits>) {
    for number in 0..60 {
        assert!(passes(
            &limits.charge(&one(&format!("user{number}"))).await.unwrap()
        ));
    }
}

async fn what_was_taken_is_given_back(
    cluster: &Cluster,
    store: &impl SharedStore,
    limits: &Arc<dyn SharedLimits>,
) {
    let (a, b) = apart(cluster);
    let both = request(vec![charge(0, &a), charge(1, &b)]);
    for round in 0..2 {
        let outcomes = limits.charge(&both).await.unwrap();
        assert!(passes(&outcomes), "{round}");
    }
    assert_eq!(store.report().compensated, 0);
    let before = left(limits, 0, &a).await;
    let outcomes = limits.charge(&both).await.unwrap();
    assert!(outcomes[0].verdict.is_admitted() && !outcomes[1].verdict.is_admitted());
    assert_eq!(
        outcomes[0].status.remaining, before,
        "as if it had not been taken"
    );
    wait_async("it is counted", SOON, async || {
        store.report().compensated == 1
    })
    .await;
    wait_async("it is given back", SOON, async || {
        left(limits, 0, &a).await == before
    })
    .await;
}

async fn a_failed_shadow_charge_fails_no_request(
    cluster: &Cluster,
    limits: &Arc<dyn SharedLimits>,
) {
    let (a, b) = apart(cluster);
    let mut mixed = request(vec![charge(0, &a), charge(1, &b)]);
    mixed.charges[1].enforced = false;
    let before = left(limits, 0, &a).await;
    let outcomes = limits.charge(&mixed).await.unwrap();
    assert!(outcomes[0].verdict.is_admitted());
    assert!(
        !outcomes[1].verdict.is_admitted(),
        "it says what it would have said"
    );
    assert_eq!(left(limits, 0, &a).await, before - 1);
}

/// Two keys of one slot, one of which has moved: `ASK`, `TRYAGAIN`, and at last `MOVED`.
async fn a_moving_slot_is_followed(
    cluster: &Cluster,
    store: &impl SharedStore,
    limits: &Arc<dyn SharedLimits>,
) {
    let both = request(vec![charge(0, "mover"), charge(1, "mover")]);
    assert!(passes(&limits.charge(&both).await.unwrap()));
    let slot = slot_of(cluster, "{mover}");
    let (from, to) = (cluster.owner(slot, 0).unwrap(), 3);
    let keys = keys_in(cluster, slot, from);
    assert_eq!(keys.len(), 2, "{keys:?}");
    let migration = cluster.migration(slot, from, to).unwrap();
    migration.begin().unwrap();
    assert_eq!(left(limits, 0, "mover").await, 999, "nothing has moved yet");
    let redirects = store.report().redirects;
    let first = keys.iter().find(|key| key.contains("limit0")).unwrap();
    migration.move_keys(&[first]).unwrap();
    assert_eq!(left(limits, 0, "mover").await, 999, "ASK");
    assert!(store.report().redirects > redirects);
    // The keys are in two places now.
    assert!(passes(&limits.charge(&both).await.unwrap()), "TRYAGAIN");
    let refused = limits.charge(&both).await.unwrap();
    assert!(!passes(&refused));
    wait_async("it is given back", SOON, async || {
        left(limits, 0, "mover").await == 998
    })
    .await;
    while migration.move_some(100).unwrap() > 0 {}
    migration.finish().unwrap();
    let redirects = store.report().redirects;
    assert_eq!(left(limits, 0, "mover").await, 998, "MOVED");
    assert!(store.report().redirects > redirects);
    let redirects = store.report().redirects;
    assert_eq!(left(limits, 1, "mover").await, 0);
    assert_eq!(store.report().redirects, redirects, "it is known now");
    wait_async("the map is read again", SOON, async || {
        store.report().servers.len() == 4
    })
    .await;
    assert_eq!(store.report().faults, [0; 7]);
}

async fn a_dead_server_fails_only_its_slots_until_it_is_replaced(
    cluster: Cluster,
    limits: &Arc<dyn SharedLimits>,
) {
    let (a, b) = apart(&cluster);
    let dead = owner_of(&cluster, &format!("{{{b}}}"));
    cluster.replicate(4, dead).unwrap();
    wait_async("the replica follows", SOON, async || {
        let link = cluster.nodes()[4].info("replication", "master_link_status");
        link.is_ok_and(|link| link == "up")
    })
    .await;
    let before = left(limits, 0, &a).await;
    cluster.nodes()[dead].kill();
    let both = request(vec![charge(0, &a), charge(0, &b)]);
    let fault = limits.charge(&both).await.unwrap_err();
    assert!(
        matches!(fault.kind, FaultKind::Broken | FaultKind::Away),
        "{fault}"
    );
    let mut question = one(&a);
    question.take = false;
    question.charges[0].cost = 0;
    wait_async("what the other took is given back", SOON, async || {
        let outcomes = limits.charge(&question).await;
        outcomes.is_ok_and(|outcomes| outcomes[0].status.remaining == before)
    })
    .await;
    wait_async("the replica serves its slots", SOON * 2, async || {
        limits.charge(&one(&b)).await.is_ok()
    })
    .await;
}

async fn of_two_servers(
    deadline: Duration,
    capacities: &[u64],
) -> (Cluster, RedisStore, Arc<dyn SharedLimits>) {
    let cluster = Cluster::start(Kind::Redis, 2, 0).unwrap();
    let mut wanted = cluster::settings(&cluster);
    wanted.deadline = deadline;
    let store = open(wanted);
    let limits = prepare(&store, capacities);
    wait_async("the store is up", SOON, async || {
        let servers = store.report().servers;
        servers.len() == 2 && servers.iter().all(|server| server.is_up)
    })
    .await;
    (cluster, store, limits)
}

#[tokio::test]
async fn debts_are_charged_once_though_the_keys_are_in_two_slots() {
    let (cluster, store, limits) = of_two_servers(DEADLINE, &[1000, 1000]).await;
    let both = request(vec![charge(0, "mover"), charge(1, "mover")]);
    assert!(passes(&limits.charge(&both).await.unwrap()));
    let slot = slot_of(&cluster, "{mover}");
    let from = cluster.owner(slot, 0).unwrap();
    let migration = cluster.migration(slot, from, 1 - from).unwrap();
    migration.begin().unwrap();
    let keys = keys_in(&cluster, slot, from);
    let first = keys.iter().find(|key| key.contains("limit0")).unwrap();
    migration.move_keys(&[first]).unwrap();
    let mut owing = both.clone();
    for charge in &mut owing.charges {
        charge.owed = 5;
    }
    assert!(passes(&limits.charge(&owing).await.unwrap()));
    for limit in [0, 1] {
        assert_eq!(left(&limits, limit, "mover").await, 1000 - 1 - 5 - 1);
    }
    assert_eq!(store.report().faults, [0; 7]);
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_no_charge() {
    let (cluster, store, limits) = of_two_servers(Duration::from_millis(500), &[1000]).await;
    let (a, b) = apart(&cluster);
    let stopped = &cluster.nodes()[owner_of(&cluster, &format!("{{{b}}}"))];
    let before = left(&limits, 0, &a).await;
    stopped.freeze().unwrap();
    let both = request(vec![charge(0, &a), charge(0, &b)]);
    let asked = tokio::time::timeout(Duration::from_millis(60), limits.charge(&both));
    assert!(asked.await.is_err(), "the task was aborted");
    assert_eq!(left(&limits, 0, &a).await, before - 1);
    wait_async("it is given back", SOON, async || {
        left(&limits, 0, &a).await == before
    })
    .await;
    stopped.thaw().unwrap();
    wait_async("it is counted", SOON, async || {
        store.report().compensated == 1
    })
    .await;
}

/// All slots are served by one server at this port.
fn map_to(port: u16) -> String {
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
}

#[tokio::test]
async fn a_partitioned_server_is_not_trusted() {
    let passed = "*4\r\n:{n}\r\n:1\r\n:1800000000000000\r\n$-1\r\n";
    let cut_off = FakeServer::start("-CLUSTERDOWN The cluster is down\r\n").await;
    let other = FakeServer::start(passed).await;
    cut_off.set_reply("CLUSTER", &map_to(cut_off.port));
    cut_off.set_reply("GET", "-CLUSTERDOWN The cluster is down\r\n");
    other.set_reply("CLUSTER", &map_to(other.port));
    other.set_reply("GET", "$-1\r\n");
    let servers = [&cut_off, &other].map(|fake| ("127.0.0.1".to_owned(), fake.port));
    let mut wanted = Settings::new(Topology::Cluster {
        servers: servers.into(),
    });
    wanted.deadline = DEADLINE;
    let store = open(wanted.clone());
    let limits = prepare(&store, &[10]);
    wait_async("the other is asked", SOON, async || {
        limits.charge(&one("a")).await.is_ok()
    })
    .await;
    // The only known server stays in use: it may come back.
    wanted.topology = Topology::Cluster {
        servers: vec![("127.0.0.1".to_owned(), cut_off.port)],
    };
    let store = open(wanted);
    let limits = prepare(&store, &[10]);
    wait_async("it is known", SOON, async || {
        limits.charge(&one("a")).await.unwrap_err().kind == FaultKind::Unable
    })
    .await;
    cut_off.set_script_reply(passed);
    cut_off.set_reply("GET", "$-1\r\n");
    assert!(limits.charge(&one("a")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_are_exact_while_a_slot_moves() {
    const KEYS: usize = 12;
    const CAPACITY: u64 = 100_000;
    let cluster = Cluster::start(Kind::Redis, 2, 0).unwrap();
    let store = open(cluster::settings(&cluster));
    let limits = prepare(&store, &[CAPACITY, CAPACITY]);
    wait_async("the store is up", SOON, async || {
        let servers = store.report().servers;
        servers.len() == 2 && servers.iter().all(|server| server.is_up)
    })
    .await;
    let request_for = |user: usize, take: bool, cost: u64| {
        let mut both = request(vec![charge(0, "mover"), charge(1, "mover")]);
        for charge in &mut both.charges {
            charge.key.push(format!("user{user}").as_bytes());
            charge.cost = cost;
        }
        both.take = take;
        both
    };
    let done = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..KEYS)
        .map(|user| {
            let (limits, done, both) = (limits.clone(), done.clone(), request_for(user, true, 1));
            tokio::spawn(async move {
                let mut taken = 0;
                while !done.load(Ordering::Relaxed) {
                    assert!(passes(&limits.charge(&both).await.unwrap()));
                    taken += 1;
                }
                taken
            })
        })
        .collect();
    let cluster = tokio::task::spawn_blocking(move || {
        let slot = slot_of(&cluster, "{mover}");
        let from = cluster.owner(slot, 0).unwrap();
        for (from, to) in [(from, 1 - from), (1 - from, from), (from, 1 - from)] {
            cluster.move_slot(slot, from, to).unwrap();
        }
        cluster
    })
    .await
    .unwrap();
    done.store(true, Ordering::Relaxed);
    let mut total = 0;
    for (user, task) in tasks.into_iter().enumerate() {
        let taken: u64 = task.await.unwrap();
        total += taken;
        let stands = limits.charge(&request_for(user, false, 0)).await.unwrap();
        for (place, outcome) in stands.iter().enumerate() {
            assert_eq!(
                outcome.status.remaining,
                CAPACITY - taken,
                "user {user}, limit {place}"
            );
        }
    }
    let report = store.report();
    assert!(total > 100 && report.redirects > 10, "{total}, {report:?}");
    assert_eq!(report.faults, [0; 7]);
    drop(cluster);
}
