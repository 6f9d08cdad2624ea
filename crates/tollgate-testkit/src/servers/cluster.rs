//! A cluster: primaries that share the slots, and perhaps a replica for each.
//!
//! It is put together by hand rather than by the command line tool: that waits for seconds where a look every
//! few milliseconds tells more.

use std::time::Duration;

use super::migration::Migration;
use super::server::{Plan, field_of};
use super::{Kind, Server};
use crate::HOST;
use crate::error::{Error, Result};
use crate::wait::{Check, wait_for};

/// The slots of a cluster.
const SLOTS: usize = 16_384;
/// How long a node may be silent until the others think it failed.
const NODE_TIMEOUT_MS: &str = "1000";
/// How long the nodes may take to agree.
const DEADLINE: Duration = Duration::from_secs(30);

/// A cluster that runs until this is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// The primaries at first, then the replicas: those of the first primary, of the second, and so on.
    nodes: Vec<Server>,
    /// What the cluster calls each node.
    ids: Vec<String>,
    primaries: usize,
}

impl Cluster {
    /// Starts `primaries` primaries that share the slots evenly, each with `replicas_each` replicas, and waits until
    /// all nodes agree that all is well.
    pub fn start(kind: Kind, primaries: usize, replicas_each: usize) -> Result<Cluster> {
        Cluster::start_with(kind, primaries, replicas_each, &[])
    }

    /// The same with more lines in the configuration of every node.
    pub fn start_with(
        kind: Kind,
        primaries: usize,
        replicas_each: usize,
        options: &[(&str, &str)],
    ) -> Result<Cluster> {
        let plan = Cluster::plan(kind).options(options);
        let cluster = Cluster::form(&plan, primaries, primaries * replicas_each)?;
        for number in primaries..cluster.nodes.len() {
            cluster.replicate(number, (number - primaries) / replicas_each.max(1))?;
        }
        cluster.wait_for_replicas()?;
        cluster.wait_until_well()?;
        Ok(cluster)
    }

    /// Starts `primaries` primaries that share the slots evenly, and `spares` nodes that serve no slot yet.
    pub fn start_with_spares(kind: Kind, primaries: usize, spares: usize) -> Result<Cluster> {
        let cluster = Cluster::form(&Cluster::plan(kind), primaries, spares)?;
        cluster.wait_until_well()?;
        Ok(cluster)
    }

    fn plan(kind: Kind) -> Plan {
        Plan::new(kind)
            .cluster_node()
            .option("cluster-node-timeout", NODE_TIMEOUT_MS)
            // A replica takes over however old its data is: a test waits for it.
            .option("cluster-replica-validity-factor", "0")
    }

    fn form(plan: &Plan, primaries: usize, others: usize) -> Result<Cluster> {
        if primaries == 0 {
            return Err(Error::Invalid("a cluster needs a primary".into()));
        }
        let mut nodes = Vec::new();
        for _ in 0..primaries + others {
            nodes.push(plan.start()?);
        }
        let ids = nodes.iter().map(|node| node.ask_text(&["CLUSTER", "MYID"]));
        let ids = ids.collect::<Result<Vec<String>>>()?;
        let cluster = Cluster {
            nodes,
            ids,
            primaries,
        };
        cluster.share_slots()?;
        cluster.introduce()?;
        Ok(cluster)
    }

    /// All nodes: the primaries at first, then the replicas, those of the first primary before those of the second.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The node of this number.
    pub fn node(&self, number: usize) -> Result<&Server> {
        self.nodes.get(number).ok_or_else(|| self.no_such(number))
    }

    /// What the cluster calls the node of this number.
    pub fn id(&self, number: usize) -> Result<&str> {
        let id = self.ids.get(number).map(String::as_str);
        id.ok_or_else(|| self.no_such(number))
    }

    /// Where the nodes are.
    pub fn addresses(&self) -> Vec<(String, u16)> {
        let address = |node: &Server| (HOST.into(), node.port());
        self.nodes.iter().map(address).collect()
    }

    /// The number of the node that has `slot`, by what the node `viewer` thinks.
    pub fn owner(&self, slot: u16, viewer: usize) -> Result<usize> {
        let slots = self.node(viewer)?.ask(&["CLUSTER", "SLOTS"])?;
        let odd = |answer: String| Error::Unexpected {
            asked: format!("who has slot {slot}"),
            answer,
        };
        let told = format!("{slots:?}");
        let redis::Value::Array(rows) = slots else {
            return Err(odd(told));
        };
        for row in rows {
            let redis::Value::Array(row) = row else {
                return Err(odd(told));
            };
            let [first, last, primary, ..] = row.as_slice() else {
                return Err(odd(told));
            };
            let (redis::Value::Int(first), redis::Value::Int(last)) = (first, last) else {
                return Err(odd(told));
            };
            if !(*first..=*last).contains(&i64::from(slot)) {
                continue;
            }
            let redis::Value::Array(primary) = primary else {
                return Err(odd(told));
            };
            let Some(redis::Value::Int(port)) = primary.get(1) else {
                return Err(odd(told));
            };
            let here = |node: &Server| i64::from(node.port()) == *port;
            return self.nodes.iter().position(here).ok_or_else(|| odd(told));
        }
        Err(odd("nobody".into()))
    }

    /// Moves a slot from one primary to another while both serve.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) -> Result<()> {
        self.migration(slot, from, to)?.run()
    }

    /// The same in steps, so that a test can look in the middle.
    pub fn migration(&self, slot: u16, from: usize, to: usize) -> Result<Migration<'_>> {
        Migration::new(self, slot, from, to)
    }

    /// Kills the primary of this number.
    pub fn kill_primary(&self, number: usize) -> Result<()> {
        if number >= self.primaries {
            return Err(self.no_such(number));
        }
        self.node(number)?.kill();
        Ok(())
    }

    /// Waits until a node that lives thinks that another than `old` has `slot`, and says who.
    pub fn wait_for_another_owner(
        &self,
        slot: u16,
        old: usize,
        deadline: Duration,
    ) -> Result<usize> {
        let what = format!("somebody else than node {old} has slot {slot}");
        wait_for(
            &what,
            deadline,
            || self.logs(),
            || {
                let living = self.nodes.iter().position(|node| node.pid().is_some());
                let viewer = living.ok_or_else(|| Error::Invalid("no node lives".into()))?;
                match self.owner(slot, viewer) {
                    Ok(owner) if owner != old => Ok(Check::Ready(owner)),
                    Ok(_) => Ok(Check::Pending("the old one".into())),
                    Err(error) => Ok(Check::Pending(error.to_string())),
                }
            },
        )
    }

    /// Waits until every node that lives thinks that all slots are served.
    pub fn wait_until_well(&self) -> Result<()> {
        let living = || self.nodes.iter().filter(|node| node.pid().is_some());
        wait_for(
            "the cluster is well",
            DEADLINE,
            || self.logs(),
            || {
                for node in living() {
                    if let Some(wrong) = self.what_is_wrong(node)? {
                        return Ok(Check::Pending(format!(
                            "node at port {}: {wrong}",
                            node.port()
                        )));
                    }
                }
                Ok(Check::Ready(()))
            },
        )
    }

    /// The ends of the logs of all nodes.
    pub fn logs(&self) -> String {
        let log = |node: &Server| format!("-- port {}\n{}", node.port(), node.log());
        let logs: Vec<String> = self.nodes.iter().map(log).collect();
        logs.join("\n")
    }

    /// The primaries that live, by what `viewer` thinks, as numbers.
    pub(super) fn primaries_seen_by(&self, viewer: usize) -> Result<Vec<usize>> {
        let view = self.node(viewer)?.ask_text(&["CLUSTER", "NODES"])?;
        let mut found = Vec::new();
        for line in view.lines() {
            let mut words = line.split(' ');
            let (id, flags) = (words.next(), words.nth(1).unwrap_or_default());
            let well = flags.contains("master") && !flags.contains("fail");
            if well && let Some(number) = self.ids.iter().position(|i| Some(i.as_str()) == id) {
                found.push(number);
            }
        }
        Ok(found)
    }

    /// What is not agreed about epochs among the nodes that live; nothing if all is.
    ///
    /// Who takes a slot takes a new epoch above all that it has heard of. If it has not heard of the last one, two
    /// nodes have the same, and what one of them said before may still be believed afterwards.
    pub(super) fn disagreement(&self) -> Result<Option<String>> {
        let mut first: Option<Vec<(String, String)>> = None;
        for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
            let view = node.ask_text(&["CLUSTER", "NODES"])?;
            let mut epochs = Vec::new();
            for line in view.lines() {
                let words: Vec<&str> = line.split(' ').collect();
                if let [id, _, flags, _, _, _, epoch, ..] = words.as_slice()
                    && flags.contains("master")
                    && !flags.contains("fail")
                {
                    epochs.push(((*epoch).to_owned(), (*id).to_owned()));
                }
            }
            epochs.sort_unstable();
            let twice = epochs
                .windows(2)
                .any(|two| matches!(two, [(a, _), (b, _)] if a == b));
            if twice || first.get_or_insert_with(|| epochs.clone()) != &epochs {
                return Ok(Some(format!("port {} knows {epochs:?}", node.port())));
            }
        }
        Ok(None)
    }

    fn no_such(&self, number: usize) -> Error {
        let (all, primaries) = (self.nodes.len(), self.primaries);
        Error::Invalid(format!(
            "there is no such node {number}: there are {all}, of which the first {primaries} began as primaries"
        ))
    }

    fn share_slots(&self) -> Result<()> {
        for (number, node) in self.nodes.iter().enumerate() {
            // Epochs that differ from the beginning need not be argued about.
            let epoch = (number + 1).to_string();
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?;
        }
        for (number, node) in self.nodes.iter().enumerate().take(self.primaries) {
            let first = (number * SLOTS / self.primaries).to_string();
            let last = ((number + 1) * SLOTS / self.primaries - 1).to_string();
            node.ask(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        }
        Ok(())
    }

    /// Everybody meets everybody: gossip alone would take longer.
    fn introduce(&self) -> Result<()> {
        for (number, node) in self.nodes.iter().enumerate() {
            for other in self.nodes.iter().skip(number + 1) {
                let port = other.port().to_string();
                let bus = other.ask(&["CONFIG", "GET", "cluster-port"])?;
                let (_, bus): (String, String) =
                    redis::from_redis_value(bus).map_err(|error| Error::Unexpected {
                        asked: "the port of the cluster bus".into(),
                        answer: error.to_string(),
                    })?;
                node.ask(&["CLUSTER", "MEET", HOST, &port, &bus])?;
            }
        }
        wait_for(
            "all nodes know each other",
            DEADLINE,
            || self.logs(),
            || {
                for node in &self.nodes {
                    let view = node.ask_text(&["CLUSTER", "NODES"])?;
                    let known = self.ids.iter().all(|id| view.contains(id.as_str()));
                    if !known || view.contains("handshake") {
                        return Ok(Check::Pending(view));
                    }
                }
                Ok(Check::Ready(()))
            },
        )
    }

    /// Makes a node that serves no slot the replica of another.
    pub fn replicate(&self, replica: usize, primary: usize) -> Result<()> {
        let primary = self.id(primary)?;
        let command = ["CLUSTER", "REPLICATE", primary];
        self.node(replica)?.ask(&command).map(drop)
    }

    /// Waits until all nodes but the first primaries are replicas that follow.
    fn wait_for_replicas(&self) -> Result<()> {
        let replicas = || self.nodes.iter().skip(self.primaries);
        wait_for(
            "all replicas follow",
            DEADLINE,
            || self.logs(),
            || {
                for replica in replicas() {
                    let link = replica.info("replication", "master_link_status")?;
                    if link != "up" {
                        return Ok(Check::Pending(format!("port {}: {link}", replica.port())));
                    }
                }
                // And every primary has told everybody who follows it.
                for node in &self.nodes {
                    let view = node.ask_text(&["CLUSTER", "NODES"])?;
                    if view.matches("slave").count() != replicas().count() {
                        return Ok(Check::Pending(view));
                    }
                }
                Ok(Check::Ready(()))
            },
        )
    }

    fn what_is_wrong(&self, node: &Server) -> Result<Option<String>> {
        let info = match node.ask_text(&["CLUSTER", "INFO"]) {
            Ok(info) => info,
            Err(error) => return Ok(Some(error.to_string())),
        };
        let all = SLOTS.to_string();
        let well = field_of(&info, "cluster_state") == Some("ok")
            && field_of(&info, "cluster_slots_ok") == Some(all.as_str());
        Ok(if well { None } else { Some(info) })
    }
}
