//! Clients that disconnect while they wait: the upstream never receives their requests, and those behind move up.
//!
//! Forty requests arrive at once at a queue of forty with a rate of twenty per second. Soon twenty in the middle
//! disconnect, and twenty others arrive, which fit only if the abandoned places are free.

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
/// The clients that disconnect, by number.
const LEAVE: std::ops::Range<usize> = 10..30;
const LATER: usize = 20;
const LEAVE_AFTER: Duration = Duration::from_millis(200);
const ARRIVE_AFTER: Duration = Duration::from_millis(450);
/// With all twenty before it the last of the first forty would be sent after two seconds, without them after one.
const MOVED_UP: Duration = Duration::from_millis(1300);
const DEADLINE: Duration = Duration::from_secs(30);

/// How many of the remaining and of the later requests were answered with 200.
#[derive(Debug)]
pub(super) struct AbandonedResult {
    stayed: usize,
    arrived: usize,
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
    for place in 0..LATER {
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
        match LEAVE.contains(&place) {
            true => go.push(connection),
            false => drop(stay.spawn(passes(connection))),
        }
    }
    sleep_until((begin + LEAVE_AFTER).into()).await;
    drop(go);
    sleep_until((begin + ARRIVE_AFTER).into()).await;
    let mut arrivals = JoinSet::new();
    for (place, mut connection) in later {
        connection
            .send(&request(&format!("abandoned-new-{place}")))
            .await
            .map_err(lost)?;
        arrivals.spawn(passes(connection));
    }
    Ok(AbandonedResult {
        stayed: count(stay).await?,
        arrived: count(arrivals).await?,
    })
}

pub(super) fn check(verdicts: &mut Verdicts, load: &AbandonedResult, all: &[ReceivedRequest]) {
    let number = |request: &ReceivedRequest| -> Option<usize> {
        request.id.strip_prefix("abandoned-")?.parse().ok()
    };
    let leaked = all.iter().filter_map(number).filter(|n| LEAVE.contains(n));
    let leaked = leaked.count();
    verdicts.promise(
        "abandoned: the upstream never receives an abandoned request",
        leaked == 0,
        format!("{leaked} of {}", LEAVE.len()),
    );
    let stayed = WAITING - LEAVE.len();
    verdicts.promise(
        "abandoned: every remaining request is answered",
        load.stayed == stayed,
        format!("{} of {stayed}", load.stayed),
    );
    verdicts.promise(
        "abandoned: their places are reused",
        load.arrived == LATER,
        format!("{} of {LATER} later requests", load.arrived),
    );
    let mut order = all
        .iter()
        .filter(|request| number(request) == Some(WAITING - 1));
    let last = order.next().map(|request| request.at);
    verdicts.promise_time(
        &format!(
            "abandoned: those behind move up, the last is sent within {}",
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
