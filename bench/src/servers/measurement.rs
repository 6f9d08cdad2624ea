//! Measures one turn of one server, and derives its figures.

use std::io;
use std::time::Duration;

use tollgate_load::WHOLE;

use super::CaseResult;
use super::cases::{Case, Expected};
use super::load::{KeySequence, Load, Tally};
use super::start::{Running, Server};
use crate::args::Servers;
use crate::figures::Figures;
use crate::system::{ProcessTree, busy_time};

/// The result of one turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Measurement {
    pub(super) answers: u64,
    /// Answers other than expected, and the first of them.
    pub(super) unexpected: u64,
    pub(super) first_unexpected: Option<String>,
    pub(super) elapsed: Duration,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    /// Of the server; `None` where there is no `/proc`.
    pub(super) cpu: Option<Duration>,
    /// Of everything but the server, its helpers and this process.
    pub(super) cpu_elsewhere: Option<Duration>,
}

/// A figure of a turn, if it has it.
pub(super) type Figure = fn(&Measurement) -> Option<f64>;

impl Measurement {
    pub(super) fn rate(&self) -> Option<f64> {
        Some(self.answers as f64 / self.elapsed.as_secs_f64())
    }

    pub(super) fn p50_us(&self) -> Option<f64> {
        Some(self.p50.as_secs_f64() * 1e6)
    }

    pub(super) fn p99_us(&self) -> Option<f64> {
        Some(self.p99.as_secs_f64() * 1e6)
    }

    pub(super) fn cpu_us(&self) -> Option<f64> {
        Some(self.cpu?.as_secs_f64() * 1e6 / self.answers as f64)
    }

    /// The part of one core that the server used.
    pub(super) fn cpu_share(&self) -> Option<f64> {
        Some(self.cpu?.as_secs_f64() / self.elapsed.as_secs_f64())
    }

    /// The cores that the rest of the machine used.
    pub(super) fn cores_elsewhere(&self) -> Option<f64> {
        Some(self.cpu_elsewhere?.as_secs_f64() / self.elapsed.as_secs_f64())
    }
}

impl CaseResult {
    pub(super) fn turns(&self) -> &[Measurement] {
        self.turns.as_deref().unwrap_or_default()
    }

    pub(super) fn unexpected(&self) -> u64 {
        self.turns().iter().map(|turn| turn.unexpected).sum()
    }

    pub(super) fn first_unexpected(&self) -> Option<&str> {
        let mut turns = self.turns().iter();
        turns.find_map(|turn| turn.first_unexpected.as_deref())
    }

    pub(super) fn figures(&self, figure: Figure) -> Figures {
        Figures::collect(self.turns(), figure)
    }

    pub(super) fn median(&self, figure: Figure) -> Option<f64> {
        self.figures(figure).median()
    }
}

/// Loads one server: a warm-up, and then the time that counts.
pub(super) fn measure(case: &Case, running: &Running, args: &Servers) -> io::Result<Measurement> {
    let (contestant, address) = (running.contestant, running.server.address);
    let keys = case.keys.count(args.keys);
    let codec = || contestant.codec(case.expected, keys, address);
    let admits = case.expected == Expected::Admitted;
    let order = KeySequence::random(keys);
    let mut load = Load::start(address, case.shape(contestant), order, admits, &codec)?;
    load.run(args.passes.warm_up(Duration::from_millis(500)))?;
    // Requests that are to be refused are admitted at first.
    load.unexpected = None;
    let helpers: Vec<ProcessTree> = running.helpers.iter().filter_map(Server::tree).collect();
    let server = running.server.tree();
    let turn = timed(server.as_ref(), &helpers, || load.run(args.passes.time))?;
    Ok(Measurement {
        first_unexpected: load.unexpected.take(),
        ..turn
    })
}

/// Runs a load and measures the CPU time of the server's processes. The time of `helpers` is neither the server's nor that of
/// the rest of the machine.
fn timed(
    server: Option<&ProcessTree>,
    helpers: &[ProcessTree],
    load: impl FnOnce() -> io::Result<Tally>,
) -> io::Result<Measurement> {
    let own = ProcessTree::single(std::process::id());
    let times = || -> Option<[Duration; 3]> {
        let mut not_elsewhere = own.time()?;
        for tree in helpers {
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
    Ok(Measurement {
        answers: tally.times.total(),
        unexpected: tally.unexpected,
        first_unexpected: None,
        elapsed: tally.elapsed,
        p50: Duration::from_nanos(tally.times.quantile(WHOLE / 2)),
        p99: Duration::from_nanos(tally.times.quantile(WHOLE / 100 * 99)),
        cpu: used.map(|[server, ..]| server),
        cpu_elsewhere: used.map(|[server, load, all]| all.saturating_sub(server + load)),
    })
}
