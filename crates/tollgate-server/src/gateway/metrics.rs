//! Metrics of the gateway, and its statistics for pressure control and health.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;

use super::client::ListenerState;
use super::proxy::{RoutingTable, UpstreamStats};
use crate::engine::{self, Backends};
use crate::metrics::{Collector, Exposition, Kind};

/// Statistics of the current upstreams of a gateway. Clones share them.
#[derive(Clone)]
pub struct Observations {
    routes: Arc<ArcSwap<RoutingTable>>,
}

impl fmt::Debug for Observations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observations")
    }
}

impl Observations {
    pub(super) fn new(routes: Arc<ArcSwap<RoutingTable>>) -> Observations {
        Observations { routes }
    }

    /// The upstreams by name. Statistics survive a reload.
    pub fn upstreams(&self) -> Vec<(String, Arc<UpstreamStats>)> {
        let routes = self.routes.load();
        let upstreams = routes.upstreams.iter();
        upstreams
            .map(|upstream| (upstream.spec.name.clone(), Arc::clone(&upstream.observed)))
            .collect()
    }
}

impl Backends for Observations {
    fn observed(&self) -> engine::BackendTotals {
        let mut all = engine::BackendTotals::default();
        for upstream in self.routes.load().upstreams.iter() {
            let observed = &upstream.observed;
            all.answered += observed.answers.load(Relaxed);
            all.ended += observed.answers.load(Relaxed) + observed.unanswered.load(Relaxed);
            all.failed += observed.failed.load(Relaxed);
            all.latency_ns = all
                .latency_ns
                .saturating_add(observed.latency_ns.load(Relaxed));
        }
        all
    }

    fn unavailable(&self) -> Vec<String> {
        let routes = self.routes.load();
        let down = routes
            .upstreams
            .iter()
            .filter(|upstream| upstream.is_down());
        down.map(|upstream| upstream.spec.name.clone()).collect()
    }

    fn is_none_up(&self) -> bool {
        let routes = self.routes.load();
        routes.upstreams.iter().all(|upstream| upstream.is_down())
    }
}

impl Collector for ListenerState {
    fn collect(&self, out: &mut Exposition) {
        let routes = self.routes.load();
        let mut each = |name: &str, help: &str, value: &dyn Fn(&UpstreamStats) -> u64| {
            let series = routes.upstreams.iter().map(|upstream| {
                let value = value(&upstream.observed);
                ([("upstream", upstream.spec.name.as_str())], value)
            });
            out.family(name, Kind::Counter, help, series);
        };
        each(
            "tollgate_upstream_requests_total",
            "Requests sent to servers, once for each server that was tried.",
            &|observed| observed.requests.load(Relaxed),
        );
        each(
            "tollgate_upstream_responses_total",
            "Requests that servers responded to, whatever the status.",
            &|observed| observed.answers.load(Relaxed),
        );
        each(
            "tollgate_upstream_failures_total",
            "Requests without a response, or with a 502, 503 or 504.",
            &|observed| observed.failed.load(Relaxed),
        );
        let latencies = routes.upstreams.iter().map(|upstream| {
            let label = ("upstream", upstream.spec.name.as_str());
            (label, &upstream.observed.latency)
        });
        out.histograms(
            "tollgate_upstream_latency_seconds",
            "Time from a request to the head of its response.",
            latencies,
        );
        let mut each = |name: &str, help: &str, value: &dyn Fn(&super::proxy::Server) -> u64| {
            let series = routes.upstreams.iter().flat_map(|upstream| {
                upstream.servers.iter().map(|server| {
                    let labels = [
                        ("upstream", upstream.spec.name.as_str()),
                        ("server", server.authority()),
                    ];
                    (labels, value(server))
                })
            });
            out.family(name, Kind::Gauge, help, series);
        };
        each(
            "tollgate_upstream_server_in_flight_requests",
            "Requests in flight at a server.",
            &|server| u64::from(server.in_flight()),
        );
        each(
            "tollgate_upstream_server_up",
            "Whether a server is used while others are up.",
            &|server| u64::from(!server.is_ejected()),
        );
        let reasons = [(0, "too-many"), (1, "too-fast")].into_iter();
        out.family(
            "tollgate_rejected_connections_total",
            Kind::Counter,
            "Connections closed on accept, by reason.",
            reasons.map(|(at, reason)| ([("reason", reason)], self.rejected.sum(at))),
        );
    }
}
