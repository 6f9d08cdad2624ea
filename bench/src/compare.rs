//! The time of one check, cell by cell.
//!
//! # Method
//!
//! In each cell every contestant is built, warmed up with all keys, and then takes its turns: all
//! contestants once, then all once again, and so on, so that a busy minute of the machine falls on
//! all of them. Reported is the median over the turns. A turn begins further on in the stream than
//! the one before it, at the same place for all.
//!
//! With more than [`TOGETHER_MAX`] keys the contestants do not fit into memory beside each other.
//! Then each is built, takes all its turns, and is dropped before the next; the output says so,
//! because a busy minute then falls on one of them.

use std::io::{self, Write};

use crate::args::Comparison;
use crate::contestants::{BASELINE, Entry};
use crate::measure::{Tally, Until};
use crate::stream::Order;
use crate::table::{Table, short_count};
use crate::workload::{Cell, Spread};

/// Above this, contestants are measured one after the other. A text key takes up to some 150 bytes
/// in each of them.
pub(crate) const TOGETHER_MAX: usize = 2_000_000;

/// Compares in all cells; returns whether every contestant admitted what it should.
pub(crate) fn run(wanted: &Comparison, out: &mut dyn Write) -> io::Result<bool> {
    if !wanted.json {
        print_head(wanted, out)?;
    }
    let mut all_well = true;
    for cell in cells(wanted) {
        let together = cell.keys <= TOGETHER_MAX;
        let lines = measure(&cell, wanted, together);
        all_well &= lines.iter().all(|line| line.does_its_work(&cell));
        if wanted.json {
            print_json(&cell, &lines, together, out)?;
        } else {
            print_table(&cell, &lines, together, out)?;
        }
        out.flush()?;
    }
    Ok(all_well)
}

/// Every combination of what is wanted. A single key has no distribution, so it is listed once.
fn cells(wanted: &Comparison) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &keys in &wanted.keys {
        let spreads = if keys == 1 {
            &[Spread::Uniform]
        } else {
            wanted.spreads.as_slice()
        };
        for &spread in spreads {
            for &kind in &wanted.kinds {
                for &threads in &wanted.threads {
                    for &mode in &wanted.modes {
                        cells.push(Cell {
                            keys,
                            spread,
                            kind,
                            threads,
                            mode,
                        });
                    }
                }
            }
        }
    }
    cells
}

/// What one contestant did in one cell.
pub(crate) struct Line {
    entry: &'static Entry,
    turns: Vec<Tally>,
}

impl Line {
    /// Nanoseconds per check, turn by turn, the fastest first.
    fn sorted_ns(&self) -> Vec<f64> {
        let per_check = |turn: &Tally| turn.elapsed.as_nanos() as f64 / turn.checks.max(1) as f64;
        let mut times: Vec<f64> = self.turns.iter().map(per_check).collect();
        times.sort_unstable_by(f64::total_cmp);
        times
    }

    pub(crate) fn median_ns(&self) -> f64 {
        let times = self.sorted_ns();
        let middle = times.len() / 2;
        if times.len().is_multiple_of(2) {
            f64::midpoint(times[middle - 1], times[middle])
        } else {
            times[middle]
        }
    }

    pub(crate) fn rounds(&self) -> usize {
        self.turns.len()
    }

    fn checks(&self) -> u64 {
        self.turns.iter().map(|turn| turn.checks).sum()
    }

    fn admitted(&self) -> u64 {
        self.turns.iter().map(|turn| turn.admitted).sum()
    }

    pub(crate) fn does_its_work(&self, cell: &Cell) -> bool {
        !self.entry.decides || self.admitted() == cell.admitted_expected(self.checks())
    }
}

/// All turns of all contestants in one cell.
pub(crate) fn measure(cell: &Cell, wanted: &Comparison, together: bool) -> Vec<Line> {
    let orders = orders(cell);
    let start = |round: usize| orders[0].len() / wanted.rounds * round;
    let seat = |entry: &Entry| {
        let seat = (entry.seat)(&cell.config());
        seat.warm_up(cell.keys, cell.kind);
        seat
    };
    let line = |&entry: &&'static Entry| Line {
        entry,
        turns: Vec::new(),
    };
    let mut lines: Vec<Line> = wanted.entries.iter().map(line).collect();
    if together {
        let seats: Vec<_> = lines.iter().map(|line| seat(line.entry)).collect();
        for round in 0..wanted.rounds {
            for (line, seat) in lines.iter_mut().zip(&seats) {
                line.turns
                    .push(seat.round(cell, &orders, start(round), wanted.until));
            }
        }
    } else {
        for line in &mut lines {
            let seat = seat(line.entry);
            for round in 0..wanted.rounds {
                line.turns
                    .push(seat.round(cell, &orders, start(round), wanted.until));
            }
        }
    }
    lines
}

/// One order per thread, each over its own share of the keys unless there are too few to share.
fn orders(cell: &Cell) -> Vec<Order> {
    const SEED: u64 = 0x7011_6A7E;
    let draw = |thread: usize| {
        let seed = SEED + thread as u64;
        if cell.keys < cell.threads {
            return Order::draw(cell.spread, 0, cell.keys, seed);
        }
        let first = cell.keys * thread / cell.threads;
        let end = cell.keys * (thread + 1) / cell.threads;
        Order::draw(cell.spread, first, end - first, seed)
    };
    (0..cell.threads).map(draw).collect()
}

fn print_head(wanted: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let turn = match wanted.until {
        Until::Elapsed(time) => format!("at least {} s of checks", time.as_secs_f64()),
        Until::Checks(checks) => format!("{checks} checks per thread"),
    };
    writeln!(out, "machine: {}, {cores} cores", processor())?;
    writeln!(
        out,
        "each contestant: {} turns of {turn}; ns are per check and thread",
        wanted.rounds
    )?;
    writeln!(
        out,
        "vs {BASELINE}: how many times as fast, by the medians of the same cell"
    )
}

fn print_table(cell: &Cell, lines: &[Line], together: bool, out: &mut dyn Write) -> io::Result<()> {
    let Cell { kind, mode, .. } = cell;
    let (keys, threads) = (short_count(cell.keys), threads_name(cell));
    let (noun, spread) = if cell.keys == 1 {
        ("key", "hot")
    } else {
        ("keys", cell.spread.name())
    };
    writeln!(
        out,
        "\n{keys} {noun}, {spread}, {}, {threads}, {}",
        kind.name(),
        mode.name()
    )?;
    if !together {
        writeln!(
            out,
            "  (not interleaved: too many keys to build all contestants side by side)"
        )?;
    }
    let against = format!("vs {BASELINE}");
    let heads = [
        "",
        "median ns",
        "min",
        "max",
        "M checks/s",
        &against,
        "checks",
        "admitted",
    ];
    let mut table = Table::new(heads);
    let baseline = baseline_ns(lines);
    for line in lines {
        let (times, median) = (line.sorted_ns(), line.median_ns());
        let admitted = if !line.entry.decides {
            "-".to_owned()
        } else if line.does_its_work(cell) {
            line.admitted().to_string()
        } else {
            format!("{} !", line.admitted())
        };
        table.row([
            line.entry.name.to_owned(),
            format!("{median:.1}"),
            format!("{:.1}", times.first().unwrap_or(&median)),
            format!("{:.1}", times.last().unwrap_or(&median)),
            format!("{:.1}", cell.threads as f64 * 1000.0 / median),
            baseline.map_or("-".to_owned(), |ns| format!("{:.2}x", ns / median)),
            line.checks().to_string(),
            admitted,
        ]);
    }
    table.print(out)?;
    for line in lines.iter().filter(|line| !line.does_its_work(cell)) {
        let (name, expected) = (line.entry.name, cell.admitted_expected(line.checks()));
        writeln!(
            out,
            "  ! `{name}` should have admitted {expected}: its time is of other work"
        )?;
    }
    Ok(())
}

fn print_json(cell: &Cell, lines: &[Line], together: bool, out: &mut dyn Write) -> io::Result<()> {
    let baseline = baseline_ns(lines);
    for line in lines {
        let (times, median) = (line.sorted_ns(), line.median_ns());
        let ratio = baseline.map_or("null".to_owned(), |ns| format!("{:.4}", ns / median));
        let (admitted, as_expected) = if line.entry.decides {
            (
                line.admitted().to_string(),
                line.does_its_work(cell).to_string(),
            )
        } else {
            ("null".to_owned(), "null".to_owned())
        };
        // No name needs escaping: all are ours, and plain.
        writeln!(
            out,
            "{{\"command\":\"compare\",\"keys\":{},\"dist\":\"{}\",\"kind\":\"{}\",\
             \"threads\":{},\"mode\":\"{}\",\"contestant\":\"{}\",\"median_ns\":{median:.3},\
             \"min_ns\":{:.3},\"max_ns\":{:.3},\"vs_{BASELINE}\":{ratio},\"rounds\":{},\
             \"checks\":{},\"admitted\":{admitted},\"admitted_as_expected\":{as_expected},\
             \"interleaved\":{together}}}",
            cell.keys,
            if cell.keys == 1 {
                "hot"
            } else {
                cell.spread.name()
            },
            cell.kind.name(),
            cell.threads,
            cell.mode.name(),
            line.entry.name,
            times.first().unwrap_or(&median),
            times.last().unwrap_or(&median),
            line.rounds(),
            line.checks(),
        )?;
    }
    Ok(())
}

fn baseline_ns(lines: &[Line]) -> Option<f64> {
    lines
        .iter()
        .find(|line| line.entry.name == BASELINE)
        .map(Line::median_ns)
}

fn threads_name(cell: &Cell) -> String {
    match cell.threads {
        1 => "1 thread".to_owned(),
        threads if cell.keys == 1 => format!("{threads} threads on that key"),
        threads if cell.keys < threads => format!("{threads} threads on the same keys"),
        threads => format!("{threads} threads, each its own keys"),
    }
}

/// The processor by its own name, where the system tells.
fn processor() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown processor".to_owned(), |(_, name)| {
        name.trim().to_owned()
    })
}
