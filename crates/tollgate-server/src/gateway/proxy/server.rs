//! One server of an upstream: what is under way there, and whether it is up.
//!
//! # Theory
//!
//! A server that leaves several requests in a row unanswered (no connection, no answer in time, broken off)
//! is *out*: no request is sent to it while another is up. It comes back when somebody who is not a client
//! has found it well: a connection that is made for that alone, or the answer to what [`HealthSpec`] asks
//! for. If all are out, all are used: a wrong opinion about servers must not be an outage.
//!
//! To take a connection is not yet to answer. One that came back is on trial until it has answered a
//! request: the first failure puts it out again, and for twice as long.
//!
//! Requests and looks are counted apart. A server that answers requests while it says that it is ill is
//! believed: only a look makes good what looks found. Nor does a good look make good what requests met.
//!
//! Whoever fails at once has few requests under way, and would draw all of them. So each failure of late
//! weighs as much as [`SLIP`] requests under way when a server is chosen.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tollgate_config::{HealthSpec, ServerSpec};

use super::pool::{Http1, Http2};
use super::upstream::now_ms;
use super::wire::Links;

/// Failures in a row that take a server out, unless [`HealthSpec`] says so.
const FAILS: u32 = 3;
/// How long after it went out a server is looked at again; doubled each time, up to [`LONGEST_OUT`].
const SHORTEST_OUT: Duration = Duration::from_millis(500);
const LONGEST_OUT: Duration = Duration::from_secs(30);
/// Requests under way that one failure in a row weighs as much as.
const SLIP: u32 = 16;
/// Failures in a row that weigh anything.
const SLIPS: u32 = 8;
/// How long, in milliseconds, the failures in a row weigh after the last of them.
const SLIPS_WEIGH_MS: u64 = 1_000;

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) spec: ServerSpec,
    /// Its address as text, with its port.
    pub(super) authority: String,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// Requests that are with it.
    under_way: AtomicU32,
    /// Requests that were not answered since the last that was.
    fails: AtomicU32,
    /// The same, and those that it answered with not being able to. Zero only if `fails` and `looks` are,
    /// but for a moment.
    slips: AtomicU32,
    /// When the last of them was, in milliseconds of [`super::upstream::now_ms`].
    slipped_at: AtomicU64,
    /// Bad looks since the last good one.
    bad_looks: AtomicU32,
    /// Good looks since the last bad one, or since a request failed.
    passes: AtomicU32,
    is_out: AtomicBool,
    /// When to look at it again, in milliseconds of [`super::upstream::now_ms`].
    look_at: AtomicU64,
    /// How often it went out or was looked at since it last answered a request.
    looks: AtomicU32,
    /// Connections that wait for a request without a body, by thread.
    links: Box<[Mutex<Links>]>,
    /// Those that wait for any other one.
    idle: Box<[Mutex<VecDeque<Http1>>]>,
    /// The connection of HTTP/2, by thread.
    shared: Box<[Mutex<Option<Http2>>]>,
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
            under_way: AtomicU32::new(0),
            fails: AtomicU32::new(0),
            slips: AtomicU32::new(0),
            slipped_at: AtomicU64::new(0),
            bad_looks: AtomicU32::new(0),
            passes: AtomicU32::new(0),
            is_out: AtomicBool::new(false),
            look_at: AtomicU64::new(0),
            looks: AtomicU32::new(0),
            links: (0..threads).map(|_| Mutex::default()).collect(),
            idle: (0..threads).map(|_| Mutex::default()).collect(),
            shared: (0..threads).map(|_| Mutex::default()).collect(),
        }
    }

    /// A request goes there; it is with it until what this returns is dropped.
    pub(super) fn begin(self: &Arc<Server>) -> WithServer {
        self.under_way.fetch_add(1, Relaxed);
        WithServer(Arc::clone(self))
    }

    /// Requests that are with it.
    pub(crate) fn under_way(&self) -> u32 {
        self.under_way.load(Relaxed)
    }

    /// Are requests sent elsewhere, if there is an elsewhere?
    pub(crate) fn is_out(&self) -> bool {
        self.is_out.load(Relaxed)
    }

    /// Where it is, as text.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// How busy it is, for whoever chooses: what is under way, and more if it failed of late.
    pub(super) fn load(&self) -> u32 {
        let under_way = self.under_way();
        let slips = self.slips.load(Relaxed);
        if slips == 0 {
            return under_way;
        }
        let ago = now_ms().saturating_sub(self.slipped_at.load(Relaxed));
        if ago > SLIPS_WEIGH_MS {
            return under_way;
        }
        under_way.saturating_add(slips.min(SLIPS) * SLIP)
    }

    /// It answered a request, and not that it cannot.
    pub(super) fn well(&self) {
        // Read first: a line of memory that all threads read must not be written for every answer.
        if self.slips.load(Relaxed) != 0 {
            self.slips.store(0, Relaxed);
            self.fails.store(0, Relaxed);
            self.looks.store(0, Relaxed);
        }
    }

    /// It answered a request with not being able to. Others are preferred for a moment.
    pub(super) fn slipped(&self, now_ms: u64) {
        self.slipped_at.store(now_ms, Relaxed);
        self.slips.fetch_add(1, Relaxed);
    }

    /// It left a request unanswered: it could not be reached, did not answer in time, or broke off.
    pub(super) fn failed(&self, health: Option<&HealthSpec>, now_ms: u64) {
        let fails = self.fails.fetch_add(1, Relaxed).saturating_add(1);
        self.passes.store(0, Relaxed);
        self.slipped(now_ms);
        if fails >= health.map_or(FAILS, |health| health.fails) && self.put_out(fails) {
            self.look_again(now_ms);
        }
    }

    /// What is asked for to see how it is was not answered, or not well.
    pub(super) fn looked_ill(&self, health: &HealthSpec) {
        self.passes.store(0, Relaxed);
        let looks = self.bad_looks.fetch_add(1, Relaxed).saturating_add(1);
        if looks >= health.fails {
            self.put_out(looks);
        }
    }

    /// It was answered well. So many of these bring it back, if it is not yet too soon after requests failed.
    pub(super) fn looked_well(&self, health: &HealthSpec, now_ms: u64) {
        self.bad_looks.store(0, Relaxed);
        let passes = self.passes.fetch_add(1, Relaxed).saturating_add(1);
        if passes >= health.passes && now_ms >= self.look_at.load(Relaxed) {
            self.bring_back();
        }
    }

    /// Puts it out. Was it up?
    fn put_out(&self, fails: u32) -> bool {
        let was_up = !self.is_out.swap(true, Relaxed);
        if was_up {
            tracing::warn!(
                target: "tollgate::gateway", server = %self.authority, fails,
                "a server is out: requests go elsewhere while another is up"
            );
        }
        was_up
    }

    /// It was found well: requests go there again.
    pub(super) fn bring_back(&self) {
        if self.is_out() && self.is_out.swap(false, Relaxed) {
            tracing::info!(target: "tollgate::gateway", server = %self.authority, "a server is back");
        }
    }

    /// Is it time to look whether it is back?
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.is_out() && now_ms >= self.look_at.load(Relaxed)
    }

    /// Later; the later, the more often it was in vain.
    pub(super) fn look_again(&self, now_ms: u64) {
        let looks = self.looks.fetch_add(1, Relaxed).min(10);
        let wait = SHORTEST_OUT.saturating_mul(1 << looks).min(LONGEST_OUT);
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.look_at.store(now_ms.saturating_add(wait), Relaxed);
    }

    /// The connections of this thread that wait for a request without a body.
    pub(super) fn links(&self, thread: usize) -> Option<MutexGuard<'_, Links>> {
        let links = self.links.get(thread)?;
        Some(links.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The connections of this thread that wait for any other one.
    pub(super) fn idle(&self, thread: usize) -> Option<MutexGuard<'_, VecDeque<Http1>>> {
        let idle = self.idle.get(thread)?;
        Some(idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The connection of HTTP/2 of this thread.
    pub(super) fn shared(&self, thread: usize) -> Option<MutexGuard<'_, Option<Http2>>> {
        let shared = self.shared.get(thread)?;
        Some(shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request that is with a server.
#[derive(Debug)]
pub(crate) struct WithServer(Arc<Server>);

impl Drop for WithServer {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
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
        (0..times).for_each(|_| server.failed(None, now_ms));
    }

    #[test]
    fn answers_to_requests_do_not_make_good_what_looks_found() {
        let server = server();
        for _ in 0..3 {
            assert!(!server.is_out());
            server.looked_ill(&health());
            server.well();
        }
        assert!(server.is_out());
        server.looked_well(&health(), 0);
        assert!(server.is_out(), "two good looks are needed");
        server.looked_well(&health(), 0);
        assert!(!server.is_out());
    }

    #[test]
    fn good_looks_do_not_make_good_what_requests_met() {
        let server = server();
        for _ in 0..3 {
            assert!(!server.is_out());
            server.failed(Some(&health()), 0);
            server.looked_well(&health(), 0);
        }
        assert!(server.is_out());
        (0..9).for_each(|_| server.looked_well(&health(), 499));
        assert!(server.is_out(), "it is too soon");
        server.looked_well(&health(), 500);
        assert!(!server.is_out());
    }

    #[test]
    fn one_that_came_back_is_on_trial_until_it_answers() {
        let server = server();
        fail(&server, 2, 0);
        assert!(!server.is_out());
        fail(&server, 1, 0);
        assert!(server.is_due(500) && !server.is_due(499));
        server.bring_back();
        fail(&server, 1, 1000);
        assert!(server.is_due(2000) && !server.is_due(1999), "twice as long");
        server.bring_back();
        server.well();
        fail(&server, 2, 3000);
        assert!(!server.is_out());
        fail(&server, 1, 3000);
        assert!(server.is_due(3500), "as the first time");
    }

    #[test]
    fn failures_of_late_weigh_until_it_answers_or_a_moment_has_passed() {
        let server = server();
        let _under_way = server.begin();
        assert_eq!(server.load(), 1);
        server.slipped(now_ms());
        assert_eq!(server.load(), 1 + SLIP);
        server.failed(None, now_ms());
        assert_eq!(server.load(), 1 + 2 * SLIP);
        (0..100).for_each(|_| server.slipped(now_ms()));
        assert_eq!(server.load(), 1 + SLIPS * SLIP);
        assert!(!server.is_out(), "to answer that it cannot is to answer");
        server.well();
        assert_eq!(server.load(), 1);
    }
}
