//! Reports to the store that this node is alive and when it signs off, counts the nodes, and agrees on their secret.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::limits::fleet::{Heartbeat, heartbeat_call, read_heartbeat};
use crate::limits::slot;
use crate::node_count::HEARTBEAT_TTL;
use crate::store::StoreInner;

const HEARTBEAT_EVERY: Duration = Duration::from_secs(2);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(250);
/// More nodes than configured are no mistake for this long: a node that restarts after a crash is counted twice for about
/// twenty seconds.
const SURPLUS_FOR: Duration = Duration::from_secs(25);

/// Sends heartbeats until the node stops, then signs off. One task does both, so no heartbeat can follow the sign-off.
pub(crate) async fn run(store: Arc<StoreInner>, mut leaving: watch::Receiver<bool>) {
    let ttl_ms = u64::try_from(HEARTBEAT_TTL.as_millis()).unwrap_or(u64::MAX);
    let prefix = &store.context.settings().prefix;
    let call = |ttl_ms| {
        [heartbeat_call(
            prefix,
            &store.node,
            ttl_ms,
            &store.secret.offer(),
        )]
    };
    let key_slot = call(0)
        .iter()
        .flat_map(|call| call.keys.iter().next())
        .next()
        .map(slot);
    let key_slot = key_slot.unwrap_or_default();
    let (mut surplus_since, mut was_counted) = (None, false);
    loop {
        let deadline = Instant::now() + HEARTBEAT_TIMEOUT;
        match store.send(key_slot, &call(ttl_ms), deadline).await {
            Ok(replies) => match replies.last().map(read_heartbeat) {
                Some(Ok(Heartbeat { nodes, secret })) => {
                    was_counted = true;
                    store.nodes.observe(nodes);
                    if let Some(secret) = secret {
                        store.secret.observe(secret);
                    }
                    compare_with_configured(&store, &mut surplus_since);
                }
                other => {
                    store.nodes.forget_decrease();
                    let error = other.and_then(Result::err);
                    let message = format!("bad reply to a heartbeat: {error:?}");
                    store
                        .context
                        .warnings
                        .raise_briefly("bad-heartbeat", "", message);
                }
            },
            Err(error) => {
                store.nodes.forget_decrease();
                tracing::debug!("heartbeat failed: {error}");
            }
        }
        store.context.warnings.expire();
        // At first the store may not be up yet.
        let pause = match was_counted {
            true => HEARTBEAT_EVERY,
            false => HEARTBEAT_EVERY / 100,
        };
        tokio::select! {
            // Also when the sender is dropped.
            _ = leaving.wait_for(|is_leaving| *is_leaving) => break,
            () = sleep(pause) => {}
        }
    }
    let sign_off = call(0);
    let deadline = Instant::now() + HEARTBEAT_TIMEOUT;
    if let Err(error) = store.send(key_slot, &sign_off, deadline).await {
        tracing::debug!(
            "sign-off failed, the node is counted until its heartbeat expires: {error}"
        );
    }
}

/// Warns about more nodes than configured. Limits are divided by the greater number all the same, but a node that starts while
/// the store is unavailable has only the configured one.
fn compare_with_configured(store: &StoreInner, since: &mut Option<Instant>) {
    let Some(configured) = store.context.settings().nodes else {
        return;
    };
    let nodes = store.nodes.get();
    let warnings = &store.context.warnings;
    if is_surplus(nodes, configured, Instant::now(), since) {
        let message = format!(
            "{nodes} nodes share this store, but `nodes` is {configured}: set it to {nodes}, or remove it"
        );
        warnings.raise("more-nodes", "", message);
    } else {
        warnings.clear("more-nodes", "");
    }
}

/// Whether there have been more nodes than configured for longer than a restart explains.
fn is_surplus(nodes: u32, configured: u32, now: Instant, since: &mut Option<Instant>) -> bool {
    if nodes <= configured {
        *since = None;
        return false;
    }
    now.duration_since(*since.get_or_insert(now)) >= SURPLUS_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_than_configured_are_reported_when_no_node_can_be_counted_twice() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut since = None;
        let mut surplus = |nodes, seconds| is_surplus(nodes, 2, after(seconds), &mut since);
        assert!(!surplus(2, 0));
        assert!(!surplus(3, 2));
        assert!(!surplus(3, 26));
        assert!(surplus(3, 28));
        assert!(!surplus(2, 30));
        assert!(!surplus(3, 32));
    }
}
