//! Who is asked for a slot.
//!
//! # Theory
//!
//! One server, or the primary that sentinels name, is asked for every slot. In a cluster each slot has its own primary;
//! a task reads the map ([`cluster`]), and a server that says `MOVED` corrects it at once, slot by slot.
//!
//! # Invariant
//!
//! There is one link for each address. A link whose server serves nothing any more is dropped, with its task and its
//! connection; one that was asked on the way of a moving slot is kept for a while.
//!
//! # What it does not know
//!
//! What is asked.

mod cluster;
mod sentinel;

pub(crate) use cluster::parse as slots_told;
pub(crate) use sentinel::parse as primary_named;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tollgate_policy::shared::{FaultKind, ServerReport, StoreFault};

use crate::fault::SLOTS;
use crate::link::access::Address;
use crate::link::{Context, Link};
use crate::settings::Topology;

/// Links at the most: a cluster may have a thousand servers.
const LINKS_MAX: usize = 1024;
/// How long a link is kept that serves no slot but was asked.
const LINGERS: Duration = Duration::from_secs(30);
/// A slot that nobody serves.
const NOBODY: u16 = u16::MAX;

/// Who is asked for what.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) context: Arc<Context>,
    by_slot: bool,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    links: Vec<Served>,
    /// For each slot the place of its link; empty if the first link serves all.
    slots: Vec<u16>,
}

#[derive(Debug)]
struct Served {
    link: Arc<Link>,
    /// Last time that it was named by another server.
    named: Instant,
}

impl Routes {
    /// Routes to these servers, and the task that keeps them right, if one is needed.
    pub(crate) fn new(
        context: &Arc<Context>,
        topology: &Topology,
    ) -> (Arc<Routes>, Option<JoinHandle<()>>) {
        let routes = |by_slot| {
            Arc::new(Routes {
                context: context.clone(),
                by_slot,
                table: RwLock::new(Table::default()),
            })
        };
        match topology {
            Topology::Standalone {
                server: (host, port),
            } => {
                let routes = routes(false);
                routes.serve_all(Address::new(host, *port));
                (routes, None)
            }
            Topology::Sentinel { sentinels, service } => {
                let routes = routes(false);
                let follow =
                    sentinel::follow(routes.clone(), addresses(sentinels), service.clone());
                let task = context.runtime.spawn(follow);
                (routes, Some(task))
            }
            Topology::Cluster { servers } => {
                let routes = routes(true);
                let task = context
                    .runtime
                    .spawn(cluster::follow(routes.clone(), addresses(servers)));
                (routes, Some(task))
            }
        }
    }

    /// Do slots matter?
    pub(crate) fn by_slot(&self) -> bool {
        self.by_slot
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who is asked for this slot.
    ///
    /// # Errors
    /// Nobody is known yet, or nobody serves it.
    pub(crate) fn link(&self, slot: u16) -> Result<Arc<Link>, StoreFault> {
        let table = self.read();
        let place = if self.by_slot {
            table
                .slots
                .get(usize::from(slot))
                .copied()
                .unwrap_or(NOBODY)
        } else {
            0
        };
        if let Some(served) = table.links.get(usize::from(place)) {
            return Ok(served.link.clone());
        }
        let is_mapped = !table.slots.is_empty();
        drop(table);
        if is_mapped {
            self.context.look_again.notify_one();
            let words = format!("no server of the cluster serves slot {slot}");
            return Err(StoreFault::new(FaultKind::Unable, words));
        }
        Err(StoreFault::new(
            FaultKind::Away,
            "it is not known yet which server to ask",
        ))
    }

    /// All links.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        self.read()
            .links
            .iter()
            .map(|served| served.link.clone())
            .collect()
    }

    /// A slot that this link serves, as far as is known.
    pub(crate) fn serves(&self, link: &Arc<Link>, slot: u16) -> bool {
        self.link(slot).is_ok_and(|other| Arc::ptr_eq(&other, link))
    }

    pub(crate) fn reports(&self) -> Vec<ServerReport> {
        self.links().iter().map(|link| link.report()).collect()
    }

    /// One server serves everything from now on.
    fn serve_all(&self, address: Address) {
        let served = Served {
            link: Link::new(&self.context, address),
            named: Instant::now(),
        };
        let before = std::mem::replace(&mut self.write().links, vec![served]);
        // Dropped after the lock: its task ends there.
        drop(before);
    }

    /// Another server said that this one is to be asked. None if there are too many.
    pub(crate) fn named(&self, address: &Address) -> Option<Arc<Link>> {
        let mut table = self.write();
        let place = table.place_of(&self.context, address)?;
        table
            .links
            .get(usize::from(place))
            .map(|served| served.link.clone())
    }

    /// A server said who serves this slot now.
    pub(crate) fn moved(&self, slot: u16, address: &Address) -> Option<Arc<Link>> {
        let mut table = self.write();
        let place = table.place_of(&self.context, address)?;
        if let Some(owner) = table.slots.get_mut(usize::from(slot)) {
            *owner = place;
        }
        let link = table
            .links
            .get(usize::from(place))
            .map(|served| served.link.clone());
        drop(table);
        self.context.look_again.notify_one();
        link
    }

    /// The whole map, as a server tells it.
    fn map(&self, owners: &[(u16, u16, Address)]) {
        let mut table = self.write();
        let mut slots = vec![NOBODY; usize::from(SLOTS)];
        // Each is looked for once: decisions wait for this lock, and a map may have as many ranges as there are slots.
        let mut places: HashMap<&Address, Option<u16>> = HashMap::new();
        for (first, last, address) in owners {
            let place = places
                .entry(address)
                .or_insert_with(|| table.place_of(&self.context, address));
            let Some(place) = *place else {
                continue;
            };
            for slot in *first..=(*last).min(SLOTS - 1) {
                if let Some(owner) = slots.get_mut(usize::from(slot)) {
                    *owner = place;
                }
            }
        }
        table.slots = slots;
        let serving: Vec<u16> = places.into_values().flatten().collect();
        let gone = table.sweep(&serving);
        drop(table);
        drop(gone);
    }

    /// Waits for somebody else to serve this slot, or for the same server to be up again.
    pub(crate) async fn other(
        &self,
        slot: u16,
        before: &Arc<Link>,
        generation: Option<u64>,
        deadline: Instant,
    ) -> Option<Arc<Link>> {
        while Instant::now() < deadline {
            if let Ok(link) = self.link(slot)
                && let Some(now) = link.generation()
                && (!Arc::ptr_eq(&link, before) || Some(now) != generation)
            {
                return Some(link);
            }
            sleep(Duration::from_millis(1)).await;
        }
        None
    }
}

impl Table {
    /// The place of the link to this address; it is made if there is none.
    fn place_of(&mut self, context: &Arc<Context>, address: &Address) -> Option<u16> {
        let now = Instant::now();
        let known = self.links.iter_mut().position(|served| {
            let is_it = served.link.address() == address;
            if is_it {
                served.named = now;
            }
            is_it
        });
        let place = match known {
            Some(place) => place,
            None if self.links.len() >= LINKS_MAX => return None,
            None => {
                self.links.push(Served {
                    link: Link::new(context, address.clone()),
                    named: now,
                });
                self.links.len() - 1
            }
        };
        u16::try_from(place).ok()
    }

    /// Takes out the links that serve nothing and were not named lately.
    fn sweep(&mut self, serving: &[u16]) -> Vec<Served> {
        let now = Instant::now();
        let mut moved_to = Vec::with_capacity(self.links.len());
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for (place, served) in std::mem::take(&mut self.links).into_iter().enumerate() {
            let serves = serving.iter().any(|other| usize::from(*other) == place);
            if serves || now.duration_since(served.named) < LINGERS {
                moved_to.push(u16::try_from(kept.len()).unwrap_or(NOBODY));
                kept.push(served);
            } else {
                moved_to.push(NOBODY);
                gone.push(served);
            }
        }
        self.links = kept;
        for owner in &mut self.slots {
            *owner = moved_to.get(usize::from(*owner)).copied().unwrap_or(NOBODY);
        }
        gone
    }
}

fn addresses(named: &[(String, u16)]) -> Vec<Address> {
    named
        .iter()
        .map(|(host, port)| Address::new(host, *port))
        .collect()
}
