//! The slot map of a cluster: which server serves which slots.
//!
//! It is read from one server, each time from the next one: every fifteen seconds, and soon after a reply showed that it is wrong.
//! Many such replies at once cause one reading.
//!
//! A server that is cut off from the others keeps reporting its last map, and its clients would never learn that its slots are
//! served elsewhere by now. Such a server reports that the cluster is down for a command on any key. Its map is used only if
//! no other server reports one.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};
use tollgate_policy::shared::FaultKind;

use super::Routes;
use crate::error_action::SLOTS;
use crate::link::backoff::{Backoff, jitter};
use crate::link::connect::{self, DownReason};
use crate::link::connector::{Account, Address};

const READ_EVERY: Duration = Duration::from_secs(15);
/// While a server with slots is down: another may be taking its place.
const READ_EVERY_WHILE_DOWN: Duration = Duration::from_millis(250);
const TIMEOUT: Duration = Duration::from_millis(500);
/// Replies within this time cause one reading; it also spreads the readings of a fleet.
const SPREAD: Duration = Duration::from_millis(20);
/// Minimum pause between two readings.
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// Bound of ranges in a map: every slot by itself.
const RANGES_MAX: usize = SLOTS as usize;

/// Keeps the map up to date.
pub(super) async fn follow(routes: Arc<Routes>, seeds: Vec<Address>) {
    let mut backoff = Backoff::new();
    for turn in 0_usize.. {
        match read(&routes, &seeds, turn).await {
            Ok(owners) => {
                routes.set_map(&owners);
                backoff = Backoff::new();
                let links = routes.links();
                let pause = match links.iter().all(|link| link.generation().is_some()) {
                    true => READ_EVERY,
                    false => READ_EVERY_WHILE_DOWN,
                };
                let _ = timeout(pause, routes.context.topology_changed.notified()).await;
                sleep(MIN_PAUSE + jitter(SPREAD)).await;
            }
            Err(message) => {
                let warnings = &routes.context.warnings;
                warnings.raise_briefly("no-cluster-map", "", message);
                sleep(backoff.after_failure()).await;
            }
        }
    }
}

/// Ranges of slots, first and last, and their server.
type Owners = Vec<(u16, u16, Address)>;

/// Queries one server after the other until one reports a map, each time starting with the next: first the connected ones, then those
/// of the settings.
async fn read(routes: &Routes, seeds: &[Address], turn: usize) -> Result<Owners, String> {
    let mut message = String::from("no server of the cluster reports its slots");
    let mut of_cut_off = None;
    let links = routes.links();
    let connected = rotated(&links, turn)
        .filter_map(|link| Some((link.address().clone(), Some(link.connection()?))));
    let mut servers: Vec<(Address, Option<MultiplexedConnection>)> = connected.collect();
    for seed in rotated(seeds, turn) {
        if !servers.iter().any(|(address, _)| address == seed) {
            servers.push((seed.clone(), None));
        }
    }
    for (address, connection) in servers {
        match read_from(routes, connection, &address).await {
            Ok(map) if !map.is_cut_off => return Ok(map.owners),
            Ok(map) => of_cut_off = of_cut_off.or(Some(map.owners)),
            Err(reason) => message = format!("{address}: {reason}"),
        }
    }
    of_cut_off.ok_or(message)
}

/// All of them, each time starting with the next.
fn rotated<T>(list: &[T], turn: usize) -> impl Iterator<Item = &T> {
    let first = turn.checked_rem(list.len()).unwrap_or(0);
    list.iter().cycle().skip(first).take(list.len())
}

/// The map that one server reports.
struct Map {
    owners: Owners,
    /// Whether the cluster is down, or the server is cut off from it.
    is_cut_off: bool,
}

async fn read_from(
    routes: &Routes,
    connection: Option<MultiplexedConnection>,
    address: &Address,
) -> Result<Map, DownReason> {
    let connector = &routes.context.connector;
    let mut connection = match connection {
        Some(connection) => connection,
        None => {
            let connected = connector.connect(address, Account::Server).await;
            connected.map_err(|error| DownReason::from_client_error(&error))?
        }
    };
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let value = connect::query(&mut connection, &slots, TIMEOUT).await?;
    let owners = parse(&value, address).ok_or_else(|| {
        let message = "it reports no slots: it belongs to no cluster yet";
        DownReason::new(FaultKind::Garbled, message)
    })?;
    // Any key will do: a server that is cut off reports that before it redirects.
    let mut get = redis::cmd("GET");
    get.arg(format!("{}:epoch", connector.settings.prefix));
    let reply = connect::query(&mut connection, &get, TIMEOUT).await;
    let is_cut_off = reply.is_err_and(|reason| reason.message.starts_with("CLUSTERDOWN"));
    Ok(Map { owners, is_cut_off })
}

/// `[[first, last, [host, port, ...], replica...]...]`; `None` without ranges.
pub(crate) fn parse(value: &Value, replied: &Address) -> Option<Owners> {
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
        let host = primary.first().map(connect::text).unwrap_or_default();
        // A server that does not know its own name reports `?`.
        let host = if host == "?" { "" } else { host.as_str() };
        let port = match primary.get(1) {
            Some(Value::Int(port)) => u16::try_from(*port).ok()?,
            _ => return None,
        };
        owners.push((
            number(0)?,
            number(1)?,
            Address::with_default_host(host, port, replied),
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
    fn a_map_is_parsed() {
        let host = Value::BulkString(b"10.0.0.1".to_vec());
        let map = Value::Array(vec![
            range(0, 5460, &host, 1),
            range(5461, 16383, &Value::Nil, 2),
        ]);
        let replied = Address::new("seed", 9);
        assert_eq!(
            parse(&map, &replied),
            Some(vec![
                (0, 5460, Address::new("10.0.0.1", 1)),
                (5461, 16383, Address::new("seed", 2)),
            ])
        );
    }

    #[test]
    fn every_server_is_the_first_in_turn() {
        let first = |turn| rotated(&[1, 2, 3], turn).copied().collect::<Vec<_>>();
        assert_eq!(first(0), [1, 2, 3]);
        assert_eq!(first(4), [2, 3, 1]);
        assert_eq!(rotated::<u8>(&[], 7).count(), 0);
    }

    #[test]
    fn an_invalid_map_is_rejected() {
        let replied = Address::new("seed", 9);
        let host = Value::BulkString(b"h".to_vec());
        for map in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16384, &host, 1)]),
            Value::Array(vec![range(-1, 5, &host, 1)]),
            Value::Array(vec![range(0, 5, &host, 70_000)]),
        ] {
            assert_eq!(parse(&map, &replied), None, "{map:?}");
        }
    }
}
