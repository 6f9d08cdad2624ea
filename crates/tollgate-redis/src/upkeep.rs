//! What a store does by itself: it tells the others that this node is there, and notices if the store was emptied.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep};

use crate::limits::{beat, read_beat, slot};
use crate::link::pace::jitter;
use crate::link::{Link, rise};
use crate::report::count;
use crate::store::Desk;

const BEAT_EVERY: Duration = Duration::from_secs(2);
const BEAT_WITHIN: Duration = Duration::from_millis(250);
/// A node that was not heard of for so long is gone.
const BEAT_LASTS_MS: u64 = 10_000;

const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_WITHIN: Duration = Duration::from_millis(500);
const EPOCH_LASTS_S: u64 = 30 * 86_400;

/// Tells the store that this node is there, and counts who is.
pub(crate) async fn beats(desk: Arc<Desk>) {
    let call = beat(
        &desk.context.access.settings.prefix,
        &desk.node,
        BEAT_LASTS_MS,
    );
    let at = call.keys.iter().next().map(slot).unwrap_or_default();
    let calls = [call];
    let mut is_heard = false;
    loop {
        let deadline = Instant::now() + BEAT_WITHIN;
        match desk.send(at, &calls, deadline).await {
            Ok(replies) => match replies.last().map(read_beat) {
                Some(Ok(nodes)) => {
                    is_heard = true;
                    desk.counted.store(nodes.max(1), Ordering::Relaxed);
                }
                other => tracing::warn!("the count of nodes cannot be read: {other:?}"),
            },
            // What was known last still holds.
            Err(unsent) => tracing::debug!("not counted among the nodes: {unsent:?}"),
        }
        // At first the store may not be there yet.
        sleep(if is_heard {
            BEAT_EVERY
        } else {
            BEAT_EVERY / 20
        })
        .await;
    }
}

/// A mark on a server: its name, and in which run of the server it was seen.
struct Mark {
    name: String,
    run: String,
}

/// Looks for a mark on each server. If it is gone and the server is in the same run, somebody emptied it.
pub(crate) async fn epochs(desk: Arc<Desk>) {
    let mut marks: HashMap<String, Mark> = HashMap::new();
    loop {
        let links = desk.routes.links();
        let names: Vec<String> = links
            .iter()
            .map(|link| link.address().to_string())
            .collect();
        marks.retain(|server, _| names.contains(server));
        let mut is_new = false;
        for (link, server) in links.iter().zip(names) {
            let run = link.run_id();
            let Some(name) = mark_name(&desk, link, marks.get(&server)) else {
                continue;
            };
            if run.is_empty() {
                is_new = true;
                continue;
            }
            let Ok(found) = look(&desk, link, &name).await else {
                continue;
            };
            let same = marks
                .get(&server)
                .is_some_and(|mark| mark.name == name && mark.run == run);
            if same && !found && desk.routes.serves(link, slot(name.as_bytes())) {
                count(&desk.context.counters.resets);
                let times = desk.context.counters.resets.load(Ordering::Relaxed);
                let words = format!(
                    "everything was deleted from it while it ran (FLUSHALL, or an eviction): all limits began anew; \
                     seen {times} times"
                );
                desk.context.warnings.mention("store-reset", &server, words);
            }
            is_new |= !marks.contains_key(&server);
            marks.insert(server, Mark { name, run });
        }
        let pause = if is_new || marks.is_empty() {
            LOOK_EVERY / 20
        } else {
            LOOK_EVERY
        };
        sleep(pause - jitter(pause / 10)).await;
    }
}

/// A name in a slot that this server serves: the one that it has, if it still does.
fn mark_name(desk: &Desk, link: &Arc<Link>, mark: Option<&Mark>) -> Option<String> {
    let prefix = &desk.context.access.settings.prefix;
    let serves = |name: &String| desk.routes.serves(link, slot(name.as_bytes()));
    if !desk.routes.by_slot() {
        return Some(format!("{prefix}:epoch"));
    }
    mark.map(|mark| mark.name.clone())
        .filter(serves)
        .or_else(|| {
            (0..4096)
                .map(|tag| format!("{prefix}:epoch:{{{tag}}}"))
                .find(serves)
        })
}

/// Was it there? It is afterwards.
async fn look(desk: &Desk, link: &Link, name: &str) -> Result<bool, ()> {
    let mut connection = link.connection().ok_or(())?;
    let mut get = redis::cmd("GET");
    get.arg(name);
    let value = rise::ask(&mut connection, &get, LOOK_WITHIN)
        .await
        .map_err(drop)?;
    let (found, text) = match &value {
        Value::Nil => (false, desk.node.clone()),
        value => (true, rise::text(value)),
    };
    let mut set = redis::cmd("SET");
    set.arg(name).arg(text).arg("EX").arg(EPOCH_LASTS_S);
    rise::ask(&mut connection, &set, LOOK_WITHIN)
        .await
        .map_err(drop)?;
    Ok(found)
}
