//! Measures how long a limit takes to come near the best fixed one, and how much is served with it.
//!
//! The best fixed limit is found by trying: of all limits the smallest that serves within 1 % of the
//! most, under the load of the phase or three times the capacity if that is less. A limit is *near* it from half to twice of it. It has *settled* when
//! it has left that range for the last time in a phase, probes included: not when it first enters.
//!
//! In a phase with less load than capacity no limit above the need holds anything back: twenty
//! unused places are neither better nor worse. There a limit is near from half of the best on, with no upper end.

use super::backend::BackendCondition;
use super::control::{Control, MAX, MIN, name};
use super::run::{TICK_NS, Tick, run};
use super::scenario::{BackendPhase, BackendScenario};
use std::error::Error;
use std::num::TryFromIntError;
use tollgate::shape::Estimator;

/// The guarantee: near within this many seconds.
pub const NEAR_SECS: f64 = 30.0;
/// What is promised: so much of the capacity, after that.
pub const GOODPUT: f64 = 0.9;
const TRIAL_SECS: u64 = 10;
/// The most load in a trial, in hundredths of the capacity: more changes nothing but the time it takes.
const TRIAL_LOAD: u64 = 300;
/// At the start of a trial nothing is counted.
const WARM_TICKS: usize = 10;

/// One phase of one run.
#[derive(Clone, Debug)]
pub struct PhaseResult {
    /// Which phase.
    pub phase: &'static str,
    /// Whether a limit can be right for it.
    pub is_judged: bool,
    /// Whether the load is above the capacity, so that a limit can be too high.
    pub is_overloaded: bool,
    /// The best fixed limit at its start and at its end.
    pub best: (u32, u32),
    /// Seconds until the limit is near that for good. None: it is not even at the end.
    pub settled_secs: Option<f64>,
    /// Of what could be served, the part that was: after 30 s.
    pub goodput: f64,
    /// The same for the whole phase.
    pub goodput_whole: f64,
    /// The least and the greatest limit.
    pub range: (u32, u32),
}

impl PhaseResult {
    /// Whether all promises were held.
    pub fn is_kept(&self) -> bool {
        let is_in_range = self.range.0 >= MIN && self.range.1 <= MAX;
        let is_near = self.settled_secs.is_some_and(|secs| secs <= NEAR_SECS);
        is_in_range && (!self.is_judged || (is_near && self.goodput >= GOODPUT))
    }
}

/// One run.
#[derive(Debug)]
pub struct AdaptiveReport {
    /// Which estimator.
    pub by: Estimator,
    /// Whether with its guard.
    pub is_guarded: bool,
    /// Phase by phase.
    pub phases: Vec<PhaseResult>,
}

impl AdaptiveReport {
    /// How it is called in tables.
    pub fn name(&self) -> String {
        let alone = if self.is_guarded { "" } else { ", alone" };
        format!("{}{alone}", name(self.by))
    }
}

/// The worst of several phases, be they of one run or of runs with several seeds.
#[derive(Clone, Copy, Debug)]
pub struct Worst {
    /// The longest time to settle. None: one did not.
    pub settled_secs: Option<f64>,
    /// The least goodput of any phase after 30 s.
    pub goodput: f64,
    /// The least goodput of any phase as a whole.
    pub goodput_whole: f64,
    /// The least and the greatest limit.
    pub range: (u32, u32),
}

impl Worst {
    /// The worst of all phases of all these runs.
    pub fn from_reports<'a>(reports: impl Iterator<Item = &'a AdaptiveReport>) -> Self {
        let mut worst = Self {
            settled_secs: Some(0.0),
            goodput: f64::INFINITY,
            goodput_whole: f64::INFINITY,
            range: (u32::MAX, 0),
        };
        for phase in reports.flat_map(|report| &report.phases) {
            let (low, high) = phase.range;
            worst.range = (worst.range.0.min(low), worst.range.1.max(high));
            if phase.is_judged {
                let both = worst.settled_secs.zip(phase.settled_secs);
                worst.settled_secs = both.map(|(one, other)| one.max(other));
                worst.goodput = worst.goodput.min(phase.goodput);
                worst.goodput_whole = worst.goodput_whole.min(phase.goodput_whole);
            }
        }
        worst
    }
}

/// The best fixed limits of each phase of a scenario, at its start and at its end.
///
/// # Errors
///
/// If a queue or an estimator does not take its settings.
pub fn best_of(scenario: &BackendScenario, seed: u64) -> Result<Vec<(u32, u32)>, Box<dyn Error>> {
    let mut known: Vec<(BackendCondition, u64, u32)> = Vec::new();
    let mut find = |condition: BackendCondition, load: u64| -> Result<u32, Box<dyn Error>> {
        let same = |one: &&(BackendCondition, u64, u32)| one.0 == condition && one.1 == load;
        if let Some(known) = known.iter().find(same) {
            return Ok(known.2);
        }
        let best = best_fixed(condition, load, scenario.is_bimodal, seed)?;
        known.push((condition, load, best));
        Ok(best)
    };
    let each = scenario.phases.iter();
    each.map(|phase| {
        let load = phase.load.min(TRIAL_LOAD);
        Ok((find(phase.from, load)?, find(phase.to, load)?))
    })
    .collect()
}

/// The smallest fixed limit within 1 % of the best: first in leaps of a quarter, then one by one.
fn best_fixed(
    condition: BackendCondition,
    load: u64,
    is_bimodal: bool,
    seed: u64,
) -> Result<u32, Box<dyn Error>> {
    let mut trials: Vec<(u32, u64)> = Vec::new();
    let mut limit = 1;
    let mut most = 0;
    // Beyond twice the best so far it only gets worse: the backend thrashes.
    while limit <= MAX {
        let good = served(limit, condition, load, is_bimodal, seed)?;
        most = most.max(good);
        trials.push((limit, good));
        if good * 3 < most * 2 {
            break;
        }
        limit += (limit / 4).max(1);
    }
    let is_enough = |good: u64| good * 100 >= most * 99;
    let at = trials
        .iter()
        .position(|&(_, good)| is_enough(good))
        .unwrap_or(0);
    let high = trials.get(at).map_or(1, |trial| trial.0);
    let low = at
        .checked_sub(1)
        .and_then(|at| trials.get(at))
        .map_or(0, |trial| trial.0);
    // Goodput only grows on the way up, so halving finds the edge.
    let (mut short, mut enough) = (low, high);
    while enough - short > 1 {
        let middle = (short + enough) / 2;
        if is_enough(served(middle, condition, load, is_bimodal, seed)?) {
            enough = middle;
        } else {
            short = middle;
        }
    }
    Ok(enough)
}

fn served(
    limit: u32,
    at: BackendCondition,
    load: u64,
    is_bimodal: bool,
    seed: u64,
) -> Result<u64, Box<dyn Error>> {
    let trial = BackendScenario {
        name: "trial",
        about: "",
        phases: vec![BackendPhase {
            name: "trial",
            secs: TRIAL_SECS,
            from: at,
            to: at,
            load,
            is_judged: false,
        }],
        is_bimodal,
    };
    let ticks = run(&trial, &mut Control::Fixed(limit), seed)?;
    Ok(ticks.iter().skip(WARM_TICKS).map(|tick| tick.good).sum())
}

/// Runs one estimator through a scenario.
///
/// # Errors
///
/// If a queue or an estimator does not take its settings.
pub fn report(
    scenario: &BackendScenario,
    best: &[(u32, u32)],
    by: Estimator,
    is_guarded: bool,
    seed: u64,
) -> Result<AdaptiveReport, Box<dyn Error>> {
    let mut control = if is_guarded {
        Control::guarded(by)?
    } else {
        Control::unguarded(by)?
    };
    let ticks = run(scenario, &mut control, seed)?;
    Ok(AdaptiveReport {
        by,
        is_guarded,
        phases: phases(scenario, best, &ticks)?,
    })
}

/// What a run through a scenario shows, phase by phase.
///
/// # Errors
///
/// If a phase is longer than can be counted.
pub fn phases(
    scenario: &BackendScenario,
    best: &[(u32, u32)],
    ticks: &[Tick],
) -> Result<Vec<PhaseResult>, TryFromIntError> {
    let mut rest = ticks;
    let phases = scenario.phases.iter().zip(best);
    phases
        .map(|(phase, best)| {
            let count = usize::try_from(phase.secs * 1_000_000_000 / TICK_NS)?;
            let (own, later) = rest.split_at(count.min(rest.len()));
            rest = later;
            Ok(phase_result(phase, *best, own))
        })
        .collect()
}

/// The best limit at a moment of a phase: on a ramp it moves evenly.
fn best_at(best: (u32, u32), share: f64) -> f64 {
    f64::from(best.0) + (f64::from(best.1) - f64::from(best.0)) * share
}

fn phase_result(phase: &BackendPhase, best: (u32, u32), ticks: &[Tick]) -> PhaseResult {
    let secs_of = |count: usize| count as f64 * TICK_NS as f64 / 1e9;
    let is_overloaded = phase.load >= 100;
    let is_near = |at: usize, tick: &Tick| {
        let best = best_at(best, at as f64 / ticks.len().max(1) as f64);
        f64::from(tick.range.0) * 2.0 >= best.floor()
            && (!is_overloaded || f64::from(tick.range.1) <= best.ceil() * 2.0)
    };
    let far = ticks
        .iter()
        .enumerate()
        .rposition(|(at, tick)| !is_near(at, tick));
    let settled = far.map_or(0, |at| at + 1);
    let share = |ticks: &[Tick]| {
        let good: u64 = ticks.iter().map(|tick| tick.good).sum();
        let came: u64 = ticks.iter().map(|tick| tick.came).sum();
        let could: f64 = ticks.iter().map(|tick| tick.capacity).sum();
        good as f64 / could.min(came as f64).max(1.0)
    };
    let late = ticks.iter().position(|tick| {
        let began_ns = ticks.first().map_or(0, |first| first.at_ns - TICK_NS);
        (tick.at_ns - began_ns) as f64 > NEAR_SECS * 1e9
    });
    let late = late.and_then(|at| ticks.get(at..)).unwrap_or_default();
    PhaseResult {
        phase: phase.name,
        is_judged: phase.is_judged,
        is_overloaded,
        best,
        settled_secs: (settled < ticks.len()).then(|| secs_of(settled)),
        goodput: share(late),
        goodput_whole: share(ticks),
        range: (
            ticks.iter().map(|tick| tick.range.0).min().unwrap_or(0),
            ticks.iter().map(|tick| tick.range.1).max().unwrap_or(0),
        ),
    }
}
