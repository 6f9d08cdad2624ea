//! A primary, its replicas, and sentinels that monitor them.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use super::server::{Plan, field_of};
use super::{Kind, Server};
use crate::HOST;
use crate::error::{Error, Result};
use crate::wait::{Check, wait_for};

/// Name of the primary in the sentinels' configuration.
const SERVICE: &str = "trial";
/// Timeout until all sentinels and servers are connected.
const DEADLINE: Duration = Duration::from_secs(30);
/// Timeout of a failover; a sentinel starts no other one for twice this time. Sentinels poll a promoted replica once in a second,
/// so a much smaller value would abort good failovers.
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
        // A sentinel reads the replicas from the primary at the start, and then not again for ten seconds.
        wait_for_replicas(&servers)?;
        let quorum = sentinels / 2 + 1;
        let monitor = format!("monitor {SERVICE} {HOST} {port} {quorum}");
        let down_after = format!("down-after-milliseconds {SERVICE} {down_after_ms}");
        let failover = format!("failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}");
        let syncs = format!("parallel-syncs {SERVICE} {}", replicas.max(1));
        let mut started = Vec::new();
        for _ in 0..sentinels {
            let lines =
                [&monitor, &down_after, &failover, &syncs].map(|line| ("sentinel", line.as_str()));
            started.push(Plan::new(kind).sentinel().options(&lines).start()?);
        }
        let sentinels = Sentinels {
            servers,
            sentinels: started,
        };
        sentinels.wait_until_connected()?;
        Ok(sentinels)
    }

    /// Name of the primary in the sentinels' configuration.
    pub fn service(&self) -> &'static str {
        SERVICE
    }

    /// Addresses of the sentinels.
    pub fn sentinel_addresses(&self) -> Vec<(String, u16)> {
        let address = |sentinel: &Server| (HOST.into(), sentinel.port());
        self.sentinels.iter().map(address).collect()
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// All servers: the first primary, then the others.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The primary that the majority of sentinels reports now. It may be dead, if they did not notice yet.
    pub fn primary(&self) -> Result<&Server> {
        let named: Vec<u16> = self.sentinels.iter().filter_map(named_primary).collect();
        let votes = |port: u16| named.iter().filter(|&&other| other == port).count();
        let found = self
            .servers
            .iter()
            .find(|server| votes(server.port()) * 2 > self.sentinels.len());
        found.ok_or_else(|| Error::Unexpected {
            command: "the address of the primary from every sentinel".into(),
            answer: format!("the ports {named:?}, without a majority"),
        })
    }

    /// Kills the primary and returns its port.
    pub fn kill_primary(&self) -> Result<u16> {
        let primary = self.primary()?;
        primary.kill();
        Ok(primary.port())
    }

    /// Waits until the majority of sentinels reports another primary than `old`, and that server confirms it.
    pub fn wait_for_another_primary(&self, old: u16, deadline: Duration) -> Result<&Server> {
        let what = format!("another server than port {old} is the primary");
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
                    Ok(role) => Ok(Check::Pending(format!("its role is {role}"))),
                    Err(error) => Ok(Check::Pending(error.to_string())),
                }
            },
        )
    }

    /// Writes a value, waits until all servers have it, and returns the primary. The sentinels may elect another one at any time, as
    /// they do on a machine that stalls, so each try looks up the primary.
    pub fn write_everywhere(&self, key: &str, value: &str, deadline: Duration) -> Result<&Server> {
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

    /// Waits until every sentinel sees all the others, and all running servers follow the primary.
    pub fn wait_until_connected(&self) -> Result<()> {
        wait_for(
            "all sentinels and servers are connected",
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
                self.check_roles()
            },
        )
    }

    /// Whether the primary and its replicas report their roles. The sentinels read them only every ten seconds, so their view may
    /// be old.
    fn check_roles(&self) -> Result<Check<()>> {
        let primary = self.primary()?.port().to_string();
        for server in self.servers.iter().filter(|server| server.pid().is_some()) {
            // A sentinel closes all connections of a server that it makes a replica.
            let info = match server.ask_text(&["INFO", "replication"]) {
                Ok(info) => info,
                Err(error) => return Ok(Check::Pending(error.to_string())),
            };
            let field = |name| field_of(&info, name).unwrap_or_default();
            let well = match server.port().to_string() == primary {
                true => field("role") == "master",
                false => field("master_port") == primary && field("master_link_status") == "up",
            };
            if !well {
                let port = server.port();
                return Ok(Check::Pending(format!("the server at port {port}: {info}")));
            }
        }
        Ok(Check::Ready(()))
    }

    fn missing_in_the_view_of(&self, sentinel: &Server) -> Result<Option<String>> {
        let running = self.servers.iter().filter(|server| server.pid().is_some());
        for (what, expected) in [
            ("SENTINELS", self.sentinels.len()),
            ("REPLICAS", running.count()),
        ] {
            let peers = flags(sentinel.ask(&["SENTINEL", what, SERVICE])?);
            // Itself, or the primary, is not among them.
            if peers.iter().filter(|flags| is_connected(flags)).count() + 1 != expected {
                return Ok(Some(format!("{what}: {peers:?}")));
            }
        }
        Ok(None)
    }

    /// The ends of the logs of all of them.
    pub fn logs(&self) -> String {
        super::logs(self.sentinels.iter().chain(&self.servers))
    }
}

/// Whether a sentinel is connected to a peer with these flags. Other flags (`master_down`) may be old.
fn is_connected(flags: &str) -> bool {
    let mut flags = flags.split(',');
    !flags.any(|flag| matches!(flag, "s_down" | "o_down" | "disconnected"))
}

/// The field `flags` of each peer, such as `slave,s_down,disconnected`, in a list of lists of names and values.
fn flags(answer: Value) -> Vec<String> {
    let peers: Vec<HashMap<String, String>> = redis::from_redis_value(answer).unwrap_or_default();
    let flags = |mut peer: HashMap<String, String>| peer.remove("flags").unwrap_or_default();
    peers.into_iter().map(flags).collect()
}

/// The port of the primary that one sentinel reports; `None` if it does not reply.
fn named_primary(sentinel: &Server) -> Option<u16> {
    let answer = sentinel
        .ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE])
        .ok()?;
    let (_, port): (String, String) = redis::from_redis_value(answer).ok()?;
    port.parse().ok()
}

/// Waits until the first server has all the others as replicas in sync.
fn wait_for_replicas(servers: &[Server]) -> Result<()> {
    let Some((primary, replicas)) = servers.split_first() else {
        return Ok(());
    };
    wait_for(
        "all replicas are in sync",
        DEADLINE,
        || super::logs(servers),
        || {
            let seen = primary.ask_text(&["INFO", "replication"])?;
            let online = seen.matches("state=online").count();
            Ok(match online == replicas.len() {
                true => Check::Ready(()),
                false => Check::Pending(seen),
            })
        },
    )
}
