//! Monitors a server while its link is up: `INFO` every ten seconds, and `PING` twice a second, because the next
//! request would otherwise find an idle connection dead.
//!
//! The server must not evict keys (`maxmemory-policy noeviction`), be new enough, and still be a primary: a server that became a
//! replica keeps its connections and serves reads.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::sleep;
use tollgate_policy::shared::FaultKind;

use super::{LinkInner, connect};

const INFO_EVERY: Duration = Duration::from_secs(10);
const PING_EVERY: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(1);
/// The oldest version that the scripts were tested on.
pub(crate) const OLDEST_VERSION: (u32, u32) = (6, 2);

/// Fields of `INFO`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    pub(crate) version: Option<(u32, u32)>,
    /// Version of Valkey, if it is one.
    pub(crate) valkey: Option<String>,
    pub(crate) run_id: String,
    pub(crate) is_replica: bool,
    pub(crate) eviction: Option<String>,
    pub(crate) used_memory: u64,
    pub(crate) max_memory: u64,
    pub(crate) replicas: u32,
    /// Lag of the slowest replica in seconds.
    pub(crate) lag: Option<u64>,
    pub(crate) appends: bool,
}

impl ServerInfo {
    pub(crate) fn parse(text: &str) -> ServerInfo {
        let mut info = ServerInfo::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let number = || value.parse().unwrap_or(0);
            match name {
                // Valkey reports Redis 7.2 here, for clients that read no other line.
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

/// Monitors the server until its link is marked down.
pub(super) async fn monitor(link: &LinkInner, mut connection: MultiplexedConnection) {
    loop {
        match connect::query(&mut connection, &redis::cmd("INFO"), TIMEOUT).await {
            Ok(value) => {
                if !check_info(link, &ServerInfo::parse(&connect::text(&value))) {
                    return;
                }
            }
            Err(reason) if reason.kind == FaultKind::Late => {
                link.mark_down_now(FaultKind::Late, "no reply to INFO");
                return;
            }
            // The user may lack the permission: then these fields are unknown.
            Err(reason) => tracing::debug!(server = %link.name, "INFO failed: {reason}"),
        }
        for _ in 0..INFO_EVERY.as_millis() / PING_EVERY.as_millis() {
            sleep(PING_EVERY).await;
            let ping = connect::query(&mut connection, &redis::cmd("PING"), TIMEOUT).await;
            if let Err(reason) = ping {
                let kind = match reason.kind {
                    FaultKind::Away => FaultKind::Broken,
                    kind => kind,
                };
                link.mark_down_now(kind, &reason.message);
                return;
            }
        }
    }
}

/// Whether the server can still be used.
fn check_info(link: &LinkInner, info: &ServerInfo) -> bool {
    if info.is_replica {
        link.mark_down_now(FaultKind::Unable, "it became a replica");
        return false;
    }
    let lag = info.lag.map_or(0, |lag| lag.saturating_add(1));
    link.replica_lag.store(lag, Ordering::Relaxed);
    let mut run = link.run_id.lock().unwrap_or_else(PoisonError::into_inner);
    run.clone_from(&info.run_id);
    drop(run);
    let warnings = &link.context.warnings;
    match info.eviction.as_deref() {
        Some(policy) if policy != "noeviction" => {
            let message =
                format!("maxmemory-policy is {policy}: it may evict usage; set it to noeviction");
            warnings.raise_briefly("eviction-policy", &link.name, message);
        }
        _ => warnings.clear("eviction-policy", &link.name),
    }
    if let Some((major, minor)) = info.version
        && (major, minor) < OLDEST_VERSION
    {
        let message = format!(
            "version {major}.{minor} is too old; the oldest that works is {}.{}",
            OLDEST_VERSION.0, OLDEST_VERSION.1
        );
        warnings.raise_briefly("old-version", &link.name, message);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_parsed() {
        let text = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nrole:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=127.0.0.1,port=1,state=online,offset=5,lag=1\r\n\
                    slave1:ip=127.0.0.1,port=2,state=online,offset=5,lag=7\r\n\
                    maxmemory:0\r\nmaxmemory_policy:noeviction\r\nused_memory:1024\r\naof_enabled:1\r\n";
        let info = ServerInfo::parse(text);
        assert_eq!(info.version, Some((7, 0)));
        assert_eq!(info.lag, Some(7));
        assert_eq!(info.replicas, 2);
        assert_eq!(info.eviction.as_deref(), Some("noeviction"));
        assert!(!info.is_replica && info.appends);
        assert_eq!(
            ServerInfo::parse("nonsense\r\n:\r\nredis_version:x\r\n"),
            ServerInfo::default()
        );
    }
}
