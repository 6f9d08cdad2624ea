//! The HTTP doors side by side with peers: real servers, real sockets, one core each.
//!
//! # Method
//!
//! Every contestant is a process of its own, pinned to one core; the load is a thread of this
//! process, pinned to another. Over 50 connections it asks about 100,000 random keys, each
//! connection as soon as it has its answer. All servers of a [group](lineup::GROUPS) stay up and
//! take turns, in an order that moves on by one with every pass, so that a busy minute of the machine
//! falls on all of them. A turn is a warm-up and then the time that counts; reported is the
//! median over the passes.
//!
//! # What the numbers are, and are not
//!
//! *CPU µs/req* is what the processes of the server used, in user space and in the kernel, loopback
//! included. Where the server used less than about 95 % of its core the load was the slower of the
//! two, and then the CPU is the fair figure, not the rate. Latency is that of a server kept busy, not
//! of one that is asked now and then. *Others* is what the rest of the machine took meanwhile, in
//! cores: much above 0.1, the rate and the latency are those of a machine that was busy with
//! something else. Compare within one run, as ratios.
//!
//! Nothing is to be refused: every limit is far away. An answer that refuses is counted and makes
//! the command fail, because its time is that of other work. A contestant that is not installed is
//! named with the way to get it; its ratios are left out.

mod answer;
pub(crate) mod bare;
pub(crate) mod cores;
pub(crate) mod lineup;
pub(crate) mod load;
mod report;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod texts;

use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tollgate_load::WHOLE;

use self::cores::{Cores, Tree, busy_time, pin_this_thread};
use self::lineup::{Contestant, GROUPS, Group};
use self::load::{Load, Question, Tally};
use self::server::{Folder, Server};
use crate::args::Doors;
use crate::turns::{Figure, Figures, Turn, figures, others};

/// Distinct keys that are asked about.
const KEYS: usize = 100_000;

/// All turns of a contestant, or why it had none.
#[derive(Debug)]
struct Line {
    contestant: Contestant,
    turns: Result<Vec<Turn>, String>,
}

/// Measures all groups; returns whether every answer let its request pass.
pub(crate) fn run(wanted: &Doors, out: &mut dyn Write) -> io::Result<bool> {
    let cores = Cores::find();
    if !wanted.json {
        report::print_head(wanted, cores, out)?;
    }
    let mut all_well = true;
    for group in &GROUPS {
        let lines = measure(group, wanted, cores)?;
        all_well &= lines.iter().all(Line::is_well);
        if wanted.json {
            report::print_json(group, &lines, cores, out)?;
        } else {
            report::print_table(group, &lines, out)?;
        }
        out.flush()?;
    }
    Ok(all_well)
}

/// A contestant that is there, or what to say instead.
type Found = (Contestant, Result<PathBuf, String>);

fn measure(group: &Group, wanted: &Doors, cores: Option<Cores>) -> io::Result<Vec<Line>> {
    let taking_part = |contestant: &Contestant| !wanted.only_ours || contestant.is_ours();
    let found: Vec<Found> = group
        .contestants
        .iter()
        .copied()
        .filter(taking_part)
        .map(|contestant| (contestant, contestant.find(wanted)))
        .collect();
    if wanted.only_ours {
        // Where nothing has to be installed, nothing may be missing.
        for (contestant, program) in &found {
            if let Err(message) = program {
                let name = contestant.name();
                return Err(io::Error::other(format!("`{name}` is {message}")));
            }
        }
    }
    // A thread of its own, so that only the load is pinned and not what this process does next.
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            if let Some(cores) = cores {
                pin_this_thread(cores.load)?;
            }
            take_turns(found, wanted, cores)
        });
        match load.join() {
            Ok(lines) => lines,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A contestant that is up.
struct Up {
    contestant: Contestant,
    server: Server,
    question: Question,
    turns: Vec<Turn>,
}

fn take_turns(found: Vec<Found>, wanted: &Doors, cores: Option<Cores>) -> io::Result<Vec<Line>> {
    let folder = Folder::new()?;
    let core = cores.map(|cores| cores.server);
    let mut lines = Vec::new();
    let mut all_up = Vec::new();
    for (contestant, program) in found {
        match program {
            Ok(program) => all_up.push(Up {
                contestant,
                server: contestant.start(&program, core, &folder)?,
                question: contestant.question(),
                turns: Vec::new(),
            }),
            Err(message) => lines.push(Line {
                contestant,
                turns: Err(message),
            }),
        }
    }
    for _ in 0..wanted.passes {
        for up in &mut all_up {
            let turn = turn(&up.server, &up.question, wanted.warm_up, wanted.time);
            let turn = turn.map_err(|error| {
                let name = up.contestant.name();
                io::Error::other(format!("`{name}`: {error}"))
            })?;
            up.turns.push(turn);
        }
        // Who comes after whom must not matter.
        if !all_up.is_empty() {
            all_up.rotate_left(1);
        }
    }
    lines.extend(all_up.into_iter().map(|up| Line {
        contestant: up.contestant,
        turns: Ok(up.turns),
    }));
    lines.sort_by_key(|line| line.contestant as usize);
    Ok(lines)
}

/// One turn of one server: a warm-up, and then the time that counts.
pub(crate) fn turn(
    server: &Server,
    question: &Question,
    warm_up: Duration,
    time: Duration,
) -> io::Result<Turn> {
    let mut load = Load::start(server.address, question)?;
    load.run(warm_up)?;
    timed(server.tree().as_ref(), &[], || load.run(time))
}

/// Runs a load and tells what it gave, with the time that the processes of a server used for it. What those
/// `beside` it used is neither its own nor that of the rest of the machine.
pub(crate) fn timed(
    server: Option<&Tree>,
    beside: &[Tree],
    load: impl FnOnce() -> io::Result<Tally>,
) -> io::Result<Turn> {
    let own = Tree::only(std::process::id());
    let times = || -> Option<[Duration; 3]> {
        let mut not_elsewhere = own.as_ref()?.time()?;
        for tree in beside {
            not_elsewhere += tree.time()?;
        }
        Some([server?.time()?, not_elsewhere, busy_time()?])
    };
    let before = times();
    let tally = load()?;
    let used = times().zip(before).map(|(after, before)| {
        let used = |at: usize| after[at].saturating_sub(before[at]);
        [used(0), used(1), used(2)]
    });
    Ok(Turn {
        answers: tally.times.total(),
        others: tally.others,
        elapsed: tally.elapsed,
        p50: Duration::from_nanos(tally.times.quantile(WHOLE / 2)),
        p99: Duration::from_nanos(tally.times.quantile(WHOLE / 100 * 99)),
        cpu: used.map(|[server, ..]| server),
        cpu_elsewhere: used.map(|[server, load, all]| all.saturating_sub(server + load)),
    })
}

impl Line {
    fn turns(&self) -> &[Turn] {
        self.turns.as_deref().unwrap_or_default()
    }

    fn others(&self) -> u64 {
        others(self.turns())
    }

    fn is_well(&self) -> bool {
        self.others() == 0
    }

    fn figures(&self, figure: Figure) -> Figures {
        figures(self.turns(), figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_refuses_is_not_well() {
        let turn = Turn {
            answers: 10,
            others: 1,
            elapsed: Duration::from_secs(2),
            p50: Duration::from_micros(3),
            p99: Duration::from_micros(4),
            cpu: None,
            cpu_elsewhere: None,
        };
        let line = Line {
            contestant: Contestant::Check,
            turns: Ok(vec![turn]),
        };
        assert!(!line.is_well());
        assert_eq!(line.figures(Turn::rate).median(), Some(5.0));
        assert_eq!(line.figures(Turn::cpu_us).median(), None);
    }
}
