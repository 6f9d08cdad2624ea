//! A primary, its replicas, and sentinels that watch over them.

use std::time::Duration;

use redis::Value;

use super::server::{Plan, field_of};
use super::{Kind, Server};
use crate::HOST;
use crate::error::{Error, Result};
use crate::wait::{Check, wait_for};

/// What the sentinels call the primary.
const SERVICE: &str = "trial";
/// How long they may take until all see each other.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long a sentinel gives a failover; twice that long it starts no other one. A promoted replica is looked at
/// once in a second, so much less than this would end failovers that were going well.
const FAILOVER_TIMEOUT_MS: u32 = 3_000;

/// A primary with replicas, and the sentinels that choose another primary if it fails.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// Starts a primary, `replicas` replicas and `sentinels` sentinels of which a majority has to agree, and waits
    /// until all of them see each other. A server that is silent for `down_after_ms` is down.
    pub fn start(
        kind: Kind,
        replicas: usize,
        sentinels: usize,
        down_after_ms: u32,
    ) -> Result<Sentinels> {
        let primary = Server::start(kind, &[])?;
        let port = primary.port().to_string();
        let replica_of = format!("{HOST} {port}");
        let mut servers = vec![primary];
        for _ in 0..replicas {
            servers.push(Server::start(kind, &[("replicaof", &replica_of)])?);
        }
        // A sentinel asks the primary for its replicas when it meets it, and then not again for ten seconds.
        wait_for_replicas(&servers)?;
        let quorum = sentinels / 2 + 1;
        let monitor = format!("monitor {SERVICE} {HOST} {port} {quorum}");
        let down_after = format!("down-after-milliseconds {SERVICE} {down_after_ms}");
        let failover = format!("failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}");
        let syncs = format!("parallel-syncs {SERVICE} {}", replicas.max(1));
        let mut watch = Vec::new();
        for _ in 0..sentinels {
            let lines =
                [&monitor, &down_after, &failover, &syncs].map(|line| ("sentinel", line.as_str()));
            watch.push(Plan::new(kind).sentinel().options(&lines).start()?);
        }
        let world = Sentinels {
            servers,
            sentinels: watch,
        };
        world.wait_until_they_see_each_other()?;
        Ok(world)
    }

    /// What the sentinels call the primary.
    pub fn service(&self) -> &'static str {
        SERVICE
    }

    /// Where the sentinels are.
    pub fn sentinel_addresses(&self) -> Vec<(String, u16)> {
        let address = |sentinel: &Server| (HOST.into(), sentinel.port());
        self.sentinels.iter().map(address).collect()
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// All servers: who was the primary at first, then the others.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The primary, by what most sentinels say now. It may be dead, if they did not notice yet.
    pub fn primary(&self) -> Result<&Server> {
        let named: Vec<u16> = self.sentinels.iter().filter_map(named_primary).collect();
        let votes = |port: u16| named.iter().filter(|&&other| other == port).count();
        let found = self
            .servers
            .iter()
            .find(|server| votes(server.port()) * 2 > self.sentinels.len());
        found.ok_or_else(|| Error::Unexpected {
            asked: "the address of the primary from every sentinel".into(),
            answer: format!("the ports {named:?}, of which no server of ours has most"),
        })
    }

    /// Kills the primary and says which port it had.
    pub fn kill_primary(&self) -> Result<u16> {
        let primary = self.primary()?;
        primary.kill();
        Ok(primary.port())
    }

    /// Waits until most sentinels name another primary than the one at port `old`, and it says so itself.
    pub fn wait_for_another_primary(&self, old: u16, deadline: Duration) -> Result<&Server> {
        let what = format!("there is another primary than that at port {old}");
        wait_for(
            &what,
            deadline,
            || self.logs(),
            || {
                let primary = match self.primary() {
                    Ok(primary) if primary.port() != old => primary,
                    Ok(_) => return Ok(Check::Pending("the old one".into())),
                    Err(error) => return Ok(Check::Pending(error.to_string())),
                };
                match primary.info("replication", "role") {
                    Ok(role) if role == "master" => Ok(Check::Ready(primary)),
                    Ok(role) => Ok(Check::Pending(format!("it calls itself {role}"))),
                    Err(error) => Ok(Check::Pending(error.to_string())),
                }
            },
        )
    }

    /// Writes a value that all other servers have too, and says who was the primary then. The sentinels may choose
    /// another one at any time, as they do on a machine that stalls, so whom to write to is asked for each try.
    pub fn write_for_all(&self, key: &str, value: &str, deadline: Duration) -> Result<&Server> {
        let write = || -> Result<&Server> {
            let primary = self.primary()?;
            primary.ask(&["SET", key, value])?;
            Ok(primary)
        };
        let has_it = |server: &Server| {
            let found = server.ask_text(&["GET", key]);
            found.is_ok_and(|found| found == value)
        };
        wait_for(
            "all servers have a value",
            deadline,
            || self.logs(),
            || {
                let primary = match write() {
                    Ok(primary) => primary,
                    Err(error) => return Ok(Check::Pending(error.to_string())),
                };
                let lacking = self.servers.iter().find(|server| !has_it(server));
                Ok(match lacking {
                    None => Check::Ready(primary),
                    Some(server) => Check::Pending(format!("not at port {}", server.port())),
                })
            },
        )
    }

    /// Waits until every sentinel sees all the others, and all servers that live follow the primary.
    pub fn wait_until_they_see_each_other(&self) -> Result<()> {
        wait_for(
            "all see each other",
            DEADLINE,
            || self.logs(),
            || {
                for sentinel in &self.sentinels {
                    if let Some(missing) = self.missing_in_the_view_of(sentinel)? {
                        return Ok(Check::Pending(format!(
                            "the sentinel at port {} sees {missing}",
                            sentinel.port()
                        )));
                    }
                }
                self.do_all_follow()
            },
        )
    }

    /// Whether the primary and its replicas say of themselves what they are. The sentinels learn it only every ten
    /// seconds, so what they say may be old.
    fn do_all_follow(&self) -> Result<Check<()>> {
        let primary = self.primary()?.port().to_string();
        for server in self.servers.iter().filter(|server| server.pid().is_some()) {
            let said = server.ask_text(&["INFO", "replication"])?;
            let field = |name| field_of(&said, name).unwrap_or_default();
            let well = match server.port().to_string() == primary {
                true => field("role") == "master",
                false => field("master_port") == primary && field("master_link_status") == "up",
            };
            if !well {
                let port = server.port();
                return Ok(Check::Pending(format!("the server at port {port}: {said}")));
            }
        }
        Ok(Check::Ready(()))
    }

    fn missing_in_the_view_of(&self, sentinel: &Server) -> Result<Option<String>> {
        let others = peers(sentinel.ask(&["SENTINEL", "SENTINELS", SERVICE])?);
        let well = others.iter().filter(|peer| peer.is_well()).count();
        if well + 1 != self.sentinels.len() {
            return Ok(Some(format!("the sentinels {others:?}")));
        }
        let replicas = peers(sentinel.ask(&["SENTINEL", "REPLICAS", SERVICE])?);
        let well = replicas.iter().filter(|peer| peer.is_well()).count();
        let living = self.servers.iter().filter(|server| server.pid().is_some());
        if well + 1 != living.count() {
            return Ok(Some(format!("the replicas {replicas:?}")));
        }
        Ok(None)
    }

    /// The ends of the logs of all of them.
    pub fn logs(&self) -> String {
        let all = self.sentinels.iter().chain(&self.servers);
        let logs: Vec<String> = all
            .map(|s| format!("-- port {}\n{}", s.port(), s.log()))
            .collect();
        logs.join("\n")
    }
}

/// What a sentinel tells of somebody.
#[derive(Debug, Default)]
struct Peer {
    /// What it is, and what is wrong with it: `slave,s_down,disconnected`.
    flags: String,
}

impl Peer {
    /// Whether the sentinel hears it. What it said about others (`master_down`) may be old.
    fn is_well(&self) -> bool {
        let mut flags = self.flags.split(',');
        !flags.any(|flag| matches!(flag, "s_down" | "o_down" | "disconnected"))
    }
}

/// Reads a list of lists of names and values.
fn peers(answer: Value) -> Vec<Peer> {
    let Value::Array(rows) = answer else {
        return Vec::new();
    };
    let read = |row| {
        let fields: Vec<String> = redis::from_redis_value(row).unwrap_or_default();
        let mut peer = Peer::default();
        for pair in fields.chunks_exact(2) {
            match pair {
                [name, value] if name == "flags" => peer.flags.clone_from(value),
                _ => {}
            }
        }
        peer
    };
    rows.into_iter().map(read).collect()
}

/// The port of the primary, by what one sentinel says; none if it is not there.
fn named_primary(sentinel: &Server) -> Option<u16> {
    let answer = sentinel
        .ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE])
        .ok()?;
    let (_, port): (String, String) = redis::from_redis_value(answer).ok()?;
    port.parse().ok()
}

/// Waits until the first server has all the others as replicas, each up to date.
fn wait_for_replicas(servers: &[Server]) -> Result<()> {
    let Some((primary, replicas)) = servers.split_first() else {
        return Ok(());
    };
    let logs = || {
        let logs: Vec<String> = servers.iter().map(Server::log).collect();
        logs.join("\n--\n")
    };
    wait_for("all replicas follow", DEADLINE, logs, || {
        let seen = primary.ask_text(&["INFO", "replication"])?;
        let online = seen.matches("state=online").count();
        Ok(match online == replicas.len() {
            true => Check::Ready(()),
            false => Check::Pending(seen),
        })
    })
}
