//! Which core a process runs on, and how much of it a server used.
//!
//! Servers are pinned to one core and the load to another, so that every figure is for *one core of
//! a server* and neither waits for the other's turn. Pinning is left to `taskset`; where it is
//! missing, or there is only one core, nothing is pinned and the report says so.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::ticks_per_second;

/// The cores of the servers and of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

impl Cores {
    /// The first two that this process may use; `None` if there are not two, or no `taskset`.
    pub(crate) fn find() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let cores = first_two(list.trim())?;
        let mut taskset = Command::new("taskset");
        taskset.arg("--version").stdout(Stdio::null());
        taskset.status().ok()?.success().then_some(cores)
    }
}

/// The first two of a list such as `0-3,8`.
fn first_two(list: &str) -> Option<Cores> {
    let mut cores = list.split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        bounds.into_iter().flat_map(|(first, last)| first..=last)
    });
    Some(Cores {
        server: cores.next()?,
        load: cores.next()?,
    })
}

/// `program`, on this core if one is given. `taskset` becomes the program, so its id is the same.
pub(crate) fn command_on(core: Option<usize>, program: &std::path::Path) -> Command {
    let Some(core) = core else {
        return Command::new(program);
    };
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

/// Pins the calling thread, and no other, to this core.
pub(crate) fn pin_this_thread(core: usize) -> io::Result<()> {
    // `1234/task/5678`
    let thread = fs::read_link("/proc/thread-self")?;
    let id = thread.file_name().unwrap_or_default();
    let done = Command::new("taskset")
        .args(["-p", "-c", &core.to_string()])
        .arg(id)
        .stdout(Stdio::null())
        .status()?;
    if done.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("`taskset -p` ended with {done}")))
    }
}

/// A process and its children, whose time is added up.
#[derive(Debug)]
pub(crate) struct Tree {
    ids: Vec<u32>,
    ticks_per_second: u64,
}

impl Tree {
    /// The tree below `root` as it is now. `None` where there is no `/proc`.
    pub(crate) fn of(root: u32) -> Option<Self> {
        let parents: HashMap<u32, u32> = fs::read_dir("/proc")
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|id| Some((id, stat_of(id)?.parent)))
            .collect();
        let is_below = |mut id: u32| {
            while id != root {
                match parents.get(&id) {
                    Some(&parent) if parent != 0 => id = parent,
                    _ => return false,
                }
            }
            true
        };
        Some(Self {
            ids: parents.keys().copied().filter(|&id| is_below(id)).collect(),
            ticks_per_second: ticks_per_second()?,
        })
    }

    /// This process without its children. `None` where there is no `/proc`.
    pub(crate) fn only(id: u32) -> Option<Self> {
        Some(Self {
            ids: vec![id],
            ticks_per_second: ticks_per_second()?,
        })
    }

    /// The time that all of them have run, in user space and in the kernel.
    pub(crate) fn time(&self) -> Option<Duration> {
        let mut ticks = 0;
        for &id in &self.ids {
            ticks += stat_of(id)?.ticks;
        }
        Some(Duration::from_secs(ticks) / u32::try_from(self.ticks_per_second).ok()?)
    }

    /// Resident memory of all of them, in bytes.
    pub(crate) fn resident(&self) -> Option<u64> {
        let mut kilobytes = 0;
        for id in &self.ids {
            let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmRSS:"))?;
            let digits = line.trim().strip_suffix("kB")?.trim();
            kilobytes += digits.parse::<u64>().ok()?;
        }
        kilobytes.checked_mul(1024)
    }
}

/// The time that all cores together were busy since the machine started. `None` where there is no
/// `/proc`.
pub(crate) fn busy_time() -> Option<Duration> {
    let ticks = busy_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    Some(Duration::from_secs(ticks) / u32::try_from(ticks_per_second()?).ok()?)
}

/// User, nice, system, interrupts and what other machines took; not the two ways of being idle.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Option<Vec<u64>> = line
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    let &[user, nice, system, _, _, irq, softirq, steal, ..] = ticks?.as_slice() else {
        return None;
    };
    Some(user + nice + system + irq + softirq + steal)
}

/// What `/proc/ID/stat` says, of which two things matter here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    ticks: u64,
}

fn stat_of(id: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// The name in the second field may contain anything, so what follows it is found from its end.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        ticks: number(14)? + number(15)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_cores_are_found_in_ranges_and_in_lists() {
        let cores = |server, load| Some(Cores { server, load });
        assert_eq!(first_two("0-3,8"), cores(0, 1));
        assert_eq!(first_two("2,5-7"), cores(2, 5));
        assert_eq!(first_two("3"), None);
        assert_eq!(first_two(""), None);
    }

    #[test]
    fn a_process_may_be_called_anything() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194560 95 0 0 0 11 22 3 4 20 0 1 0 100 1 1";
        let stat = Stat {
            parent: 7,
            ticks: 33,
        };
        assert_eq!(parse_stat(text), Some(stat));
        assert_eq!(parse_stat("42 (a) S 7"), None);
    }

    #[test]
    fn a_machine_that_waits_is_not_busy() {
        let text = "cpu  1 2 4 1000 2000 8 16 32 0 0\ncpu0 1 2 4 1000 2000 8 16 32 0 0\n";
        assert_eq!(busy_ticks(text), Some(63));
        assert_eq!(busy_ticks("intr 1"), None);
    }

    #[test]
    fn the_tree_of_this_process_has_this_process_in_it() {
        let id = std::process::id();
        if let Some(tree) = Tree::of(id) {
            assert!(tree.ids.contains(&id));
            assert!(tree.time().is_some());
            assert!(tree.resident().is_some_and(|bytes| bytes > 100_000));
        }
    }
}
