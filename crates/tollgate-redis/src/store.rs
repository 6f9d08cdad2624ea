//! The store: how it is opened, what it prepares, and how it is doing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tollgate::LimitError;
use tollgate_policy::shared::{SharedLimit, SharedLimits, SharedStore, StoreReport};

use crate::charge::Prepared;
use crate::finish::Finishing;
use crate::limits::Limits;
use crate::link::access::{Access, OpenError};
use crate::link::{Context, IN_FLIGHT_MAX};
use crate::nodes::Nodes;
use crate::settings::Settings;
use crate::topology::Routes;
use crate::upkeep;

/// What is given back at once; more stays taken.
const GIVING_BACK_MAX: usize = 1024;

/// Nobody's end waits longer than this for the store.
const LEAVE_WITHIN: Duration = Duration::from_millis(250);

/// A store that several processes share, on Redis or Valkey.
///
/// It is cheap to clone. When the last clone and the last limits that it prepared are gone, this node signs off and its
/// connections are closed, as far as its runtime goes on; if it does not, see [`Store::leave`].
#[derive(Clone)]
pub struct Store {
    open: Arc<Open>,
}

pub(crate) struct Open {
    pub(crate) desk: Arc<Desk>,
    tasks: Vec<AbortHandle>,
    /// Says that this node leaves, or says so by being dropped. Whoever tells the others listens until that is done.
    leaves: watch::Sender<bool>,
}

/// What decisions and tasks share.
pub(crate) struct Desk {
    pub(crate) context: Arc<Context>,
    pub(crate) routes: Arc<Routes>,
    /// What this node is called among those that share the store.
    pub(crate) node: String,
    pub(crate) nodes: Nodes,
    /// Decisions in several slots, and corrections.
    pub(crate) finishing: Arc<Finishing>,
    pub(crate) giving_back: Arc<Finishing>,
}

impl Drop for Open {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("topology", &self.open.desk.context.access.settings.topology)
            .field("node", &self.open.desk.node)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a store. It returns at once and waits for no server: connections are made in the background, on
    /// `runtime`, and until there is one every request is told so.
    ///
    /// # Errors
    /// What could never work: a file of certificates or a secret that cannot be read, or a prefix that would break the
    /// names of keys.
    pub fn open(settings: Settings, runtime: &Handle) -> Result<Store, OpenError> {
        let access = Access::new(settings)?;
        let context = Arc::new(Context::new(access, runtime));
        let (routes, following) = Routes::new(&context, &context.access.settings.topology);
        let desk = Arc::new(Desk {
            context,
            routes,
            node: format!("{:016x}", getrandom::u64().unwrap_or_default()),
            nodes: Nodes::alone(),
            finishing: Finishing::new(IN_FLIGHT_MAX),
            giving_back: Finishing::new(GIVING_BACK_MAX),
        });
        let (leaves, is_leaving) = watch::channel(false);
        // It is not broken off: when `leaves` is dropped it signs off and ends.
        runtime.spawn(upkeep::beats(desk.clone(), is_leaving));
        let tasks = [following, Some(runtime.spawn(upkeep::epochs(desk.clone())))];
        let tasks = tasks
            .iter()
            .flatten()
            .map(|task| task.abort_handle())
            .collect();
        Ok(Store {
            open: Arc::new(Open {
                desk,
                tasks,
                leaves,
            }),
        })
    }

    /// How many nodes there were when this one was there last, for as long as the store does not know better: a node that
    /// starts without its store would otherwise believe that it is alone, and take every limit for its own. It is looked past
    /// once the store has counted more; fewer are believed when the store has counted fewer for ten seconds.
    pub fn remember_nodes(&self, nodes: u32) {
        self.open.desk.nodes.remember(nodes);
    }

    /// Tells the others that this node is gone; otherwise they count it for ten seconds more. To be called last, before
    /// the runtime ends: it still decides, but is not counted any more. It waits for a quarter of a second at the most, and
    /// for nothing if the store is known to be away.
    pub async fn leave(&self) {
        self.open.leaves.send_replace(true);
        let _ = timeout(LEAVE_WITHIN, self.open.leaves.closed()).await;
    }
}

impl SharedStore for Store {
    fn prepare(
        &self,
        limits: &[SharedLimit<'_>],
    ) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)> {
        let prefix = &self.open.desk.context.access.settings.prefix;
        let limits = Limits::new(prefix, limits)?;
        Ok(Arc::new(Prepared::new(self.open.clone(), limits)))
    }

    fn nodes(&self) -> u32 {
        let desk = &self.open.desk;
        let written = desk.context.access.settings.nodes;
        // Who divides by too few lets too much pass, whoever it was that did not know of the others.
        desk.nodes.believed().max(written.unwrap_or(1))
    }

    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Store::leave(self))
    }

    fn report(&self) -> StoreReport {
        let desk = &self.open.desk;
        let counters = &desk.context.counters;
        StoreReport {
            servers: desk.routes.reports(),
            nodes: self.nodes(),
            warnings: desk.context.warnings.list(),
            answered: counters.latencies(),
            faults: counters.faults(),
            reloaded_scripts: counters.reloaded_scripts.load(Ordering::Relaxed),
            script_errors: counters.script_errors.load(Ordering::Relaxed),
            redirects: counters.redirects.load(Ordering::Relaxed),
            compensated: counters.compensated.load(Ordering::Relaxed),
        }
    }
}
