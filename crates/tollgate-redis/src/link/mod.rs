//! One server: a connection that many requests share, a breaker, and the task that brings it back.
//!
//! # Theory
//!
//! A link is up or down. While it is up, calls are written to its one connection as they come and answered in order.
//! While it is down, a call gets [`FaultKind::Away`] at once and waits for nothing; a task tries the server in the
//! background ([`rise`]) with jitter ([`pace`]), and brings the link up when the server has shown that it is a primary,
//! knows the scripts and answers within the deadline of a decision. A link that fails again at once is left alone for
//! longer each time, so that requests do not run into it by turns.
//!
//! A link is given up on an error of the connection, on an answer that is not one to its question, on errors that say
//! so ([`crate::fault`]), and on three late answers in a row.
//!
//! # Invariant
//!
//! A call is written once. It is written again, whole, only if the server said that it does not know the script. Every
//! script gets a number and gives it back, so an answer can never be taken for another's; a late one is dropped.
//!
//! # What the server must allow
//!
//! Exactly [`ACCESS_RULE`], and in a cluster [`CLUSTER_RULE`] as well.
//!
//! # What it does not know
//!
//! Which slots it serves, and who asks.

pub(crate) mod access;
mod answers;
pub(crate) mod pace;
pub(crate) mod rise;
pub(crate) mod watch;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch as channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_policy::shared::{FaultKind, ServerReport, StoreFault};

use self::access::{Access, Address};
use self::pace::Pace;
use self::rise::Low;
use crate::call::Call;
use crate::fault::Meaning;
use crate::report::{Counters, Warnings, count};
use crate::script::Scripts;

/// The rule of a server's access list that suffices, for the prefix `tg`:
///
/// ```text
/// ACL SETUSER tollgate on >password <this rule>
/// ```
///
/// Scripts run as the user who calls them, so what they call is in it. The doctor looks at more
/// (`+config|get +scan`, in a cluster `+cluster|info`); without these it says what it could not see.
pub const ACCESS_RULE: &str = "resetkeys ~tg:* resetchannels -@all \
    +evalsha +eval +script|load +ping +role +info +time \
    +get +set +del +mget +exists +append +strlen +getrange +setrange +pexpire +pttl \
    +zadd +zremrangebyscore +zcard";

/// What a cluster must allow besides [`ACCESS_RULE`].
pub const CLUSTER_RULE: &str = "+cluster|slots +asking";

/// Calls on one link at once; more are turned away.
pub(crate) const IN_FLIGHT_MAX: usize = 4096;
/// Numbers of calls are below this, because scripts reckon with doubles.
const NUMBERS: u64 = 1 << 53;

/// What all links of a store share.
pub(crate) struct Context {
    pub(crate) access: Access,
    pub(crate) scripts: Scripts,
    pub(crate) counters: Counters,
    pub(crate) warnings: Warnings,
    pub(crate) runtime: Handle,
    /// Something changed: whoever knows who serves what should look again.
    pub(crate) look_again: Notify,
    numbers: AtomicU64,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn new(access: Access, runtime: &Handle) -> Context {
        Context {
            access,
            scripts: Scripts::new(),
            counters: Counters::default(),
            warnings: Warnings::default(),
            runtime: runtime.clone(),
            look_again: Notify::new(),
            numbers: AtomicU64::new(getrandom::u64().unwrap_or_default()),
        }
    }

    /// A number that no other call in flight has. Relaxed: it only has to differ.
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) % NUMBERS
    }
}

/// What one call came to.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The script ran. The first element is the number of the call.
    Ran(Value),
    /// It did not run, and may be sent again as this says.
    NotRun(Meaning),
}

/// One server. Its task ends with it.
#[derive(Debug)]
pub(crate) struct Link {
    core: Arc<Core>,
    task: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        self.core.context.warnings.forget(&self.core.name);
    }
}

#[derive(Debug)]
struct Core {
    address: Address,
    name: String,
    context: Arc<Context>,
    state: channel::Sender<Option<Arc<Up>>>,
    made: Instant,
    /// Why it is down.
    low: Mutex<Low>,
    in_flight: AtomicUsize,
    late_in_row: AtomicU32,
    strikes: AtomicU32,
    is_teaching: AtomicBool,
    broken: AtomicU64,
    connected: AtomicU64,
    /// In seconds, and one more; 0 if it is not known.
    replica_lag: AtomicU64,
    /// Which run of the server this is; empty if it does not tell.
    run: Mutex<String>,
}

#[derive(Debug)]
struct Up {
    connection: MultiplexedConnection,
    /// The how manyth connection.
    generation: u64,
}

impl Link {
    /// A link to this server, down at first; its task is started.
    pub(crate) fn new(context: &Arc<Context>, address: Address) -> Arc<Link> {
        let core = Arc::new(Core {
            name: address.to_string(),
            address,
            context: context.clone(),
            state: channel::Sender::new(None),
            made: Instant::now(),
            low: Mutex::new(Low {
                kind: FaultKind::Away,
                words: "not connected yet".into(),
                warning: None,
            }),
            in_flight: AtomicUsize::new(0),
            late_in_row: AtomicU32::new(0),
            strikes: AtomicU32::new(0),
            is_teaching: AtomicBool::new(false),
            broken: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            replica_lag: AtomicU64::new(0),
            run: Mutex::new(String::new()),
        });
        let task = context.runtime.spawn(keep(core.clone())).abort_handle();
        Arc::new(Link { core, task })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.core.address
    }

    /// The how manyth connection is up; none if it is down.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.core.state.borrow().as_ref().map(|up| up.generation)
    }

    /// Its connection, for questions that are no decisions.
    pub(crate) fn connection(&self) -> Option<MultiplexedConnection> {
        self.core
            .state
            .borrow()
            .as_ref()
            .map(|up| up.connection.clone())
    }

    /// Waits for its first connection. One that was up before is not waited for.
    pub(crate) async fn first_up(&self, deadline: Instant) {
        let is_new = self.core.connected.load(Ordering::Relaxed) == 0
            && self.core.made.elapsed() < access::CONNECT;
        if is_new {
            let mut state = self.core.state.subscribe();
            let _ = timeout_at(deadline, state.wait_for(Option::is_some)).await;
        }
    }

    /// Runs calls in order, and says what each came to.
    ///
    /// # Errors
    /// There is no answer. What was sent may have run.
    pub(crate) async fn run(
        &self,
        calls: &[&Call],
        asking: bool,
        deadline: Instant,
    ) -> Result<Vec<Reply>, StoreFault> {
        let core = &self.core;
        let up = core.state.borrow().clone();
        let Some(up) = up else {
            return Err(core.away());
        };
        let _place = Place::take(core)?;
        let mut replies = core.exchange(&up, calls, asking, deadline, false).await?;
        let unknown: Vec<usize> = (0..replies.len())
            .filter(|place| matches!(replies.get(*place), Some(Reply::NotRun(Meaning::NoScript))))
            .collect();
        if unknown.is_empty() {
            return Ok(replies);
        }
        core.teach_again(&up);
        for _ in &unknown {
            count(&core.context.counters.reloaded_scripts);
        }
        let whole: Vec<&Call> = unknown
            .iter()
            .filter_map(|place| calls.get(*place).copied())
            .collect();
        let again = core.exchange(&up, &whole, asking, deadline, true).await?;
        for (place, reply) in unknown.into_iter().zip(again) {
            if let Some(old) = replies.get_mut(place) {
                *old = reply;
            }
        }
        Ok(replies)
    }

    /// It is not to be asked any more until it has shown that it can.
    pub(crate) fn give_up(&self, kind: FaultKind, words: &str) {
        let up = self.core.state.borrow().clone();
        if let Some(up) = up {
            self.core.give_up(&up, kind, words);
        }
    }

    /// Which run of the server this is; empty if it does not tell.
    pub(crate) fn run_id(&self) -> String {
        let run = self.core.run.lock();
        run.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn report(&self) -> ServerReport {
        let core = &self.core;
        let is_up = core.state.borrow().is_some();
        let lag = core.replica_lag.load(Ordering::Relaxed);
        ServerReport {
            address: core.name.clone(),
            is_up,
            broken: core.broken.load(Ordering::Relaxed),
            connected: core.connected.load(Ordering::Relaxed),
            replica_lag: lag.checked_sub(1),
            last_fault: (!is_up).then(|| core.low().to_string()),
        }
    }
}

/// A place among the calls in flight.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(core: &'a Core) -> Result<Place<'a>, StoreFault> {
        // Relaxed: it is a bound on memory, and nothing else hangs on it.
        if core.in_flight.fetch_add(1, Ordering::Relaxed) >= IN_FLIGHT_MAX {
            core.in_flight.fetch_sub(1, Ordering::Relaxed);
            let words = format!("{IN_FLIGHT_MAX} calls to {} are in flight", core.name);
            return Err(StoreFault::new(FaultKind::Busy, words));
        }
        Ok(Place(&core.in_flight))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Brings the link up, watches the server while it is, and begins again when it was given up.
async fn keep(core: Arc<Core>) {
    let mut pace = Pace::new();
    loop {
        let connection = loop {
            match rise::rise(&core.context, &core.address).await {
                Ok(connection) => break connection,
                Err(low) => {
                    if low.warning.is_some_and(|(code, _)| code == "not-primary") {
                        core.context.look_again.notify_one();
                    }
                    core.stay_down(low);
                }
            }
            sleep(pace.after_failure()).await;
        };
        let mut state = core.state.subscribe();
        core.bring_up(connection.clone());
        let since = Instant::now();
        tokio::select! {
            _ = state.wait_for(Option::is_none) => {}
            () = watch::watch(&core, connection) => {}
        }
        sleep(pace.after_up(since.elapsed())).await;
    }
}
