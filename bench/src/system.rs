//! Processes of this machine: their memory, processor time, cores, and children of this program.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The error of a system that has no `/proc`.
pub(crate) fn no_proc() -> io::Error {
    io::Error::other("this system has no `/proc`, so the memory of a process is not known")
}

/// Runs this program with `args` and reads the one JSON value that it prints. `what` names the work in an error.
pub(crate) fn run_child<T: DeserializeOwned>(args: &[&str], what: &str) -> io::Result<T> {
    let child = Command::new(std::env::current_exe()?)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !child.status.success() {
        let status = child.status;
        return Err(io::Error::other(format!("{what} ended with {status}")));
    }
    serde_json::from_slice(&child.stdout).map_err(io::Error::other)
}

/// Prints the result of a child for [`run_child`].
pub(crate) fn print_result(result: &impl Serialize, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer(out, result).map_err(io::Error::other)
}

/// How the memory of this process grows, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    before: u64,
}

impl Growth {
    /// Starts at the resident memory of now. `None` if the system does not report it.
    pub(crate) fn start() -> Option<Growth> {
        // The first reading allocates the buffers for reading, which must not count as growth.
        resident()?;
        Some(Growth {
            before: resident()?,
        })
    }

    /// Resident memory at the start.
    pub(crate) fn before(self) -> u64 {
        self.before
    }

    /// Growth of the resident memory until now.
    pub(crate) fn resident(self) -> Option<u64> {
        Some(resident()?.saturating_sub(self.before))
    }

    /// Growth of the resident memory at its peak.
    pub(crate) fn peak(self) -> Option<u64> {
        let peak = field("/proc/self/status", "VmHWM:")?.max(resident()?);
        Some(peak.saturating_sub(self.before))
    }
}

/// The resident memory of this process in bytes.
///
/// `smaps_rollup` counts the pages. `status` is the fallback, whose counters may lag behind by a few dozen pages per thread.
pub(crate) fn resident() -> Option<u64> {
    field("/proc/self/smaps_rollup", "Rss:").or_else(|| field("/proc/self/status", "VmRSS:"))
}

/// A value such as `Rss:  1708 kB`, in bytes.
fn field(path: &str, name: &str) -> Option<u64> {
    parse_field(&fs::read_to_string(path).ok()?, name)
}

fn parse_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The cores of the servers and of the load.
///
/// Servers are pinned to one core and the load to another, so that every figure is for *one core of a server* and neither
/// waits for the other's turn. Pinning is left to `taskset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

impl Cores {
    /// The first two that this process may use; `None` if there are not two, or no `taskset`. Then nothing is pinned.
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

/// Runs `load` on a thread of its own that is pinned to the core of the load. This thread is not pinned.
pub(crate) fn on_load_core<T: Send>(
    cores: Option<Cores>,
    load: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            if let Some(cores) = cores {
                pin_this_thread(cores.load)?;
            }
            load()
        });
        load.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Pins the calling thread, and no other, to this core.
pub(crate) fn pin_this_thread(core: usize) -> io::Result<()> {
    // `1234/task/5678`
    let thread = fs::read_link("/proc/thread-self")?;
    let id = thread.file_name().unwrap_or_default();
    taskset(&["-p"], core, &id.to_string_lossy())
}

/// Pins all threads of a process to this core.
pub(crate) fn pin_process(core: usize, id: u32) -> io::Result<()> {
    taskset(&["-a", "-p"], core, &id.to_string())
}

fn taskset(options: &[&str], core: usize, id: &str) -> io::Result<()> {
    let mut command = Command::new("taskset");
    command.args(options).args(["-c", &core.to_string(), id]);
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "`taskset -p` ended with {status}"
    )))
}

/// A process and its children, whose time is added up.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    ids: Vec<u32>,
}

impl ProcessTree {
    /// The tree below `root` as it is now. `None` where there is no `/proc`.
    pub(crate) fn new(root: u32) -> Option<Self> {
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
        })
    }

    /// One process without its children.
    pub(crate) fn single(id: u32) -> Self {
        Self { ids: vec![id] }
    }

    /// The time that all of them have run, in user space and in the kernel.
    pub(crate) fn time(&self) -> Option<Duration> {
        let mut ticks = 0;
        for &id in &self.ids {
            ticks += stat_of(id)?.ticks;
        }
        Some(duration(ticks))
    }

    /// Resident memory of all of them, in bytes.
    pub(crate) fn resident(&self) -> Option<u64> {
        let resident = |id: &u32| field(&format!("/proc/{id}/status"), "VmRSS:");
        self.ids.iter().map(resident).sum()
    }
}

/// The time that all cores together were busy since the machine started. `None` where there is no `/proc`.
pub(crate) fn busy_time() -> Option<Duration> {
    busy_ticks(&fs::read_to_string("/proc/stat").ok()?).map(duration)
}

/// The time in which the kernel counts this many ticks.
fn duration(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second();
    Duration::from_secs(ticks) / u32::try_from(per_second).unwrap_or(100)
}

/// User, nice, system, interrupts and steal; not the two ways of being idle.
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

/// Two fields of `/proc/ID/stat`.
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
    fn a_field_is_found_by_its_name_and_read_in_bytes() {
        let text = "00400000-7ffc84baf000 ---p [rollup]\nRss:    1708 kB\nPss:     454 kB\n";
        assert_eq!(parse_field(text, "Rss:"), Some(1708 * 1024));
        assert_eq!(parse_field(text, "Swap:"), None);
    }

    #[test]
    fn the_first_two_cores_are_found_in_ranges_and_in_lists() {
        let cores = |server, load| Some(Cores { server, load });
        assert_eq!(first_two("0-3,8"), cores(0, 1));
        assert_eq!(first_two("2,5-7"), cores(2, 5));
        assert_eq!(first_two("3"), None);
        assert_eq!(first_two(""), None);
    }

    #[test]
    fn the_name_of_a_process_may_contain_anything() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194560 95 0 0 0 11 22 3 4 20 0 1 0 100 1 1";
        let stat = Stat {
            parent: 7,
            ticks: 33,
        };
        assert_eq!(parse_stat(text), Some(stat));
        assert_eq!(parse_stat("42 (a) S 7"), None);
    }

    #[test]
    fn idle_time_is_not_busy_time() {
        let text = "cpu  1 2 4 1000 2000 8 16 32 0 0\ncpu0 1 2 4 1000 2000 8 16 32 0 0\n";
        assert_eq!(busy_ticks(text), Some(63));
        assert_eq!(busy_ticks("intr 1"), None);
    }

    #[test]
    fn the_tree_of_this_process_contains_this_process() {
        let id = std::process::id();
        if let Some(tree) = ProcessTree::new(id) {
            assert!(tree.ids.contains(&id));
            assert!(tree.time().is_some());
            assert!(tree.resident().is_some_and(|bytes| bytes > 100_000));
        }
    }
}
