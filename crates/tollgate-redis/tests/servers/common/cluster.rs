//! Settings and queries of tests on a cluster of real servers.

use tollgate_redis::{Settings, Topology};
use tollgate_testkit::servers::Cluster;

use super::DEADLINE;

pub(crate) fn settings(cluster: &Cluster) -> Settings {
    let servers = cluster.addresses().into_iter().take(1).collect();
    let mut settings = Settings::new(Topology::Cluster { servers });
    settings.deadline = DEADLINE;
    settings
}

pub(crate) fn slot_of(cluster: &Cluster, key: &str) -> u16 {
    let slot = cluster.nodes()[0].cli(&["cluster", "keyslot", key]);
    slot.parse().unwrap()
}

/// The node that serves the slot of this key.
pub(crate) fn owner_of(cluster: &Cluster, key: &str) -> usize {
    cluster.owner(slot_of(cluster, key), 0).unwrap()
}

pub(crate) fn keys_in(cluster: &Cluster, slot: u16, node: usize) -> Vec<String> {
    let command = ["cluster", "getkeysinslot", &slot.to_string(), "1000"];
    let keys = cluster.nodes()[node].cli(&command);
    let keys = keys.lines().filter(|key| !key.is_empty());
    keys.map(str::to_owned).collect()
}
