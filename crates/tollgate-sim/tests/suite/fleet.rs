//! Simulated fleets: a few of them keep every promise, and the checks find the seeded defects.
//! `tollgate-sim fleet` runs many more.

use tollgate::Limit;
use tollgate_policy::{Quota, Sharing};
use tollgate_sim::fleet::check;
use tollgate_sim::fleet::network::Mutant;
use tollgate_sim::fleet::plan::{FaultPlan, FleetPlan};
use tollgate_sim::fleet::{FleetReport, run};

/// A simulation without faults in which three nodes get five times their limit.
fn without_faults(mutant: Mutant) -> FleetPlan {
    let mut plan = FleetPlan::from_seed(1);
    plan.limit = Limit::token_bucket("1000/s".parse().unwrap(), 1000).unwrap();
    (plan.nodes, plan.keys) = (3, 1);
    (plan.lasts_ns, plan.gap_ns) = (3_000_000_000, 600_000);
    (plan.cost_max, plan.cancels_one_in, plan.drift) = (1, 0, 0);
    plan.network.latency_max_ns = 1_000_000;
    (plan.network.lost_one_in, plan.network.duplicated_one_in) = (0, 0);
    plan.faults = FaultPlan::default();
    plan.mutant = mutant;
    plan
}

fn lease(plan: &FleetPlan) -> FleetReport {
    run(plan, Sharing::Lease).unwrap()
}

fn violations(report: &FleetReport) -> Vec<&'static str> {
    report
        .violations
        .iter()
        .map(|violation| violation.promise)
        .collect()
}

#[test]
fn a_fleet_without_faults_keeps_every_promise_with_few_calls() {
    let (leased, exact) = (lease(&without_faults(Mutant::None)), {
        run(&without_faults(Mutant::None), Sharing::Exact).unwrap()
    });
    assert_eq!(violations(&leased), [""; 0]);
    assert_eq!(violations(&exact), [""; 0]);
    let passed = |report: &FleetReport| report.history.passed.len();
    assert!(passed(&leased) <= passed(&exact));
    assert!(
        passed(&leased) * 100 >= passed(&exact) * 97,
        "{} of {}",
        passed(&leased),
        passed(&exact)
    );
    assert!(leased.history.answered * 20 < exact.history.answered);
}

#[test]
fn the_same_seed_is_the_same_simulation() {
    for seed in 1..25 {
        let plan = FleetPlan::from_seed(seed);
        let quota = Quota::plain(plan.limit.clone());
        for sharing in Sharing::ALL.into_iter().filter(|way| quota.supports(*way)) {
            let history = || format!("{:?}", run(&plan, sharing).unwrap().history);
            assert!(history() == history(), "seed {seed}, {}", sharing.name());
        }
    }
}

#[test]
fn a_store_that_grants_without_charging_is_found() {
    let report = lease(&without_faults(Mutant::GrantsWithoutCharging));
    assert!(
        violations(&report).contains(&"conservation"),
        "{:?}",
        report.violations
    );
}

#[test]
fn a_store_that_refunds_twice_is_found() {
    let mut plan = without_faults(Mutant::RefundsTwice);
    plan.cancels_one_in = 2;
    let report = run(&plan, Sharing::Exact).unwrap();
    assert!(
        violations(&report).contains(&"the stated bound"),
        "{:?}",
        report.violations
    );
}

#[test]
fn nodes_that_use_the_whole_limit_as_their_share_are_found() {
    let mut plan = without_faults(Mutant::SharesNothing);
    plan.faults.cut = Some((500_000_000, 2_500_000_000));
    let report = lease(&plan);
    assert!(
        violations(&report).contains(&"share"),
        "{:?}",
        report.violations
    );
    plan.mutant = Mutant::None;
    assert_eq!(violations(&lease(&plan)), [""; 0]);
}

/// The same, with a log of as much in a second.
fn logged(mutant: Mutant) -> FleetPlan {
    let mut plan = without_faults(mutant);
    let limit = Limit::sliding_log("1000/s".parse().unwrap()).unwrap();
    plan.limit = limit.with_max_keys(16);
    plan
}

#[test]
fn a_log_is_leased_and_keeps_every_promise_but_cannot_be_synced() {
    assert!(run(&logged(Mutant::None), Sharing::Sync).is_err());
    for sharing in [Sharing::Exact, Sharing::Lease] {
        let report = run(&logged(Mutant::None), sharing).unwrap();
        assert_eq!(violations(&report), [""; 0], "{}", sharing.name());
        let passed = report.history.passed.len();
        // Three seconds, and the second that a log has at first.
        assert!((2_900..=4_000).contains(&passed), "{passed}");
    }
}

#[test]
fn a_duplicated_report_counts_twice_and_never_admits_more() {
    let mut plan = without_faults(Mutant::None);
    let once = run(&plan, Sharing::Sync).unwrap();
    plan.network.duplicated_one_in = 4;
    let twice = run(&plan, Sharing::Sync).unwrap();
    assert_eq!(violations(&twice), [""; 0]);
    assert!(twice.history.message_faults > 0);
    let net = |report: &FleetReport| {
        // A copy reports what passed as usage, which the store takes as far as there is room.
        let totals = report.history.totals[&0];
        totals.charged + totals.owed - totals.given_back
    };
    let used = |report: &FleetReport| {
        let passed = report.history.passed.iter();
        passed.filter(|p| !p.cancelled).map(|p| p.cost).sum::<u64>()
    };
    assert_eq!(net(&once), used(&once));
    assert!(net(&twice) > used(&twice));
    assert!(used(&twice) < used(&once));
}

#[test]
fn a_clock_that_is_set_forward_lets_a_copy_earn_as_much_early_and_no_more() {
    let mut plan = without_faults(Mutant::None);
    (plan.nodes, plan.gap_ns) = (1, 200_000);
    let quota = Quota::plain(plan.limit.clone());
    let mut early = 0;
    // Moments between two pushes, and beside them.
    for at_ms in (1_010..1_300).step_by(30) {
        plan.faults.node_steps = vec![(at_ms * 1_000_000, 0, 270_000_000)];
        let report = run(&plan, Sharing::Sync).unwrap();
        assert_eq!(violations(&report), [""; 0]);
        // Would it be too much without the step?
        plan.faults.node_steps.clear();
        let found = check::stated_bound(&plan, &quota, Sharing::Sync, &report.history);
        early += usize::from(found.is_some());
    }
    assert!(early > 0, "no clock ever earned anything early");
}

#[test]
fn a_crashed_node_keeps_its_lease_for_a_term_at_most() {
    let mut plan = without_faults(Mutant::None);
    plan.faults.crashes = vec![(1_000_000_000, 0)];
    let report = lease(&plan);
    assert_eq!(violations(&report), [""; 0]);
    let whole = lease(&without_faults(Mutant::None)).history.passed.len();
    // At most a quarter of the limit is leased, a third of that at one node.
    assert!(report.history.passed.len() + 100 >= whole);
}
