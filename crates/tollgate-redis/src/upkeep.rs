//! What a store does by itself: it tells the others that this node is there, and when it leaves, and notices if the store was
//! emptied.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tollgate_policy::shared::FaultKind;

use crate::limits::{beat, read_beat, slot};
use crate::link::Link;
use crate::link::pace::jitter;
use crate::link::rise::{self, Low};
use crate::nodes::BEAT_LASTS;
use crate::report::count;
use crate::store::Desk;

const BEAT_EVERY: Duration = Duration::from_secs(2);
const BEAT_WITHIN: Duration = Duration::from_millis(250);

const LOOK_EVERY: Duration = Duration::from_secs(10);
/// More nodes than are written are nobody's fault for so long: who dies and comes back is counted twice for about twenty seconds.
const MORE_FOR: Duration = Duration::from_secs(25);
const LOOK_WITHIN: Duration = Duration::from_millis(500);
const MARK_LASTS: Duration = Duration::from_secs(30 * 86_400);

/// Tells the store that this node is there, and counts who is. When this node leaves it takes its last word back: the same
/// task does both, so no beat can come after it.
pub(crate) async fn beats(desk: Arc<Desk>, mut leaves: watch::Receiver<bool>) {
    let lasts_ms = u64::try_from(BEAT_LASTS.as_millis()).unwrap_or(u64::MAX);
    let prefix = &desk.context.access.settings.prefix;
    let mut more_since = None;
    let call = beat(prefix, &desk.node, lasts_ms);
    let at = call.keys.iter().next().map(slot).unwrap_or_default();
    let calls = [call];
    let mut is_heard = false;
    loop {
        let deadline = Instant::now() + BEAT_WITHIN;
        match desk.send(at, &calls, deadline).await {
            Ok(replies) => match replies.last().map(read_beat) {
                Some(Ok(nodes)) => {
                    is_heard = true;
                    desk.nodes.counted(nodes);
                    hold_against_written(&desk, &mut more_since);
                }
                other => {
                    desk.nodes.not_counted();
                    let words = format!("the count of nodes cannot be read: {other:?}");
                    desk.context.warnings.mention("bad-count", "", words);
                }
            },
            Err(unsent) => {
                desk.nodes.not_counted();
                tracing::debug!("not counted among the nodes: {unsent}");
            }
        }
        desk.context.warnings.let_go();
        // At first the store may not be there yet.
        let pause = if is_heard {
            BEAT_EVERY
        } else {
            BEAT_EVERY / 20
        };
        tokio::select! {
            // Also if nobody is left who could say so.
            _ = leaves.wait_for(|is_leaving| *is_leaving) => break,
            () = sleep(pause) => {}
        }
    }
    let gone = [beat(prefix, &desk.node, 0)];
    let deadline = Instant::now() + BEAT_WITHIN;
    if let Err(unsent) = desk.send(at, &gone, deadline).await {
        tracing::debug!("not signed off, and counted until that is old: {unsent}");
    }
}

/// More nodes than somebody wrote: they are divided by all the same, but while the store is away a node that starts knows
/// only what is written.
fn hold_against_written(desk: &Desk, since: &mut Option<Instant>) {
    let Some(written) = desk.context.access.settings.nodes else {
        return;
    };
    let nodes = desk.nodes.believed();
    match too_many((nodes, written), Instant::now(), since) {
        true => {
            let words = format!(
                "{nodes} nodes share this store, and `nodes` says {written}: write {nodes}, or leave it out"
            );
            desk.context.warnings.raise("more-nodes", "", words);
        }
        false => desk.context.warnings.take_back("more-nodes", ""),
    }
}

/// Have there been more than are written for longer than can be a mistake?
fn too_many((nodes, written): (u32, u32), now: Instant, since: &mut Option<Instant>) -> bool {
    if nodes <= written {
        *since = None;
        return false;
    }
    now.duration_since(*since.get_or_insert(now)) >= MORE_FOR
}

/// A mark on a server: its name, what it says, and in which run of the server that was seen.
struct Mark {
    name: String,
    says: String,
    run: String,
}

/// Looks for a mark on each server. If it is another than before though the server is in the same run, somebody emptied it.
/// Whoever finds none sets one that says what no mark said before, so that all others see it too.
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
            let Ok(says) = look(link, &name).await else {
                continue;
            };
            let is_another = marks
                .get(&server)
                .is_some_and(|mark| mark.name == name && mark.run == run && mark.says != says);
            if is_another && desk.routes.serves(link, slot(name.as_bytes())) {
                count(&desk.context.counters.resets);
                let times = desk.context.counters.resets.load(Ordering::Relaxed);
                let words = format!(
                    "everything was deleted from it while it ran (FLUSHALL, or an eviction): all limits began anew; \
                     seen {times} times"
                );
                desk.context.warnings.mention("store-reset", &server, words);
            }
            is_new |= !marks.contains_key(&server);
            marks.insert(server, Mark { name, says, run });
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

/// What the mark says. If there is none it is set; of several who do so at once, one comes first and all see that one.
async fn look(link: &Link, name: &str) -> Result<String, Low> {
    let gone = |words: &str| Low {
        kind: FaultKind::Away,
        words: words.into(),
        warning: None,
    };
    let connection = link.connection();
    let mut connection = connection.ok_or_else(|| gone("it is not asked"))?;
    let mut get = redis::cmd("GET");
    get.arg(name);
    let found = rise::ask(&mut connection, &get, LOOK_WITHIN).await?;
    if found != Value::Nil {
        // Only its end is set anew: it may have been replaced just now.
        let mut keep = redis::cmd("PEXPIRE");
        keep.arg(name).arg(MARK_LASTS.as_millis().to_string());
        rise::ask(&mut connection, &keep, LOOK_WITHIN).await?;
        return Ok(rise::text(&found));
    }
    let says = format!("{:016x}", getrandom::u64().unwrap_or_default());
    let mut set = redis::cmd("SET");
    set.arg(name).arg(says).arg("NX");
    set.arg("EX").arg(MARK_LASTS.as_secs());
    rise::ask(&mut connection, &set, LOOK_WITHIN).await?;
    match rise::ask(&mut connection, &get, LOOK_WITHIN).await? {
        Value::Nil => Err(gone("it was emptied just now")),
        found => Ok(rise::text(&found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_than_are_written_are_told_of_when_nobody_can_be_counted_twice() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let mut since = None;
        let mut told = |nodes, seconds| too_many((nodes, 2), after(seconds), &mut since);
        assert!(!told(2, 0));
        assert!(!told(3, 2));
        assert!(!told(3, 26));
        assert!(told(3, 28));
        assert!(!told(2, 30));
        assert!(!told(3, 32));
    }
}
