//! Finds the server of each slot.
//!
//! # Theory
//!
//! One server, or the primary that sentinels report, serves every slot. In a cluster each slot has its own primary; a task reads
//! the slot map ([`cluster`]), and a `MOVED` reply corrects it at once, slot by slot.
//!
//! # Invariant
//!
//! There is one link for each address. A link whose server serves no slot any more is dropped, with its task and its connection;
//! one that was used for a moving slot is kept for a while.
//!
//! # What it does not know
//!
//! The calls.

mod cluster;
mod sentinel;

pub(crate) use cluster::parse as parse_slots;
pub(crate) use sentinel::parse as parse_primary;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tollgate_policy::shared::{FaultKind, ServerReport, StoreFault};

use crate::error_action::SLOTS;
use crate::link::connector::Address;
use crate::link::{Context, Link};
use crate::settings::Topology;

/// Bound of links: a cluster may have a thousand servers.
const LINKS_MAX: usize = 1024;
/// How long a link without slots is kept after a redirect to it.
const IDLE_LINK_TTL: Duration = Duration::from_secs(30);
/// The place of a slot that no server serves.
const UNSERVED: u16 = u16::MAX;

/// The links, and the slots that they serve.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) context: Arc<Context>,
    by_slot: bool,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    links: Vec<KnownLink>,
    /// For each slot the place of its link; empty if the first link serves all.
    slots: Vec<u16>,
}

#[derive(Debug)]
struct KnownLink {
    link: Arc<Link>,
    /// The last time that a server reported it.
    reported: Instant,
}

impl Routes {
    /// Routes to the servers of the settings, and the task that follows the topology, if one is needed.
    pub(crate) fn new(context: &Arc<Context>) -> (Arc<Routes>, Option<JoinHandle<()>>) {
        let topology = &context.settings().topology;
        let routes = Arc::new(Routes {
            context: context.clone(),
            by_slot: matches!(topology, Topology::Cluster { .. }),
            table: RwLock::default(),
        });
        let runtime = &context.runtime;
        let task = match topology {
            Topology::Standalone {
                server: (host, port),
            } => {
                routes.serve_all(Address::new(host, *port));
                None
            }
            Topology::Sentinel { sentinels, service } => {
                let sentinels = addresses(sentinels);
                let follow = sentinel::follow(routes.clone(), sentinels, service.clone());
                Some(runtime.spawn(follow))
            }
            Topology::Cluster { servers } => {
                let follow = cluster::follow(routes.clone(), addresses(servers));
                Some(runtime.spawn(follow))
            }
        };
        (routes, task)
    }

    /// Whether slots matter.
    pub(crate) fn by_slot(&self) -> bool {
        self.by_slot
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link of this slot.
    ///
    /// # Errors
    /// The server is unknown, or no server serves it.
    pub(crate) fn link(&self, slot: u16) -> Result<Arc<Link>, StoreFault> {
        let table = self.read();
        let place = match self.by_slot {
            true => table.slots.get(usize::from(slot)).copied(),
            false => Some(0),
        };
        if let Some(link) = table.link(place.unwrap_or(UNSERVED)) {
            return Ok(link);
        }
        let is_mapped = !table.slots.is_empty();
        drop(table);
        if is_mapped {
            self.context.topology_changed.notify_one();
            let message = format!("no server of the cluster serves slot {slot}");
            return Err(StoreFault::new(FaultKind::Unable, message));
        }
        let message = "the topology of the store is not known yet";
        Err(StoreFault::new(FaultKind::Away, message))
    }

    /// All links.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        let table = self.read();
        table.links.iter().map(|known| known.link.clone()).collect()
    }

    /// Whether this link serves the slot.
    pub(crate) fn serves(&self, link: &Arc<Link>, slot: u16) -> bool {
        self.link(slot).is_ok_and(|other| Arc::ptr_eq(&other, link))
    }

    pub(crate) fn reports(&self) -> Vec<ServerReport> {
        self.links().iter().map(|link| link.report()).collect()
    }

    /// Makes one server serve all slots.
    fn serve_all(&self, address: Address) {
        let link = KnownLink {
            link: Link::new(&self.context, address),
            reported: Instant::now(),
        };
        let before = std::mem::replace(&mut self.write().links, vec![link]);
        // Dropped after the lock: its task ends there.
        drop(before);
    }

    /// The link to the target of a redirect. `None` if there are too many.
    pub(crate) fn link_to(&self, address: &Address) -> Option<Arc<Link>> {
        let mut table = self.write();
        let place = table.place_of(&self.context, address)?;
        table.link(place)
    }

    /// Makes this server serve the slot, as a `MOVED` reply reports.
    pub(crate) fn moved(&self, slot: u16, address: &Address) -> Option<Arc<Link>> {
        let mut table = self.write();
        let place = table.place_of(&self.context, address)?;
        if let Some(owner) = table.slots.get_mut(usize::from(slot)) {
            *owner = place;
        }
        let link = table.link(place);
        drop(table);
        self.context.topology_changed.notify_one();
        link
    }

    /// Replaces the slot map.
    fn set_map(&self, owners: &[(u16, u16, Address)]) {
        let mut table = self.write();
        let mut slots = vec![UNSERVED; usize::from(SLOTS)];
        // One lookup for each address: decisions wait for this lock, and a map may have as many ranges as there are slots.
        let mut places: HashMap<&Address, Option<u16>> = HashMap::new();
        for (first, last, address) in owners {
            let place = places
                .entry(address)
                .or_insert_with(|| table.place_of(&self.context, address));
            let range = usize::from(*first)..=usize::from((*last).min(SLOTS - 1));
            if let (Some(place), Some(slots)) = (*place, slots.get_mut(range)) {
                slots.fill(place);
            }
        }
        table.slots = slots;
        let serving: Vec<u16> = places.into_values().flatten().collect();
        let removed = table.remove_idle(&serving);
        drop(table);
        drop(removed);
    }

    /// Waits until another server serves this slot, or until the same server has a new connection.
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
    fn link(&self, place: u16) -> Option<Arc<Link>> {
        let known = self.links.get(usize::from(place))?;
        Some(known.link.clone())
    }

    /// The place of the link to this address. A missing link is added.
    fn place_of(&mut self, context: &Arc<Context>, address: &Address) -> Option<u16> {
        let mut links = self.links.iter();
        let place = match links.position(|known| known.link.address() == address) {
            Some(place) => place,
            None if self.links.len() >= LINKS_MAX => return None,
            None => {
                self.links.push(KnownLink {
                    link: Link::new(context, address.clone()),
                    reported: Instant::now(),
                });
                self.links.len() - 1
            }
        };
        if let Some(known) = self.links.get_mut(place) {
            known.reported = Instant::now();
        }
        u16::try_from(place).ok()
    }

    /// Removes the links that serve no slot and were not reported for a while.
    fn remove_idle(&mut self, serving: &[u16]) -> Vec<KnownLink> {
        let now = Instant::now();
        let mut new_places = Vec::with_capacity(self.links.len());
        let (mut kept, mut removed) = (Vec::new(), Vec::new());
        for (place, known) in std::mem::take(&mut self.links).into_iter().enumerate() {
            let serves = serving.iter().any(|other| usize::from(*other) == place);
            if serves || now.duration_since(known.reported) < IDLE_LINK_TTL {
                new_places.push(u16::try_from(kept.len()).unwrap_or(UNSERVED));
                kept.push(known);
            } else {
                new_places.push(UNSERVED);
                removed.push(known);
            }
        }
        self.links = kept;
        for owner in &mut self.slots {
            let place = new_places.get(usize::from(*owner)).copied();
            *owner = place.unwrap_or(UNSERVED);
        }
        removed
    }
}

fn addresses(configured: &[(String, u16)]) -> Vec<Address> {
    let address = |(host, port): &(String, u16)| Address::new(host, *port);
    configured.iter().map(address).collect()
}
