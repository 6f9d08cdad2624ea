//! Resident memory of a server per live key.
//!
//! Each contestant starts afresh and gets 2,000 requests for one key, so that buffers and threads exist; then one for each of
//! the live keys. The growth, divided by their number, is the figure: with all that a table reserves and an allocator keeps. One
//! key and not thousands, because in a table that is allocated as a whole each of the first thousands touches a page of memory,
//! which would then not count.

use std::io;

use super::contestant::Contestant;
use super::start::Starter;
use super::{fill, takes_part};
use crate::output::{Output, Row, short_count};
use crate::system::no_proc;

/// Requests before the first reading.
const BEFORE: u64 = 2_000;
/// Target for a key of ours, at most.
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
        if takes_part(contestant, starter.args)? {
            let bytes = match contestant.missing(starter.args) {
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
    let keys = starter.args.keys;
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

pub(super) fn report(footprints: &[Footprint], keys: u64, out: &mut Output<'_>) -> io::Result<()> {
    let counts = keys >= KEYS_LEAST;
    let row = |Footprint { contestant, bytes }: &Footprint| {
        let figure = bytes.as_ref().ok().copied();
        let (target, met) = match (contestant.is_ours(), figure) {
            (true, Some(bytes)) if counts && bytes <= BYTES_MOST => ("<= 48", "met"),
            (true, Some(_)) if counts => ("<= 48", "missed"),
            (true, Some(_)) => ("too few keys", ""),
            _ => ("", ""),
        };
        Row::new("servers", contestant.name())
            .json("suite", "footprint")
            .json("keys", keys)
            .figure("bytes_per_key", "bytes", figure, 1)
            .json("missing", bytes.as_ref().err())
            .json("at_most", contestant.is_ours().then_some(BYTES_MOST))
            .column("target", target)
            .column("", met)
    };
    let rows: Vec<Row> = footprints.iter().map(row).collect();
    let keys = short_count(usize::try_from(keys).unwrap_or(usize::MAX));
    out.rows(
        &format!("resident memory of the server for each of {keys} live keys of 14 bytes"),
        &rows,
    )?;
    for Footprint { contestant, bytes } in footprints {
        if let Err(why) = bytes {
            out.line(&format!("  {}: {why}", contestant.name()))?;
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
        let mut bytes = Vec::new();
        let mut out = Output {
            json: false,
            writer: &mut bytes,
        };
        report(&footprints, 1_000_000, &mut out).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("48.0   <= 48  met"), "{text}");
        assert!(text.contains("redis-cell: not built: try harder"), "{text}");
    }
}
