//! Detects that a server lost its data while it ran.
//!
//! Every server holds a marker with a random value. If the value changes though the server is in the same run, its data was
//! deleted. A node that finds no marker sets one with a new value, so that all other nodes see the change.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tokio::time::sleep;
use tollgate_policy::shared::FaultKind;

use crate::limits::slot;
use crate::link::Link;
use crate::link::backoff::jitter;
use crate::link::connect::{self, DownReason};
use crate::report::count;
use crate::store::StoreInner;

const CHECK_EVERY: Duration = Duration::from_secs(10);
const STEP_TIMEOUT: Duration = Duration::from_millis(500);
const MARKER_TTL: Duration = Duration::from_secs(30 * 86_400);

/// The marker of a server when it was last read.
struct Marker {
    key: String,
    value: String,
    /// The run of the server in which it was read.
    run: String,
}

/// Checks the marker of each server, for ever.
pub(crate) async fn detect(store: Arc<StoreInner>) {
    let mut markers: HashMap<String, Marker> = HashMap::new();
    loop {
        let links = store.routes.links();
        let servers: Vec<String> = links
            .iter()
            .map(|link| link.address().to_string())
            .collect();
        markers.retain(|server, _| servers.contains(server));
        let mut is_incomplete = false;
        for (link, server) in links.iter().zip(servers) {
            let run = link.run_id();
            let Some(key) = marker_key(&store, link, markers.get(&server)) else {
                continue;
            };
            if run.is_empty() {
                is_incomplete = true;
                continue;
            }
            let Ok(value) = read_marker(link, &key).await else {
                continue;
            };
            let has_changed = markers.get(&server).is_some_and(|marker| {
                marker.key == key && marker.run == run && marker.value != value
            });
            if has_changed && store.routes.serves(link, slot(key.as_bytes())) {
                let resets = &store.context.counters.resets;
                count(resets);
                let message = format!(
                    "its data was deleted while it ran (FLUSHALL, or eviction): all limits start anew; seen {} times",
                    resets.load(Ordering::Relaxed)
                );
                let warnings = &store.context.warnings;
                warnings.raise_briefly("store-reset", &server, message);
            }
            is_incomplete |= !markers.contains_key(&server);
            markers.insert(server, Marker { key, value, run });
        }
        let pause = match is_incomplete || markers.is_empty() {
            true => CHECK_EVERY / 20,
            false => CHECK_EVERY,
        };
        sleep(pause - jitter(pause / 10)).await;
    }
}

/// A key in a slot that this server serves: that of its present marker, if it still does.
fn marker_key(store: &StoreInner, link: &Arc<Link>, marker: Option<&Marker>) -> Option<String> {
    let prefix = &store.context.settings().prefix;
    if !store.routes.by_slot() {
        return Some(format!("{prefix}:epoch"));
    }
    let serves = |key: &String| store.routes.serves(link, slot(key.as_bytes()));
    let present = marker.map(|marker| marker.key.clone());
    let mut tagged = (0..4096).map(|tag| format!("{prefix}:epoch:{{{tag}}}"));
    present.filter(serves).or_else(|| tagged.find(serves))
}

/// The value of the marker. A missing marker is set; if several nodes set it at once, the first wins and all read its value.
async fn read_marker(link: &Link, key: &str) -> Result<String, DownReason> {
    let gone = |message: &str| DownReason::new(FaultKind::Away, message);
    let connection = link.connection();
    let mut connection = connection.ok_or_else(|| gone("the server is down"))?;
    let mut get = redis::cmd("GET");
    get.arg(key);
    let found = connect::query(&mut connection, &get, STEP_TIMEOUT).await?;
    if found != Value::Nil {
        // Only the expiry is renewed: the value may have been replaced just now.
        let mut renew = redis::cmd("PEXPIRE");
        renew.arg(key).arg(MARKER_TTL.as_millis().to_string());
        connect::query(&mut connection, &renew, STEP_TIMEOUT).await?;
        return Ok(connect::text(&found));
    }
    let value = format!("{:016x}", getrandom::u64().unwrap_or_default());
    let mut set = redis::cmd("SET");
    set.arg(key).arg(value).arg("NX");
    set.arg("EX").arg(MARKER_TTL.as_secs());
    connect::query(&mut connection, &set, STEP_TIMEOUT).await?;
    match connect::query(&mut connection, &get, STEP_TIMEOUT).await? {
        Value::Nil => Err(gone("the marker was deleted again")),
        found => Ok(connect::text(&found)),
    }
}
