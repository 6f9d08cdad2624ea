//! The store: opening it, preparing limits, and its report.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tokio::time::timeout;
use tollgate::{LimitError, Span};
use tollgate_policy::shared::{
    Answering, FaultKind, SharedLimit, SharedLimits, SharedStore, StoreFault, StoreReport,
};

use crate::decide::RedisLimits;
use crate::fleet_secret::FleetSecret;
use crate::heartbeat;
use crate::limits::fleet::{read_record_use, record_use_call};
use crate::limits::{LimitSet, slot};
use crate::link::connector::{Connector, OpenError};
use crate::link::{Context, IN_FLIGHT_MAX};
use crate::node_count::NodeCount;
use crate::reset;
use crate::send::SendError;
use crate::settings::Settings;
use crate::topology::Routes;

/// Concurrent refunds; beyond this, units stay taken.
const REFUNDS_MAX: usize = 1024;

/// Deadline of the record of a used identifier. No decision waits for it, so it is longer than theirs.
const RECORD_USE_TIMEOUT: Duration = Duration::from_millis(250);

/// How long [`RedisStore::sign_off`] waits for the store.
const SIGN_OFF_TIMEOUT: Duration = Duration::from_millis(250);

/// A store that several processes share, on Redis or Valkey.
///
/// It is cheap to clone. When the last clone and the last limits that it prepared are dropped, this node signs off and its
/// connections are closed, as long as its runtime runs; otherwise see [`RedisStore::sign_off`].
#[derive(Clone)]
pub struct RedisStore {
    tasks: Arc<StoreTasks>,
}

/// Owns the background tasks of a store: they end with it.
pub(crate) struct StoreTasks {
    pub(crate) inner: Arc<StoreInner>,
    tasks: Vec<AbortHandle>,
    /// Ends the heartbeat, also by being dropped. The heartbeat holds the receiver until it has signed off.
    stop: watch::Sender<bool>,
}

/// State that decisions and tasks share.
pub(crate) struct StoreInner {
    pub(crate) context: Arc<Context>,
    pub(crate) routes: Arc<Routes>,
    /// Name of this node among those that share the store.
    pub(crate) node: String,
    pub(crate) nodes: NodeCount,
    pub(crate) secret: FleetSecret,
    /// Bounds decisions in several slots, and settlements.
    pub(crate) decisions: Arc<Semaphore>,
    /// Bounds refunds.
    pub(crate) refunds: Arc<Semaphore>,
}

impl StoreInner {
    /// Starts a task that runs to its end even if the caller leaves; `None` if the bound is reached.
    ///
    /// A client may hang up at any moment, and then the future of its request is dropped. Work that must not be left half done
    /// runs as a task of its own. Clients that hang up cannot start tasks without end.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        bound: &Arc<Semaphore>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<JoinHandle<T>> {
        let permit = bound.clone().try_acquire_owned().ok()?;
        Some(self.context.runtime.spawn(async move {
            let _permit = permit;
            work.await
        }))
    }
}

impl Drop for StoreTasks {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.tasks.inner;
        f.debug_struct("RedisStore")
            .field("topology", &inner.context.settings().topology)
            .field("node", &inner.node)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Opens a store. It returns at once and waits for no server: connections are made in the background, on `runtime`. Until
    /// there is one, every request gets a fault.
    ///
    /// # Errors
    /// Settings that can never work: a file of certificates or a secret that cannot be read, or an invalid key prefix.
    pub fn open(settings: Settings, runtime: &Handle) -> Result<RedisStore, OpenError> {
        let connector = Connector::new(settings)?;
        let context = Arc::new(Context::new(connector, runtime));
        let (routes, topology_task) = Routes::new(&context);
        let inner = Arc::new(StoreInner {
            context,
            routes,
            node: format!("{:016x}", getrandom::u64().unwrap_or_default()),
            nodes: NodeCount::new(),
            secret: FleetSecret::new(),
            decisions: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            refunds: Arc::new(Semaphore::new(REFUNDS_MAX)),
        });
        let (stop, stopped) = watch::channel(false);
        // This task is not aborted: it signs off and ends when `stop` is dropped.
        runtime.spawn(heartbeat::run(inner.clone(), stopped));
        let reset_task = runtime.spawn(reset::detect(inner.clone()));
        let tasks = topology_task.iter().chain([&reset_task]);
        Ok(RedisStore {
            tasks: Arc::new(StoreTasks {
                tasks: tasks.map(JoinHandle::abort_handle).collect(),
                inner,
                stop,
            }),
        })
    }

    /// Sets the number of nodes before the last stop. It holds until the store reports more, or fewer for ten seconds. A node
    /// that starts without its store would otherwise assume that it is alone, and take every limit for itself.
    pub fn remember_nodes(&self, nodes: u32) {
        self.tasks.inner.nodes.raise_to(nodes);
    }

    /// Signs off; otherwise the other nodes count this one for ten seconds more. Call it last, before the runtime ends: the
    /// node still decides, but is not counted any more. It waits for at most a quarter of a second, and not at all if the store
    /// is known to be unavailable.
    pub async fn sign_off(&self) {
        self.tasks.stop.send_replace(true);
        let _ = timeout(SIGN_OFF_TIMEOUT, self.tasks.stop.closed()).await;
    }
}

impl SharedStore for RedisStore {
    fn prepare(
        &self,
        limits: &[SharedLimit<'_>],
    ) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)> {
        let prefix = &self.tasks.inner.context.settings().prefix;
        let limits = LimitSet::new(prefix, limits)?;
        Ok(Arc::new(RedisLimits::new(self.tasks.clone(), limits)))
    }

    fn nodes(&self) -> u32 {
        let inner = &self.tasks.inner;
        let configured = inner.context.settings().nodes;
        // The greater number: a node that divides by too few admits too much.
        inner.nodes.get().max(configured.unwrap_or(1))
    }

    fn fleet_secret(&self) -> Option<[u8; 32]> {
        self.tasks.inner.secret.get()
    }

    fn record_use(&self, id: u128, ttl: Span) -> Answering<'_, bool> {
        let inner = &self.tasks.inner;
        Box::pin(async move {
            let prefix = &inner.context.settings().prefix;
            let call = record_use_call(prefix, id, ttl.as_nanos() / 1_000_000);
            let key_slot = call.keys.iter().next().map(slot).unwrap_or_default();
            let deadline = Instant::now() + RECORD_USE_TIMEOUT;
            let replies = inner.send(key_slot, &[call], deadline).await;
            let replies = replies.map_err(|error| match error {
                SendError::Fault(fault) => fault,
                SendError::SplitKeys { .. } => {
                    StoreFault::new(FaultKind::Unable, "the slot of the identifier is moving")
                }
            })?;
            let is_first = replies.last().map(read_record_use);
            match is_first {
                Some(Ok(is_first)) => Ok(is_first),
                _ => Err(StoreFault::new(
                    FaultKind::Garbled,
                    "not one reply to one call",
                )),
            }
        })
    }

    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(RedisStore::sign_off(self))
    }

    fn report(&self) -> StoreReport {
        let inner = &self.tasks.inner;
        let counters = &inner.context.counters;
        StoreReport {
            servers: inner.routes.reports(),
            nodes: self.nodes(),
            warnings: inner.context.warnings.list(),
            answered: counters.latencies(),
            faults: counters.faults(),
            reloaded_scripts: counters.reloaded_scripts.load(Ordering::Relaxed),
            script_errors: counters.script_errors.load(Ordering::Relaxed),
            redirects: counters.redirects.load(Ordering::Relaxed),
            compensated: counters.compensated.load(Ordering::Relaxed),
        }
    }
}
