//! One server of an upstream: what is under way there, and whether it is up.
//!
//! # Theory
//!
//! A server that cannot be connected to several times in a row is *out*: no request is sent to it while
//! another is up. It comes back when somebody who is not a client has found it well: a connection that is
//! made for that alone, or the answer to what [`HealthSpec`] asks for. So no request is ever a probe. If all
//! are out, all are used: a wrong opinion about servers must not be an outage.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tollgate_policy::{HealthSpec, ServerSpec};

use super::pool::{Http1, Http2};

/// Failures in a row that take a server out, unless [`HealthSpec`] says so.
const FAILS: u32 = 3;
/// How long after it went out a server is looked at again; doubled each time, up to [`LONGEST_OUT`].
const SHORTEST_OUT: Duration = Duration::from_millis(500);
const LONGEST_OUT: Duration = Duration::from_secs(30);

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) spec: ServerSpec,
    /// Its address as text, with its port.
    pub(super) authority: String,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// Requests that are with it.
    under_way: AtomicU32,
    /// Failures since the last success.
    fails: AtomicU32,
    /// Good looks since the last bad one.
    passes: AtomicU32,
    is_out: AtomicBool,
    /// When to look at it again, in milliseconds of [`super::upstream::now_ms`].
    look_at: AtomicU64,
    /// How often it was looked at in vain.
    looks: AtomicU32,
    /// Connections that wait for a request, by thread.
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
            passes: AtomicU32::new(0),
            is_out: AtomicBool::new(false),
            look_at: AtomicU64::new(0),
            looks: AtomicU32::new(0),
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

    /// It answered, or a look at it went well.
    pub(super) fn well(&self) {
        // Read first: a line of memory that all threads read must not be written for every answer.
        if self.fails.load(Relaxed) != 0 {
            self.fails.store(0, Relaxed);
        }
    }

    /// It could not be reached, or did not answer in time.
    pub(super) fn failed(&self, health: Option<&HealthSpec>, now_ms: u64) {
        let fails = self.fails.fetch_add(1, Relaxed).saturating_add(1);
        self.passes.store(0, Relaxed);
        if fails >= health.map_or(FAILS, |health| health.fails) && !self.is_out.swap(true, Relaxed)
        {
            self.looks.store(0, Relaxed);
            self.look_again(now_ms);
            tracing::warn!(
                target: "tollgate::gateway", server = %self.authority, fails,
                "a server is out: requests go elsewhere while another is up"
            );
        }
    }

    /// A look went well. So many of them bring it back.
    pub(super) fn passed(&self, needed: u32) {
        self.fails.store(0, Relaxed);
        let passes = self.passes.fetch_add(1, Relaxed).saturating_add(1);
        if passes >= needed && self.is_out.swap(false, Relaxed) {
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

    /// The connections of this thread that wait for a request.
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
