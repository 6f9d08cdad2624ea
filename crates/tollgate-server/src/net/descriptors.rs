//! File descriptors: raises the soft limit to the hard one, and derives the bounds of all ports from it.
//!
//! | use | descriptors |
//! |---|---|
//! | store, state file, policy file, log, listeners | [`RESERVED`] |
//! | event loop of each thread | [`PER_LOOP`] |
//! | admin port | [`ADMIN_CONNECTIONS`], or an eighth of the limit |
//! | ports of the service | the rest in equal shares, at most what each asks for |
//! | gateway | the rest in two halves: for clients and for upstreams |
//!
//! Without this, silent connections within the default bounds could take every descriptor, and the admin port, the store
//! and the policy file would fail.

/// For files, the links of a store and listeners.
const RESERVED: usize = 64;
/// For the poller, the waker and the listener of each event loop.
const PER_LOOP: usize = 8;
/// Connections of the admin port, if descriptors allow.
const ADMIN_CONNECTIONS: usize = 256;

/// How many connections each port may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorBudget {
    /// Connections of the admin port.
    pub(crate) admin: usize,
    /// For all other connections.
    available: usize,
}

impl DescriptorBudget {
    /// Raises the limit of this process and shares it out among `loops` event loops. Logs what was found.
    pub(crate) fn claim(loops: usize) -> DescriptorBudget {
        let (limit, before) = raise_limit();
        let budget = DescriptorBudget::new(limit, loops);
        tracing::info!(
            limit,
            before,
            connections = budget.available,
            admin_connections = budget.admin,
            "limit of file descriptors (RLIMIT_NOFILE)"
        );
        budget
    }

    fn new(limit: usize, loops: usize) -> DescriptorBudget {
        let admin = ADMIN_CONNECTIONS.min(limit / 8).max(1);
        let reserved = RESERVED
            .saturating_add(loops.saturating_mul(PER_LOOP))
            .saturating_add(admin);
        DescriptorBudget {
            admin,
            available: limit.saturating_sub(reserved),
        }
    }

    /// Connections of one of `ports` that would have `wanted`. A lowered bound is logged.
    pub(crate) fn connections(&self, port: &str, ports: usize, wanted: usize) -> usize {
        let share = (self.available / ports.max(1)).max(1);
        if share < wanted {
            tracing::warn!(
                port,
                connections = share,
                wanted,
                "fewer connections than configured: the limit of file descriptors is too low; \
                 raise it with `ulimit -n` or `LimitNOFILE=`"
            );
        }
        share.min(wanted)
    }
}

/// What `doctor` reports of the limit of file descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DescriptorReport {
    /// The hard limit; a server raises its soft limit to it.
    pub limit: usize,
    /// Connections of all ports together, besides those of the admin port.
    pub connections: usize,
}

/// The limit of file descriptors that a server would have in this environment, and what it would come to.
pub fn descriptor_report() -> DescriptorReport {
    let limit = hard_limit();
    let loops = std::thread::available_parallelism().map_or(1, usize::from);
    DescriptorReport {
        limit,
        connections: DescriptorBudget::new(limit, loops).available,
    }
}

#[cfg(unix)]
fn hard_limit() -> usize {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile).maximum;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

#[cfg(not(unix))]
fn hard_limit() -> usize {
    usize::MAX
}

/// Raises the soft limit to the hard one. Returns the limit now and before.
#[cfg(unix)]
fn raise_limit() -> (usize, usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let count = |limit: Option<u64>| {
        limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        })
    };
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: found.maximum,
        maximum: found.maximum,
    };
    if count(found.current) < count(found.maximum)
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "cannot raise the limit of file descriptors");
    }
    let now = getrlimit(Resource::Nofile);
    (count(now.current), count(found.current))
}

#[cfg(not(unix))]
fn raise_limit() -> (usize, usize) {
    (usize::MAX, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_leave_descriptors_for_the_admin_port_and_files() {
        for limit in [256, 1024, 4096] {
            let budget = DescriptorBudget::new(limit, 4);
            let ports = 3 * budget.connections("test", 3, 10_000);
            let rest = limit.saturating_sub(ports + budget.admin);
            assert!(rest >= RESERVED + 4 * PER_LOOP, "{limit}: {rest}");
            assert!(budget.admin >= limit.min(2048) / 8, "{limit}");
        }
    }

    #[test]
    fn a_high_limit_changes_no_bound() {
        let budget = DescriptorBudget::new(1 << 20, 8);
        assert_eq!(budget.admin, ADMIN_CONNECTIONS);
        assert_eq!(budget.connections("test", 3, 10_000), 10_000);
        let none = DescriptorBudget::new(0, 8);
        assert_eq!(none.connections("test", 3, 10_000), 1);
    }
}
