//! What must hold, as plain functions over what happened.
//!
//! | promise | says |
//! |---|---|
//! | conservation | all that passed, the store or a loan granted: no unit was spent twice |
//! | the stated bound | in no stretch of time did more pass than the limit and [`Quota::above`] |
//! | places | at no moment were more places held than there are |
//! | share | what nodes let pass alone is at most their shares |
//! | waste | what was granted was used or given back, but for what a lost message or a crash may cost |
//! | room | whoever stays far below the limit is never refused |
//! | in time | every request is answered within the deadline of the store |
//! | liveness | whoever was refused is free again in time |
//!
//! They know nothing of how nodes decide: only when what passed where, for whom and why, and the books of the
//! store.

use std::collections::BTreeMap;
use std::fmt;

use tollgate::{Algorithm, Origin, Rate};
use tollgate_policy::{Quota, Sharing};

use super::plan::Plan;

/// A copy of which the store has not spoken for so long is not believed.
const COPY_MAX_NS: u64 = 500_000_000;

/// A request that passed.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// When, in the time of the world.
    pub at: u64,
    /// When, by the clock of the store.
    pub at_store: u64,
    /// By which node.
    pub node: u32,
    /// For whom.
    pub key: u64,
    /// How much.
    pub cost: u64,
    /// Who decided.
    pub origin: Origin,
    /// Was it given back, all of it?
    pub cancelled: bool,
    /// Until when it held its place, where places are limited.
    pub until: u64,
}

impl Passed {
    fn alone(&self) -> bool {
        self.origin == Origin::Degraded
    }

    fn step(&self) -> (u64, u64) {
        (self.at, self.cost)
    }
}

/// A request, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// When it came, in the time of the world.
    pub at: u64,
    /// For whom.
    pub key: u64,
    /// How much.
    pub cost: u64,
    /// Did it not pass?
    pub is_refused: bool,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Everything that was asked for, in the order of the answers.
    pub wishes: Vec<Wish>,
    /// What passed, in order.
    pub passed: Vec<Passed>,
    /// Requests in all.
    pub asked: u64,
    /// For each key, what the store charged and what it was given back.
    pub books: BTreeMap<u64, super::depot::Book>,
    /// Messages lost, late or doubled.
    pub mishaps: u64,
    /// Nodes that died.
    pub crashes: u64,
    /// Keys that were refused by a node though they must be free again: node, key.
    pub locked_out: Vec<(u32, u64)>,
    /// Questions that the store answered.
    pub answered: u64,
    /// The longest that a request waited for its answer, in nanoseconds.
    pub slowest: u64,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub promise: &'static str,
    /// How.
    pub how: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.how)
    }
}

/// All promises that this history broke.
pub fn all(plan: &Plan, sharing: Sharing, history: &History) -> Vec<Broken> {
    let quota = Quota::plain(plan.limit.clone());
    let mut broken = Vec::new();
    // What passes by copies is charged afterwards: by whoever lives, and of a window what it holds.
    let is_copied = sharing == Sharing::Sync;
    let is_window = !matches!(
        plan.limit.algorithm(),
        Algorithm::TokenBucket { .. } | Algorithm::Gcra { .. }
    );
    if !is_copied || (history.crashes == 0 && !is_window && !plan.troubles.forgets()) {
        broken.extend(conservation(sharing, history));
    }
    // A store that forgets lets more pass by as much as it forgot.
    if !plan.troubles.forgets() {
        broken.extend(stated_bound(plan, &quota, sharing, history));
        broken.extend(places(&quota, history));
    }
    broken.extend(share(plan, &quota, history));
    broken.extend(waste(plan, &quota, sharing, history));
    broken.extend(room(plan, &quota, sharing, history));
    broken.extend(liveness(history));
    broken.extend(in_time(plan, history));
    broken
}

/// Nobody waits for longer than the store may take. A clock that runs too fast or is set forward makes it less.
pub fn in_time(plan: &Plan, history: &History) -> Option<Broken> {
    let most = plan.weather.deadline_ns + plan.weather.deadline_ns / 1000;
    (history.slowest > most).then(|| Broken {
        promise: "in time",
        how: format!("a request waited for {} us", history.slowest / 1000),
    })
}

fn keys(history: &History) -> impl Iterator<Item = u64> {
    let keys: std::collections::BTreeSet<u64> = history.passed.iter().map(|p| p.key).collect();
    keys.into_iter()
}

/// All that passed was granted.
pub fn conservation(sharing: Sharing, history: &History) -> Option<Broken> {
    for key in keys(history) {
        let of_key = history.passed.iter().filter(|p| p.key == key && !p.alone());
        let used: u64 = of_key.filter(|p| !p.cancelled).map(|p| p.cost).sum();
        let book = history.books.get(&key).copied().unwrap_or_default();
        // Copies tell with a request what passed before. What was let pass alone is among it and not among `used`.
        let told = if sharing == Sharing::Sync {
            book.owed
        } else {
            0
        };
        let granted = (book.charged + told).saturating_sub(book.given_back);
        if used > granted {
            let how = format!(
                "key {key}: {used} units passed, {} were charged and {} given back",
                book.charged, book.given_back
            );
            return Some(Broken {
                promise: "conservation",
                how,
            });
        }
    }
    None
}

/// In no stretch of time more than the limit and what is stated.
pub fn stated_bound(
    plan: &Plan,
    quota: &Quota,
    sharing: Sharing,
    history: &History,
) -> Option<Broken> {
    let mut above = quota.above(sharing, plan.nodes);
    if sharing == Sharing::Sync {
        // What the store had not heard of is forgotten with a node, and told late by the policy before.
        let reloads = plan.troubles.reloads.len() as u64 * u64::from(plan.nodes);
        let part = (2 * quota.advertised().0).div_ceil(u64::from(plan.nodes));
        above += (history.crashes + reloads) * part;
    }
    for key in keys(history) {
        let of_key = history.passed.iter();
        let of_key = of_key.filter(|p| p.key == key && !p.alone() && !p.cancelled);
        let excess = match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, .. } | Algorithm::Gcra { rate, .. } => {
                let (burst, _) = quota.advertised();
                // What was decided there passes here when the answer has come.
                let late = rate.earned_in(tollgate::Span::from_nanos(plan.weather.deadline_ns));
                // By a copy a node earns by its own clock, also what that is set forward, until the copy is too old.
                let steps = plan.troubles.node_steps.iter();
                let set = match sharing {
                    Sharing::Sync => steps.map(|(.., by)| (*by).min(COPY_MAX_NS)).sum(),
                    _ => 0,
                };
                let early = rate.earned_in(tollgate::Span::from_nanos(set));
                leaks_over(of_key.map(Passed::step), rate, burst + above + early, late)
            }
            Algorithm::FixedWindow { limit, window, .. } => {
                let mut windows: BTreeMap<u64, u64> = BTreeMap::new();
                // What the store decided at the end of a window may pass at the beginning of the next.
                let late = plan.weather.deadline_ns;
                let is_sure = |p: &&Passed| {
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
                let window = window.as_nanos().saturating_sub(plan.weather.deadline_ns);
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
            return Some(Broken {
                promise: "the stated bound",
                how,
            });
        }
    }
    None
}

/// Runs a bucket of this depth beside, that drains at `rate`, and tells by how much it overflowed.
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
        // Clocks that run too slow by a thousandth are believed.
        if level > room + room / 1000 + per {
            return Some(u64::try_from((level - room).div_ceil(per)).unwrap_or(u64::MAX) + depth);
        }
    }
    None
}

fn most_within<'a>(passed: impl Iterator<Item = &'a Passed>, window: u64) -> u64 {
    let passed: Vec<&Passed> = passed.collect();
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

/// At no moment more places than there are.
pub fn places(quota: &Quota, history: &History) -> Option<Broken> {
    let Algorithm::Concurrency { limit, .. } = *quota.limit.algorithm() else {
        return None;
    };
    for key in keys(history) {
        let mut steps: Vec<(u64, i64)> = Vec::new();
        for p in history.passed.iter().filter(|p| p.key == key && !p.alone()) {
            let cost = i64::try_from(p.cost).unwrap_or(i64::MAX);
            steps.extend([(p.at, cost), (p.until, -cost)]);
        }
        // Whoever leaves at a moment leaves first.
        steps.sort_unstable();
        let mut held = 0_i64;
        for (at, by) in steps {
            held += by;
            if held > i64::try_from(limit).unwrap_or(i64::MAX) {
                let how = format!("key {key}: {held} places of {limit} at {at} ns");
                return Some(Broken {
                    promise: "places",
                    how,
                });
            }
        }
    }
    None
}

/// What a node lets pass alone is at most its share.
pub fn share(plan: &Plan, quota: &Quota, history: &History) -> Option<Broken> {
    let nodes = u64::from(plan.nodes);
    let (whole, period) = quota.advertised();
    for node in 0..plan.nodes {
        for key in keys(history) {
            let alone = history.passed.iter();
            let alone = alone.filter(|p| p.node == node && p.key == key);
            let alone = alone.filter(|p| p.alone() && !p.cancelled);
            // A node that begins anew does not know what it let pass before.
            let lives = 1 + plan
                .troubles
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
                    let steps = plan.troubles.node_steps.iter();
                    let set: u64 = steps
                        .filter(|(_, of, _)| *of == node)
                        .map(|(.., by)| by)
                        .sum();
                    slower.ok().and_then(|rate| {
                        let earned = rate.earned_in(tollgate::Span::from_nanos(set));
                        leaks_over(alone.map(Passed::step), rate, each, earned + 1)
                    })
                }
                Algorithm::FixedWindow { .. }
                | Algorithm::SlidingWindow { .. }
                | Algorithm::SlidingLog { .. } => {
                    // Clocks that run too fast by a thousandth are believed.
                    let most = most_within(alone, period.as_nanos() - period.as_nanos() / 1000);
                    let steps = plan.troubles.node_steps.iter();
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
                return Some(Broken {
                    promise: "share",
                    how,
                });
            }
        }
    }
    None
}

/// What was granted was used or given back.
pub fn waste(plan: &Plan, quota: &Quota, sharing: Sharing, history: &History) -> Option<Broken> {
    let (whole, _) = quota.advertised();
    // A message that is lost, or a node that dies, may cost what it carried or held.
    let block = match sharing {
        Sharing::Exact => 0,
        Sharing::Lease => whole / 4,
        // What may have been heard is told again.
        Sharing::Sync => whole,
    };
    let each = block + plan.cost_max;
    let reloads = match sharing {
        // What is just being told is told again by the next policy.
        Sharing::Sync => plan.troubles.reloads.len() as u64 * u64::from(plan.nodes),
        _ => 0,
    };
    let lost = history.mishaps + history.crashes * plan.keys * 64 + reloads;
    for (key, book) in &history.books {
        let of_key = history.passed.iter();
        let of_key = of_key.filter(|p| p.key == *key && !p.alone() && !p.cancelled);
        let used: u64 = of_key.map(|p| p.cost).sum();
        let gone = book
            .charged
            .saturating_sub(book.given_back)
            .saturating_sub(used);
        // Places that were used are given back, too.
        if gone > lost.saturating_mul(each) {
            let how = format!(
                "key {key}: {gone} of {} units were neither used nor given back, with {lost} mishaps",
                book.charged
            );
            return Some(Broken {
                promise: "waste",
                how,
            });
        }
    }
    None
}

/// Of a limit of which so small a part is ever asked for, nothing is refused: a quarter may be on loan elsewhere, and a
/// node borrows at most half of what is left.
const FAR: u64 = 4;

/// Whoever stays far below the limit is never refused, as long as nothing goes wrong.
pub fn room(plan: &Plan, quota: &Quota, sharing: Sharing, history: &History) -> Option<Broken> {
    let (Algorithm::TokenBucket { rate, .. } | Algorithm::Gcra { rate, .. }) =
        *quota.limit.algorithm()
    else {
        return None;
    };
    if sharing == Sharing::Sync || history.mishaps > 0 || plan.troubles.is_any() {
        return None;
    }
    let depth = quota.advertised().0 / FAR;
    for key in keys(history) {
        let mut wishes: Vec<Wish> = history
            .wishes
            .iter()
            .filter(|w| w.key == key)
            .copied()
            .collect();
        wishes.sort_by_key(|wish| wish.at);
        let wished = wishes.iter().map(|wish| (wish.at, wish.cost));
        let refused = wishes.iter().find(|wish| wish.is_refused);
        if let Some(refused) = refused
            && leaks_over(wished, rate, depth, 0).is_none()
        {
            let how = format!(
                "key {key} is refused at {} ns and never asked for more than {depth} at once",
                refused.at
            );
            return Some(Broken {
                promise: "room",
                how,
            });
        }
    }
    None
}

/// Whoever was refused is free again.
pub fn liveness(history: &History) -> Option<Broken> {
    let (node, key) = history.locked_out.first()?;
    Some(Broken {
        promise: "liveness",
        how: format!("node {node} still refuses key {key} when everything is earned back"),
    })
}
