//! The store that a fleet shares, as operators see it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;
use tokio::time::MissedTickBehavior;
use tollgate_policy::LendingReport;
use tollgate_policy::shared::{FaultKind, Latencies, ServerReport, StoreReport};

use super::{Door, Engine, EngineSource, Epoch};
use crate::metrics::{Kind, Striped, Text, Unasked};

/// How it goes with the store that a fleet shares.
#[derive(Clone, Debug, Serialize)]
pub struct StoreHealth {
    /// `up`, `partly` (some servers of a cluster do not answer) or `away`. While it is away, this node decides
    /// alone, as the limits say.
    pub status: &'static str,
    /// Was a request decided without it in the last ten seconds, for whatever reason?
    pub decided_alone: bool,
    /// How many nodes share it, this one included, as far as this one knows.
    pub nodes: u32,
    /// Its servers.
    pub servers: Vec<ServerHealth>,
    /// What is wrong with it and somebody should change.
    pub warnings: Vec<StoreWarning>,
}

/// One server of the store.
#[derive(Clone, Debug, Serialize)]
pub struct ServerHealth {
    /// Where it is.
    pub address: String,
    /// Is it asked?
    pub is_up: bool,
    /// Why not.
    pub last_fault: Option<String>,
}

/// Something that somebody should change.
#[derive(Clone, Debug, Serialize)]
pub struct StoreWarning {
    /// A stable name for it.
    pub code: &'static str,
    /// What is wrong and how to mend it.
    pub message: String,
}

impl StoreHealth {
    fn of(report: StoreReport, decided_alone: bool) -> StoreHealth {
        let up = report.servers.iter().filter(|server| server.is_up).count();
        let status = match up {
            0 => "away",
            up if up < report.servers.len() => "partly",
            _ => "up",
        };
        let server = |server: ServerReport| ServerHealth {
            address: server.address,
            is_up: server.is_up,
            last_fault: server.last_fault,
        };
        let warning = |(code, message)| StoreWarning { code, message };
        StoreHealth {
            status,
            decided_alone,
            nodes: report.nodes,
            servers: report.servers.into_iter().map(server).collect(),
            warnings: report.warnings.into_iter().map(warning).collect(),
        }
    }

    /// Does it not go as it should?
    pub(super) fn is_degraded(&self) -> bool {
        self.status != "up" || self.decided_alone || !self.warnings.is_empty()
    }
}

impl Engine {
    pub(super) fn store_health(&self) -> Option<StoreHealth> {
        let epoch = self.epoch();
        let store = epoch.gate.store()?;
        let last = self.metrics.degraded_at.load(Relaxed);
        let ago = seconds_now(self).saturating_sub(last);
        Some(StoreHealth::of(store.report(), ago < RECENTLY))
    }

    /// What is counted of the store, if there is one.
    pub(super) fn store_metrics(&self, epoch: &Epoch, text: &mut Text) {
        let Some(store) = epoch.gate.store() else {
            return;
        };
        let report = store.report();
        let name = "tollgate_degraded_decisions_total";
        text.name(
            name,
            Kind::Counter,
            "Requests that this node decided without the store, by what became of them.",
        );
        by_verdict(name, &self.metrics.degraded, text);
        let name = "tollgate_leased_decisions_total";
        text.name(
            name,
            Kind::Counter,
            "Requests that this node decided by what the store had lent or told it before, by what became of them.",
        );
        by_verdict(name, &self.metrics.leased, text);
        if let Some(lent) = epoch.gate.lending() {
            lending(&lent, text);
        }
        let name = "tollgate_store_faults_total";
        text.name(
            name,
            Kind::Counter,
            "Questions that the store gave no answer to, by why.",
        );
        for (kind, count) in FaultKind::ALL.iter().zip(report.faults) {
            text.series(name, &[("kind", kind.name())], count);
        }
        latencies(&report.answered, text);
        let counters = [
            (
                "tollgate_store_scripts_reloaded_total",
                "Scripts that were sent whole because the server did not know them.",
                report.reloaded_scripts,
            ),
            (
                "tollgate_store_script_errors_total",
                "Errors that a script gave, and answers that our own arithmetic does not agree with.",
                report.script_errors,
            ),
            (
                "tollgate_store_redirects_total",
                "Questions that were sent on to another server of a cluster.",
                report.redirects,
            ),
            (
                "tollgate_store_compensated_total",
                "Charges that were given back because another server refused its part.",
                report.compensated,
            ),
        ];
        for (name, help, count) in counters {
            text.alone(name, Kind::Counter, help, count);
        }
        text.alone(
            "tollgate_store_nodes",
            Kind::Gauge,
            "Nodes that share the store, as far as this one knows.",
            report.nodes,
        );
        let name = "tollgate_store_warnings";
        text.name(
            name,
            Kind::Gauge,
            "What is wrong with the store and somebody should change, and at how many places.",
        );
        for (code, places) in by_code(&report.warnings) {
            text.series(name, &[("code", code)], places);
        }
        servers(&report.servers, text);
    }
}

fn by_verdict(name: &str, counts: &Striped<2>, text: &mut Text) {
    for (which, verdict) in [
        (Unasked::Admitted, "admitted"),
        (Unasked::Refused, "refused"),
    ] {
        text.series(name, &[("verdict", verdict)], counts.sum(which as usize));
    }
}

/// What the store has lent to this node.
fn lending(lent: &LendingReport, text: &mut Text) {
    text.alone(
        "tollgate_loan_keys",
        Kind::Gauge,
        "Keys that this node decides by itself now, or may soon.",
        lent.keys,
    );
    let counters = [
        (
            "tollgate_loan_blocks_total",
            "Blocks that the store lent.",
            lent.blocks,
        ),
        (
            "tollgate_loan_blocks_ahead_total",
            "Blocks that were asked for before they were needed: no request waited for them.",
            lent.blocks_ahead,
        ),
        (
            "tollgate_loan_units_total",
            "Units of all blocks.",
            lent.units_borrowed,
        ),
        (
            "tollgate_loan_returned_units_total",
            "Units that were lent and not spent.",
            lent.units_returned,
        ),
        (
            "tollgate_sync_over_units_total",
            "Units that passed by copies and the store had no room for: what went over limits for a moment.",
            lent.units_over,
        ),
    ];
    for (name, help, count) in counters {
        text.alone(name, Kind::Counter, help, count);
    }
}

/// How many seconds back a decision without the store still shows in health.
const RECENTLY: u64 = 10;

fn seconds_now(engine: &Engine) -> u64 {
    super::seconds(engine.now())
}

/// How often this node looks whether others came or went.
const DIVIDE_EVERY: Duration = Duration::from_secs(1);

/// Keeps the share of this node what it should be, until `stop`.
pub(crate) async fn divide_every(engine: Arc<Engine>, stop: impl Future<Output = ()>) {
    if engine.epoch().gate.store().is_none() {
        return;
    }
    let mut tick = tokio::time::interval(DIVIDE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            _ = tick.tick() => {}
        }
        let engine = Arc::clone(&engine);
        // If others came, every table is gone through once.
        let _ = tokio::task::spawn_blocking(move || {
            let _in_order = engine.in_force();
            engine.epoch_for_long().gate.divide();
        })
        .await;
    }
}

/// Settles with the store what this node decided by itself, until `stop`, and then once more.
pub(crate) async fn tend_every(engine: Arc<Engine>, stop: impl Future<Output = ()>) {
    if engine.epoch().gate.store().is_some() {
        let source = EngineSource::new(engine, Door::Gateway);
        tollgate_tower::tend(source, stop).await;
    }
}

/// Two servers may have the same trouble, and a series may be written only once.
fn by_code(warnings: &[(&'static str, String)]) -> BTreeMap<&'static str, u64> {
    let mut places = BTreeMap::new();
    for (code, _) in warnings {
        *places.entry(*code).or_default() += 1;
    }
    places
}

fn servers(servers: &[ServerReport], text: &mut Text) {
    let mut each = |name: &str, kind, help: &str, value: &dyn Fn(&ServerReport) -> Option<u64>| {
        text.name(name, kind, help);
        for server in servers {
            if let Some(value) = value(server) {
                text.series(name, &[("server", &server.address)], value);
            }
        }
    };
    each(
        "tollgate_store_up",
        Kind::Gauge,
        "Is the server asked? If not, the breaker is open and it is tried in the background.",
        &|server| Some(u64::from(server.is_up)),
    );
    each(
        "tollgate_store_breaks_total",
        Kind::Counter,
        "Times that the breaker of a server opened.",
        &|server| Some(server.broken),
    );
    each(
        "tollgate_store_connects_total",
        Kind::Counter,
        "Times that a connection to a server was made.",
        &|server| Some(server.connected),
    );
    each(
        "tollgate_store_replica_lag_seconds",
        Kind::Gauge,
        "How far the slowest replica of a server is behind.",
        &|server| server.replica_lag,
    );
}

fn latencies(answered: &Latencies, text: &mut Text) {
    let name = "tollgate_store_latency_seconds";
    text.begin_histogram(name, "How long the store took to answer.");
    let bucket = format!("{name}_bucket");
    let mut so_far = 0;
    let bounds = Latencies::BOUNDS_US.iter().map(Some).chain([None]);
    for (count, bound) in answered.counts.iter().zip(bounds) {
        so_far += count;
        let bound = bound.map_or("+Inf".into(), |us| seconds(*us));
        text.series(&bucket, &[("le", &bound)], so_far);
    }
    text.series(&format!("{name}_sum"), &[], seconds(answered.sum_us));
    text.series(&format!("{name}_count"), &[], so_far);
}

/// Microseconds as seconds, without zeros at the end.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    let text = text.trim_end_matches('0');
    text.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_written_as_seconds() {
        for (us, text) in [
            (50, "0.00005"),
            (1_500, "0.0015"),
            (1_000_000, "1"),
            (0, "0"),
        ] {
            assert_eq!(seconds(us), text);
        }
    }

    #[test]
    fn two_servers_with_the_same_trouble_are_one_series() {
        let warnings = ["a: full", "b: full"].map(|words| ("out-of-memory", words.to_owned()));
        let series: Vec<_> = by_code(&warnings).into_iter().collect();
        assert_eq!(series, [("out-of-memory", 2)]);
    }

    #[test]
    fn a_store_with_some_servers_up_is_partly_up() {
        let server = |is_up| ServerReport {
            is_up,
            ..ServerReport::default()
        };
        let status = |servers| {
            let report = StoreReport {
                servers,
                ..StoreReport::default()
            };
            StoreHealth::of(report, false).status
        };
        assert_eq!(status(vec![server(true), server(true)]), "up");
        assert_eq!(status(vec![server(true), server(false)]), "partly");
        assert_eq!(status(vec![server(false)]), "away");
        assert_eq!(status(vec![]), "away");
    }
}
