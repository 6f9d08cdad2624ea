//! The map of a cluster: which server serves which slots.
//!
//! It is read from one server, by turns from another: every fifteen seconds, and soon after anybody noticed that it is wrong.
//! Many who notice at once cause one reading.
//!
//! A server that is cut off from the others keeps telling the map that it saw last, and its clients would never learn that its
//! slots are served elsewhere by now. Such a server says that the cluster is down if it is asked for any key. So it is, and a map
//! of one that says so is believed only if nobody else tells another.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::{sleep, timeout};

use super::Routes;
use crate::fault::SLOTS;
use crate::link::access::{Address, As};
use crate::link::pace::{Pace, jitter};
use crate::link::rise::{self, Low};

const EVERY: Duration = Duration::from_secs(15);
/// While a server that serves slots is down: another may be taking its place.
const WHILE_DOWN: Duration = Duration::from_millis(250);
const WITHIN: Duration = Duration::from_millis(500);
/// Those who notice within this time cause one reading; the fleet does not ask all at once.
const GATHERS: Duration = Duration::from_millis(20);
/// Between two readings, however much is noticed.
const APART: Duration = Duration::from_millis(50);
/// Ranges of slots in a map at the most: every slot by itself.
const RANGES_MAX: usize = SLOTS as usize;

/// Keeps the map right.
pub(super) async fn follow(routes: Arc<Routes>, seeds: Vec<Address>) {
    let mut pace = Pace::new();
    for turn in 0_usize.. {
        match read(&routes, &seeds, turn).await {
            Ok(owners) => {
                routes.map(&owners);
                pace = Pace::new();
                let context = &routes.context;
                let links = routes.links();
                let is_whole = links.iter().all(|link| link.generation().is_some());
                let pause = if is_whole { EVERY } else { WHILE_DOWN };
                let _ = timeout(pause, context.look_again.notified()).await;
                sleep(APART + jitter(GATHERS)).await;
            }
            Err(words) => {
                routes.context.warnings.mention("no-cluster-map", "", words);
                sleep(pace.after_failure()).await;
            }
        }
    }
}

type Owners = Vec<(u16, u16, Address)>;

/// Asks servers one after the other until one tells, each time beginning with another: first those that are connected, then
/// those that were named to begin with.
async fn read(routes: &Routes, seeds: &[Address], turn: usize) -> Result<Owners, String> {
    let mut words = String::from("no server of the cluster tells who serves what");
    let mut of_cut_off = None;
    let mut asked = Vec::new();
    for link in by_turns(&routes.links(), turn) {
        let Some(mut connection) = link.connection() else {
            continue;
        };
        asked.push(link.address().clone());
        match ask(routes, &mut connection, link.address()).await {
            Ok(Told::ByOneOfThem(owners)) => return Ok(owners),
            Ok(Told::ByOneCutOff(owners)) => of_cut_off = of_cut_off.or(Some(owners)),
            Err(low) => words = format!("{}: {low}", link.address()),
        }
    }
    for seed in by_turns(seeds, turn).filter(|seed| !asked.contains(seed)) {
        let connection = routes.context.access.connect(seed, As::Server).await;
        let told = match connection {
            Ok(mut connection) => ask(routes, &mut connection, seed).await,
            Err(error) => Err(Low::of_error(&error)),
        };
        match told {
            Ok(Told::ByOneOfThem(owners)) => return Ok(owners),
            Ok(Told::ByOneCutOff(owners)) => of_cut_off = of_cut_off.or(Some(owners)),
            Err(low) => words = format!("{seed}: {low}"),
        }
    }
    of_cut_off.ok_or(words)
}

/// All of them, each time beginning with the next.
fn by_turns<T>(list: &[T], turn: usize) -> impl Iterator<Item = &T> {
    let first = turn.checked_rem(list.len()).unwrap_or(0);
    list.iter().cycle().skip(first).take(list.len())
}

/// A map, and who tells it.
enum Told {
    ByOneOfThem(Owners),
    /// The cluster is down, or this server is cut off from it.
    ByOneCutOff(Owners),
}

async fn ask(
    routes: &Routes,
    connection: &mut redis::aio::MultiplexedConnection,
    asked: &Address,
) -> Result<Told, Low> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let value = rise::ask(connection, &slots, WITHIN).await?;
    let owners = parse(&value, asked).ok_or_else(|| Low {
        kind: tollgate_policy::shared::FaultKind::Garbled,
        words: "it tells no slots: it belongs to no cluster yet".into(),
        warning: None,
    })?;
    // Any key will do: whoever is cut off says so before it says that the key lives elsewhere.
    let mut get = redis::cmd("GET");
    get.arg(format!("{}:epoch", routes.context.access.settings.prefix));
    Ok(match rise::ask(connection, &get, WITHIN).await {
        Err(low) if low.words.starts_with("CLUSTERDOWN") => Told::ByOneCutOff(owners),
        _ => Told::ByOneOfThem(owners),
    })
}

/// `[[first, last, [host, port, ...], replica...]...]`; none if there is not a single range.
pub(crate) fn parse(value: &Value, asked: &Address) -> Option<Owners> {
    let Value::Array(ranges) = value else {
        return None;
    };
    let mut owners = Vec::new();
    for range in ranges.iter().take(RANGES_MAX) {
        let Value::Array(parts) = range else {
            return None;
        };
        let number = |place: usize| match parts.get(place) {
            Some(Value::Int(number)) => u16::try_from(*number).ok().filter(|slot| *slot < SLOTS),
            _ => None,
        };
        let Some(Value::Array(primary)) = parts.get(2) else {
            return None;
        };
        let host = primary.first().map(rise::text).unwrap_or_default();
        // A server that does not know its own name says `?`.
        let host = if host == "?" { "" } else { host.as_str() };
        let port = match primary.get(1) {
            Some(Value::Int(port)) => u16::try_from(*port).ok()?,
            _ => return None,
        };
        owners.push((
            number(0)?,
            number(1)?,
            Address::or_host_of(host, port, asked),
        ));
    }
    (!owners.is_empty()).then_some(owners)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: &Value, port: i64) -> Value {
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            Value::Array(vec![host.clone(), Value::Int(port)]),
        ])
    }

    #[test]
    fn a_map_is_read() {
        let host = Value::BulkString(b"10.0.0.1".to_vec());
        let map = Value::Array(vec![
            range(0, 5460, &host, 1),
            range(5461, 16383, &Value::Nil, 2),
        ]);
        let asked = Address::new("seed", 9);
        assert_eq!(
            parse(&map, &asked),
            Some(vec![
                (0, 5460, Address::new("10.0.0.1", 1)),
                (5461, 16383, Address::new("seed", 2)),
            ])
        );
    }

    #[test]
    fn each_is_the_first_by_turns() {
        let first = |turn| by_turns(&[1, 2, 3], turn).copied().collect::<Vec<_>>();
        assert_eq!(first(0), [1, 2, 3]);
        assert_eq!(first(4), [2, 3, 1]);
        assert_eq!(by_turns::<u8>(&[], 7).count(), 0);
    }

    #[test]
    fn a_map_of_nonsense_is_none() {
        let asked = Address::new("seed", 9);
        let host = Value::BulkString(b"h".to_vec());
        for map in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16384, &host, 1)]),
            Value::Array(vec![range(-1, 5, &host, 1)]),
            Value::Array(vec![range(0, 5, &host, 70_000)]),
        ] {
            assert_eq!(parse(&map, &asked), None, "{map:?}");
        }
    }
}
