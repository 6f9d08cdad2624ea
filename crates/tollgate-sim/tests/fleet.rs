//! Worlds in which a fleet shares a limit: a few of them keep every promise, and the checks find promises that
//! are broken on purpose. `tollgate-sim fleet` runs many more.

#![allow(clippy::unwrap_used, reason = "a test may")]

use tollgate::Limit;
use tollgate::policy::Sharing;
use tollgate_sim::fleet::link::Planted;
use tollgate_sim::fleet::plan::{Plan, Troubles};
use tollgate_sim::fleet::{Report, run};

/// A world without any trouble in which three nodes ask for five times their limit.
fn calm(planted: Planted) -> Plan {
    let mut plan = Plan::of(1);
    plan.limit = Limit::token_bucket("1000/s".parse().unwrap(), 1000).unwrap();
    (plan.nodes, plan.keys) = (3, 1);
    (plan.lasts_ns, plan.gap_ns) = (3_000_000_000, 600_000);
    (plan.cost_max, plan.cancels_one_in, plan.drift) = (1, 0, 0);
    plan.weather.slow_ns = 1_000_000;
    (plan.weather.lost_one_in, plan.weather.twice_one_in) = (0, 0);
    plan.troubles = Troubles::default();
    plan.planted = planted;
    plan
}

fn lease(plan: &Plan) -> Report {
    run(plan, Sharing::Lease).unwrap()
}

fn broken(report: &Report) -> Vec<&'static str> {
    report.broken.iter().map(|broken| broken.promise).collect()
}

#[test]
fn a_calm_fleet_keeps_every_promise_and_hardly_asks() {
    let (lent, exact) = (lease(&calm(Planted::Nothing)), {
        run(&calm(Planted::Nothing), Sharing::Exact).unwrap()
    });
    assert_eq!(broken(&lent), [""; 0]);
    assert_eq!(broken(&exact), [""; 0]);
    let passed = |report: &Report| report.history.passed.len();
    assert!(passed(&lent) <= passed(&exact));
    assert!(
        passed(&lent) * 100 >= passed(&exact) * 97,
        "{} of {}",
        passed(&lent),
        passed(&exact)
    );
    assert!(lent.history.answered * 20 < exact.history.answered);
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 1..40 {
        let plan = Plan::of(seed);
        let (one, other) = (lease(&plan), lease(&plan));
        assert_eq!(
            format!("{:?}", one.history),
            format!("{:?}", other.history),
            "seed {seed}"
        );
    }
}

#[test]
fn a_store_that_lends_what_it_did_not_charge_is_found() {
    let report = lease(&calm(Planted::GrantsWithoutCharging));
    assert!(
        broken(&report).contains(&"conservation"),
        "{:?}",
        report.broken
    );
}

#[test]
fn a_store_that_gives_back_twice_is_found() {
    let mut plan = calm(Planted::RefundsTwice);
    plan.cancels_one_in = 2;
    let report = run(&plan, Sharing::Exact).unwrap();
    assert!(
        broken(&report).contains(&"the stated bound"),
        "{:?}",
        report.broken
    );
}

#[test]
fn nodes_that_each_take_the_whole_limit_for_their_share_are_found() {
    let mut plan = calm(Planted::SharesNothing);
    plan.troubles.cut = Some((500_000_000, 2_500_000_000));
    let report = lease(&plan);
    assert!(broken(&report).contains(&"share"), "{:?}", report.broken);
    plan.planted = Planted::Nothing;
    assert_eq!(broken(&lease(&plan)), [""; 0]);
}

#[test]
fn a_node_that_dies_leaves_its_loan_behind_for_a_term_at_most() {
    let mut plan = calm(Planted::Nothing);
    plan.troubles.crashes = vec![(1_000_000_000, 0)];
    let report = lease(&plan);
    assert_eq!(broken(&report), [""; 0]);
    let whole = lease(&calm(Planted::Nothing)).history.passed.len();
    // A quarter of the limit is on loan at the most, a third of that at one node.
    assert!(report.history.passed.len() + 100 >= whole);
}
