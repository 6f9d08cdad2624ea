//! Resident memory per live key.
//!
//! Each contestant is measured in a fresh child process of this same program. An allocator rarely returns memory to the
//! system, and the next contestant would then grow into it unseen. The child builds the contestant, inserts every key once and
//! reads how its resident memory grew. Keys are written on the fly, so they take no memory themselves.
//!
//! The *peak* is the most that the process ever held. A table that grows by copying itself holds the old and the new for a
//! moment, and that moment decides what the machine must have.

use std::io;

use serde::{Deserialize, Serialize};

use crate::args::{Memory, MemoryChild};
use crate::contestants::{ALL, KeyedLimiter};
use crate::measure::insert;
use crate::output::{Output, Row, short_count};
use crate::system::{Growth, no_proc, print_result, run_child};
use crate::workload::{Config, KeyKind};

/// How a process grew by holding one contestant with all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryUse {
    resident_bytes: u64,
    peak_bytes: u64,
    /// Keys admitted at their first request; all of them, if the contestant works.
    admitted: u64,
}

/// Measures all contestants; returns whether each admitted every new key.
pub(crate) fn run(args: &Memory, out: &mut Output<'_>) -> io::Result<bool> {
    let entries = match args.only.as_slice() {
        [] => ALL.iter().collect(),
        only => only.to_vec(),
    };
    let mut all_correct = true;
    for &keys in &args.keys {
        for &kind in &args.kinds {
            let mut rows = Vec::new();
            for &entry in &entries {
                let name = entry.name;
                let words = ["memory-child", name, &keys.to_string(), kind.name()];
                let used: MemoryUse = run_child(&words, &format!("measuring `{name}`"))?;
                all_correct &= !entry.decides || used.admitted == keys as u64;
                let per_key = |bytes: u64| bytes as f64 / keys as f64;
                let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
                let row = Row::new("memory", name)
                    .json("keys", keys)
                    .json("kind", kind.name())
                    .figure(
                        "bytes_per_key",
                        "bytes/key",
                        per_key(used.resident_bytes),
                        1,
                    )
                    .figure(
                        "peak_bytes_per_key",
                        "peak bytes/key",
                        per_key(used.peak_bytes),
                        1,
                    )
                    .json("resident_bytes", used.resident_bytes)
                    .column("resident MB", megabytes(used.resident_bytes))
                    .json("peak_bytes", used.peak_bytes)
                    .column("peak MB", megabytes(used.peak_bytes))
                    .count(
                        "admitted",
                        "admitted",
                        entry.decides.then_some(used.admitted),
                    );
                rows.push(row);
            }
            let (keys, kind) = (short_count(keys), kind.name());
            out.rows(
                &format!("{keys} keys, {kind}: growth of a fresh process"),
                &rows,
            )?;
        }
    }
    Ok(all_correct)
}

/// Runs the child: measures one contestant and prints the result.
pub(crate) fn run_child_process(child: MemoryChild, out: &mut dyn io::Write) -> io::Result<()> {
    let config = Config::for_memory(child.keys);
    let used = (child.entry.memory)(&config, child.kind).ok_or_else(no_proc)?;
    print_result(&used, out)
}

/// Builds a contestant in this process, inserts `config.keys` keys and returns how the process grew. `None` if the system does
/// not report it.
pub(crate) fn measure_memory<C: KeyedLimiter>(config: &Config, kind: KeyKind) -> Option<MemoryUse> {
    let growth = Growth::start()?;
    let contestant = C::new(config);
    let admitted = insert(&contestant, config.keys, kind);
    let used = MemoryUse {
        resident_bytes: growth.resident()?,
        peak_bytes: growth.peak()?,
        admitted,
    };
    // The contestant must outlive the reading.
    drop(contestant);
    Some(used)
}
