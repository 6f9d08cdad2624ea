//! One server of an upstream: its requests in flight, and whether it is ejected.
//!
//! # Theory
//!
//! A server that leaves several requests in a row unanswered (no connection, no response in time, connection lost) is
//! *ejected*: no request is sent to it while another server of its upstream is up. A probe reinstates it: a connection that
//! is made for that alone, or the response to the path of [`HealthSpec`]. If all servers are ejected, all are used: a wrong
//! verdict about servers must not be an outage.
//!
//! A server that accepts a connection need not respond. After it was reinstated, its first failure ejects it again, for
//! twice as long, until it has answered a request.
//!
//! Requests and probes are counted apart. A good response does not undo failed probes, and a good probe does not undo
//! failed requests.
//!
//! A server that fails fast has few requests in flight and would attract all of them. So each recent failure weighs as much
//! as [`SOFT_FAILURE_WEIGHT`] requests in flight when a server is chosen.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tollgate_config::{HealthSpec, ServerSpec};

use super::idle_pool::IdlePool;
use super::pool::{Http1, Http2};
use super::stream::Stream;
use super::upstream::now_ms;

/// Failures in a row that eject a server, unless [`HealthSpec`] has another number.
const MAX_FAILURES: u32 = 3;
/// Until an ejected server is probed; doubled each time, up to [`MAX_EJECTION`].
const MIN_EJECTION: Duration = Duration::from_millis(500);
const MAX_EJECTION: Duration = Duration::from_secs(30);
/// Requests in flight that one recent failure weighs as much as.
const SOFT_FAILURE_WEIGHT: u32 = 16;
/// Recent failures that weigh anything.
const MAX_SOFT_FAILURES: u32 = 8;
/// How long recent failures weigh after the last of them, in milliseconds.
const SOFT_FAILURES_WEIGH_MS: u64 = 1_000;

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) spec: ServerSpec,
    /// Host and port as text.
    pub(super) authority: String,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    in_flight: AtomicU32,
    /// Unanswered requests since the last answered one.
    failures: AtomicU32,
    /// The same and responses of 502, 503 and 504. Zero only if `failures` and `ejections` are, but for a moment.
    soft_failures: AtomicU32,
    /// Time of the last of them, by [`now_ms`].
    last_soft_failure_ms: AtomicU64,
    /// Failed probes since the last good one.
    failed_probes: AtomicU32,
    /// Good probes since the last failed one, or since a request failed.
    good_probes: AtomicU32,
    is_ejected: AtomicBool,
    /// When an ejected server is probed, by [`now_ms`].
    probe_at_ms: AtomicU64,
    /// Ejections and failed probes since the last answered request.
    ejections: AtomicU32,
    /// Idle connections for requests without a body, by thread.
    idle_streams: Box<[Mutex<IdlePool<Stream>>]>,
    /// Idle connections for all other requests, by thread.
    idle_http1: Box<[Mutex<IdlePool<Http1>>]>,
    /// The HTTP/2 connection, by thread.
    http2: Box<[Mutex<Option<Http2>>]>,
}

impl Server {
    pub(super) fn new(
        spec: ServerSpec,
        tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
        threads: usize,
    ) -> Server {
        let authority = if spec.host.contains(':') {
            format!("[{}]:{}", spec.host, spec.port)
        } else {
            format!("{}:{}", spec.host, spec.port)
        };
        Server {
            spec,
            authority,
            tls,
            in_flight: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            soft_failures: AtomicU32::new(0),
            last_soft_failure_ms: AtomicU64::new(0),
            failed_probes: AtomicU32::new(0),
            good_probes: AtomicU32::new(0),
            is_ejected: AtomicBool::new(false),
            probe_at_ms: AtomicU64::new(0),
            ejections: AtomicU32::new(0),
            idle_streams: (0..threads).map(|_| Mutex::default()).collect(),
            idle_http1: (0..threads).map(|_| Mutex::default()).collect(),
            http2: (0..threads).map(|_| Mutex::default()).collect(),
        }
    }

    /// Counts a request until the returned guard is dropped.
    pub(super) fn start_request(self: &Arc<Server>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Requests in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Is another server preferred, if one is up?
    pub(crate) fn is_ejected(&self) -> bool {
        self.is_ejected.load(Relaxed)
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Load for the choice of a server: requests in flight, and more for recent failures.
    pub(super) fn load(&self) -> u32 {
        let in_flight = self.in_flight();
        let failures = self.soft_failures.load(Relaxed);
        if failures == 0 {
            return in_flight;
        }
        let ago = now_ms().saturating_sub(self.last_soft_failure_ms.load(Relaxed));
        if ago > SOFT_FAILURES_WEIGH_MS {
            return in_flight;
        }
        in_flight.saturating_add(failures.min(MAX_SOFT_FAILURES) * SOFT_FAILURE_WEIGHT)
    }

    /// It answered a request, with another status than 502, 503 or 504.
    pub(super) fn record_success(&self) {
        // Read first: all threads read this cache line, so it is not written for every response.
        if self.soft_failures.load(Relaxed) != 0 {
            self.soft_failures.store(0, Relaxed);
            self.failures.store(0, Relaxed);
            self.ejections.store(0, Relaxed);
        }
    }

    /// It answered a request with 502, 503 or 504. Others are preferred for a moment.
    pub(super) fn record_soft_failure(&self, now_ms: u64) {
        self.last_soft_failure_ms.store(now_ms, Relaxed);
        self.soft_failures.fetch_add(1, Relaxed);
    }

    /// It left a request unanswered. Returns true if that ejects it.
    pub(super) fn record_failure(&self, health: Option<&HealthSpec>, now_ms: u64) -> bool {
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        self.good_probes.store(0, Relaxed);
        self.record_soft_failure(now_ms);
        let is_ejected =
            failures >= health.map_or(MAX_FAILURES, |health| health.fails) && self.eject();
        if is_ejected {
            self.schedule_probe(now_ms);
        }
        is_ejected
    }

    /// A probe of its health path failed. Returns true if that ejects it.
    pub(super) fn record_failed_probe(&self, health: &HealthSpec) -> bool {
        self.good_probes.store(0, Relaxed);
        let probes = self.failed_probes.fetch_add(1, Relaxed).saturating_add(1);
        probes >= health.fails && self.eject()
    }

    /// A probe of its health path succeeded. Enough of them reinstate it, but not too soon after requests failed.
    pub(super) fn record_good_probe(&self, health: &HealthSpec, now_ms: u64) {
        self.failed_probes.store(0, Relaxed);
        let probes = self.good_probes.fetch_add(1, Relaxed).saturating_add(1);
        if probes >= health.passes && now_ms >= self.probe_at_ms.load(Relaxed) {
            self.reinstate();
        }
    }

    /// Ejects it. Returns true if it was up.
    fn eject(&self) -> bool {
        !self.is_ejected.swap(true, Relaxed)
    }

    /// Sends requests to it again.
    pub(super) fn reinstate(&self) {
        if self.is_ejected() && self.is_ejected.swap(false, Relaxed) {
            tracing::info!(target: "tollgate::gateway", server = %self.authority, "server is up again");
        }
    }

    pub(super) fn is_probe_due(&self, now_ms: u64) -> bool {
        self.is_ejected() && now_ms >= self.probe_at_ms.load(Relaxed)
    }

    /// Schedules the next probe, the later the more often it was ejected.
    pub(super) fn schedule_probe(&self, now_ms: u64) {
        let ejections = self.ejections.fetch_add(1, Relaxed).min(10);
        let wait = MIN_EJECTION
            .saturating_mul(1 << ejections)
            .min(MAX_EJECTION);
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.probe_at_ms.store(now_ms.saturating_add(wait), Relaxed);
    }

    /// Idle connections of this thread for requests without a body.
    pub(super) fn idle_streams(&self, thread: usize) -> Option<MutexGuard<'_, IdlePool<Stream>>> {
        lock(&self.idle_streams, thread)
    }

    /// Idle connections of this thread for all other requests.
    pub(super) fn idle_http1(&self, thread: usize) -> Option<MutexGuard<'_, IdlePool<Http1>>> {
        lock(&self.idle_http1, thread)
    }

    /// The HTTP/2 connection of this thread.
    pub(super) fn http2(&self, thread: usize) -> Option<MutexGuard<'_, Option<Http2>>> {
        lock(&self.http2, thread)
    }
}

fn lock<T>(by_thread: &[Mutex<T>], thread: usize) -> Option<MutexGuard<'_, T>> {
    let part = by_thread.get(thread)?;
    Some(part.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A request that a server has.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Server>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Arc<Server> {
        let spec = ServerSpec {
            tls: false,
            host: "127.0.0.1".into(),
            port: 1,
        };
        Arc::new(Server::new(spec, None, 1))
    }

    fn health() -> HealthSpec {
        HealthSpec {
            fails: 3,
            passes: 2,
            ..HealthSpec::at("/healthz")
        }
    }

    fn fail(server: &Server, times: usize, now_ms: u64) {
        for _ in 0..times {
            server.record_failure(None, now_ms);
        }
    }

    #[test]
    fn responses_do_not_undo_failed_probes() {
        let server = server();
        for _ in 0..3 {
            assert!(!server.is_ejected());
            server.record_failed_probe(&health());
            server.record_success();
        }
        assert!(server.is_ejected());
        server.record_good_probe(&health(), 0);
        assert!(server.is_ejected(), "two good probes are needed");
        server.record_good_probe(&health(), 0);
        assert!(!server.is_ejected());
    }

    #[test]
    fn good_probes_do_not_undo_failed_requests() {
        let server = server();
        for _ in 0..3 {
            assert!(!server.is_ejected());
            server.record_failure(Some(&health()), 0);
            server.record_good_probe(&health(), 0);
        }
        assert!(server.is_ejected());
        (0..9).for_each(|_| server.record_good_probe(&health(), 499));
        assert!(server.is_ejected(), "it is too soon");
        server.record_good_probe(&health(), 500);
        assert!(!server.is_ejected());
    }

    #[test]
    fn a_reinstated_server_is_ejected_by_one_failure_until_it_answers() {
        let server = server();
        fail(&server, 2, 0);
        assert!(!server.is_ejected());
        fail(&server, 1, 0);
        assert!(server.is_probe_due(500) && !server.is_probe_due(499));
        server.reinstate();
        fail(&server, 1, 1000);
        assert!(
            server.is_probe_due(2000) && !server.is_probe_due(1999),
            "twice as long"
        );
        server.reinstate();
        server.record_success();
        fail(&server, 2, 3000);
        assert!(!server.is_ejected());
        fail(&server, 1, 3000);
        assert!(server.is_probe_due(3500), "as the first time");
    }

    #[test]
    fn recent_failures_weigh_until_it_answers() {
        let server = server();
        let _in_flight = server.start_request();
        assert_eq!(server.load(), 1);
        server.record_soft_failure(now_ms());
        assert_eq!(server.load(), 1 + SOFT_FAILURE_WEIGHT);
        server.record_failure(None, now_ms());
        assert_eq!(server.load(), 1 + 2 * SOFT_FAILURE_WEIGHT);
        (0..100).for_each(|_| server.record_soft_failure(now_ms()));
        assert_eq!(server.load(), 1 + MAX_SOFT_FAILURES * SOFT_FAILURE_WEIGHT);
        assert!(!server.is_ejected(), "a response of 503 is a response");
        server.record_success();
        assert_eq!(server.load(), 1);
    }
}
