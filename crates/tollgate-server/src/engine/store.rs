//! Health and metrics of the shared store.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;
use tokio::time::MissedTickBehavior;
use tollgate_policy::shared::{FaultKind, Latencies, ServerReport, StoreReport};
use tollgate_policy::{LeaseReport, LimitRule, Mode, OnStoreError};

use super::{ActivePolicy, Engine, EngineSource, Protocol};
use crate::metrics::{Exposition, Kind};

/// The health of the shared store.
#[derive(Clone, Debug, Serialize)]
pub struct StoreHealth {
    /// `up`, `partly` (some servers of a cluster do not respond) or `away`. While the store is away, this node decides by
    /// the `on_store_error` of each limit.
    pub status: &'static str,
    /// Whether this node decided a request without the store in the last ten seconds.
    pub decided_alone: bool,
    /// Number of known nodes that share it, this one included.
    pub nodes: u32,
    /// Its servers.
    pub servers: Vec<ServerHealth>,
    /// Problems that an operator should fix.
    pub warnings: Vec<StoreWarning>,
}

/// One server of the store.
#[derive(Clone, Debug, Serialize)]
pub struct ServerHealth {
    /// Its address.
    pub address: String,
    /// Whether it is in use.
    pub is_up: bool,
    /// The last fault, if it is not in use.
    pub last_fault: Option<String>,
}

/// A problem that an operator should fix.
#[derive(Clone, Debug, Serialize)]
pub struct StoreWarning {
    /// A stable name.
    pub code: &'static str,
    /// The problem and a hint.
    pub message: String,
}

impl StoreHealth {
    fn new(report: StoreReport, decided_alone: bool) -> StoreHealth {
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

    /// Returns `true` if decisions depend, or depended lately, on the fallback, or a warning is open.
    pub(super) fn is_degraded(&self) -> bool {
        self.status != "up" || self.decided_alone || !self.warnings.is_empty()
    }
}

impl Engine {
    pub(super) fn store_health(&self) -> Option<StoreHealth> {
        let active = self.active();
        let store = active.gate.store()?;
        let last = self.metrics.degraded_at.load(Relaxed);
        let ago = seconds_now(self).saturating_sub(last);
        Some(StoreHealth::new(store.report(), ago < RECENTLY))
    }

    /// Returns `true` if an enforced limit refuses requests while the store is away.
    pub(super) fn needs_store(&self) -> bool {
        let denies = |rule: &LimitRule| {
            rule.mode == Mode::Enforce && rule.on_store_error == OnStoreError::Deny
        };
        self.active().gate.rules().any(denies)
    }

    /// Writes the metrics of the shared store, if there is one.
    pub(super) fn collect_store(&self, policy: &ActivePolicy, out: &mut Exposition) {
        let Some(store) = policy.gate.store() else {
            return;
        };
        let report = store.report();
        out.family(
            "tollgate_degraded_decisions_total",
            Kind::Counter,
            "Requests that this node decided without the store, by verdict.",
            self.metrics.degraded.series(),
        );
        out.family(
            "tollgate_leased_decisions_total",
            Kind::Counter,
            "Requests that this node decided by leases, synced counters or remembered refusals, by verdict.",
            self.metrics.leased.series(),
        );
        if let Some(leases) = policy.gate.lease_report() {
            collect_leases(&leases, out);
        }
        let faults = FaultKind::ALL.iter().zip(report.faults);
        out.family(
            "tollgate_store_faults_total",
            Kind::Counter,
            "Requests to the store without a valid answer, by reason.",
            faults.map(|(kind, count)| ([("reason", kind.name())], count)),
        );
        collect_latency(&report.answered, out);
        for (name, help, count) in [
            (
                "tollgate_store_script_reloads_total",
                "Scripts sent in full because the server did not have them.",
                report.reloaded_scripts,
            ),
            (
                "tollgate_store_script_errors_total",
                "Errors of scripts, and replies that disagree with this node's arithmetic.",
                report.script_errors,
            ),
            (
                "tollgate_store_redirects_total",
                "Requests redirected to another server of a cluster.",
                report.redirects,
            ),
            (
                "tollgate_store_compensated_charges_total",
                "Charges refunded because another server refused its part.",
                report.compensated,
            ),
        ] {
            out.value(name, Kind::Counter, help, count);
        }
        out.value(
            "tollgate_store_nodes",
            Kind::Gauge,
            "Nodes that share the store, as far as this one knows.",
            report.nodes,
        );
        let warnings = by_code(&report.warnings);
        out.family(
            "tollgate_store_warnings",
            Kind::Gauge,
            "Problems of the store that need an operator, by code: the number of servers that have them.",
            warnings.iter().map(|(code, servers)| ([("code", *code)], *servers)),
        );
        collect_servers(&report.servers, out);
    }
}

fn collect_leases(leases: &LeaseReport, out: &mut Exposition) {
    out.value(
        "tollgate_lease_keys",
        Kind::Gauge,
        "Keys that this node decides by a lease, or may soon.",
        leases.keys,
    );
    for (name, help, count) in [
        (
            "tollgate_lease_blocks_total",
            "Blocks that the store leased to this node.",
            leases.blocks,
        ),
        (
            "tollgate_lease_prefetched_blocks_total",
            "Blocks requested before they were needed, so that no request waited.",
            leases.blocks_prefetched,
        ),
        (
            "tollgate_lease_borrowed_units_total",
            "Units of all blocks.",
            leases.units_borrowed,
        ),
        (
            "tollgate_lease_returned_units_total",
            "Leased units that were returned unspent.",
            leases.units_returned,
        ),
        (
            "tollgate_sync_overshoot_units_total",
            "Units that synced counters admitted and the store had no room for.",
            leases.units_unpaid,
        ),
    ] {
        out.value(name, Kind::Counter, help, count);
    }
}

/// Longest wait for the first connection attempts at the start. An attempt with name resolution takes at most one second.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_POLL: Duration = Duration::from_millis(2);
/// Longest wait for the secret of the fleet after that. Reservations that are made without it can be settled at this node only.
const SECRET_TIMEOUT: Duration = Duration::from_millis(250);

impl Engine {
    /// Waits until every server of the shared store is connected or its first connection attempt has failed, two
    /// seconds at most. Listeners open afterwards: a node that answers earlier decides without a healthy store.
    pub(crate) async fn wait_for_store(&self) {
        let Some(store) = self.active().gate.store().cloned() else {
            return;
        };
        let is_settled = |server: &ServerReport| server.is_up || server.last_fault.is_some();
        poll_within(CONNECT_TIMEOUT, || {
            let servers = store.report().servers;
            !servers.is_empty() && servers.iter().all(is_settled)
        })
        .await;
        if store.report().servers.iter().any(|server| server.is_up) {
            poll_within(SECRET_TIMEOUT, || store.fleet_secret().is_some()).await;
        }
    }
}

/// Waits until `is_done`, at most so long.
async fn poll_within(timeout: Duration, is_done: impl Fn() -> bool) {
    let done = async {
        let mut poll = tokio::time::interval(CONNECT_POLL);
        while !is_done() {
            poll.tick().await;
        }
    };
    let _ = tokio::time::timeout(timeout, done).await;
}

/// Seconds for which a decision without the store shows in health.
const RECENTLY: u64 = 10;

fn seconds_now(engine: &Engine) -> u64 {
    super::seconds(engine.now())
}

/// Interval of checks for nodes that joined or left.
const REBALANCE_EVERY: Duration = Duration::from_secs(1);

/// Adapts the share of this node to the number of nodes, until `stop`.
pub(crate) async fn rebalance_every(engine: Arc<Engine>, stop: impl Future<Output = ()>) {
    if engine.active().gate.store().is_none() {
        return;
    }
    let mut tick = tokio::time::interval(REBALANCE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            _ = tick.tick() => {}
        }
        let engine = Arc::clone(&engine);
        // A changed number of nodes visits every table once.
        let _ = tokio::task::spawn_blocking(move || {
            let _in_order = engine.state();
            engine.active_owned().gate.rebalance();
        })
        .await;
    }
}

/// Synchronises leases and local decisions with the store, until `stop`, and then once more.
pub(crate) async fn sync_leases_every(engine: Arc<Engine>, stop: impl Future<Output = ()>) {
    if engine.active().gate.store().is_some() {
        let source = EngineSource::new(engine, Protocol::Gateway);
        tollgate_tower::sync_leases(source, stop).await;
    }
}

/// Counts servers by warning: a series may be written only once.
fn by_code(warnings: &[(&'static str, String)]) -> BTreeMap<&'static str, u64> {
    let mut places = BTreeMap::new();
    for (code, _) in warnings {
        *places.entry(*code).or_default() += 1;
    }
    places
}

fn collect_servers(servers: &[ServerReport], out: &mut Exposition) {
    let mut each = |name: &str, kind, help: &str, value: &dyn Fn(&ServerReport) -> Option<u64>| {
        let series = servers
            .iter()
            .filter_map(|server| Some(([("server", server.address.as_str())], value(server)?)));
        out.family(name, kind, help, series);
    };
    each(
        "tollgate_store_up",
        Kind::Gauge,
        "Whether the server is used. If not, its circuit breaker is open.",
        &|server| Some(u64::from(server.is_up)),
    );
    each(
        "tollgate_store_breaker_opens_total",
        Kind::Counter,
        "Times that the circuit breaker of a server opened.",
        &|server| Some(server.broken),
    );
    each(
        "tollgate_store_connections_total",
        Kind::Counter,
        "Connections made to a server.",
        &|server| Some(server.connected),
    );
    each(
        "tollgate_store_replica_lag_seconds",
        Kind::Gauge,
        "Lag of the slowest replica of a server.",
        &|server| server.replica_lag,
    );
}

fn collect_latency(answered: &Latencies, out: &mut Exposition) {
    let name = "tollgate_store_latency_seconds";
    out.begin_histogram(name, "Time that the store took to answer.");
    let bounds = Latencies::BOUNDS_US.iter();
    let bounds = bounds.map(|us| Some(*us * 1_000)).chain([None]);
    let cumulative = answered.counts.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    let sum_nanos = u128::from(answered.sum_us) * 1_000;
    out.buckets(name, None, bounds.zip(cumulative), sum_nanos);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_servers_with_the_same_warning_are_one_series() {
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
            StoreHealth::new(report, false).status
        };
        assert_eq!(status(vec![server(true), server(true)]), "up");
        assert_eq!(status(vec![server(true), server(false)]), "partly");
        assert_eq!(status(vec![server(false)]), "away");
        assert_eq!(status(vec![]), "away");
    }
}
