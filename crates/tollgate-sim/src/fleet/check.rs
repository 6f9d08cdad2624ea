//! The promises, as plain functions over the history of a run.
//!
//! | promise | statement |
//! |---|---|
//! | conservation | the store charged all that passed: no unit was spent twice |
//! | the stated bound | in no stretch of time did more pass than the limit and `Quota::max_overshoot` |
//! | places | at no moment were more permits held than the limit |
//! | share | what the fallback of a node admits is at most its share |
//! | waste | what was granted was used or given back, but for what a lost message or a crash may cost |
//! | room | a key far below its limit is never refused |
//! | in time | every request is answered within the deadline of the store |
//! | liveness | a refused key is admitted again in time |
//!
//! They use only the history: which request passed when, at which node, for which key and by which origin, and the totals
//! of the store. They share nothing with the code that decides.

use std::collections::BTreeMap;
use std::fmt;

use tollgate::{Algorithm, Origin, Rate};
use tollgate_policy::{Quota, Sharing};

use super::plan::FleetPlan;

/// A copy that was not synced for so long is stale.
const COPY_MAX_NS: u64 = 500_000_000;

/// A request that passed.
#[derive(Clone, Copy, Debug)]
pub struct AdmittedRequest {
    /// When, in simulation time.
    pub at: u64,
    /// When, by the clock of the store.
    pub at_store: u64,
    /// The node.
    pub node: u32,
    /// The key.
    pub key: u64,
    /// The cost.
    pub cost: u64,
    /// Which path decided.
    pub origin: Origin,
    /// Whether all of it was given back.
    pub cancelled: bool,
    /// The end of its permit, for concurrency limits.
    pub until: u64,
}

impl AdmittedRequest {
    fn is_degraded(&self) -> bool {
        self.origin == Origin::Degraded
    }

    fn step(&self) -> (u64, u64) {
        (self.at, self.cost)
    }
}

/// A request and its result.
#[derive(Clone, Copy, Debug)]
pub struct RequestRecord {
    /// When it came, in simulation time.
    pub at: u64,
    /// The key.
    pub key: u64,
    /// The cost.
    pub cost: u64,
    /// Whether it was refused.
    pub is_refused: bool,
}

/// The history of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All requests, in the order of the answers.
    pub requests: Vec<RequestRecord>,
    /// Admitted requests, in order.
    pub passed: Vec<AdmittedRequest>,
    /// Requests in all.
    pub asked: u64,
    /// For each key, what the store charged and what it was given back.
    pub totals: BTreeMap<u64, super::fake_store::KeyTotals>,
    /// Messages lost, late or duplicated.
    pub message_faults: u64,
    /// Crashes of nodes.
    pub crashes: u64,
    /// Keys that a node still refused at the end of the run: node, key.
    pub locked_out: Vec<(u32, u64)>,
    /// Calls that the store answered.
    pub answered: u64,
    /// The longest that a request waited for its answer, in nanoseconds.
    pub slowest: u64,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub promise: &'static str,
    /// How.
    pub how: String,
}

impl Violation {
    fn new(promise: &'static str, how: String) -> Option<Violation> {
        Some(Violation { promise, how })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.how)
    }
}

/// All promises that this history breaks.
pub fn all(plan: &FleetPlan, sharing: Sharing, history: &History) -> Vec<Violation> {
    let quota = Quota::plain(plan.limit.clone());
    let mut violations = Vec::new();
    // Usage of copies is charged afterwards: by nodes that did not crash, and of a window what it holds.
    let is_copied = sharing == Sharing::Sync;
    let is_window = !matches!(
        plan.limit.algorithm(),
        Algorithm::TokenBucket { .. } | Algorithm::Gcra { .. }
    );
    if !is_copied || (history.crashes == 0 && !is_window && !plan.faults.forgets()) {
        violations.extend(conservation(sharing, history));
    }
    // A store that forgets lets more pass by as much as it forgot.
    if !plan.faults.forgets() {
        violations.extend(stated_bound(plan, &quota, sharing, history));
        violations.extend(places(&quota, history));
    }
    violations.extend(share(plan, &quota, history));
    violations.extend(waste(plan, &quota, sharing, history));
    violations.extend(room(plan, &quota, sharing, history));
    violations.extend(liveness(history));
    violations.extend(in_time(plan, history));
    violations
}

/// No request waits for longer than the deadline of the store. A fast clock, or one that is set forward, makes it less.
pub fn in_time(plan: &FleetPlan, history: &History) -> Option<Violation> {
    let most = plan.network.deadline_ns + plan.network.deadline_ns / 1000;
    (history.slowest > most).then(|| Violation {
        promise: "in time",
        how: format!("a request waited for {} us", history.slowest / 1000),
    })
}

fn keys(history: &History) -> impl Iterator<Item = u64> {
    let keys: std::collections::BTreeSet<u64> = history.passed.iter().map(|p| p.key).collect();
    keys.into_iter()
}

/// All that passed was granted.
pub fn conservation(sharing: Sharing, history: &History) -> Option<Violation> {
    for key in keys(history) {
        let of_key = history
            .passed
            .iter()
            .filter(|p| p.key == key && !p.is_degraded());
        let used: u64 = of_key.filter(|p| !p.cancelled).map(|p| p.cost).sum();
        let totals = history.totals.get(&key).copied().unwrap_or_default();
        // A copy reports earlier usage with a charge. That includes what the fallback admitted, which is not in `used`.
        let reported = if sharing == Sharing::Sync {
            totals.owed
        } else {
            0
        };
        let granted = (totals.charged + reported).saturating_sub(totals.given_back);
        if used > granted {
            let how = format!(
                "key {key}: {used} units passed, {} were charged and {} given back",
                totals.charged, totals.given_back
            );
            return Violation::new("conservation", how);
        }
    }
    None
}

/// In no stretch of time more than the limit and what is stated.
pub fn stated_bound(
    plan: &FleetPlan,
    quota: &Quota,
    sharing: Sharing,
    history: &History,
) -> Option<Violation> {
    let mut above = quota.max_overshoot(sharing, plan.nodes);
    if sharing == Sharing::Sync {
        // Unsynced usage is lost with a node, and reported late by the previous policy.
        let reloads = plan.faults.reloads.len() as u64 * u64::from(plan.nodes);
        let part = (2 * quota.advertised().0).div_ceil(u64::from(plan.nodes));
        above += (history.crashes + reloads) * part;
    }
    for key in keys(history) {
        let of_key = history.passed.iter();
        let of_key = of_key.filter(|p| p.key == key && !p.is_degraded() && !p.cancelled);
        let excess = match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, .. } | Algorithm::Gcra { rate, .. } => {
                let (burst, _) = quota.advertised();
                // A charge passes at the node when its answer arrives.
                let late = rate.earned_in(tollgate::Span::from_nanos(plan.network.deadline_ns));
                // With a copy a node earns by its own clock, also when that is set forward, until the copy is stale.
                let steps = plan.faults.node_steps.iter();
                let set = match sharing {
                    Sharing::Sync => steps.map(|(.., by)| (*by).min(COPY_MAX_NS)).sum(),
                    _ => 0,
                };
                let early = rate.earned_in(tollgate::Span::from_nanos(set));
                leaks_over(
                    of_key.map(AdmittedRequest::step),
                    rate,
                    burst + above + early,
                    late,
                )
            }
            Algorithm::FixedWindow { limit, window, .. } => {
                let mut windows: BTreeMap<u64, u64> = BTreeMap::new();
                // What the store decided at the end of a window may pass at the beginning of the next.
                let late = plan.network.deadline_ns;
                let is_sure = |p: &&AdmittedRequest| {
                    p.origin != Origin::Fresh || p.at_store % window.as_nanos() >= late
                };
                for p in of_key.filter(is_sure) {
                    *windows.entry(p.at_store / window.as_nanos()).or_default() += p.cost;
                }
                let most = windows.values().copied().max().unwrap_or(0);
                (most > limit + above).then(|| most - limit)
            }
            // What was decided in a window passes a little later: in less than one at the most the limit.
            Algorithm::SlidingLog { limit, window } => {
                let window = window.as_nanos().saturating_sub(plan.network.deadline_ns);
                let most = most_within(of_key, window);
                (most > limit + above).then(|| most - limit)
            }
            // The estimate alone may let almost twice the limit pass.
            Algorithm::SlidingWindow { limit, window, .. } => {
                let most = most_within(of_key, window.as_nanos());
                (most > 2 * limit + above).then(|| most - limit)
            }
            _ => None,
        };
        if let Some(excess) = excess {
            let how = format!("key {key}: {excess} above the limit, {above} are stated");
            return Violation::new("the stated bound", how);
        }
    }
    None
}

/// Feeds a bucket of this depth that drains at `rate`, and returns by how much it overflowed.
fn leaks_over(
    passed: impl Iterator<Item = (u64, u64)>,
    rate: Rate,
    depth: u64,
    slack: u64,
) -> Option<u64> {
    // In ticks: `units` of them in a nanosecond, `per` of them for one unit.
    let (units, per) = (u128::from(rate.units()), u128::from(rate.per().as_nanos()));
    let room = (u128::from(depth) + u128::from(slack)) * per;
    let (mut level, mut last) = (0_u128, 0_u64);
    for (at, cost) in passed {
        let drained = u128::from(at.saturating_sub(last)) * units;
        level = level.saturating_sub(drained) + u128::from(cost) * per;
        last = at;
        // Tolerates clocks that are slow by a thousandth.
        if level > room + room / 1000 + per {
            return Some(u64::try_from((level - room).div_ceil(per)).unwrap_or(u64::MAX) + depth);
        }
    }
    None
}

fn most_within<'a>(passed: impl Iterator<Item = &'a AdmittedRequest>, window: u64) -> u64 {
    let passed: Vec<&AdmittedRequest> = passed.collect();
    let (mut from, mut sum, mut most) = (0, 0, 0);
    for p in &passed {
        sum += p.cost;
        while let Some(first) = passed.get(from)
            && first.at + window <= p.at
        {
            sum -= first.cost;
            from += 1;
        }
        most = most.max(sum);
    }
    most
}

/// At no moment more permits than the limit.
pub fn places(quota: &Quota, history: &History) -> Option<Violation> {
    let Algorithm::Concurrency { limit, .. } = *quota.limit.algorithm() else {
        return None;
    };
    for key in keys(history) {
        let mut steps: Vec<(u64, i64)> = Vec::new();
        for p in history
            .passed
            .iter()
            .filter(|p| p.key == key && !p.is_degraded())
        {
            let cost = i64::try_from(p.cost).unwrap_or(i64::MAX);
            steps.extend([(p.at, cost), (p.until, -cost)]);
        }
        // At one moment, releases come first.
        steps.sort_unstable();
        let mut held = 0_i64;
        for (at, by) in steps {
            held += by;
            if held > i64::try_from(limit).unwrap_or(i64::MAX) {
                let how = format!("key {key}: {held} places of {limit} at {at} ns");
                return Violation::new("places", how);
            }
        }
    }
    None
}

/// What the fallback of a node admits is at most its share.
pub fn share(plan: &FleetPlan, quota: &Quota, history: &History) -> Option<Violation> {
    let nodes = u64::from(plan.nodes);
    let (whole, period) = quota.advertised();
    for node in 0..plan.nodes {
        for key in keys(history) {
            let alone = history.passed.iter();
            let alone = alone.filter(|p| p.node == node && p.key == key);
            let alone = alone.filter(|p| p.is_degraded() && !p.cancelled);
            // A restarted node has lost its usage.
            let lives = 1 + plan
                .faults
                .crashes
                .iter()
                .filter(|(_, of)| *of == node)
                .count();
            let each = (whole / nodes).max(1) * lives as u64;
            let excess = match *quota.limit.algorithm() {
                Algorithm::TokenBucket { rate, .. } | Algorithm::Gcra { rate, .. } => {
                    let per = rate.per().as_nanos().saturating_mul(nodes);
                    let slower = Rate::new(rate.units(), tollgate::Span::from_nanos(per));
                    // A clock that is set forward earns.
                    let steps = plan.faults.node_steps.iter();
                    let set: u64 = steps
                        .filter(|(_, of, _)| *of == node)
                        .map(|(.., by)| by)
                        .sum();
                    slower.ok().and_then(|rate| {
                        let earned = rate.earned_in(tollgate::Span::from_nanos(set));
                        leaks_over(alone.map(AdmittedRequest::step), rate, each, earned + 1)
                    })
                }
                Algorithm::FixedWindow { .. }
                | Algorithm::SlidingWindow { .. }
                | Algorithm::SlidingLog { .. } => {
                    // Tolerates clocks that are fast by a thousandth.
                    let most = most_within(alone, period.as_nanos() - period.as_nanos() / 1000);
                    let steps = plan.faults.node_steps.iter();
                    let set = steps.filter(|(_, of, _)| *of == node).count() as u64;
                    let is_log = matches!(quota.limit.algorithm(), Algorithm::SlidingLog { .. });
                    // Two windows of a node's own may meet in any stretch of one; a log has none.
                    let meet = if is_log { 1 } else { 2 };
                    (most > (meet + set) * each).then(|| most - each)
                }
                _ => None,
            };
            if let Some(excess) = excess {
                let how = format!("node {node}, key {key}: {excess} above its share of {each}");
                return Violation::new("share", how);
            }
        }
    }
    None
}

/// What was granted was used or given back.
pub fn waste(
    plan: &FleetPlan,
    quota: &Quota,
    sharing: Sharing,
    history: &History,
) -> Option<Violation> {
    let (whole, _) = quota.advertised();
    // A lost message, or a crash, may cost what it carried or held.
    let block = match sharing {
        Sharing::Exact => 0,
        Sharing::Lease => whole / 4,
        // A report that may be lost is repeated.
        Sharing::Sync => whole,
    };
    let each = block + plan.cost_max;
    let reloads = match sharing {
        // The next policy repeats a report in flight.
        Sharing::Sync => plan.faults.reloads.len() as u64 * u64::from(plan.nodes),
        _ => 0,
    };
    let lost = history.message_faults + history.crashes * plan.keys * 64 + reloads;
    for (key, totals) in &history.totals {
        let of_key = history.passed.iter();
        let of_key = of_key.filter(|p| p.key == *key && !p.is_degraded() && !p.cancelled);
        let used: u64 = of_key.map(|p| p.cost).sum();
        let gone = totals
            .charged
            .saturating_sub(totals.given_back)
            .saturating_sub(used);
        // Places that were used are given back, too.
        if gone > lost.saturating_mul(each) {
            let how = format!(
                "key {key}: {gone} of {} units were neither used nor returned, with {lost} lost messages",
                totals.charged
            );
            return Violation::new("waste", how);
        }
    }
    None
}

/// Up to this fraction of the limit, no request is refused: a quarter may be leased to other nodes, and a node leases at
/// most half of what is left.
const FAR: u64 = 4;

/// A key far below its limit is never refused, as long as there are no faults.
pub fn room(
    plan: &FleetPlan,
    quota: &Quota,
    sharing: Sharing,
    history: &History,
) -> Option<Violation> {
    let (Algorithm::TokenBucket { rate, .. } | Algorithm::Gcra { rate, .. }) =
        *quota.limit.algorithm()
    else {
        return None;
    };
    if sharing == Sharing::Sync || history.message_faults > 0 || plan.faults.has_any() {
        return None;
    }
    let depth = quota.advertised().0 / FAR;
    for key in keys(history) {
        let mut requests: Vec<RequestRecord> = history
            .requests
            .iter()
            .filter(|w| w.key == key)
            .copied()
            .collect();
        requests.sort_by_key(|request| request.at);
        let costs = requests.iter().map(|request| (request.at, request.cost));
        let refused = requests.iter().find(|request| request.is_refused);
        if let Some(refused) = refused
            && leaks_over(costs, rate, depth, 0).is_none()
        {
            let how = format!(
                "key {key} is refused at {} ns and never asked for more than {depth} at once",
                refused.at
            );
            return Violation::new("room", how);
        }
    }
    None
}

/// A refused key is admitted again.
pub fn liveness(history: &History) -> Option<Violation> {
    let (node, key) = history.locked_out.first()?;
    Violation::new(
        "liveness",
        format!("node {node} still refuses key {key} when everything is earned back"),
    )
}
