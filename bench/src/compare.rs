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

use serde_json::json;

use crate::args::{Compare, Rounds};
use crate::contestants::{ALL, BASELINE, Entry};
use crate::measure::{Tally, Until};
use crate::stream::Order;
use crate::table::{Table, short_count};
use crate::workload::{Cell, Spread};

/// Above this, contestants are measured one after the other. A text key takes up to some 150 bytes
/// in each of them.
pub(crate) const TOGETHER_MAX: usize = 2_000_000;

/// Compares in all cells; returns whether every contestant admitted what it should.
pub(crate) fn run(options: &Compare, out: &mut dyn Write) -> io::Result<bool> {
    let json = options.json;
    if !json {
        print_head(options.rounds, out)?;
    }
    let entries = match options.only.as_slice() {
        [] => ALL.iter().collect(),
        only => only.to_vec(),
    };
    let mut all_well = true;
    for cell in cells(options) {
        let together = cell.keys <= TOGETHER_MAX;
        let lines = measure(&cell, &entries, options.rounds, together);
        all_well &= lines.iter().all(|line| line.does_its_work(&cell));
        if json {
            print_json(&cell, &lines, together, out)?;
        } else {
            print_table(&cell, &lines, together, out)?;
        }
        out.flush()?;
    }
    Ok(all_well)
}

/// Every combination of what is wanted. A single key has no distribution, so it is listed once.
fn cells(options: &Compare) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &keys in &options.keys {
        let spreads = if keys == 1 {
            &[Spread::Uniform]
        } else {
            options.spreads.as_slice()
        };
        for &spread in spreads {
            for &kind in &options.kinds {
                for &threads in &options.threads {
                    for &mode in &options.modes {
                        cells.push(Cell {
                            keys,
                            spread,
                            kind,
                            threads: usize::from(threads),
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
pub(crate) fn measure(
    cell: &Cell,
    entries: &[&'static Entry],
    rounds: Rounds,
    together: bool,
) -> Vec<Line> {
    let (count, until) = (usize::from(rounds.rounds), rounds.until());
    let orders = orders(cell);
    let start = |round: usize| orders[0].len() / count * round;
    let seat = |entry: &Entry| {
        let seat = (entry.seat)(&cell.config());
        seat.warm_up(cell.keys, cell.kind);
        seat
    };
    let line = |&entry: &&'static Entry| Line {
        entry,
        turns: Vec::new(),
    };
    let mut lines: Vec<Line> = entries.iter().map(line).collect();
    if together {
        let seats: Vec<_> = lines.iter().map(|line| seat(line.entry)).collect();
        for round in 0..count {
            for (line, seat) in lines.iter_mut().zip(&seats) {
                line.turns
                    .push(seat.round(cell, &orders, start(round), until));
            }
        }
    } else {
        for line in &mut lines {
            let seat = seat(line.entry);
            for round in 0..count {
                line.turns
                    .push(seat.round(cell, &orders, start(round), until));
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

fn print_head(rounds: Rounds, out: &mut dyn Write) -> io::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let turn = match rounds.until() {
        Until::Elapsed(time) => format!("at least {} s of checks", time.as_secs_f64()),
        Until::Checks(checks) => format!("{checks} checks per thread"),
    };
    writeln!(out, "machine: {}, {cores} cores", processor())?;
    writeln!(
        out,
        "each contestant: {} turns of {turn}; ns are per check and thread",
        rounds.rounds
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
        let decides = line.entry.decides;
        let object = json!({
            "command": "compare",
            "keys": cell.keys,
            "dist": if cell.keys == 1 { "hot" } else { cell.spread.name() },
            "kind": cell.kind.name(),
            "threads": cell.threads,
            "mode": cell.mode.name(),
            "contestant": line.entry.name,
            "median_ns": median,
            "min_ns": times.first(),
            "max_ns": times.last(),
            "vs_governor": baseline.map(|ns| ns / median),
            "rounds": line.rounds(),
            "checks": line.checks(),
            "admitted": decides.then(|| line.admitted()),
            "admitted_as_expected": decides.then(|| line.does_its_work(cell)),
            "interleaved": together,
        });
        writeln!(out, "{object}")?;
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
