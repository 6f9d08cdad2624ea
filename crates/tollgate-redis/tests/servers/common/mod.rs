//! Real servers on free ports, and the shortest way to a store that uses them.
#![allow(dead_code, reason = "every test file uses its own part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

pub(crate) mod cluster;
pub(crate) mod fake_server;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tollgate::{Limit, LimitId};
use tollgate_policy::Quota;
use tollgate_policy::shared::{
    KeyKind, SharedCharge, SharedKey, SharedLimit, SharedLimits, SharedOutcome, SharedRequest,
    SharedStore,
};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::servers::{Kind, Plan};

pub(crate) use tollgate_testkit::servers::Server;
pub(crate) use tollgate_testkit::wait_async;

/// Long enough for a busy machine; tests of the deadline itself set their own.
pub(crate) const DEADLINE: Duration = Duration::from_millis(400);

/// A Redis server with nothing but these options.
pub(crate) fn server(options: &[(&str, &str)]) -> Server {
    Server::start(Kind::Redis, options).unwrap()
}

/// A Redis server on this port.
pub(crate) fn server_at(port: u16) -> Server {
    Plan::new(Kind::Redis).port(port).start().unwrap()
}

/// A Redis server that needs this password.
pub(crate) fn server_with_password(password: &str) -> Server {
    Plan::new(Kind::Redis).password(password).start().unwrap()
}

pub(crate) fn settings(port: u16) -> Settings {
    let mut settings = Settings::standalone("127.0.0.1", port);
    settings.deadline = DEADLINE;
    settings
}

pub(crate) fn open(settings: Settings) -> RedisStore {
    RedisStore::open(settings, &Handle::current()).unwrap()
}

pub(crate) async fn until_up(store: &RedisStore) {
    wait_async("all servers are up", Duration::from_secs(10), async || {
        let servers = store.report().servers;
        !servers.is_empty() && servers.iter().all(|server| server.is_up)
    })
    .await;
}

/// Limits of these capacities that earn nothing while a test runs.
pub(crate) fn prepare(store: &RedisStore, capacities: &[u64]) -> Arc<dyn SharedLimits> {
    let quotas: Vec<(String, Quota)> = capacities
        .iter()
        .enumerate()
        .map(|(place, capacity)| {
            let limit = Limit::token_bucket("10/h".parse().unwrap(), *capacity).unwrap();
            (format!("limit{place}"), Quota::plain(limit))
        })
        .collect();
    let limits: Vec<SharedLimit<'_>> = quotas
        .iter()
        .map(|(id, quota)| SharedLimit {
            id,
            quota,
            before: &[],
            plain: true,
        })
        .collect();
    store.prepare(&limits).unwrap()
}

pub(crate) fn key(part: &str) -> SharedKey {
    let mut key = SharedKey::new(KeyKind::Own);
    key.push(part.as_bytes());
    key
}

/// A charge of one unit on this limit for this key.
pub(crate) fn charge(limit: usize, part: &str) -> SharedCharge {
    SharedCharge {
        limit: LimitId::new(limit),
        key: key(part),
        cost: 1,
        most: None,
        enforced: true,
        with_next: false,
        owed: 0,
    }
}

pub(crate) fn request(charges: Vec<SharedCharge>) -> SharedRequest {
    SharedRequest {
        take: true,
        waited: tollgate::Span::ZERO,
        charges,
    }
}

pub(crate) fn one(part: &str) -> SharedRequest {
    request(vec![charge(0, part)])
}

pub(crate) fn passes(outcomes: &[SharedOutcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.verdict.is_admitted())
}

pub(crate) fn codes(store: &RedisStore) -> Vec<&'static str> {
    let warnings = store.report().warnings;
    warnings.iter().map(|(code, _)| *code).collect()
}
