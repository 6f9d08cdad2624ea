//! What a scraper reads: everything counted, and what is only known by looking.

mod queues;

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate::{Moment, Span};

use super::{Door, Engine, Epoch, locked};
use crate::metrics::{Counted, Kind, Rls, Text, Undecided, in_millionths};

/// Counting live keys walks the tables; scrapers that come more often than this share one walk.
const LOOK_EVERY: Span = Span::from_secs(1);

/// What was seen of the tables, and when.
#[derive(Debug, Default)]
pub(super) struct Looked {
    at: Option<Moment>,
    version: u64,
    rules: Arc<Vec<(Arc<str>, Table)>>,
}

/// The tables of one rule together.
#[derive(Clone, Debug, Default)]
struct Table {
    keys: usize,
    /// Keys and room of the fullest.
    fullest: (usize, usize),
    crowded: u64,
}

impl Engine {
    /// All metrics, in the text format of Prometheus. Walks the tables of all limits, at most once a
    /// second: not for a thread that serves requests.
    pub fn metrics(&self) -> String {
        let epoch = self.epoch();
        let mut text = Text::default();
        decisions(&epoch, &mut text);
        let undecided = |basis: Undecided| self.metrics.undecided.sum(basis as usize);
        text.alone(
            "tollgate_unmatched_total",
            Kind::Counter,
            "Requests that no enforced limit matched.",
            undecided(Undecided::Unmatched),
        );
        let name = "tollgate_unlimited_total";
        text.name(
            name,
            Kind::Counter,
            "Requests that were answered before any limit was asked, by why.",
        );
        for (basis, why) in Undecided::BASES {
            text.series(name, &[("basis", why)], undecided(basis));
        }
        for (what, name, help) in Rls::ALL {
            let count = self.metrics.rls.sum(what as usize);
            text.alone(name, Kind::Counter, help, count);
        }
        let name = "tollgate_denied_total";
        text.name(
            name,
            Kind::Counter,
            "Requests that the deny list refused, by its entry.",
        );
        for (list, counter) in &epoch.handles.denied {
            text.series(name, &[("list", list)], counter.sum(0));
        }
        text.histogram(
            "tollgate_decision_duration_seconds",
            "How long decisions took.",
            &self.metrics.duration,
        );
        tables(&self.look(&epoch), &mut text);
        self.store_metrics(&epoch, &mut text);
        self.pressure_metrics(&epoch, &mut text);
        queues::queues(&epoch, &mut text);
        for door in locked(&self.more_metrics).iter() {
            door.scraped(&mut text);
        }
        self.gauges(&epoch, &mut text);
        text.finish()
    }

    /// What the media type of [`Engine::metrics`] is.
    pub const METRICS_TYPE: &'static str = Text::CONTENT_TYPE;

    fn look(&self, epoch: &Epoch) -> Arc<Vec<(Arc<str>, Table)>> {
        let mut looked = locked(&self.scraped);
        let now = self.now();
        let is_new = looked.at.is_some_and(|at| now.since(at) < LOOK_EVERY);
        if !is_new || looked.version != epoch.version {
            looked.rules = Arc::new(walk(epoch));
            looked.at = Some(now);
            looked.version = epoch.version;
        }
        Arc::clone(&looked.rules)
    }

    fn gauges(&self, epoch: &Epoch, text: &mut Text) {
        let health = self.health();
        let mut gauge =
            |name: &str, help: &str, value: u64| text.alone(name, Kind::Gauge, help, value);
        gauge(
            "tollgate_policy_version",
            "How many policies were in force since the start.",
            epoch.version,
        );
        gauge(
            "tollgate_config_last_reload_successful",
            "Is the policy file, as it is, in force?",
            u64::from(health.policy.last_error.is_none()),
        );
        gauge(
            "tollgate_config_last_reload_success_timestamp_seconds",
            "Since when the policy is in force.",
            health.policy.loaded_at,
        );
        if let Some(state) = &health.state {
            gauge(
                "tollgate_state_last_write_successful",
                "Could the state file be written the last time?",
                u64::from(state.last_error.is_none()),
            );
        }
        gauge(
            "tollgate_switched_off",
            "Is limiting switched off?",
            u64::from(epoch.gate.is_switched_off()),
        );
        gauge(
            "tollgate_overrides",
            "Overrides in force that were made while running.",
            epoch.gate.extra_overrides().len() as u64,
        );
        let name = "tollgate_build_info";
        text.name(name, Kind::Gauge, "Which build this is.");
        text.series(name, &[("version", env!("CARGO_PKG_VERSION"))], 1);
    }
}

fn decisions(epoch: &Epoch, text: &mut Text) {
    let name = "tollgate_decisions_total";
    text.name(
        name,
        Kind::Counter,
        "Requests that a limit decided, by what became of them.",
    );
    for counters in &epoch.handles.rules {
        for door in Door::ALL {
            for (counted, verdict) in Counted::VERDICTS {
                let labels = [
                    ("limit", &*counters.name),
                    ("verdict", verdict),
                    ("door", door.name()),
                ];
                text.series(name, &labels, counters.of(door, counted));
            }
        }
    }
    let name = "tollgate_shadow_refusals_total";
    text.name(
        name,
        Kind::Counter,
        "Requests that a limit would have refused if it were enforced.",
    );
    for counters in &epoch.handles.rules {
        for (counted, kind) in [
            (Counted::Shadow, "shadow"),
            (Counted::Candidate, "candidate"),
        ] {
            let labels = [("limit", &*counters.name), ("kind", kind)];
            text.series(name, &labels, counters.through_all_doors(counted));
        }
    }
}

fn tables(rules: &[(Arc<str>, Table)], text: &mut Text) {
    let name = "tollgate_keys";
    text.name(
        name,
        Kind::Gauge,
        "Keys of a limit that have used something.",
    );
    for (rule, table) in rules {
        text.series(name, &[("limit", rule)], table.keys);
    }
    let name = "tollgate_table_fullness_ratio";
    text.name(
        name,
        Kind::Gauge,
        "How full the fullest table of a limit is: its keys by its max_keys.",
    );
    for (rule, table) in rules {
        let (keys, room) = table.fullest;
        text.series(name, &[("limit", rule)], in_millionths(keys, room));
    }
    let name = "tollgate_crowded_total";
    text.name(
        name,
        Kind::Counter,
        "Requests decided on a shared allowance because the table was full.",
    );
    for (rule, table) in rules {
        text.series(name, &[("limit", rule)], table.crowded);
    }
}

/// Looks at every table of every rule.
fn walk(epoch: &Epoch) -> Vec<(Arc<str>, Table)> {
    let mut by_name: BTreeMap<&str, Table> = BTreeMap::new();
    for (id, limiter) in epoch.gate.limiters() {
        // What follows a name (a tier, an override, the candidate, a peak) begins with what no name has.
        let name = id.split(['@', '+', '!', '/']).next().unwrap_or(id);
        let table = by_name.entry(name).or_default();
        table.crowded += limiter.overflowed();
        if id.contains('+') || id.ends_with("/peak") {
            continue; // candidates and peaks count the same keys again
        }
        let (keys, room) = (limiter.live_keys(), limiter.limit().max_keys());
        table.keys += keys;
        let (most, of) = table.fullest;
        // keys / room > most / of
        if of == 0 || keys as u128 * of as u128 > most as u128 * room as u128 {
            table.fullest = (keys, room);
        }
    }
    let of = |name: &Arc<str>| by_name.get(&**name).cloned().unwrap_or_default();
    let rules = epoch
        .gate
        .rules()
        .map(|rule| (Arc::clone(&rule.name), of(&rule.name)));
    rules.collect()
}
