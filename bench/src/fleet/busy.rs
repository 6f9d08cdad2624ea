//! How much processor time nodes and the store took.
//!
//! All nodes share one core here, which says little of a fleet in which each has its own. From the time that
//! a decision takes of its node and of the store follows what such a fleet could do: each is asked until it
//! is busy all the time.

use std::fs;
use std::io;
use std::sync::Mutex;

use super::NODES;

/// The threads of nodes.
#[derive(Debug, Default)]
pub(super) struct Threads(Mutex<Vec<String>>);

impl Threads {
    /// The thread that calls is a node.
    pub(super) fn join(&self) -> io::Result<()> {
        let path = fs::read_link("/proc/thread-self")?;
        let mut threads = self
            .0
            .lock()
            .map_err(|_| io::Error::other("a node failed"))?;
        threads.push(format!("/proc/{}/schedstat", path.display()));
        Ok(())
    }

    /// Nanoseconds that all of them together have run.
    pub(super) fn ran(&self) -> io::Result<u64> {
        let threads = self
            .0
            .lock()
            .map_err(|_| io::Error::other("a node failed"))?;
        let mut sum = 0;
        for path in threads.iter() {
            sum += ran(&fs::read_to_string(path)?)
                .ok_or_else(|| io::Error::other("schedstat is not a list of numbers"))?;
        }
        Ok(sum)
    }
}

/// The first number of a line such as `230493 1202 17`.
fn ran(line: &str) -> Option<u64> {
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Microseconds that a server has run, by its `INFO cpu`.
pub(super) fn server_ran(said: &str) -> u64 {
    let seconds = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name))?;
        let (whole, part) = line.trim_end().split_once('.')?;
        let whole: u64 = whole.parse().ok()?;
        let part: u64 = format!("{part:0<6}").get(..6)?.parse().ok()?;
        Some(whole * 1_000_000 + part)
    };
    ["used_cpu_user:", "used_cpu_sys:"]
        .into_iter()
        .filter_map(seconds)
        .sum()
}

/// Decisions in a second of a node that has a core of its own, as all others and the store have.
pub(super) fn with_cores(node_ns: u64, store_ns: u64) -> u64 {
    let in_a_second = |ns: u64| 1_000_000_000_u64.checked_div(ns).unwrap_or(u64::MAX);
    let by_store = in_a_second(store_ns.saturating_mul(u64::from(NODES)));
    in_a_second(node_ns).min(by_store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_server_ran_is_read() {
        let said =
            "# CPU\r\nused_cpu_sys:1.250000\r\nused_cpu_user:0.75\r\nused_cpu_sys_children:9.0\r\n";
        assert_eq!(server_ran(said), 2_000_000);
    }

    #[test]
    fn a_fleet_is_as_fast_as_the_first_that_is_busy() {
        // A node could decide a million, but the store bears two hundred thousand of all four.
        assert_eq!(with_cores(1_000, 5_000), 50_000);
        assert_eq!(with_cores(1_000, 5), 1_000_000);
        assert_eq!(with_cores(1_000, 0), 1_000_000);
    }

    #[test]
    fn the_time_that_a_thread_ran_is_read() {
        assert_eq!(ran("230493 1202 17\n"), Some(230_493));
        assert_eq!(ran(""), None);
    }
}
