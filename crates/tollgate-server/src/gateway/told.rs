//! What is told of upstreams: to scrapers, and to whoever judges how they fare.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;

use super::listen::Door;
use super::proxy::{Observed, Way};
use crate::engine::{self, Backends};
use crate::metrics::{Kind, Scraped, Text};

/// What is seen of the upstreams of a gateway, whichever they are at present. Clones are the same one.
#[derive(Clone)]
pub struct Observations {
    way: Arc<ArcSwap<Way>>,
}

impl fmt::Debug for Observations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observations")
    }
}

impl Observations {
    pub(super) fn of(way: Arc<ArcSwap<Way>>) -> Observations {
        Observations { way }
    }

    /// The upstreams by name. The numbers of one that stays go on from policy to policy.
    pub fn upstreams(&self) -> Vec<(String, Arc<Observed>)> {
        let way = self.way.load();
        let upstreams = way.upstreams.iter();
        upstreams
            .map(|upstream| (upstream.spec.name.clone(), Arc::clone(&upstream.observed)))
            .collect()
    }
}

impl Backends for Observations {
    fn observed(&self) -> engine::Observed {
        let mut all = engine::Observed::default();
        for upstream in self.way.load().upstreams.iter() {
            let seen = &upstream.observed;
            all.answered += seen.answers.load(Relaxed);
            all.ended += seen.answers.load(Relaxed) + seen.unanswered.load(Relaxed);
            all.failed += seen.failed.load(Relaxed);
            all.latency_ns = all.latency_ns.saturating_add(seen.latency_ns.load(Relaxed));
        }
        all
    }
}

impl Scraped for Door {
    fn scraped(&self, text: &mut Text) {
        let way = self.way.load();
        let mut each = |name: &str, help: &str, value: &dyn Fn(&Observed) -> u64| {
            text.name(name, Kind::Counter, help);
            for upstream in way.upstreams.iter() {
                let value = value(&upstream.observed);
                text.series(name, &[("upstream", &upstream.spec.name)], value);
            }
        };
        each(
            "tollgate_upstream_requests_total",
            "Requests that were passed on to servers, once for each server that was tried.",
            &|observed| observed.requests.load(Relaxed),
        );
        each(
            "tollgate_upstream_answers_total",
            "Requests that servers answered, whatever the answer.",
            &|observed| observed.answers.load(Relaxed),
        );
        each(
            "tollgate_upstream_failed_total",
            "Requests that servers did not answer, or answered with 502, 503 or 504.",
            &|observed| observed.failed.load(Relaxed),
        );
        let name = "tollgate_upstream_latency_seconds_total";
        text.name(
            name,
            Kind::Counter,
            "Time from requests to the heads of their answers, all together.",
        );
        for upstream in way.upstreams.iter() {
            let nanos = upstream.observed.latency_ns.load(Relaxed);
            let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
            let value = format_args!("{seconds}.{rest:09}");
            text.series(name, &[("upstream", &upstream.spec.name)], value);
        }
        let mut each = |name: &str, help: &str, value: &dyn Fn(&super::proxy::Server) -> u64| {
            text.name(name, Kind::Gauge, help);
            for upstream in way.upstreams.iter() {
                for server in &upstream.servers {
                    let labels = [
                        ("upstream", upstream.spec.name.as_str()),
                        ("server", server.authority()),
                    ];
                    text.series(name, &labels, value(server));
                }
            }
        };
        each(
            "tollgate_server_under_way",
            "Requests that are with a server.",
            &|server| u64::from(server.under_way()),
        );
        each(
            "tollgate_server_up",
            "Are requests sent to a server while another is up?",
            &|server| u64::from(!server.is_out()),
        );
        let name = "tollgate_connections_turned_away_total";
        text.name(
            name,
            Kind::Counter,
            "Connections that were closed at once, by why.",
        );
        for (at, why) in [(0, "too-many"), (1, "too-fast")] {
            text.series(name, &[("why", why)], self.turned_away.sum(at));
        }
    }
}
