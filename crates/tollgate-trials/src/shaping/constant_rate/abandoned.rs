//! Clients that go away while they wait: the upstream never sees them, and those behind them move up.
//!
//! Forty come at once to a queue that lets twenty go in a second and holds forty. Soon twenty in the middle close their
//! connections, and twenty others come, for whom there is room only if the places of those who left were given back.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::super::panicked;
use super::super::upstream::ReceivedRequest;
use crate::http::{HttpConnection, get};
use crate::verdicts::{Verdicts, time};
use tollgate_testkit::{Error, Result};

const WAITING: usize = 40;
const RATE: usize = 20;
/// Who goes away, by number.
const GO: std::ops::Range<usize> = 10..30;
const NEWCOMERS: usize = 20;
const GO_AFTER: Duration = Duration::from_millis(200);
const COME_AFTER: Duration = Duration::from_millis(450);
/// With all twenty before him the last of the first forty would go after two seconds, without them after one.
const MOVED_UP: Duration = Duration::from_millis(1300);
const DEADLINE: Duration = Duration::from_secs(30);

/// How many of those who stayed and of the newcomers were answered with 200.
#[derive(Debug)]
pub(super) struct AbandonedResult {
    stayed: usize,
    came: usize,
}

pub(super) fn queue() -> String {
    format!(
        "  - {{ name: abandoned, match: {{ path: /abandoned/** }}, rate: {RATE}/s, waiting: {WAITING}, \
         waiting_per_flow: {WAITING}, max_wait: 60s }}\n"
    )
}

pub(super) async fn send(port: u16, begin: Instant) -> Result<AbandonedResult> {
    let mut first = Vec::new();
    for place in 0..WAITING {
        first.push((place, open(port).await?));
    }
    let mut later = Vec::new();
    for place in 0..NEWCOMERS {
        later.push((place, open(port).await?));
    }
    sleep_until(begin.into()).await;
    let (mut stay, mut go) = (JoinSet::new(), Vec::new());
    for (place, mut connection) in first {
        // One after the other, so that their numbers are their order.
        connection
            .send(&request(&format!("abandoned-{place}")))
            .await
            .map_err(lost)?;
        tokio::time::sleep(Duration::from_millis(1)).await;
        match GO.contains(&place) {
            true => go.push(connection),
            false => drop(stay.spawn(passes(connection))),
        }
    }
    sleep_until((begin + GO_AFTER).into()).await;
    drop(go);
    sleep_until((begin + COME_AFTER).into()).await;
    let mut come = JoinSet::new();
    for (place, mut connection) in later {
        connection
            .send(&request(&format!("abandoned-new-{place}")))
            .await
            .map_err(lost)?;
        come.spawn(passes(connection));
    }
    Ok(AbandonedResult {
        stayed: count(stay).await?,
        came: count(come).await?,
    })
}

pub(super) fn check(verdicts: &mut Verdicts, load: &AbandonedResult, all: &[ReceivedRequest]) {
    let number = |request: &ReceivedRequest| -> Option<usize> {
        request.id.strip_prefix("abandoned-")?.parse().ok()
    };
    let gone = all.iter().filter_map(number).filter(|n| GO.contains(n));
    let gone = gone.count();
    verdicts.promise(
        "abandoned: the upstream never sees those who went away while they waited",
        gone == 0,
        format!("{gone} of {}", GO.len()),
    );
    let stayed = WAITING - GO.len();
    verdicts.promise(
        "abandoned: everybody who stayed is answered",
        load.stayed == stayed,
        format!("{} of {stayed}", load.stayed),
    );
    verdicts.promise(
        "abandoned: their places are given to others",
        load.came == NEWCOMERS,
        format!("{} of {NEWCOMERS} newcomers", load.came),
    );
    let mut order = all
        .iter()
        .filter(|request| number(request) == Some(WAITING - 1));
    let last = order.next().map(|request| request.at);
    verdicts.promise_time(
        &format!(
            "abandoned: those behind move up, the last goes within {}",
            time(MOVED_UP)
        ),
        MOVED_UP,
        last,
    );
}

async fn open(port: u16) -> Result<HttpConnection> {
    let opened = HttpConnection::open(port).await;
    opened.map_err(Error::io("connect to the gateway"))
}

fn lost(error: std::io::Error) -> Error {
    Error::io("send a request to the gateway")(error)
}

fn request(id: &str) -> Vec<u8> {
    get("/abandoned/", &[("x-id", id)])
}

async fn passes(mut connection: HttpConnection) -> bool {
    let answer = timeout(DEADLINE, connection.answer()).await;
    matches!(answer, Ok(Ok(answer)) if answer.status == 200)
}

async fn count(mut all: JoinSet<bool>) -> Result<usize> {
    let mut passed = 0;
    while let Some(done) = all.join_next().await {
        passed += usize::from(done.map_err(panicked)?);
    }
    Ok(passed)
}
