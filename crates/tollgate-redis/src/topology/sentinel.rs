//! Which server is the primary, as sentinels say.
//!
//! All sentinels are asked at the same time, twice a second while the primary is up and ten times while it is not. What
//! most of those say who answer is believed; the primary itself must then show that it is one. If none answers, the last
//! known primary is still asked: sentinels may die without anybody else noticing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Routes;
use crate::link::access::{Address, As};
use crate::link::pace::jitter;
use crate::link::rise;

const WHILE_UP: Duration = Duration::from_millis(500);
const WHILE_DOWN: Duration = Duration::from_millis(100);
/// How long one sentinel may take.
const WITHIN: Duration = Duration::from_millis(200);
/// How long the others are waited for after the first has answered.
const OTHERS: Duration = Duration::from_millis(50);

/// The sentinels, and the connections to those that answered last time.
struct Sentinels {
    addresses: Vec<Address>,
    connections: Vec<Option<MultiplexedConnection>>,
}

/// Follows the primary.
pub(super) async fn follow(routes: Arc<Routes>, sentinels: Vec<Address>, service: String) {
    let mut sentinels = Sentinels {
        connections: sentinels.iter().map(|_| None).collect(),
        addresses: sentinels,
    };
    let mut current: Option<Address> = None;
    loop {
        let said = ask_all(&routes, &mut sentinels, &service).await;
        let warnings = &routes.context.warnings;
        match most(&said, current.as_ref()) {
            Some(primary) => {
                warnings.take_back("no-sentinel", "");
                if current.as_ref() != Some(&primary) {
                    tracing::info!(%primary, %service, "the sentinels name the primary");
                    routes.serve_all(primary.clone());
                    current = Some(primary);
                }
            }
            None => warnings.raise(
                "no-sentinel",
                "",
                format!(
                    "no sentinel names the primary of {service:?}: are they up, and is that the name that \
                     `SENTINEL MASTERS` shows?"
                ),
            ),
        }
        let is_up = routes
            .links()
            .iter()
            .any(|link| link.generation().is_some());
        let pause = if is_up { WHILE_UP } else { WHILE_DOWN };
        let pause = pause / 2 + jitter(pause / 2);
        let _ = timeout(pause, routes.context.look_again.notified()).await;
        // Whatever was noticed, the sentinels are not asked without a pause.
        sleep(Duration::from_millis(5)).await;
    }
}

/// Asks all at the same time. Who is much slower than the first is asked again next time.
async fn ask_all(routes: &Arc<Routes>, sentinels: &mut Sentinels, service: &str) -> Vec<Address> {
    let mut asked = JoinSet::new();
    let Sentinels {
        addresses,
        connections,
    } = sentinels;
    for (place, (address, connection)) in addresses.iter().zip(&mut *connections).enumerate() {
        let (routes, service) = (routes.clone(), service.to_owned());
        let (address, connection) = (address.clone(), connection.take());
        asked.spawn(async move {
            let within = timeout(WITHIN, ask(&routes, &address, connection, &service));
            (place, within.await.ok().flatten())
        });
    }
    let mut said = Vec::new();
    let mut left = WITHIN;
    while let Ok(Some(answered)) = timeout(left, asked.join_next()).await {
        if let Ok((place, Some((connection, primary)))) = answered {
            if let Some(kept) = connections.get_mut(place) {
                *kept = Some(connection);
            }
            said.extend(primary);
            left = OTHERS;
        }
    }
    said
}

async fn ask(
    routes: &Routes,
    address: &Address,
    connection: Option<MultiplexedConnection>,
    service: &str,
) -> Option<(MultiplexedConnection, Option<Address>)> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => {
            let access = &routes.context.access;
            access.connect(address, As::Sentinel).await.ok()?
        }
    };
    let mut which = redis::cmd("SENTINEL");
    which.arg("get-master-addr-by-name").arg(service);
    let value = rise::ask(&mut connection, &which, WITHIN).await.ok()?;
    let primary = parse(&value, address);
    Some((connection, primary))
}

/// `[host, port]`, or nothing if the name is not known.
pub(crate) fn parse(value: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = value else {
        return None;
    };
    let host = rise::text(parts.first()?);
    let port = rise::text(parts.get(1)?)
        .parse()
        .ok()
        .filter(|port| *port != 0)?;
    Some(Address::or_host_of(&host, port, asked))
}

/// What most say; if as many say one as another, the one that is asked now, or else the one that was said first.
fn most(said: &[Address], current: Option<&Address>) -> Option<Address> {
    let mut votes: HashMap<&Address, usize> = HashMap::new();
    for address in said {
        *votes.entry(address).or_default() += 1;
    }
    let most = votes.values().copied().max()?;
    let has_most = |address: &&Address| votes.get(*address) == Some(&most);
    current
        .filter(has_most)
        .or_else(|| said.iter().find(has_most))
        .cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_sentinels_are_believed() {
        let [a, b] = ["a", "b"].map(|host| Address::new(host, 1));
        assert_eq!(most(&[], Some(&a)), None);
        assert_eq!(
            most(&[a.clone(), b.clone(), b.clone()], Some(&a)),
            Some(b.clone())
        );
        assert_eq!(most(&[b.clone(), a.clone()], Some(&a)), Some(a.clone()));
        assert_eq!(most(&[b.clone(), a], None), Some(b));
    }

    #[test]
    fn what_a_sentinel_says_is_read() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let asked = Address::new("s", 26379);
        let said = Value::Array(vec![bulk("10.0.0.1"), bulk("6379")]);
        assert_eq!(parse(&said, &asked), Some(Address::new("10.0.0.1", 6379)));
        for nonsense in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![bulk("h"), bulk("0")]),
        ] {
            assert_eq!(parse(&nonsense, &asked), None);
        }
    }
}
