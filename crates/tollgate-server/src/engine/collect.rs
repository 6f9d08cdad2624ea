//! Metrics of the engine: its counters, and what only a scrape computes.

mod process;
mod queues;

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate::{Moment, Span};

use super::{ActivePolicy, Engine, Protocol, locked};
use crate::metrics::{Exposition, Kind, LimitOutcome, Rls, RuleCounters, WithoutLimit, ratio};

/// Counting live keys walks all tables. Scrapes within this time share one walk.
const WALK_INTERVAL: Span = Span::from_secs(1);

/// The tables of each rule.
type Tables = Vec<(Arc<str>, TableStats)>;

/// The result of the last walk over the tables.
#[derive(Debug, Default)]
pub(super) struct LastWalk {
    at: Option<Moment>,
    version: u64,
    tables: Arc<Tables>,
}

/// The tables of one rule together.
#[derive(Clone, Debug, Default)]
struct TableStats {
    keys: u64,
    /// Keys and capacity of the fullest table.
    fullest: (u64, u64),
    overflow: u64,
}

impl Engine {
    /// The media type of [`Engine::metrics`].
    pub const METRICS_TYPE: &'static str = Exposition::CONTENT_TYPE;

    /// All metrics in the text format of Prometheus. Walks the tables of all limits, at most once a second: not for a
    /// thread that serves requests.
    pub fn metrics(&self) -> String {
        let policy = self.active();
        let mut out = Exposition::default();
        decisions(&policy, |protocol| self.is_served(protocol), &mut out);
        let reasons = WithoutLimit::REASONS.into_iter();
        out.family(
            "tollgate_decisions_without_limit_total",
            Kind::Counter,
            "Requests that no enforced limit decided, by reason.",
            reasons.map(|(which, reason)| {
                let count = self.metrics.without_limit.sum(which as usize);
                ([("reason", reason)], count)
            }),
        );
        for (event, name, help) in Rls::ALL {
            out.value(
                name,
                Kind::Counter,
                help,
                self.metrics.rls.sum(event as usize),
            );
        }
        let denied = policy.handles.denied.iter();
        out.family(
            "tollgate_denied_total",
            Kind::Counter,
            "Requests refused by the deny list, by entry.",
            denied.map(|(entry, counter)| ([("entry", &**entry)], counter.sum(0))),
        );
        out.histogram(
            "tollgate_decision_duration_seconds",
            "Time that decisions took.",
            &self.metrics.duration,
        );
        tables(&self.tables(&policy), &mut out);
        self.collect_store(&policy, &mut out);
        self.collect_pressure(&policy, &mut out);
        queues::queues(&policy, &mut out);
        for collector in locked(&self.collectors).iter() {
            collector.collect(&mut out);
        }
        self.gauges(&policy, &mut out);
        process::collect(&mut out);
        out.finish()
    }

    fn tables(&self, policy: &ActivePolicy) -> Arc<Tables> {
        let mut last = locked(&self.last_walk);
        let now = self.now();
        let is_recent = last.at.is_some_and(|at| now.since(at) < WALK_INTERVAL);
        if !is_recent || last.version != policy.version {
            *last = LastWalk {
                at: Some(now),
                version: policy.version,
                tables: Arc::new(walk(policy)),
            };
        }
        Arc::clone(&last.tables)
    }

    fn gauges(&self, policy: &ActivePolicy, out: &mut Exposition) {
        let health = self.health();
        let mut gauge = |name: &str, help: &str, value: u64| {
            out.value(name, Kind::Gauge, help, value);
        };
        gauge(
            "tollgate_policy_version",
            "Version of the active policy, counted from 1 since the start.",
            policy.version,
        );
        gauge(
            "tollgate_config_last_reload_successful",
            "Whether the policy file, as it is, is active.",
            u64::from(health.policy.last_error.is_none()),
        );
        gauge(
            "tollgate_config_last_reload_success_timestamp_seconds",
            "When the active policy was loaded.",
            health.policy.loaded_at,
        );
        if let Some(state) = &health.state {
            gauge(
                "tollgate_state_last_write_successful",
                "Whether the last write of the state file succeeded.",
                u64::from(state.last_error.is_none()),
            );
        }
        gauge(
            "tollgate_switched_off",
            "Whether limiting is switched off.",
            u64::from(policy.gate.is_switched_off()),
        );
        gauge(
            "tollgate_overrides",
            "Overrides in effect that were made at run time.",
            policy.gate.runtime_overrides().len() as u64,
        );
        out.family(
            "tollgate_build_info",
            Kind::Gauge,
            "The version of this build.",
            [([("version", env!("CARGO_PKG_VERSION"))], 1)],
        );
    }
}

/// A protocol that is not served has series for the limits that it has used.
fn decisions(policy: &ActivePolicy, is_served: impl Fn(Protocol) -> bool, out: &mut Exposition) {
    let rules = || policy.handles.rules.iter();
    let has_series = |rule: &RuleCounters, protocol| {
        let mut outcomes = LimitOutcome::DECISIONS.iter();
        is_served(protocol) || outcomes.any(|(outcome, ..)| rule.get(protocol, *outcome) > 0)
    };
    let has_series = &has_series;
    let decided = rules().flat_map(|rule| {
        let protocols = Protocol::ALL.into_iter();
        let protocols = protocols.filter(move |protocol| has_series(rule, *protocol));
        protocols.flat_map(move |protocol| {
            let outcomes = LimitOutcome::DECISIONS.into_iter();
            outcomes.map(move |(outcome, verdict, reason)| {
                let labels = [
                    ("limit", &*rule.name),
                    ("verdict", verdict),
                    ("reason", reason),
                    ("protocol", protocol.name()),
                ];
                (labels, rule.get(protocol, outcome))
            })
        })
    });
    out.family(
        "tollgate_decisions_total",
        Kind::Counter,
        "Requests that a limit decided, by verdict, reason and protocol.",
        decided,
    );
    let shadow = rules().flat_map(|rule| {
        [
            (LimitOutcome::Shadow, "shadow"),
            (LimitOutcome::Candidate, "candidate"),
        ]
        .map(|(outcome, role)| ([("limit", &*rule.name), ("role", role)], rule.sum(outcome)))
    });
    out.family(
        "tollgate_shadow_refusals_total",
        Kind::Counter,
        "Requests that a limit would have refused if it were enforced.",
        shadow,
    );
    let unknown_tiers = policy.gate.unknown_tiers();
    out.family(
        "tollgate_unknown_tier_requests_total",
        Kind::Counter,
        "Requests that name a tier that the policy does not have; the limit's own quota applies.",
        unknown_tiers.map(|(rule, count)| ([("limit", &*rule.name)], count)),
    );
}

fn tables(tables: &Tables, out: &mut Exposition) {
    let series = || {
        tables
            .iter()
            .map(|(rule, stats)| ([("limit", &**rule)], stats))
    };
    out.family(
        "tollgate_keys",
        Kind::Gauge,
        "Live keys of a limit.",
        series().map(|(labels, stats)| (labels, stats.keys)),
    );
    out.family(
        "tollgate_table_fullness_ratio",
        Kind::Gauge,
        "Live keys by max_keys, of the fullest table of a limit.",
        series().map(|(labels, stats)| (labels, ratio(stats.fullest.0, stats.fullest.1))),
    );
    out.family(
        "tollgate_overflow_decisions_total",
        Kind::Counter,
        "Requests decided on a shared quota because the table was full.",
        series().map(|(labels, stats)| (labels, stats.overflow)),
    );
}

/// Walks every table of every rule.
fn walk(policy: &ActivePolicy) -> Tables {
    let mut by_name: BTreeMap<&str, TableStats> = BTreeMap::new();
    for (id, limiter) in policy.gate.limiters() {
        // A tier, an override, a candidate or a peak follows the name after a character that no name has.
        let name = id.split(['@', '+', '!', '/']).next().unwrap_or(id);
        let table = by_name.entry(name).or_default();
        table.overflow += limiter.overflowed();
        if id.contains('+') || id.ends_with("/peak") {
            continue; // candidates and peaks count the same keys again
        }
        let keys = limiter.live_keys() as u64;
        let room = limiter.limit().max_keys() as u64;
        table.keys += keys;
        let (fullest_keys, fullest_room) = table.fullest;
        // keys / room > fullest_keys / fullest_room
        let is_fuller = u128::from(keys) * u128::from(fullest_room)
            > u128::from(fullest_keys) * u128::from(room);
        if fullest_room == 0 || is_fuller {
            table.fullest = (keys, room);
        }
    }
    let stats = |name: &Arc<str>| by_name.get(&**name).cloned().unwrap_or_default();
    let rules = policy
        .gate
        .rules()
        .map(|rule| (Arc::clone(&rule.name), stats(&rule.name)));
    rules.collect()
}
