//! What a flood came to, for people and for programs.

use std::io::{self, Write};

use serde_json::json;

use super::{OVER_MAX_PERCENT, Outcome, Own, RESIDENT_MAX};
use crate::args::Flood;
use crate::table::{Table, short_count};

/// One row of the table.
type Tell = fn(&Outcome) -> String;

pub(super) fn print_table(
    wanted: &Flood,
    outcomes: &[Outcome],
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "\na flood of {} distinct u64 keys; tollgate has room for {}; 1 per hour, burst 1",
        short_count(wanted.keys),
        short_count(wanted.max_keys)
    )?;
    let mut heads = vec![String::new()];
    heads.extend(outcomes.iter().map(|outcome| outcome.own.name().to_owned()));
    let mut table = Table::of_heads(heads);
    let rows: [(&str, Tell); 11] = [
        ("keys reached", |o| o.wave.keys.to_string()),
        ("newcomers admitted", |o| o.wave.admitted.to_string()),
        ("victim polls", |o| o.wave.victim_polls.to_string()),
        ("victim admitted", |o| o.wave.victim_admitted.to_string()),
        ("ns per key", |o| format!("{:.1}", o.ns_per_key())),
        ("resident before, MB", |o| megabytes(o.before_bytes)),
        ("resident after, MB", |o| megabytes(o.after_bytes)),
        ("growth, MB", |o| megabytes(o.growth_bytes())),
        ("stated cap, MB", |o| {
            o.cap_bytes().map_or("none".to_owned(), megabytes)
        }),
        ("growth / cap", |o| {
            o.growth_to_cap()
                .map_or("-".to_owned(), |ratio| format!("{ratio:.3}"))
        }),
        ("crowded decisions", |o| {
            o.crowded()
                .map_or("-".to_owned(), |count| count.to_string())
        }),
    ];
    for (name, tell) in rows {
        let mut row = vec![name.to_owned()];
        row.extend(outcomes.iter().map(tell));
        table.push(row);
    }
    table.print(out)?;
    for outcome in outcomes {
        print_remarks(wanted, outcome, out)?;
    }
    Ok(())
}

fn print_remarks(wanted: &Flood, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let wave = &outcome.wave;
    match outcome.own {
        Own::Tollgate { .. } => {
            if wave.victim_admitted > 0 {
                writeln!(
                    out,
                    "  ! the victim was admitted: the flood pushed its key out"
                )?;
            } else if !outcome.is_good() {
                writeln!(
                    out,
                    "  ! the growth is more than {OVER_MAX_PERCENT} % above the stated cap"
                )?;
            }
        }
        Own::Governor { retain_ns, kept } => {
            if wave.keys < wanted.keys as u64 {
                let gigabytes = RESIDENT_MAX >> 30;
                writeln!(
                    out,
                    "  governor was stopped at {gigabytes} GiB of resident memory"
                )?;
            }
            // The victim has a key too.
            let held = wave.keys + 1;
            writeln!(
                out,
                "  governor keeps a key until `retain_recent` is called for those at rest: called now, \
                 it went through\n  {held} keys in {:.0} ms and dropped {}",
                retain_ns as f64 / 1e6,
                held.saturating_sub(kept)
            )?;
        }
    }
    Ok(())
}

pub(super) fn print_json(
    wanted: &Flood,
    outcomes: &[Outcome],
    out: &mut dyn Write,
) -> io::Result<()> {
    for outcome in outcomes {
        let wave = &outcome.wave;
        let (retain_recent_ns, kept) = match outcome.own {
            Own::Tollgate { .. } => (None, None),
            Own::Governor { retain_ns, kept } => (Some(retain_ns), Some(kept)),
        };
        let object = json!({
            "command": "flood",
            "contestant": outcome.own.name(),
            "keys": wanted.keys,
            "keys_reached": wave.keys,
            "admitted": wave.admitted,
            "victim_polls": wave.victim_polls,
            "victim_admitted": wave.victim_admitted,
            "ns_per_key": outcome.ns_per_key(),
            "resident_before_bytes": outcome.before_bytes,
            "resident_after_bytes": outcome.after_bytes,
            "growth_bytes": outcome.growth_bytes(),
            "max_keys": outcome.cap_bytes().map(|_| wanted.max_keys),
            "cap_bytes": outcome.cap_bytes(),
            "growth_to_cap": outcome.growth_to_cap(),
            "crowded": outcome.crowded(),
            "as_expected": outcome.cap_bytes().map(|_| outcome.is_good()),
            "retain_recent_ns": retain_recent_ns,
            "kept_by_retain_recent": kept,
        });
        writeln!(out, "{object}")?;
    }
    Ok(())
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

impl Own {
    fn name(&self) -> &'static str {
        match self {
            Self::Tollgate { .. } => "tollgate",
            Self::Governor { .. } => "governor",
        }
    }
}

impl Outcome {
    fn ns_per_key(&self) -> f64 {
        self.wave.elapsed_ns as f64 / self.wave.keys.max(1) as f64
    }

    fn cap_bytes(&self) -> Option<u64> {
        match self.own {
            Own::Tollgate { cap_bytes, .. } => Some(cap_bytes),
            Own::Governor { .. } => None,
        }
    }

    fn crowded(&self) -> Option<u64> {
        match self.own {
            Own::Tollgate { crowded, .. } => Some(crowded),
            Own::Governor { .. } => None,
        }
    }

    fn growth_to_cap(&self) -> Option<f64> {
        let cap = self.cap_bytes()?.max(1);
        Some(self.growth_bytes() as f64 / cap as f64)
    }
}
