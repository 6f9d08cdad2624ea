//! Background work of a node whose limits are in a shared store.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

use crate::policy_source::PolicySource;

/// Interval of returning leases and pushing counters.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of looking for nodes that joined or left.
const REBALANCE_INTERVAL: Duration = Duration::from_secs(1);
/// How long returning all leases on shutdown may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Does the background work of a shared store until `shutdown` ends, then returns all leases. Without a store it only waits
/// for `shutdown`. Spawn it next to the service.
///
/// | work | interval | without it |
/// |---|---|---|
/// | rebalance: this node's share of each limit follows the number of nodes | 1 s | the share stays as it was |
/// | return unused leases, push the counters of `sharing: sync` | 100 ms | leases expire; synced counters never reach the store |
/// | prefetch leases before they run out | as needed | a request that finds its lease empty waits for the store |
///
/// ```no_run
/// # async fn serve(policy: tollgate_tower::PolicyHandle) {
/// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
/// let maintenance = tokio::spawn(tollgate_tower::run_maintenance(policy, async {
///     let _ = stopped.await;
/// }));
/// // ... serve, and on shutdown:
/// let _ = stop.send(());
/// let _ = maintenance.await;
/// # }
/// ```
pub async fn run_maintenance<P: PolicySource>(source: P, shutdown: impl Future<Output = ()>) {
    if P::gate(&source.active_policy()).store().is_none() {
        return shutdown.await;
    }
    let rebalance = async {
        let mut ticks = every(REBALANCE_INTERVAL);
        loop {
            ticks.tick().await;
            let policy = source.active_policy();
            // Visits every table once if a node joined or left.
            let _ = tokio::task::spawn_blocking(move || P::gate(&policy).rebalance()).await;
        }
    };
    tokio::select! {
        () = sync_leases(source.clone(), shutdown) => {}
        () = rebalance => {}
    }
}

/// The part of [`run_maintenance`] without rebalancing, for a server that rebalances by itself.
pub async fn sync_leases<P: PolicySource>(source: P, shutdown: impl Future<Output = ()>) {
    let is_stopped = AtomicBool::new(false);
    let sync = async {
        let (mut ticks, mut shutdown) = (every(SYNC_INTERVAL), pin!(shutdown));
        loop {
            // Only between two exchanges with the store: a cancelled one would lose leases.
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                _ = ticks.tick() => {}
            }
            P::gate(&source.active_policy()).sync_leases().await;
        }
        is_stopped.store(true, Relaxed);
    };
    let prefetch = async {
        while !is_stopped.load(Relaxed) {
            let policy = source.active_policy();
            let replaced = async {
                while !is_stopped.load(Relaxed) && Arc::ptr_eq(&policy, &source.active_policy()) {
                    sleep(SYNC_INTERVAL).await;
                }
            };
            P::gate(&policy).run_background(replaced).await;
        }
    };
    tokio::join!(sync, prefetch);
    // Leases that are not returned are lost until the store has earned them again.
    let policy = source.active_policy();
    let _ = timeout(RELEASE_TIMEOUT, P::gate(&policy).release_leases()).await;
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
