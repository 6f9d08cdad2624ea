//! A cluster: primaries that share the slots, and perhaps a replica for each.
//!
//! It is formed by commands rather than by `redis-cli --cluster`, which waits for seconds where a poll takes milliseconds.

use std::time::Duration;

use redis::Value;

use super::migration::Migration;
use super::server::{Plan, field_of};
use super::{Kind, Server};
use crate::HOST;
use crate::error::{Error, Result};
use crate::wait::{Check, wait_for};

/// The slots of a cluster.
const SLOTS: usize = 16_384;
/// Silence after which the others consider a node failed.
const NODE_TIMEOUT_MS: &str = "1000";
/// Timeout until the nodes agree.
const DEADLINE: Duration = Duration::from_secs(30);

/// A cluster that runs until this is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// The primaries at first, then the replicas: those of the first primary, of the second, and so on.
    nodes: Vec<Server>,
    /// The id of each node in the cluster.
    ids: Vec<String>,
    primaries: usize,
}

impl Cluster {
    /// Starts `primaries` primaries that share the slots evenly, each with `replicas_each` replicas, and waits until
    /// all nodes report a complete cluster.
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
        cluster.wait_until_ok()?;
        Ok(cluster)
    }

    /// Starts `primaries` primaries that share the slots evenly, and `spares` nodes that serve no slot yet.
    pub fn start_with_spares(kind: Kind, primaries: usize, spares: usize) -> Result<Cluster> {
        let cluster = Cluster::form(&Cluster::plan(kind), primaries, spares)?;
        cluster.wait_until_ok()?;
        Ok(cluster)
    }

    fn plan(kind: Kind) -> Plan {
        Plan::new(kind)
            .cluster_node()
            .option("cluster-node-timeout", NODE_TIMEOUT_MS)
            // A replica takes over however old its data is.
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
        cluster.assign_slots()?;
        cluster.meet_all()?;
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

    /// The id of the node of this number.
    pub fn id(&self, number: usize) -> Result<&str> {
        let id = self.ids.get(number).map(String::as_str);
        id.ok_or_else(|| self.no_such(number))
    }

    /// Addresses of the nodes.
    pub fn addresses(&self) -> Vec<(String, u16)> {
        let address = |node: &Server| (HOST.into(), node.port());
        self.nodes.iter().map(address).collect()
    }

    /// The number of the node that owns `slot`, in the view of the node `viewer`.
    pub fn owner(&self, slot: u16, viewer: usize) -> Result<usize> {
        let slots = self.node(viewer)?.ask(&["CLUSTER", "SLOTS"])?;
        let port = port_of(&slots, slot);
        let has_port = |node: &Server| port == Some(i64::from(node.port()));
        let owner = self.nodes.iter().position(has_port);
        owner.ok_or_else(|| Error::Unexpected {
            command: format!("the owner of slot {slot}"),
            answer: format!("{slots:?}"),
        })
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

    /// Waits until a running node reports another owner of `slot` than `old`, and returns it.
    pub fn wait_for_another_owner(
        &self,
        slot: u16,
        old: usize,
        deadline: Duration,
    ) -> Result<usize> {
        let what = format!("another node than {old} owns slot {slot}");
        wait_for(
            &what,
            deadline,
            || self.logs(),
            || {
                let living = self.nodes.iter().position(|node| node.pid().is_some());
                let viewer = living.ok_or_else(|| Error::Invalid("no node runs".into()))?;
                match self.owner(slot, viewer) {
                    Ok(owner) if owner != old => Ok(Check::Ready(owner)),
                    Ok(_) => Ok(Check::Pending("the old one".into())),
                    Err(error) => Ok(Check::Pending(error.to_string())),
                }
            },
        )
    }

    /// Waits until every running node reports that all slots are served.
    pub fn wait_until_ok(&self) -> Result<()> {
        self.wait("the cluster is complete", || {
            for node in self.running() {
                if let Some(problem) = self.problem_of(node)? {
                    return Ok(Check::Pending(format!(
                        "node at port {}: {problem}",
                        node.port()
                    )));
                }
            }
            Ok(Check::Ready(()))
        })
    }

    /// The ends of the logs of all nodes.
    pub fn logs(&self) -> String {
        super::logs(&self.nodes)
    }

    fn wait<T>(&self, what: &str, check: impl FnMut() -> Result<Check<T>>) -> Result<T> {
        wait_for(what, DEADLINE, || self.logs(), check)
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.pid().is_some())
    }

    /// The running primaries in the view of `viewer`, as numbers.
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

    /// A disagreement about epochs among the running nodes, if there is one.
    ///
    /// A node that takes a slot takes a new epoch above all that it knows. If it does not know the last one, two nodes have the
    /// same epoch, and an old claim of one of them may still win afterwards.
    pub(super) fn disagreement(&self) -> Result<Option<String>> {
        let mut first: Option<Vec<(String, String)>> = None;
        for node in self.running() {
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
                return Ok(Some(format!("port {} has {epochs:?}", node.port())));
            }
        }
        Ok(None)
    }

    fn no_such(&self, number: usize) -> Error {
        let (all, primaries) = (self.nodes.len(), self.primaries);
        Error::Invalid(format!(
            "no node {number}: there are {all}, of which the first {primaries} started as primaries"
        ))
    }

    fn assign_slots(&self) -> Result<()> {
        for (number, node) in self.nodes.iter().enumerate() {
            // Epochs that differ from the start need no election.
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

    /// Makes every node meet every other: gossip alone would take longer.
    fn meet_all(&self) -> Result<()> {
        for (number, node) in self.nodes.iter().enumerate() {
            for other in self.nodes.iter().skip(number + 1) {
                let port = other.port().to_string();
                let bus = other.ask(&["CONFIG", "GET", "cluster-port"])?;
                let (_, bus): (String, String) =
                    redis::from_redis_value(bus).map_err(|error| Error::Unexpected {
                        command: "the port of the cluster bus".into(),
                        answer: error.to_string(),
                    })?;
                node.ask(&["CLUSTER", "MEET", HOST, &port, &bus])?;
            }
        }
        self.wait("all nodes have met", || {
            for node in &self.nodes {
                let view = node.ask_text(&["CLUSTER", "NODES"])?;
                let known = self.ids.iter().all(|id| view.contains(id.as_str()));
                if !known || view.contains("handshake") {
                    return Ok(Check::Pending(view));
                }
            }
            Ok(Check::Ready(()))
        })
    }

    /// Makes a node that serves no slot the replica of another.
    pub fn replicate(&self, replica: usize, primary: usize) -> Result<()> {
        let primary = self.id(primary)?;
        let command = ["CLUSTER", "REPLICATE", primary];
        self.node(replica)?.ask(&command).map(drop)
    }

    /// Waits until all nodes but the first primaries are replicas in sync.
    fn wait_for_replicas(&self) -> Result<()> {
        let replicas = || self.nodes.iter().skip(self.primaries);
        self.wait("all replicas are in sync", || {
            for replica in replicas() {
                let link = replica.info("replication", "master_link_status")?;
                if link != "up" {
                    return Ok(Check::Pending(format!("port {}: {link}", replica.port())));
                }
            }
            // And every node knows all replicas.
            for node in &self.nodes {
                let view = node.ask_text(&["CLUSTER", "NODES"])?;
                if view.matches("slave").count() != replicas().count() {
                    return Ok(Check::Pending(view));
                }
            }
            Ok(Check::Ready(()))
        })
    }

    fn problem_of(&self, node: &Server) -> Result<Option<String>> {
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

/// The port of the primary of a slot, by the reply to `CLUSTER SLOTS`: `[first, last, [host, port, …], …]` for each range.
fn port_of(slots: &Value, slot: u16) -> Option<i64> {
    let array = |value: &Value| match value {
        Value::Array(items) => Some(items.clone()),
        _ => None,
    };
    let number = |value: Option<&Value>| match value {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    };
    array(slots)?.iter().find_map(|range| {
        let range = array(range)?;
        let slots = number(range.first())?..=number(range.get(1))?;
        let primary = array(range.get(2)?)?;
        slots
            .contains(&i64::from(slot))
            .then(|| number(primary.get(1)))?
    })
}
