//! Checks one server: its version, its persistence, and the permissions of the user that connects.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::{DoctorFindings, STEP_TIMEOUT, command};
use crate::error_action::without_keys;
use crate::limits::slot;
use crate::link::connect::{self, DownReason};
use crate::link::connector::Connector;
use crate::link::monitor::{OLDEST_VERSION, ServerInfo};

/// Difference of clocks without a warning.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);
/// Bound of keys that are checked for an expiry, and of rounds of SCAN.
const KEYS_MAX: usize = 1000;
const SCANS_MAX: usize = 50;

/// A server under examination.
pub(super) struct ServerProbe<'a> {
    pub(super) connector: &'a Connector,
    /// A slot that it serves in a cluster.
    pub(super) slot: Option<u16>,
    pub(super) connection: MultiplexedConnection,
    pub(super) findings: DoctorFindings<'a>,
}

impl ServerProbe<'_> {
    /// A hash tag whose slot this server serves.
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

    pub(super) async fn query(&mut self, command: &Cmd) -> Result<Value, DownReason> {
        connect::query(&mut self.connection, command, STEP_TIMEOUT).await
    }

    /// Runs all checks.
    pub(super) async fn run(&mut self) {
        if !self.check_role().await {
            return;
        }
        self.check_info().await;
        self.check_min_replicas().await;
        self.check_permissions().await;
        self.check_clock().await;
        self.check_script().await;
        self.check_expiry().await;
    }

    async fn check_role(&mut self) -> bool {
        let role = self.query(&redis::cmd("ROLE")).await;
        let reason = match role.and_then(|role| connect::check_primary(&role)) {
            Ok(()) => {
                self.findings.ok("role", "it is a primary");
                return true;
            }
            Err(reason) => reason,
        };
        let code = match reason.code() {
            "wrong-password" => "auth",
            "no-permission" => "permissions",
            _ => "role",
        };
        self.findings.down(code, &reason);
        false
    }

    async fn check_info(&mut self) {
        let reply = self.query(&redis::cmd("INFO")).await;
        let findings = &mut self.findings;
        let info = match reply {
            Ok(value) => ServerInfo::parse(&connect::text(&value)),
            Err(reason) => {
                let hint = "grant `+info`, or the server cannot be monitored";
                findings.warning("info", &reason.message, hint);
                return;
            }
        };
        match info.version {
            Some((major, minor)) if (major, minor) >= OLDEST_VERSION => match &info.valkey {
                Some(version) => findings.ok("version", format!("it is Valkey {version}")),
                None => findings.ok("version", format!("it is version {major}.{minor}")),
            },
            Some((major, minor)) => {
                let (oldest_major, oldest_minor) = OLDEST_VERSION;
                let message = format!(
                    "version {major}.{minor} is too old; the oldest that works is {oldest_major}.{oldest_minor}"
                );
                findings.error("version", message, "use a newer server");
            }
            None => findings.note("version", "it does not report its version"),
        }
        match (info.replicas, info.lag) {
            (0, _) => {
                let message = "it has no replica: if it fails, limits restart with no usage elsewhere";
                findings.note("replicas", message);
            }
            (count, Some(lag)) if lag > 2 => findings.warning(
                "replicas",
                format!("{count} replicas, the slowest is {lag} s behind"),
                "a failover loses the charges since then: see the network, and the load of the replicas",
            ),
            (count, _) => findings.ok("replicas", format!("{count} replicas, up to date")),
        }
        match info.eviction.as_deref() {
            Some("noeviction") => findings.ok("eviction", "it evicts no keys"),
            Some(policy) => findings.warning(
                "eviction",
                format!("maxmemory-policy is {policy}: it may evict usage"),
                "set maxmemory-policy to noeviction",
            ),
            None => findings.note("eviction", "it does not report its maxmemory-policy"),
        }
        let (used, max) = (info.used_memory, info.max_memory);
        if max == 0 {
            let kibibytes = used / 1024;
            findings.note(
                "memory",
                format!("it uses {kibibytes} KiB; maxmemory is not set"),
            );
        } else if used / 10 * 10 > max / 10 * 9 {
            let hint = "above maxmemory every charge fails: raise it";
            findings.warning("memory", format!("it uses {used} of {max} bytes"), hint);
        } else {
            findings.ok("memory", format!("it uses {used} of {max} bytes"));
        }
        if info.appends {
            let message =
                "append-only file: a restart loses one second at most (appendfsync everysec)";
            findings.ok("persistence", message);
        } else {
            let message = "no append-only file: a restart loses the charges since the last snapshot, if there is one";
            findings.note("persistence", message);
        }
    }

    async fn check_min_replicas(&mut self) {
        let get = command(&["CONFIG", "GET", "min-replicas-to-write"]);
        let reply = self.query(&get).await;
        let findings = &mut self.findings;
        let Ok(Value::Array(parts)) = reply else {
            let message = "no permission to read the configuration (`+config|get`)";
            findings.note("min-replicas", message);
            return;
        };
        match parts.get(1).map(connect::text).as_deref() {
            None | Some("0") => {
                let message =
                    "min-replicas-to-write is 0: a primary that is cut off keeps deciding alone";
                findings.note("min-replicas", message);
            }
            Some(count) => {
                findings.ok("min-replicas", format!("min-replicas-to-write is {count}"));
            }
        }
    }

    /// Tries every command of the store, on a key of its own.
    async fn check_permissions(&mut self) {
        let prefix = &self.connector.settings.prefix;
        let name = format!("{prefix}:doctor:{{{}}}", self.tag());
        let strings = "redis.call('SET', KEYS[1], '1', 'PX', 10000) redis.call('GET', KEYS[1]) redis.call('MGET', KEYS[1]) \
                       redis.call('PEXPIRE', KEYS[1], 10000) redis.call('TIME') redis.call('PTTL', KEYS[1]) redis.call('EXISTS', KEYS[1]) \
                       redis.call('APPEND', KEYS[1], '2') redis.call('STRLEN', KEYS[1]) redis.call('GETRANGE', KEYS[1], 0, 1) \
                       redis.call('SETRANGE', KEYS[1], 0, '3') return redis.call('DEL', KEYS[1])";
        let sorted_sets = "redis.call('ZADD', KEYS[1], 1, 'a') redis.call('PEXPIRE', KEYS[1], 10000) \
                           redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, 0) redis.call('ZCARD', KEYS[1]) return redis.call('DEL', KEYS[1])";
        // The hash of `return 1`.
        let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        let commands: [&[&str]; 9] = [
            &["PING"],
            &["TIME"],
            &["SET", &name, "1", "EX", "10"],
            &["GET", &name],
            &["DEL", &name],
            &["EVAL", strings, "1", &name],
            &["EVAL", sorted_sets, "1", &name],
            &["SCRIPT", "LOAD", "return 1"],
            &["EVALSHA", sha, "1", &name],
        ];
        let mut first_error = None;
        for words in commands {
            if let Err(reason) = self.query(&command(words)).await {
                first_error.get_or_insert(reason);
            }
        }
        let findings = &mut self.findings;
        match first_error {
            None => findings.ok("permissions", "all commands of the store are allowed"),
            Some(DownReason { message, .. })
                if message.starts_with("MOVED") || message.starts_with("ASK") =>
            {
                let hint = "configure it as a cluster: `redis+cluster://…`";
                findings.error("topology", "it is part of a cluster", hint);
            }
            Some(reason) => findings.down("permissions", &reason),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "two clocks are compared, and no decision depends on them"
    )]
    async fn check_clock(&mut self) {
        let Ok(Value::Array(parts)) = self.query(&redis::cmd("TIME")).await else {
            return;
        };
        let seconds = parts.first().map(connect::text);
        let server = seconds.and_then(|text| text.parse().ok()).unwrap_or(0_u64);
        let own = SystemTime::now().duration_since(UNIX_EPOCH);
        let difference = own.unwrap_or_default().as_secs().abs_diff(server);
        if difference > CLOCK_TOLERANCE.as_secs() {
            self.findings.warning(
                "clock",
                format!("its clock and the local one differ by {difference} s"),
                "limits use the server's clock, logs the local one: run NTP on both",
            );
        } else {
            self.findings
                .ok("clock", "its clock and the local one agree");
        }
    }

    /// Looks for keys below the prefix that never expire.
    async fn check_expiry(&mut self) {
        let pattern = format!("{}:*", self.connector.settings.prefix);
        let (mut cursor, mut keys) = (String::from("0"), Vec::new());
        for _ in 0..SCANS_MAX {
            let scan = command(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", "500"]);
            let Ok(Value::Array(parts)) = self.query(&scan).await else {
                let message = "no permission to look for keys without expiry (`+scan`)";
                self.findings.note("expiry", message);
                return;
            };
            cursor = parts.first().map(connect::text).unwrap_or_default();
            if let Some(Value::Array(found)) = parts.into_iter().nth(1) {
                keys.extend(found.iter().map(connect::text));
            }
            if cursor == "0" || keys.len() >= KEYS_MAX {
                break;
            }
        }
        keys.truncate(KEYS_MAX);
        let mut endless = Vec::new();
        for key in &keys {
            match self.query(&command(&["PTTL", key])).await {
                Ok(Value::Int(-1)) => endless.push(key.as_str()),
                Ok(_) => {}
                Err(_) => {
                    let message = "no permission to read the expiry of keys (`+pttl`)";
                    self.findings.note("expiry", message);
                    return;
                }
            }
        }
        let (count, all) = (endless.len(), keys.len());
        match endless.first() {
            None => self
                .findings
                .ok("expiry", format!("all of {all} checked keys expire")),
            Some(first) => self.findings.warning(
                "expiry",
                format!(
                    "{count} of {all} keys never expire, such as {:?}",
                    without_keys(first)
                ),
                "no limit writes such keys: another program does; choose another prefix",
            ),
        }
    }
}
