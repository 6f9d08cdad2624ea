//! The policy files of the trials.

use std::fmt::Write as _;
use std::time::Duration;

use crate::load::Client;
use tollgate_policy::Sharing;
use tollgate_testkit::servers::{Cluster, HOST, Sentinels};

/// The usual limit of a key: `5/s`, and `10` at once.
pub const USUAL: TrialQuota = TrialQuota {
    allow: "5/s",
    burst: 10,
};
/// The usual deadline of a decision.
pub const DEADLINE: Duration = Duration::from_millis(8);
/// A deadline that only a store that is down, or a bug, exceeds: for trials that count and do not measure.
pub const LONG_DEADLINE: Duration = Duration::from_millis(900);
/// The cost of a request of a tagged client: more than there are tagged clients.
pub const TAG: u64 = 256;
/// How many requests of a tagged client pass.
const TAGGED_REQUESTS: u64 = 2_000;

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialQuota {
    /// The rate as it is written.
    pub allow: &'static str,
    /// Units at once.
    pub burst: u64,
}

/// A bucket that earns nothing while a trial runs: exactly its burst passes.
pub fn once(burst: u64) -> TrialQuota {
    TrialQuota {
        allow: "1/h",
        burst,
    }
}

/// One limit by organisation on a store.
#[derive(Clone, Debug)]
pub struct TrialPolicy {
    store: String,
    deadline: Duration,
    quota: TrialQuota,
    sharing: Sharing,
    overrides: Vec<(String, TrialQuota)>,
}

impl TrialPolicy {
    /// The usual limit on the store at this address.
    pub fn on(store: impl Into<String>) -> TrialPolicy {
        TrialPolicy {
            store: store.into(),
            deadline: DEADLINE,
            quota: USUAL,
            sharing: Sharing::Exact,
            overrides: Vec::new(),
        }
    }

    /// Sets the deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> TrialPolicy {
        self.deadline = deadline;
        self
    }

    /// Sets the limit of all keys.
    #[must_use]
    pub fn quota(mut self, quota: TrialQuota) -> TrialPolicy {
        self.quota = quota;
        self
    }

    /// Sets the sharing mode.
    #[must_use]
    pub fn sharing(mut self, sharing: Sharing) -> TrialPolicy {
        self.sharing = sharing;
        self
    }

    /// Sets another limit for a client.
    #[must_use]
    pub fn except(mut self, client: &Client, quota: TrialQuota) -> TrialPolicy {
        self.overrides.push((client.key.clone(), quota));
        self
    }

    /// Tags each of these clients: see [`tagged`].
    #[must_use]
    pub fn tag(self, clients: &[Client]) -> TrialPolicy {
        let tag =
            |policy: TrialPolicy, (number, client)| policy.except(client, once(capacity(number)));
        (0..).zip(clients).fold(self, tag)
    }

    /// The file.
    pub fn text(&self) -> String {
        let TrialQuota { allow, burst } = self.quota;
        let mut text = format!(
            "default: pass\nstore: {{ url: '{}', deadline: {}ms }}\non_store_error: local\nlimits:\n  \
             - name: org\n    key: header.x-org\n    allow: {allow}\n    burst: {burst}\n    sharing: {}\n",
            self.store,
            self.deadline.as_millis(),
            self.sharing.name(),
        );
        if !self.overrides.is_empty() {
            text.push_str("    overrides:\n");
        }
        for (key, TrialQuota { allow, burst }) in &self.overrides {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "      - {{ key: {key}, allow: {allow}, burst: {burst} }}"
            );
        }
        text
    }
}

/// The limit of a tagged client, in units.
pub fn capacity(number: u64) -> u64 {
    TAG * TAGGED_REQUESTS + number
}

/// Clients with distinguishable responses.
///
/// Each request takes [`TAG`] units of a bucket that holds a multiple of it and the number of the client. So what is
/// left always identifies the bucket, and an answer to another request shows.
pub fn tagged(count: u64) -> Vec<Client> {
    let client = |number| Client {
        key: format!("m{number}"),
        cost: TAG,
    };
    (0..count.min(TAG)).map(client).collect()
}

/// Whether `remaining` can be an answer to the tagged client of this number.
pub fn is_tagged_for(number: u64, remaining: u64) -> bool {
    remaining <= capacity(number) && (remaining % TAG == number || remaining == 0)
}

/// Clients whose requests cost 1.
pub fn plain(count: u64) -> Vec<Client> {
    let client = |number| Client {
        key: format!("k{number}"),
        cost: 1,
    };
    (0..count).map(client).collect()
}

/// The address of one server.
pub fn one_server(port: u16) -> String {
    format!("redis://{HOST}:{port}")
}

/// The address of a primary under sentinels.
pub fn behind_sentinels(world: &Sentinels) -> String {
    let hosts = hosts(&world.sentinel_addresses());
    format!("redis+sentinel://{hosts}/{}", world.service())
}

/// The address of a cluster.
pub fn in_cluster(cluster: &Cluster) -> String {
    format!("redis+cluster://{}", hosts(&cluster.addresses()))
}

fn hosts(addresses: &[(String, u16)]) -> String {
    let hosts: Vec<String> = addresses
        .iter()
        .map(|(host, port)| format!("{host}:{port}"))
        .collect();
    hosts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_can_be_used() {
        let policy = TrialPolicy::on(one_server(6379))
            .deadline(LONG_DEADLINE)
            .tag(&tagged(100));
        let loaded = tollgate_config::parse("trial.yaml", policy.text().as_bytes());
        assert_eq!(loaded.unwrap().policy.limits.len(), 1);
    }

    #[test]
    fn a_response_for_another_tagged_client_is_detected() {
        let left = capacity(7) - 3 * TAG;
        assert!(is_tagged_for(7, left));
        assert!((0..TAG).filter(|&other| is_tagged_for(other, left)).eq([7]));
        assert!(!is_tagged_for(7, capacity(7) + TAG));
    }
}
