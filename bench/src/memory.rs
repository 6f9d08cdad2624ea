//! Resident memory per live key.
//!
//! Each contestant is weighed in a fresh child process of this same program, because what an
//! allocator has once taken from the system it rarely gives back, and the next contestant would
//! then grow into it unseen. The child reads its resident memory, builds the contestant, inserts
//! every key once and reads again. Keys are written on the fly, so they weigh nothing themselves.
//!
//! The *peak* is the most the process ever held: a table that grows by copying itself holds the old
//! and the new for a moment, and that moment decides what the machine must have.

use std::io::{self, Write};

use serde_json::json;

use crate::args::{Memory, MemoryChild};
use crate::contestants::{ALL, Contestant, Entry};
use crate::measure::insert;
use crate::process::{no_proc, numbers_of_child};
use crate::table::{Table, short_count};
use crate::workload::{Config, Kind};

/// How a process grew by holding one contestant with all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) resident_bytes: u64,
    pub(crate) peak_bytes: u64,
    /// Keys admitted at their first request; all of them, if the contestant works.
    pub(crate) admitted: u64,
}

/// Weighs all that is wanted; returns whether every contestant admitted every new key.
pub(crate) fn run(options: &Memory, out: &mut dyn Write) -> io::Result<bool> {
    let json = options.json;
    let entries = match options.only.as_slice() {
        [] => ALL.iter().collect(),
        only => only.to_vec(),
    };
    let mut all_well = true;
    for &keys in &options.keys {
        for &kind in &options.kinds {
            let heads = [
                "",
                "bytes/key",
                "peak bytes/key",
                "resident MB",
                "peak MB",
                "admitted",
            ];
            let mut table = Table::new(heads);
            for &entry in &entries {
                let weight = weigh_in_child(MemoryChild { entry, keys, kind })?;
                all_well &= !entry.decides || weight.admitted == keys as u64;
                if json {
                    writeln!(out, "{}", to_json(entry, keys, kind, &weight))?;
                    out.flush()?;
                } else {
                    table.row(cells(entry, keys, &weight));
                }
            }
            if !json {
                let keys = short_count(keys);
                writeln!(
                    out,
                    "\n{keys} keys, {}: growth of a fresh process",
                    kind.name()
                )?;
                table.print(out)?;
            }
        }
    }
    Ok(all_well)
}

/// What the child does: weigh one contestant and print three numbers.
pub(crate) fn run_child(child: MemoryChild, out: &mut dyn Write) -> io::Result<()> {
    let config = Config::for_weighing(child.keys);
    let Some(weight) = (child.entry.weigh)(&config, child.kind) else {
        return Err(no_proc());
    };
    writeln!(
        out,
        "{} {} {}",
        weight.resident_bytes, weight.peak_bytes, weight.admitted
    )
}

/// Builds a contestant in this process, inserts `config.keys` keys and tells how it grew. `None` if
/// the system does not say.
pub(crate) fn weigh<C: Contestant>(config: &Config, kind: Kind) -> Option<Weight> {
    // Once for nothing, so that the buffers for reading are not part of the growth.
    resident()?;
    let before = resident()?;
    let contestant = C::new(config);
    let admitted = insert(&contestant, config.keys, kind);
    let after = resident()?;
    let peak = field("/proc/self/status", "VmHWM:")?.max(after);
    // The contestant must outlive the reading.
    drop(contestant);
    Some(Weight {
        resident_bytes: after.saturating_sub(before),
        peak_bytes: peak.saturating_sub(before),
        admitted,
    })
}

fn weigh_in_child(child: MemoryChild) -> io::Result<Weight> {
    let name = child.entry.name;
    let args = [
        "memory-child",
        name,
        &child.keys.to_string(),
        child.kind.name(),
    ];
    let [resident_bytes, peak_bytes, admitted] =
        numbers_of_child(&args, &format!("weighing `{name}`"))?;
    Ok(Weight {
        resident_bytes,
        peak_bytes,
        admitted,
    })
}

fn cells(entry: &Entry, keys: usize, weight: &Weight) -> [String; 6] {
    let per_key = |bytes: u64| format!("{:.1}", bytes as f64 / keys as f64);
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let mut admitted = weight.admitted.to_string();
    if !entry.decides {
        "-".clone_into(&mut admitted);
    } else if weight.admitted != keys as u64 {
        admitted.push_str(" !");
    }
    [
        entry.name.to_owned(),
        per_key(weight.resident_bytes),
        per_key(weight.peak_bytes),
        megabytes(weight.resident_bytes),
        megabytes(weight.peak_bytes),
        admitted,
    ]
}

fn to_json(entry: &Entry, keys: usize, kind: Kind, weight: &Weight) -> serde_json::Value {
    json!({
        "command": "memory",
        "keys": keys,
        "kind": kind.name(),
        "contestant": entry.name,
        "resident_bytes": weight.resident_bytes,
        "peak_bytes": weight.peak_bytes,
        "bytes_per_key": weight.resident_bytes as f64 / keys as f64,
        "admitted": entry.decides.then_some(weight.admitted),
    })
}

/// The resident memory of this process in bytes.
///
/// `smaps_rollup` counts the pages; `status` is the fallback, whose counters may lag behind by a few
/// dozen pages per thread.
fn resident() -> Option<u64> {
    field("/proc/self/smaps_rollup", "Rss:").or_else(|| field("/proc/self/status", "VmRSS:"))
}

/// A value such as `Rss:  1708 kB`, in bytes.
fn field(path: &str, name: &str) -> Option<u64> {
    parse_field(&std::fs::read_to_string(path).ok()?, name)
}

fn parse_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
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
}
