//! Which server is the primary, as sentinels say.
//!
//! All sentinels are asked at the same time, twice a second while the primary is up and ten times while it is not. What
//! most of those say who answer is believed; the primary itself must then show that it is one. If none answers, the last
//! known primary is still asked: sentinels may die without anybody else noticing.
//!
//! Every sentinel has a task and a connection that is kept. One that is slow is not asked anew before it has answered; what it
//! says late counts in the next round.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Routes;
use crate::link::access::{Address, As};
use crate::link::pace::jitter;
use crate::link::rise;

const WHILE_UP: Duration = Duration::from_millis(500);
const WHILE_DOWN: Duration = Duration::from_millis(100);
/// How long a round waits for the first answer.
const FIRST: Duration = Duration::from_millis(200);
/// How long the others are waited for after the first has answered.
const OTHERS: Duration = Duration::from_millis(50);
/// How long one sentinel may take to answer on its connection.
const WITHIN: Duration = Duration::from_secs(1);
/// None has answered for so long: that is worth a warning.
const SILENCE: Duration = Duration::from_millis(1500);

/// What the sentinel at this place said; none if it does not answer, or does not know the name.
type Said = (usize, Option<Address>);

/// The sentinels, each with a task that asks it.
struct Sentinels {
    count: usize,
    rounds: watch::Sender<u64>,
    said: mpsc::Receiver<Said>,
    /// They end with this.
    _tasks: JoinSet<()>,
}

/// Follows the primary.
pub(super) async fn follow(routes: Arc<Routes>, sentinels: Vec<Address>, service: String) {
    let mut sentinels = Sentinels::start(&routes, sentinels, &service);
    let mut current: Option<Address> = None;
    let mut heard = Instant::now();
    loop {
        let said = sentinels.ask_all().await;
        match most(&said, current.as_ref()) {
            Some(primary) => {
                heard = Instant::now();
                if current.as_ref() != Some(&primary) {
                    tracing::info!(%primary, %service, "the sentinels name the primary");
                    routes.serve_all(primary.clone());
                    current = Some(primary);
                }
            }
            None if heard.elapsed() >= SILENCE => routes.context.warnings.mention(
                "no-sentinel",
                "",
                format!(
                    "no sentinel names the primary of {service:?}: are they up, and is that the name that \
                     `SENTINEL MASTERS` shows?"
                ),
            ),
            None => {}
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

impl Sentinels {
    fn start(routes: &Arc<Routes>, addresses: Vec<Address>, service: &str) -> Sentinels {
        let count = addresses.len();
        let rounds = watch::Sender::new(0);
        let (say, said) = mpsc::channel(count.max(1));
        let mut tasks = JoinSet::new();
        for (place, address) in addresses.into_iter().enumerate() {
            let (routes, service) = (routes.clone(), service.to_owned());
            let (mut round, say) = (rounds.subscribe(), say.clone());
            tasks.spawn(async move {
                let mut connection = None;
                while round.changed().await.is_ok() {
                    let named = ask(&routes, &address, &mut connection, &service).await;
                    if say.send((place, named)).await.is_err() {
                        return;
                    }
                }
            });
        }
        Sentinels {
            count,
            rounds,
            said,
            _tasks: tasks,
        }
    }

    /// Asks all who are not still being asked. Returns what came since the last round: of each what it said last.
    async fn ask_all(&mut self) -> Vec<Address> {
        self.rounds
            .send_modify(|round| *round = round.wrapping_add(1));
        let mut said: HashMap<usize, Option<Address>> = HashMap::new();
        let mut until = Instant::now() + FIRST;
        while said.len() < self.count {
            let Ok(Some((place, named))) = timeout_at(until, self.said.recv()).await else {
                break;
            };
            if named.is_some() {
                until = until.min(Instant::now() + OTHERS);
            }
            said.insert(place, named);
        }
        // In the order of the settings.
        let mut said: Vec<Said> = said.into_iter().collect();
        said.sort_unstable_by_key(|(place, _)| *place);
        said.into_iter().filter_map(|(_, named)| named).collect()
    }
}

/// Asks one; its connection is kept if it answers.
async fn ask(
    routes: &Routes,
    address: &Address,
    kept: &mut Option<MultiplexedConnection>,
    service: &str,
) -> Option<Address> {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => {
            let access = &routes.context.access;
            access.connect(address, As::Sentinel).await.ok()?
        }
    };
    let mut which = redis::cmd("SENTINEL");
    which.arg("get-master-addr-by-name").arg(service);
    let value = rise::ask(&mut connection, &which, WITHIN).await.ok()?;
    *kept = Some(connection);
    parse(&value, address)
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

/// What most say; if as many say one as another, the one that is asked now, or else the one that the first of them says.
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
