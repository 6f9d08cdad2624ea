//! What a server tells of itself while it is asked, every ten seconds; and whether it is there at all, twice a
//! second: a connection that nobody uses would otherwise be found dead by the next request.
//!
//! It must keep what it was given (`maxmemory-policy noeviction`), be new enough, and still be a primary: a server that
//! was made a replica keeps its connections, and refuses nobody who only reads.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::sleep;
use tollgate_policy::shared::FaultKind;

use super::{Core, rise};

/// How often a server is looked at.
const EVERY: Duration = Duration::from_secs(10);
/// How often it is called between.
const CALL_EVERY: Duration = Duration::from_millis(500);
/// How long it may take to tell.
const WITHIN: Duration = Duration::from_secs(1);
/// The oldest version that the scripts were tried on.
pub(crate) const OLDEST: (u32, u32) = (6, 2);

/// What `INFO` says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) version: Option<(u32, u32)>,
    /// What it says of itself, if it is Valkey.
    pub(crate) valkey: Option<String>,
    pub(crate) run_id: String,
    pub(crate) is_replica: bool,
    pub(crate) eviction: Option<String>,
    pub(crate) used_memory: u64,
    pub(crate) max_memory: u64,
    pub(crate) replicas: u32,
    /// How far the last replica is behind, in seconds.
    pub(crate) lag: Option<u64>,
    pub(crate) appends: bool,
}

impl Info {
    pub(crate) fn read(text: &str) -> Info {
        let mut info = Info::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let number = || value.parse().unwrap_or(0);
            match name {
                // Valkey calls itself Redis 7.2 there, for whoever reads no other line.
                "redis_version" => info.version = version(value),
                "valkey_version" => info.valkey = Some(value.to_owned()),
                "run_id" => info.run_id = value.to_owned(),
                "role" => info.is_replica = value == "slave",
                "maxmemory_policy" => info.eviction = Some(value.to_owned()),
                "used_memory" => info.used_memory = number(),
                "maxmemory" => info.max_memory = number(),
                "connected_slaves" => info.replicas = value.parse().unwrap_or(0),
                "aof_enabled" => info.appends = value == "1",
                _ if name.starts_with("slave") => {
                    let lag = value
                        .split(',')
                        .find_map(|part| part.strip_prefix("lag=")?.parse().ok());
                    info.lag = info.lag.max(lag);
                }
                _ => {}
            }
        }
        info
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Looks at the server again and again, until it is not asked any more.
pub(super) async fn watch(core: &Core, mut connection: MultiplexedConnection) {
    loop {
        match rise::ask(&mut connection, &redis::cmd("INFO"), WITHIN).await {
            Ok(value) => {
                if !look(core, &Info::read(&rise::text(&value))) {
                    return;
                }
            }
            Err(low) if low.kind == FaultKind::Late => {
                give_up(core, FaultKind::Late, "it does not answer INFO");
                return;
            }
            // It may not be allowed: then this is not known.
            Err(low) => tracing::debug!(server = %core.name, "INFO: {low}"),
        }
        let mut calls = EVERY.as_millis() / CALL_EVERY.as_millis();
        while calls > 0 {
            sleep(CALL_EVERY).await;
            if let Err(low) = rise::ask(&mut connection, &redis::cmd("PING"), WITHIN).await {
                let kind = match low.kind {
                    FaultKind::Away => FaultKind::Broken,
                    kind => kind,
                };
                give_up(core, kind, &low.words);
                return;
            }
            calls -= 1;
        }
    }
}

/// Is it still one to be asked?
fn look(core: &Core, info: &Info) -> bool {
    if info.is_replica {
        give_up(core, FaultKind::Unable, "it has become a replica");
        return false;
    }
    let lag = info.lag.map_or(0, |lag| lag.saturating_add(1));
    core.replica_lag.store(lag, Ordering::Relaxed);
    info.run_id
        .clone_into(&mut core.run.lock().unwrap_or_else(PoisonError::into_inner));
    let warnings = &core.context.warnings;
    match info.eviction.as_deref() {
        Some(policy) if policy != "noeviction" => {
            let words = format!(
                "maxmemory-policy is {policy}: it may forget who has used what; set it to noeviction"
            );
            warnings.mention("eviction-policy", &core.name, words);
        }
        _ => warnings.take_back("eviction-policy", &core.name),
    }
    if let Some((major, minor)) = info.version
        && (major, minor) < OLDEST
    {
        let words = format!(
            "it is version {major}.{minor}; the oldest that works is {}.{}",
            OLDEST.0, OLDEST.1
        );
        warnings.mention("old-version", &core.name, words);
    }
    true
}

fn give_up(core: &Core, kind: FaultKind, words: &str) {
    let up = core.state.borrow().clone();
    if let Some(up) = up {
        core.give_up(&up, kind, words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_tells_is_read() {
        let text = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nrole:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=127.0.0.1,port=1,state=online,offset=5,lag=1\r\n\
                    slave1:ip=127.0.0.1,port=2,state=online,offset=5,lag=7\r\n\
                    maxmemory:0\r\nmaxmemory_policy:noeviction\r\nused_memory:1024\r\naof_enabled:1\r\n";
        let info = Info::read(text);
        assert_eq!(info.version, Some((7, 0)));
        assert_eq!(info.lag, Some(7));
        assert_eq!(info.replicas, 2);
        assert_eq!(info.eviction.as_deref(), Some("noeviction"));
        assert!(!info.is_replica && info.appends);
        assert_eq!(
            Info::read("nonsense\r\n:\r\nredis_version:x\r\n"),
            Info::default()
        );
    }
}
