//! The promises of the adaptive limits, in a short version of `tollgate-sim adaptive`.

use tollgate_sim::adaptive::control::{Control, ESTIMATORS};
use tollgate_sim::adaptive::measure::{best_of, phases, report};
use tollgate_sim::adaptive::run::run;
use tollgate_sim::adaptive::scenario::{BackendScenario, all};
use tollgate_sim::command::{CommandError, run as command};

/// What is promised holds from 30 s on, so each phase is a little longer.
const SECS: u64 = 34;
/// One that the limits were made with, and one that they were not.
const SEEDS: [u64; 2] = [1, 2];

/// Half the servers need half the requests, and so half the time.
fn shrunk(name: &str) -> BackendScenario {
    let mut scenario = all(SECS).into_iter().find(|one| one.name == name).unwrap();
    for phase in &mut scenario.phases {
        phase.from.servers /= 2.0;
        phase.to.servers /= 2.0;
        phase.from.pool = phase.from.pool.map(|pool| pool / 2);
        phase.to.pool = phase.to.pool.map(|pool| pool / 2);
    }
    scenario
}

fn holds(scenario: &BackendScenario) {
    // It hardly depends on the seed, and takes as long to find as a run.
    let best = best_of(scenario, 1).unwrap();
    for (seed, by) in SEEDS
        .into_iter()
        .flat_map(|seed| ESTIMATORS.map(|by| (seed, by)))
    {
        let report = report(scenario, &best, by, true, seed).unwrap();
        for phase in &report.phases {
            let name = report.name();
            assert!(phase.is_kept(), "{name}, seed {seed}: {phase:?}");
        }
    }
}

#[test]
fn a_step_keeps_every_estimator_near_the_best_and_the_backend_busy() {
    holds(&shrunk("step"));
}

#[test]
fn a_ramp_keeps_every_estimator_near_the_best_and_the_backend_busy() {
    // Whole: its last quarter of half the servers would be five, where chance rules.
    let scenario = all(SECS).into_iter().find(|one| one.name == "ramp");
    holds(&scenario.unwrap());
}

#[test]
fn after_a_stall_every_estimator_is_near_the_best_and_the_backend_busy() {
    holds(&shrunk("stall"));
}

#[test]
fn after_an_outage_every_estimator_is_near_the_best_and_the_backend_busy() {
    holds(&shrunk("outage"));
}

#[test]
fn stable_timeouts_do_not_make_any_estimator_grow() {
    // Longer: what hangs is a few at a time, and four seconds of that are mostly chance.
    let scenario = all(60).into_iter().find(|one| one.name == "stuck");
    holds(&scenario.unwrap());
}

/// With only ten places left the 90 % are not held: one that hangs is a tenth of them. This is what is.
#[test]
fn stable_timeouts_of_a_small_backend_leave_four_fifths_of_it() {
    let scenario = shrunk("stuck");
    let best = best_of(&scenario, 1).unwrap();
    for (seed, by) in SEEDS
        .into_iter()
        .flat_map(|seed| ESTIMATORS.map(|by| (seed, by)))
    {
        let report = report(&scenario, &best, by, true, seed).unwrap();
        for phase in &report.phases {
            let name = report.name();
            let is_near = phase.settled_secs.is_some_and(|secs| secs <= 30.0);
            assert!(is_near, "{name}, seed {seed}: {phase:?}");
            assert!(phase.goodput >= 0.8, "{name}, seed {seed}: {phase:?}");
        }
    }
}

#[test]
fn the_best_fixed_limit_is_found_by_trying_and_is_what_the_backend_serves_at_once() {
    let best = best_of(&shrunk("step"), 1).unwrap();
    for ((from, to), servers) in best.into_iter().zip([20, 10, 20, 40]) {
        assert_eq!(from, to);
        assert!(from.abs_diff(servers) <= 1, "{from} for {servers}");
    }
}

#[test]
fn where_less_is_asked_for_than_can_be_served_a_limit_can_be_too_low_but_not_too_high() {
    let scenario = shrunk("loads");
    let best = best_of(&scenario, 1).unwrap();
    for by in ESTIMATORS {
        let report = report(&scenario, &best, by, true, 1).unwrap();
        for (phase, is_overloaded) in report.phases.iter().zip([true, false, false, true]) {
            assert_eq!(phase.is_overloaded, is_overloaded, "{phase:?}");
            assert!(phase.is_kept(), "{}: {phase:?}", report.name());
        }
    }
    let half = best.get(1).unwrap().0;
    let kept = |limit| {
        let ticks = run(&scenario, &mut Control::Fixed(limit), 1).unwrap();
        let found = phases(&scenario, &best, &ticks).unwrap();
        found.get(1).unwrap().is_kept()
    };
    assert!(kept(half) && kept(half * 3));
    assert!(!kept(half / 2 - 1), "too low is too low at any load");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let scenario = shrunk("stall");
    let by = tollgate::shape::Estimator::Gradient2;
    let ticks = |seed| run(&scenario, &mut Control::guarded(by).unwrap(), seed).unwrap();
    assert_eq!(ticks(1), ticks(1));
    assert_ne!(ticks(1), ticks(2));
}

#[test]
fn a_limit_that_ignores_the_backend_breaks_the_promise_so_the_measure_can_fail() {
    let scenario = shrunk("step");
    let ticks = run(&scenario, &mut Control::Fixed(200), 1).unwrap();
    let good: u64 = ticks.iter().map(|tick| tick.good).sum();
    let could: f64 = ticks.iter().map(|tick| tick.capacity).sum();
    assert!((good as f64) < could * 0.5, "{good} of {could}");
}

#[test]
fn a_wrong_call_says_what_is_wrong() {
    for args in ["adaptive --secs 30", "adaptive --secs", "adaptive --fast 1"] {
        let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
        let done = command(&args, &mut Vec::new(), &mut Vec::new());
        assert!(matches!(done, Err(CommandError::Usage(_))), "{args:?}");
    }
}
