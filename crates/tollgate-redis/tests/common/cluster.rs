//! A cluster of real servers.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_redis::{Settings, Topology};

use super::{DEADLINE, Server, cli, free_port};

pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    ids: Vec<String>,
}

impl Cluster {
    /// Primaries that share the slots evenly, and one more that serves none.
    pub(crate) async fn start(primaries: usize, spare: usize) -> Cluster {
        let servers: Vec<Server> = (0..primaries + spare)
            .map(|_| {
                let bus = free_port().to_string();
                Server::start(&[
                    "--cluster-enabled",
                    "yes",
                    "--cluster-port",
                    &bus,
                    "--repl-diskless-sync-delay",
                    "0",
                    "--cluster-node-timeout",
                    "1000",
                ])
            })
            .collect();
        for (place, server) in servers.iter().enumerate() {
            assert_eq!(
                server.cli(&["cluster", "set-config-epoch", &(place + 1).to_string()]),
                "OK"
            );
            if place < primaries {
                let (first, last) = (
                    place * 16384 / primaries,
                    (place + 1) * 16384 / primaries - 1,
                );
                let (first, last) = (first.to_string(), last.to_string());
                assert_eq!(
                    server.cli(&["cluster", "addslotsrange", &first, &last]),
                    "OK"
                );
            }
        }
        for server in &servers[1..] {
            let (port, bus) = (server.port.to_string(), server.bus());
            assert_eq!(
                servers[0].cli(&["cluster", "meet", "127.0.0.1", &port, &bus]),
                "OK"
            );
        }
        let known = format!("cluster_known_nodes:{}", servers.len());
        for server in &servers {
            let mut waits = 0;
            loop {
                let info = server.cli(&["cluster", "info"]);
                if info.contains("cluster_state:ok") && info.contains(&known) {
                    break;
                }
                waits += 1;
                assert!(waits < 500, "the cluster does not form: {info}");
                sleep(Duration::from_millis(20)).await;
            }
        }
        let ids = servers
            .iter()
            .map(|server| server.cli(&["cluster", "myid"]))
            .collect();
        Cluster { servers, ids }
    }

    pub(crate) fn settings(&self) -> Settings {
        let servers = self.servers[..1]
            .iter()
            .map(|server| ("127.0.0.1".to_owned(), server.port))
            .collect();
        let mut settings = Settings::new(Topology::Cluster { servers });
        settings.deadline = DEADLINE;
        settings
    }

    pub(crate) fn owner(&self, slot: u16) -> usize {
        let slots = self.servers[0].cli(&["cluster", "nodes"]);
        let id = slots
            .lines()
            .find(|line| {
                line.split(' ').skip(8).any(|range| {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
                })
            })
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .unwrap();
        self.ids.iter().position(|other| *other == id).unwrap()
    }

    /// From now on the slot is on its way.
    pub(crate) fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let (from_id, to_id) = (&self.ids[from], &self.ids[to]);
        assert_eq!(
            self.servers[to].cli(&["cluster", "setslot", &slot, "importing", from_id]),
            "OK"
        );
        assert_eq!(
            self.servers[from].cli(&["cluster", "setslot", &slot, "migrating", to_id]),
            "OK"
        );
    }

    pub(crate) fn move_key(&self, key: &str, from: usize, to: usize) {
        let port = self.servers[to].port.to_string();
        let moved = self.servers[from].cli(&["migrate", "127.0.0.1", &port, key, "0", "1000"]);
        // It may have expired, or be there already.
        assert!(["OK", "NOKEY"].contains(&moved.as_str()), "{key}: {moved}");
    }

    pub(crate) fn keys_in(&self, slot: u16, at: usize) -> Vec<String> {
        let keys = self.servers[at].cli(&["cluster", "getkeysinslot", &slot.to_string(), "1000"]);
        keys.lines()
            .filter(|key| !key.is_empty())
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn end_move(&self, slot: u16, to: usize) {
        let slot = slot.to_string();
        for server in std::iter::once(&self.servers[to]).chain(&self.servers) {
            server.cli(&["cluster", "setslot", &slot, "node", &self.ids[to]]);
        }
    }

    /// Makes one that serves nothing the replica of another, and waits until it follows.
    pub(crate) async fn replicate(&self, replica: usize, primary: usize) {
        let server = &self.servers[replica];
        assert_eq!(
            server.cli(&["cluster", "replicate", &self.ids[primary]]),
            "OK"
        );
        let mut waits = 0;
        while !server
            .cli(&["info", "replication"])
            .contains("master_link_status:up")
        {
            waits += 1;
            assert!(waits < 500, "the replica does not follow");
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn slot_of(&self, key: &str) -> u16 {
        cli(self.servers[0].port, &["cluster", "keyslot", key])
            .parse()
            .unwrap()
    }
}

impl Server {
    fn bus(&self) -> String {
        let place = self
            .args
            .iter()
            .position(|arg| arg == "--cluster-port")
            .unwrap();
        self.args[place + 1].clone()
    }
}
