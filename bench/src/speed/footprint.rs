//! What a live key takes in the memory of a server: its resident memory before and after a million keys.
//!
//! Each contestant is started afresh and asked 2,000 times about ten keys, so that buffers and threads are there; then about as
//! many others as the command says, each once. The difference, divided by their number, is the figure: with all that a table
//! has in reserve, and with what an allocator kept. Ten keys and not 2,000, because a table that is laid out as a whole has a
//! page of memory touched by every one of the first thousands, and would be let off with it.

use std::io::{self, Write};

use serde_json::json;

use super::fill;
use super::start::Place;
use super::who::Who;
use crate::args::Speed;
use crate::process::no_proc;
use crate::table::{Table, short_count};

/// Requests that come before the first look.
const BEFORE: u64 = 2_000;
/// What a key of ours is to take at the most.
const BYTES_MOST: f64 = 48.0;
/// Below so many keys, what a process does besides is more than what they take.
const KEYS_LEAST: u64 = 100_000;

const ALL: [Who; 6] = [
    Who::Resp,
    Who::Rls,
    Who::Cell,
    Who::Lua,
    Who::CrabResp,
    Who::Limitador,
];

/// What a contestant takes, or why that is not known.
#[derive(Debug)]
pub(super) struct Weight {
    who: Who,
    bytes: Result<f64, String>,
}

impl Weight {
    /// A figure, or a peer that is not there.
    pub(super) fn is_well(&self) -> bool {
        self.bytes.as_ref().map_or(true, |bytes| bytes.is_finite())
    }

    fn is_ours(&self) -> bool {
        self.who.is_ours()
    }
}

pub(super) fn weigh(place: &Place<'_>) -> io::Result<Vec<Weight>> {
    let wanted = place.wanted;
    let mut weights = Vec::new();
    for who in ALL {
        if wanted.only_ours && !who.is_ours() {
            continue;
        }
        let bytes = match who.missing(wanted) {
            Some(why) if wanted.only_ours => {
                let name = who.name();
                return Err(io::Error::other(format!("`{name}`: {why}")));
            }
            Some(why) => Err(why),
            None => Ok(weigh_one(place, who)?),
        };
        weights.push(Weight { who, bytes });
    }
    Ok(weights)
}

fn weigh_one(place: &Place<'_>, who: Who) -> io::Result<f64> {
    let up = place.start(who)?;
    let keys = place.wanted.keys;
    let resident = || {
        let tree = up.server.tree();
        tree.and_then(|tree| tree.resident()).ok_or_else(no_proc)
    };
    // Of a key that has one digit only the last one is written.
    fill(&up, 0, BEFORE, 1)?;
    let before = resident()?;
    fill(&up, 0, keys, keys)?;
    let grown = resident()?.saturating_sub(before);
    Ok(grown as f64 / keys as f64)
}

pub(super) fn report(weights: &[Weight], wanted: &Speed, out: &mut dyn Write) -> io::Result<()> {
    let counts = wanted.keys >= KEYS_LEAST;
    if wanted.json {
        for weight in weights {
            let object = json!({
                "command": "footprint",
                "contestant": weight.who.name(),
                "keys": wanted.keys,
                "bytes_per_key": weight.bytes.as_ref().ok(),
                "missing": weight.bytes.as_ref().err(),
                "at_most": weight.is_ours().then_some(BYTES_MOST),
            });
            writeln!(out, "{object}")?;
        }
        return Ok(());
    }
    let keys = usize::try_from(wanted.keys).unwrap_or(usize::MAX);
    let keys = short_count(keys);
    writeln!(
        out,
        "\nresident memory of the server for each of {keys} live keys of 14 bytes"
    )?;
    let mut table = Table::new(["", "bytes", "target", ""]);
    for weight in weights {
        let Ok(bytes) = weight.bytes else { continue };
        let (target, met) = match weight.is_ours() {
            true if counts && bytes <= BYTES_MOST => (format!("<= {BYTES_MOST}"), "met"),
            true if counts => (format!("<= {BYTES_MOST}"), "missed"),
            true => ("too few keys".to_owned(), ""),
            false => (String::new(), ""),
        };
        table.row([
            weight.who.name().to_owned(),
            format!("{bytes:.1}"),
            target,
            met.to_owned(),
        ]);
    }
    table.print(out)?;
    for weight in weights {
        if let Err(why) = &weight.bytes {
            writeln!(out, "  {}: {why}", weight.who.name())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_missing_is_named_and_no_figure_is_made_up() {
        let weights = [
            Weight {
                who: Who::Resp,
                bytes: Ok(47.96),
            },
            Weight {
                who: Who::Cell,
                bytes: Err("not built: try harder".to_owned()),
            },
        ];
        let mut out = Vec::new();
        report(&weights, &Speed::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("48.0   <= 48  met"), "{text}");
        assert!(text.contains("redis-cell: not built: try harder"), "{text}");
        assert!(weights.iter().all(Weight::is_well));
    }
}
