//! The primary that sentinels report.
//!
//! All sentinels are queried at the same time, twice a second while the primary is up and ten times while it is down. The majority
//! of the replies wins; the primary itself must then pass the checks of a link. Without replies, the last known primary stays in
//! use: sentinels may die while the primary is well.
//!
//! Every sentinel has a task and a connection that is kept. A slow one is not queried again before it has replied; a late reply
//! counts in the next round.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Routes;
use crate::link::backoff::jitter;
use crate::link::connect;
use crate::link::connector::{Account, Address};

const ROUND_WHILE_UP: Duration = Duration::from_millis(500);
const ROUND_WHILE_DOWN: Duration = Duration::from_millis(100);
/// How long a round waits for the first reply.
const FIRST_REPLY: Duration = Duration::from_millis(200);
/// How long a round waits for further replies.
const OTHER_REPLIES: Duration = Duration::from_millis(50);
/// Timeout of one sentinel.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time without a reply until there is a warning.
const SILENCE: Duration = Duration::from_millis(1500);

/// The reply of the sentinel at this place; `None` if it does not reply, or does not know the name.
type Reply = (usize, Option<Address>);

/// The sentinels, each with a task that queries it.
struct Sentinels {
    count: usize,
    rounds: watch::Sender<u64>,
    replies: mpsc::Receiver<Reply>,
    /// They end with this.
    _tasks: JoinSet<()>,
}

/// Follows the primary.
pub(super) async fn follow(routes: Arc<Routes>, sentinels: Vec<Address>, service: String) {
    let mut sentinels = Sentinels::start(&routes, sentinels, &service);
    let mut current: Option<Address> = None;
    let mut last_reply = Instant::now();
    loop {
        let named = sentinels.query_all().await;
        match majority(&named, current.as_ref()) {
            Some(primary) => {
                last_reply = Instant::now();
                if current.as_ref() != Some(&primary) {
                    tracing::info!(%primary, %service, "sentinels report a primary");
                    routes.serve_all(primary.clone());
                    current = Some(primary);
                }
            }
            None if last_reply.elapsed() >= SILENCE => routes.context.warnings.raise_briefly(
                "no-sentinel",
                "",
                format!(
                    "no sentinel reports a primary for {service:?}: check that they are up and that `SENTINEL MASTERS` shows this name"
                ),
            ),
            None => {}
        }
        let is_up = routes
            .links()
            .iter()
            .any(|link| link.generation().is_some());
        let pause = if is_up {
            ROUND_WHILE_UP
        } else {
            ROUND_WHILE_DOWN
        };
        let pause = pause / 2 + jitter(pause / 2);
        let _ = timeout(pause, routes.context.topology_changed.notified()).await;
        // However often the topology changes, there is a pause between two rounds.
        sleep(Duration::from_millis(5)).await;
    }
}

impl Sentinels {
    fn start(routes: &Arc<Routes>, addresses: Vec<Address>, service: &str) -> Sentinels {
        let count = addresses.len();
        let rounds = watch::Sender::new(0);
        let (send, replies) = mpsc::channel(count.max(1));
        let mut tasks = JoinSet::new();
        for (place, address) in addresses.into_iter().enumerate() {
            let (routes, service) = (routes.clone(), service.to_owned());
            let (mut round, send) = (rounds.subscribe(), send.clone());
            tasks.spawn(async move {
                let mut connection = None;
                while round.changed().await.is_ok() {
                    let named = query(&routes, &address, &mut connection, &service).await;
                    if send.send((place, named)).await.is_err() {
                        return;
                    }
                }
            });
        }
        Sentinels {
            count,
            rounds,
            replies,
            _tasks: tasks,
        }
    }

    /// Queries all sentinels without a pending query. Returns the replies since the last round, the last one of each.
    async fn query_all(&mut self) -> Vec<Address> {
        self.rounds
            .send_modify(|round| *round = round.wrapping_add(1));
        let mut latest: HashMap<usize, Option<Address>> = HashMap::new();
        let mut until = Instant::now() + FIRST_REPLY;
        while latest.len() < self.count {
            let Ok(Some((place, named))) = timeout_at(until, self.replies.recv()).await else {
                break;
            };
            if named.is_some() {
                until = until.min(Instant::now() + OTHER_REPLIES);
            }
            latest.insert(place, named);
        }
        // In the order of the settings.
        let mut replies: Vec<Reply> = latest.into_iter().collect();
        replies.sort_unstable_by_key(|(place, _)| *place);
        replies.into_iter().filter_map(|(_, named)| named).collect()
    }
}

/// Queries one sentinel; its connection is kept if it replies.
async fn query(
    routes: &Routes,
    address: &Address,
    kept: &mut Option<MultiplexedConnection>,
    service: &str,
) -> Option<Address> {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => {
            let connector = &routes.context.connector;
            connector.connect(address, Account::Sentinel).await.ok()?
        }
    };
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(service);
    let value = connect::query(&mut connection, &command, TIMEOUT)
        .await
        .ok()?;
    *kept = Some(connection);
    parse(&value, address)
}

/// `[host, port]`; `None` if the name is not known.
pub(crate) fn parse(value: &Value, replied: &Address) -> Option<Address> {
    let Value::Array(parts) = value else {
        return None;
    };
    let host = connect::text(parts.first()?);
    let port = connect::text(parts.get(1)?)
        .parse()
        .ok()
        .filter(|port| *port != 0)?;
    Some(Address::with_default_host(&host, port, replied))
}

/// The address with most votes; among equals the current one, or else the first.
fn majority(named: &[Address], current: Option<&Address>) -> Option<Address> {
    let mut votes: HashMap<&Address, usize> = HashMap::new();
    for address in named {
        *votes.entry(address).or_default() += 1;
    }
    let most = votes.values().copied().max()?;
    let has_most = |address: &&Address| votes.get(*address) == Some(&most);
    current
        .filter(has_most)
        .or_else(|| named.iter().find(has_most))
        .cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_majority_of_sentinels_wins() {
        let [a, b] = ["a", "b"].map(|host| Address::new(host, 1));
        assert_eq!(majority(&[], Some(&a)), None);
        assert_eq!(
            majority(&[a.clone(), b.clone(), b.clone()], Some(&a)),
            Some(b.clone())
        );
        assert_eq!(majority(&[b.clone(), a.clone()], Some(&a)), Some(a.clone()));
        assert_eq!(majority(&[b.clone(), a], None), Some(b));
    }

    #[test]
    fn the_reply_of_a_sentinel_is_parsed() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let replied = Address::new("s", 26379);
        let reply = Value::Array(vec![bulk("10.0.0.1"), bulk("6379")]);
        assert_eq!(
            parse(&reply, &replied),
            Some(Address::new("10.0.0.1", 6379))
        );
        for nonsense in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![bulk("h"), bulk("0")]),
        ] {
            assert_eq!(parse(&nonsense, &replied), None);
        }
    }
}
