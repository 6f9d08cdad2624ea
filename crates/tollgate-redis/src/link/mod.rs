//! One server: a connection that many requests share, a circuit breaker, and the task that reconnects.
//!
//! # Theory
//!
//! A link is up or down. While it is up, calls are written to its one connection as they come and answered in order. While it
//! is down, a call gets [`FaultKind::Away`] at once. A task connects in the background ([`connect`]) with jitter ([`backoff`]),
//! and marks the link up when the server is a primary, has the scripts and answers within the deadline of a decision. The pause
//! grows for a link that fails again at once, so that requests do not run into it again and again.
//!
//! A link is marked down on an error of the connection, on a reply to another call, on errors that require it
//! ([`crate::error_action`]), and on three late replies in a row.
//!
//! # Invariant
//!
//! A call is written once. It is written again with the script's text only if the server reports that it lacks the script. Every
//! call has a number and every reply returns it, so a reply can never be taken for another's; a late one is dropped.
//!
//! # Permissions
//!
//! The server must allow exactly [`ACCESS_RULE`], and in a cluster [`CLUSTER_RULE`] as well.
//!
//! # What it does not know
//!
//! Which slots the server serves, and the callers.

pub(crate) mod backoff;
pub(crate) mod connect;
pub(crate) mod connector;
mod exchange;
pub(crate) mod monitor;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_policy::shared::{FaultKind, ServerReport, StoreFault};

use self::backoff::Backoff;
use self::connect::DownReason;
use self::connector::{Address, Connector};
use crate::error_action::ErrorAction;
use crate::report::{Counters, Warnings, count};
use crate::script::Scripts;
use crate::script_call::ScriptCall;
use crate::settings::Settings;

/// The minimal rule of a server's access list, for the prefix `tg`:
///
/// ```text
/// ACL SETUSER tollgate on >password <this rule>
/// ```
///
/// Scripts run with the permissions of their caller, so the rule contains their commands. The doctor reads more
/// (`+config|get +scan`, in a cluster `+cluster|info`); without these it reports what it could not read.
pub const ACCESS_RULE: &str = "resetkeys ~tg:* resetchannels -@all \
    +evalsha +eval +script|load +ping +role +info +time \
    +get +set +del +mget +exists +append +strlen +getrange +setrange +pexpire +pttl \
    +zadd +zremrangebyscore +zcard";

/// The commands that a cluster must allow in addition to [`ACCESS_RULE`].
pub const CLUSTER_RULE: &str = "+cluster|slots +asking";

/// Calls in flight on one link; more are rejected.
pub(crate) const IN_FLIGHT_MAX: usize = 4096;
/// The state of a link until its first connection attempt has ended.
const NOT_TRIED: &str = "not connected yet";
/// Numbers of calls are below this, because scripts compute with doubles.
const NUMBERS: u64 = 1 << 53;

/// State that all links of a store share.
pub(crate) struct Context {
    pub(crate) connector: Connector,
    pub(crate) scripts: Scripts,
    pub(crate) counters: Counters,
    pub(crate) warnings: Warnings,
    pub(crate) runtime: Handle,
    /// Wakes the task that follows the topology: something may have changed.
    pub(crate) topology_changed: Notify,
    numbers: AtomicU64,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("connector", &self.connector)
            .finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn new(connector: Connector, runtime: &Handle) -> Context {
        Context {
            connector,
            scripts: Scripts::new(),
            counters: Counters::default(),
            warnings: Warnings::default(),
            runtime: runtime.clone(),
            topology_changed: Notify::new(),
            numbers: AtomicU64::new(getrandom::u64().unwrap_or_default()),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.connector.settings
    }

    /// A number that no other call in flight has. Relaxed: it only has to differ.
    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) % NUMBERS
    }
}

/// The result of one call.
#[derive(Debug)]
pub(crate) enum CallResult {
    /// The script ran. The first element of the reply is the number of the call.
    Ran(Value),
    /// The script did not run, and may be sent again in this way.
    NotRun(ErrorAction),
}

/// One server. Its task ends when the link is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    inner: Arc<LinkInner>,
    task: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        self.inner.context.warnings.clear_all(&self.inner.name);
    }
}

#[derive(Debug)]
struct LinkInner {
    address: Address,
    name: String,
    context: Arc<Context>,
    state: watch::Sender<Option<Arc<Connected>>>,
    created: Instant,
    /// Why it is down.
    reason: Mutex<DownReason>,
    in_flight: Semaphore,
    late_in_row: AtomicU32,
    failures_in_row: AtomicU32,
    is_loading_scripts: AtomicBool,
    broken: AtomicU64,
    connected: AtomicU64,
    /// Seconds plus one; 0 if unknown.
    replica_lag: AtomicU64,
    /// Identifies the run of the server; empty if unknown.
    run_id: Mutex<String>,
}

/// The connection of a link that is up.
#[derive(Debug)]
struct Connected {
    connection: MultiplexedConnection,
    /// Number of the connection, from 1.
    generation: u64,
}

impl Link {
    /// A link to this server, down at first. Its task is started.
    pub(crate) fn new(context: &Arc<Context>, address: Address) -> Arc<Link> {
        let inner = Arc::new(LinkInner {
            name: address.to_string(),
            address,
            context: context.clone(),
            state: watch::Sender::new(None),
            created: Instant::now(),
            reason: Mutex::new(DownReason::new(FaultKind::Away, NOT_TRIED)),
            in_flight: Semaphore::new(IN_FLIGHT_MAX),
            late_in_row: AtomicU32::new(0),
            failures_in_row: AtomicU32::new(0),
            is_loading_scripts: AtomicBool::new(false),
            broken: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            replica_lag: AtomicU64::new(0),
            run_id: Mutex::default(),
        });
        let task = context.runtime.spawn(keep_connected(inner.clone()));
        let task = task.abort_handle();
        Arc::new(Link { inner, task })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.inner.address
    }

    /// Number of the present connection; `None` if the link is down.
    pub(crate) fn generation(&self) -> Option<u64> {
        let state = self.inner.state.borrow();
        state.as_ref().map(|connected| connected.generation)
    }

    /// The connection, for commands that are no decisions.
    pub(crate) fn connection(&self) -> Option<MultiplexedConnection> {
        let state = self.inner.state.borrow();
        state.as_ref().map(|connected| connected.connection.clone())
    }

    /// Waits for the first connection. Does not wait for a link that was up before.
    pub(crate) async fn first_connection(&self, deadline: Instant) {
        let is_new = self.inner.connected.load(Ordering::Relaxed) == 0
            && self.inner.created.elapsed() < connector::CONNECT_TIMEOUT;
        if is_new {
            let mut state = self.inner.state.subscribe();
            let _ = timeout_at(deadline, state.wait_for(Option::is_some)).await;
        }
    }

    /// Runs calls in order, and returns the result of each.
    ///
    /// # Errors
    /// There is no reply. The calls may have run.
    pub(crate) async fn run(
        &self,
        calls: &[&ScriptCall],
        asking: bool,
        deadline: Instant,
    ) -> Result<Vec<CallResult>, StoreFault> {
        let link = &self.inner;
        let connected = link.state.borrow().clone();
        let connected = connected.ok_or_else(|| link.is_down())?;
        let _permit = link.in_flight.try_acquire().map_err(|_| {
            let message = format!("{IN_FLIGHT_MAX} calls to {} are in flight", link.name);
            StoreFault::new(FaultKind::Busy, message)
        })?;
        let mut results = link
            .exchange(&connected, calls, asking, deadline, false)
            .await?;
        let lacks_script =
            |result: &CallResult| matches!(result, CallResult::NotRun(ErrorAction::SendScript));
        let (places, whole): (Vec<usize>, Vec<&ScriptCall>) = (0..)
            .zip(calls)
            .zip(&results)
            .filter(|(_, result)| lacks_script(result))
            .map(|((place, call), _)| (place, *call))
            .unzip();
        if whole.is_empty() {
            return Ok(results);
        }
        link.reload_scripts(&connected);
        for _ in &whole {
            count(&link.context.counters.reloaded_scripts);
        }
        let again = link
            .exchange(&connected, &whole, asking, deadline, true)
            .await?;
        for (place, result) in places.into_iter().zip(again) {
            if let Some(old) = results.get_mut(place) {
                *old = result;
            }
        }
        Ok(results)
    }

    /// Marks the link down until the server passes all checks again.
    pub(crate) fn mark_down(&self, kind: FaultKind, message: &str) {
        self.inner.mark_down_now(kind, message);
    }

    /// Identifies the run of the server; empty if unknown.
    pub(crate) fn run_id(&self) -> String {
        let run_id = self.inner.run_id.lock();
        run_id.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn report(&self) -> ServerReport {
        let link = &self.inner;
        let is_up = self.generation().is_some();
        let lag = link.replica_lag.load(Ordering::Relaxed);
        ServerReport {
            address: link.name.clone(),
            is_up,
            broken: link.broken.load(Ordering::Relaxed),
            connected: link.connected.load(Ordering::Relaxed),
            replica_lag: lag.checked_sub(1),
            last_fault: (!is_up)
                .then(|| link.down_reason())
                .filter(|reason| reason.message != NOT_TRIED)
                .map(|reason| reason.to_string()),
        }
    }
}

/// Connects, monitors the server while the link is up, and connects again when it was marked down.
async fn keep_connected(link: Arc<LinkInner>) {
    let mut backoff = Backoff::new();
    loop {
        let connection = loop {
            match connect::connect(&link.context, &link.address).await {
                Ok(connection) => break connection,
                Err(reason) => {
                    if reason.code() == "not-primary" {
                        link.context.topology_changed.notify_one();
                    }
                    link.stay_down(reason);
                }
            }
            sleep(backoff.after_failure()).await;
        };
        let mut state = link.state.subscribe();
        link.mark_up(connection.clone());
        let since = Instant::now();
        tokio::select! {
            _ = state.wait_for(Option::is_none) => {}
            () = monitor::monitor(&link, connection) => {}
        }
        sleep(backoff.after_disconnect(since.elapsed())).await;
    }
}
