//! The policy files of the trials.

use std::fmt::Write as _;
use std::time::Duration;

use crate::crowd::Guest;
use tollgate_policy::Sharing;
use tollgate_testkit::servers::{Cluster, HOST, Sentinels};

/// What the usual key may: `5/s`, and `10` at once.
pub const USUAL: Quota = Quota {
    allow: "5/s",
    burst: 10,
};
/// The usual time that a decision may take.
pub const DEADLINE: Duration = Duration::from_millis(8);
/// A time that only a store that is away, or a bug, exceeds: for trials that count and do not measure.
pub const PATIENT: Duration = Duration::from_millis(900);
/// What a request of a marked guest costs: more than there are marked guests.
pub const MARK: u64 = 256;
/// How many requests of a marked guest pass.
const MARKED_REQUESTS: u64 = 2_000;

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The rate as it is written.
    pub allow: &'static str,
    /// Units at once.
    pub burst: u64,
}

/// A bucket in which nothing is earned while a trial runs: what passes is exactly its burst.
pub fn once(burst: u64) -> Quota {
    Quota {
        allow: "1/h",
        burst,
    }
}

/// One limit by organisation on a store.
#[derive(Clone, Debug)]
pub struct Policy {
    store: String,
    deadline: Duration,
    quota: Quota,
    sharing: Sharing,
    overrides: Vec<(String, Quota)>,
}

impl Policy {
    /// The usual limit on the store at this address.
    pub fn on(store: impl Into<String>) -> Policy {
        Policy {
            store: store.into(),
            deadline: DEADLINE,
            quota: USUAL,
            sharing: Sharing::Exact,
            overrides: Vec::new(),
        }
    }

    /// A decision may take so long.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Policy {
        self.deadline = deadline;
        self
    }

    /// Everybody may so much.
    #[must_use]
    pub fn quota(mut self, quota: Quota) -> Policy {
        self.quota = quota;
        self
    }

    /// Nodes share it in this way.
    #[must_use]
    pub fn sharing(mut self, sharing: Sharing) -> Policy {
        self.sharing = sharing;
        self
    }

    /// Somebody may something else.
    #[must_use]
    pub fn except(mut self, guest: &Guest, quota: Quota) -> Policy {
        self.overrides.push((guest.key.clone(), quota));
        self
    }

    /// Each of these guests has a mark that every answer to it bears: see [`marked`].
    #[must_use]
    pub fn mark(self, guests: &[Guest]) -> Policy {
        let mark = |policy: Policy, (number, guest)| policy.except(guest, once(capacity(number)));
        (0..).zip(guests).fold(self, mark)
    }

    /// The file.
    pub fn text(&self) -> String {
        let Quota { allow, burst } = self.quota;
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
        for (key, Quota { allow, burst }) in &self.overrides {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "      - {{ key: {key}, allow: {allow}, burst: {burst} }}"
            );
        }
        text
    }
}

/// What a marked guest may, in units.
pub fn capacity(number: u64) -> u64 {
    MARK * MARKED_REQUESTS + number
}

/// Guests that answers can be told apart by.
///
/// Each request takes [`MARK`] units of a bucket that holds a multiple of it and the number of the guest. So what is
/// left always tells whose bucket it is, and an answer that was meant for somebody else shows.
pub fn marked(count: u64) -> Vec<Guest> {
    let guest = |number| Guest {
        key: format!("m{number}"),
        cost: MARK,
    };
    (0..count.min(MARK)).map(guest).collect()
}

/// Whether `remaining` can have been told to the marked guest of this number.
pub fn bears_the_mark(number: u64, remaining: u64) -> bool {
    remaining <= capacity(number) && (remaining % MARK == number || remaining == 0)
}

/// Guests whose requests cost 1.
pub fn plain(count: u64) -> Vec<Guest> {
    let guest = |number| Guest {
        key: format!("k{number}"),
        cost: 1,
    };
    (0..count).map(guest).collect()
}

/// The address of one server.
pub fn one_server(port: u16) -> String {
    format!("redis://{HOST}:{port}")
}

/// The address of a primary that sentinels know.
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
        let policy = Policy::on(one_server(6379))
            .deadline(PATIENT)
            .mark(&marked(100));
        let loaded = tollgate_config::parse("trial.yaml", policy.text().as_bytes());
        assert_eq!(loaded.unwrap().policy.limits.len(), 1);
    }

    #[test]
    fn an_answer_for_another_marked_guest_shows() {
        let left = capacity(7) - 3 * MARK;
        assert!(bears_the_mark(7, left));
        assert!(
            (0..MARK)
                .filter(|&other| bears_the_mark(other, left))
                .eq([7])
        );
        assert!(!bears_the_mark(7, capacity(7) + MARK));
    }
}
