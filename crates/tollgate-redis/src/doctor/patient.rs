//! One server under examination: what it is, what it remembers, and what we may do there.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::{Findings, STEP, reach, trial};
use crate::fault::without_keys;
use crate::limits::slot;
use crate::link::access::{Access, Address, As};
use crate::link::rise::{self, Low};
use crate::link::watch::{Info, OLDEST};

/// Clocks may differ by this much before it is worth a word.
const CLOCKS: Duration = Duration::from_secs(1);
/// Keys that are looked at for an expiry, and rounds of SCAN to find them.
const KEYS_MAX: usize = 1000;
const SCANS_MAX: usize = 50;

pub(super) struct Patient<'a> {
    pub(super) access: &'a Access,
    pub(super) address: Address,
    /// A slot that it serves, if it is one of a cluster.
    pub(super) slot: Option<u16>,
}

impl<'a> Patient<'a> {
    pub(super) fn new(access: &'a Access, address: Address, slot: Option<u16>) -> Patient<'a> {
        Patient {
            access,
            address,
            slot,
        }
    }

    /// A text for the hash tag of a key, so that this server serves it.
    pub(super) fn tag(&self) -> String {
        let random = getrandom::u32().unwrap_or_default();
        let mut tags = (0..1_000_000_u32).map(|number| format!("{random:08x}{number}"));
        match self.slot {
            None => format!("{random:08x}"),
            Some(wanted) => tags
                .find(|tag| slot(format!("{{{tag}}}").as_bytes()) == wanted)
                .unwrap_or_default(),
        }
    }

    pub(super) async fn examine(&self, findings: &mut Findings) {
        let Some(mut connection) = reach(self.access, &self.address, As::Server, findings).await
        else {
            return;
        };
        if !self.role(&mut connection, findings).await {
            return;
        }
        self.info(&mut connection, findings).await;
        self.min_replicas(&mut connection, findings).await;
        self.permissions(&mut connection, findings).await;
        self.clock(&mut connection, findings).await;
        trial::run(self, &mut connection, findings).await;
        self.keys(&mut connection, findings).await;
    }

    async fn role(&self, connection: &mut MultiplexedConnection, findings: &mut Findings) -> bool {
        let at = &self.address;
        match rise::ask(connection, &redis::cmd("ROLE"), STEP).await {
            Ok(role) => match rise::is_primary(&role) {
                Ok(()) => {
                    findings.ok("role", format!("{at} is a primary"));
                    true
                }
                Err(low) => {
                    findings.low("role", at, &low);
                    false
                }
            },
            Err(low) => {
                let code = match low.warning {
                    Some(("wrong-password", _)) => "auth",
                    Some(("no-permission", _)) => "permissions",
                    _ => "role",
                };
                findings.low(code, at, &low);
                false
            }
        }
    }

    async fn info(&self, connection: &mut MultiplexedConnection, findings: &mut Findings) {
        let at = &self.address;
        let info = match rise::ask(connection, &redis::cmd("INFO"), STEP).await {
            Ok(value) => Info::read(&rise::text(&value)),
            Err(low) => {
                findings.warning(
                    "info",
                    format!("{at}: {}", low.words),
                    "grant `+info`, or we cannot watch it",
                );
                return;
            }
        };
        match info.version {
            Some((major, minor)) if (major, minor) >= OLDEST => {
                let is = match &info.valkey {
                    Some(version) => format!("Valkey {version}"),
                    None => format!("version {major}.{minor}"),
                };
                findings.ok("version", format!("{at} is {is}"));
            }
            Some((major, minor)) => findings.error(
                "version",
                format!(
                    "{at} is version {major}.{minor}, and the oldest that works is {}.{}",
                    OLDEST.0, OLDEST.1
                ),
                "use a newer server",
            ),
            None => findings.note("version", format!("{at} does not tell its version")),
        }
        match (info.replicas, info.lag) {
            (0, _) => findings.note("replicas", format!("{at} has no replica: if it dies, limits begin anew elsewhere")),
            (count, Some(lag)) if lag > 2 => findings.warning(
                "replicas",
                format!("{at}: {count} replicas, the last is {lag} s behind"),
                "a failover loses what was charged since: see the network, and the load of the replicas",
            ),
            (count, _) => findings.ok("replicas", format!("{at}: {count} replicas, up to date")),
        }
        match info.eviction.as_deref() {
            Some("noeviction") => {
                findings.ok("eviction", format!("{at} forgets nothing before its time"));
            }
            Some(policy) => findings.warning(
                "eviction",
                format!("{at}: maxmemory-policy is {policy}: it may forget who has used what"),
                "set maxmemory-policy to noeviction",
            ),
            None => findings.note(
                "eviction",
                format!("{at} does not tell its maxmemory-policy"),
            ),
        }
        if info.max_memory == 0 {
            findings.note(
                "memory",
                format!(
                    "{at} uses {} KiB; maxmemory is not set",
                    info.used_memory / 1024
                ),
            );
        } else if info.used_memory / 10 * 10 > info.max_memory / 10 * 9 {
            findings.warning(
                "memory",
                format!(
                    "{at} uses {} of {} bytes",
                    info.used_memory, info.max_memory
                ),
                "above maxmemory every charge fails: give it more",
            );
        } else {
            findings.ok(
                "memory",
                format!(
                    "{at} uses {} of {} bytes",
                    info.used_memory, info.max_memory
                ),
            );
        }
        if info.appends {
            findings.ok("persistence", format!("{at} appends to a file: a restart forgets a second at most (appendfsync everysec)"));
        } else {
            findings.note(
                "persistence",
                format!("{at} appends to no file: a restart forgets what was charged since the last snapshot, if there is one"),
            );
        }
    }

    async fn min_replicas(&self, connection: &mut MultiplexedConnection, findings: &mut Findings) {
        let mut get = redis::cmd("CONFIG");
        get.arg("GET").arg("min-replicas-to-write");
        let at = &self.address;
        match rise::ask(connection, &get, STEP).await {
            Ok(Value::Array(parts)) => match parts.get(1).map(rise::text).as_deref() {
                None | Some("0") => findings.note(
                    "min-replicas",
                    format!("{at}: min-replicas-to-write is 0: a primary that was cut off goes on deciding by itself"),
                ),
                Some(count) => findings.ok("min-replicas", format!("{at}: min-replicas-to-write is {count}")),
            },
            _ => findings.note("min-replicas", format!("{at}: we may not read its configuration (`+config|get`)")),
        }
    }

    /// Tries every command that is needed, on a key of our own.
    async fn permissions(&self, connection: &mut MultiplexedConnection, findings: &mut Findings) {
        let name = format!("{}:doctor:{{{}}}", self.access.settings.prefix, self.tag());
        let command = |words: &[&str]| -> Cmd {
            let mut command = Cmd::new();
            for word in words {
                command.arg(*word);
            }
            command
        };
        let inside = "redis.call('SET', KEYS[1], '1', 'PX', 10000) redis.call('GET', KEYS[1]) redis.call('MGET', KEYS[1]) \
                      redis.call('PEXPIRE', KEYS[1], 10000) redis.call('TIME') redis.call('PTTL', KEYS[1]) redis.call('EXISTS', KEYS[1]) \
                      redis.call('APPEND', KEYS[1], '2') redis.call('STRLEN', KEYS[1]) redis.call('GETRANGE', KEYS[1], 0, 1) \
                      redis.call('SETRANGE', KEYS[1], 0, '3') return redis.call('DEL', KEYS[1])";
        let sorted = "redis.call('ZADD', KEYS[1], 1, 'a') redis.call('PEXPIRE', KEYS[1], 10000) \
                      redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, 0) redis.call('ZCARD', KEYS[1]) return redis.call('DEL', KEYS[1])";
        let tried = [
            command(&["PING"]),
            command(&["TIME"]),
            command(&["SET", &name, "1", "EX", "10"]),
            command(&["GET", &name]),
            command(&["DEL", &name]),
            command(&["EVAL", inside, "1", &name]),
            command(&["EVAL", sorted, "1", &name]),
            command(&["SCRIPT", "LOAD", "return 1"]),
            command(&[
                "EVALSHA",
                "e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
                "1",
                &name,
            ]),
        ];
        let mut worst: Option<Low> = None;
        for command in &tried {
            if let Err(low) = rise::ask(connection, command, STEP).await {
                worst.get_or_insert(low);
            }
        }
        match worst {
            None => findings.ok(
                "permissions",
                format!("{} lets us do all that is needed", self.address),
            ),
            Some(low) if low.words.starts_with("MOVED") || low.words.starts_with("ASK") => {
                findings.error(
                    "topology",
                    format!("{} is part of a cluster", self.address),
                    "name it as one: `redis+cluster://…`",
                );
            }
            Some(low) => findings.low("permissions", &self.address, &low),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "two clocks are compared, and nothing is decided"
    )]
    async fn clock(&self, connection: &mut MultiplexedConnection, findings: &mut Findings) {
        let Ok(Value::Array(parts)) = rise::ask(connection, &redis::cmd("TIME"), STEP).await else {
            return;
        };
        let theirs: u64 = parts
            .first()
            .map(rise::text)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        let ours = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let apart = ours.as_secs().abs_diff(theirs);
        if apart > CLOCKS.as_secs() {
            findings.warning(
                "clock",
                format!("the clock of {} and ours are {apart} s apart", self.address),
                "limits go by the server's clock, logs by ours: run NTP on both",
            );
        } else {
            findings.ok(
                "clock",
                format!("the clock of {} and ours agree", self.address),
            );
        }
    }

    /// Keys of ours that would never go away.
    async fn keys(&self, connection: &mut MultiplexedConnection, findings: &mut Findings) {
        let at = &self.address;
        let (mut cursor, mut keys) = (String::from("0"), Vec::new());
        for _ in 0..SCANS_MAX {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor)
                .arg("MATCH")
                .arg(format!("{}:*", self.access.settings.prefix))
                .arg("COUNT")
                .arg(500);
            let Ok(Value::Array(parts)) = rise::ask(connection, &scan, STEP).await else {
                findings.note(
                    "expiry",
                    format!("{at}: we may not look for keys without expiry (`+scan`)"),
                );
                return;
            };
            cursor = parts.first().map(rise::text).unwrap_or_default();
            if let Some(Value::Array(found)) = parts.into_iter().nth(1) {
                keys.extend(found.iter().map(rise::text));
            }
            if cursor == "0" || keys.len() >= KEYS_MAX {
                break;
            }
        }
        keys.truncate(KEYS_MAX);
        let mut endless = Vec::new();
        for key in &keys {
            let mut left = redis::cmd("PTTL");
            left.arg(key);
            match rise::ask(connection, &left, STEP).await {
                Ok(Value::Int(-1)) => endless.push(key.clone()),
                Ok(_) => {}
                Err(_) => {
                    findings.note(
                        "expiry",
                        format!("{at}: we may not see when keys expire (`+pttl`)"),
                    );
                    return;
                }
            }
        }
        match endless.first() {
            None => findings.ok(
                "expiry",
                format!(
                    "{at}: all of {} keys that were looked at expire",
                    keys.len()
                ),
            ),
            Some(first) => findings.warning(
                "expiry",
                format!(
                    "{at}: {} of {} keys never expire, {:?} among them",
                    endless.len(),
                    keys.len(),
                    without_keys(first)
                ),
                "no limit writes such keys: another program does; choose another prefix",
            ),
        }
    }
}
