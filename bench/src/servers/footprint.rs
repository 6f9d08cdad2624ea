//! Resident memory of a server per live key.
//!
//! Each contestant starts afresh and is asked 2,000 times about one key, so that buffers and threads exist; then
//! about each of the live keys once. The growth, divided by their number, is the figure: with all that a table reserves
//! and an allocator keeps. One key and not thousands, because a table that is laid out as a whole has a page of memory touched
//! by each of the first thousands, which would then not count.

use std::io::{self, Write};

use serde_json::json;

use super::contestant::Contestant;
use super::start::Starter;
use super::{fill, takes_part};
use crate::process::no_proc;
use crate::table::{Table, short_count};

/// Requests before the first reading.
const BEFORE: u64 = 2_000;
/// What a key of ours is to take at most.
const BYTES_MOST: f64 = 48.0;
/// With fewer keys, other growth of the process exceeds theirs.
const KEYS_LEAST: u64 = 100_000;

const ALL: [Contestant; 6] = [
    Contestant::Resp,
    Contestant::Rls,
    Contestant::Cell,
    Contestant::Lua,
    Contestant::CrabResp,
    Contestant::Limitador,
];

/// Bytes per key of a contestant, or why they are not known.
#[derive(Debug)]
pub(super) struct Footprint {
    contestant: Contestant,
    bytes: Result<f64, String>,
}

pub(super) fn measure(starter: &Starter<'_>) -> io::Result<Vec<Footprint>> {
    let mut all = Vec::new();
    for contestant in ALL {
        if takes_part(contestant, starter.options)? {
            let bytes = match contestant.missing(starter.options) {
                Some(why) => Err(why),
                None => Ok(measure_one(starter, contestant)?),
            };
            all.push(Footprint { contestant, bytes });
        }
    }
    Ok(all)
}

fn measure_one(starter: &Starter<'_>, contestant: Contestant) -> io::Result<f64> {
    let running = starter.start(contestant)?;
    let keys = starter.options.keys;
    let resident = || {
        let tree = running.server.tree();
        tree.and_then(|tree| tree.resident()).ok_or_else(no_proc)
    };
    // Of a key with one digit only the last one is written.
    fill(&running, 0..BEFORE, 1)?;
    let before = resident()?;
    fill(&running, 0..keys, keys)?;
    let grown = resident()?.saturating_sub(before);
    Ok(grown as f64 / keys as f64)
}

pub(super) fn report(
    footprints: &[Footprint],
    keys: u64,
    json: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let counts = keys >= KEYS_LEAST;
    if json {
        for Footprint { contestant, bytes } in footprints {
            let object = json!({
                "command": "servers",
                "part": "footprint",
                "contestant": contestant.name(),
                "keys": keys,
                "bytes_per_key": bytes.as_ref().ok(),
                "missing": bytes.as_ref().err(),
                "at_most": contestant.is_ours().then_some(BYTES_MOST),
            });
            writeln!(out, "{object}")?;
        }
        return Ok(());
    }
    writeln!(
        out,
        "\nresident memory of the server for each of {} live keys of 14 bytes",
        short_count(usize::try_from(keys).unwrap_or(usize::MAX))
    )?;
    let mut table = Table::new(["", "bytes", "target", ""]);
    for Footprint { contestant, bytes } in footprints {
        let Ok(bytes) = *bytes else { continue };
        let (target, met) = match contestant.is_ours() {
            true if counts && bytes <= BYTES_MOST => (format!("<= {BYTES_MOST}"), "met"),
            true if counts => (format!("<= {BYTES_MOST}"), "missed"),
            true => ("too few keys".to_owned(), ""),
            false => (String::new(), ""),
        };
        let bytes = format!("{bytes:.1}");
        table.row([contestant.name().to_owned(), bytes, target, met.to_owned()]);
    }
    table.print(out)?;
    for footprint in footprints {
        if let Err(why) = &footprint.bytes {
            writeln!(out, "  {}: {why}", footprint.contestant.name())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_peer_is_named_without_a_figure() {
        let footprints = [
            Footprint {
                contestant: Contestant::Resp,
                bytes: Ok(47.96),
            },
            Footprint {
                contestant: Contestant::Cell,
                bytes: Err("not built: try harder".to_owned()),
            },
        ];
        let mut out = Vec::new();
        report(&footprints, 1_000_000, false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("48.0   <= 48  met"), "{text}");
        assert!(text.contains("redis-cell: not built: try harder"), "{text}");
    }
}
