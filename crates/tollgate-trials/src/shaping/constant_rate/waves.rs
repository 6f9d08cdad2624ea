//! Sends waves of requests, and records the response to each.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::super::upstream::ReceivedRequest;
use super::super::{number, panicked};
use crate::http::{HttpConnection, get};
use tollgate_testkit::{Error, Result};

/// How long before its wave a connection is opened.
const AHEAD: Duration = Duration::from_millis(900);
/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// The wave that does not fit.
const LAST: usize = 3;
/// How many refused requests are retried. More would add load that the timeline does not have.
const RETRIES: usize = 5;
/// How long after it was sent on a request may be written down by an upstream on a busy machine.
const NOTED_WITHIN: Duration = Duration::from_millis(250);

/// The plan of a run: rate, queue and waves.
#[derive(Debug)]
pub(super) struct Size {
    pub(super) name: &'static str,
    /// Requests per second.
    pub(super) rate: usize,
    pub(super) waiting: usize,
    /// The requests of each wave. A wave comes each second.
    pub(super) waves: [usize; 4],
    /// Refused requests of the last wave, if it comes at once.
    pub(super) refused: usize,
}

/// A request and its answer.
#[derive(Debug)]
struct Sent {
    wave: usize,
    id: String,
    sent: Duration,
    answered: Duration,
    status: u16,
    retry_after: Option<usize>,
    /// The status of its retry, if any.
    retry_status: Option<u16>,
}

/// The responses to all waves.
#[derive(Debug)]
pub(super) struct Responses(Vec<Sent>);

impl Size {
    pub(super) fn offered(&self) -> usize {
        self.waves.iter().sum()
    }

    /// Places that become free in a time, the last one perhaps not quite.
    pub(super) fn freed_within(&self, time: Duration) -> usize {
        let rate = u128::try_from(self.rate).unwrap_or(u128::MAX);
        let freed = (time.as_micros() * rate).div_ceil(1_000_000);
        usize::try_from(freed).unwrap_or(usize::MAX)
    }

    /// When the last one goes, if the last wave fills the queue.
    pub(super) fn empty_after(&self) -> Duration {
        Duration::from_secs(3) + self.interval() * u32::try_from(self.waiting).unwrap_or(u32::MAX)
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1) / u32::try_from(self.rate).unwrap_or(1)
    }

    /// When a wave comes. The first request goes at once and one after each interval, so in the middle of an
    /// interval there are as many left as if they flowed.
    fn moment(&self, wave: usize) -> Duration {
        let seconds = Duration::from_secs(number(wave));
        seconds.saturating_sub(self.interval() / 2)
    }

    /// The requests of this size that the upstream received, without retries.
    pub(super) fn of_waves(&self, all: &[ReceivedRequest]) -> Vec<ReceivedRequest> {
        let prefix = format!("{}-", self.name);
        let mine = all.iter().filter(|request| request.id.starts_with(&prefix));
        mine.cloned().collect()
    }
}

/// The wave in a name such as `tenth-3-17`.
pub(super) fn wave_of(id: &str) -> Option<u64> {
    id.split('-').nth(1)?.parse().ok()
}

/// Sends all waves.
pub(super) async fn send(size: &'static Size, port: u16, begin: Instant) -> Result<Responses> {
    let mut all = JoinSet::new();
    for (wave, &count) in size.waves.iter().enumerate() {
        let moment = begin + size.moment(wave);
        all.spawn(send_wave(size, port, begin, wave, count, moment));
    }
    let mut seen = Vec::new();
    while let Some(wave) = all.join_next().await {
        seen.append(&mut wave.map_err(panicked)??);
    }
    seen.sort_by_key(|request| request.wave);
    Ok(Responses(seen))
}

async fn send_wave(
    size: &'static Size,
    port: u16,
    begin: Instant,
    wave: usize,
    count: usize,
    moment: Instant,
) -> Result<Vec<Sent>> {
    let late = moment.checked_sub(AHEAD).unwrap_or(moment);
    sleep_until(late.into()).await;
    let mut connections = Vec::with_capacity(count);
    for place in 0..count {
        let connection = HttpConnection::open(port)
            .await
            .map_err(Error::io("connect to the gateway"))?;
        let id = format!("{}-{wave}-{place}", size.name);
        let request = get(&format!("/{}/", size.name), &[("x-id", &id)]);
        connections.push((connection, id, request));
    }
    sleep_until(moment.into()).await;
    let mut answers = JoinSet::new();
    for (mut connection, id, request) in connections {
        let sent = begin.elapsed();
        connection
            .send(&request)
            .await
            .map_err(Error::io("send a request to the gateway"))?;
        answers.spawn(async move {
            let answer = tokio::time::timeout(DEADLINE, connection.answer()).await;
            let answer = answer.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
            let answered = begin.elapsed();
            let (status, retry_after) = match &answer {
                Ok(answer) => (answer.status, answer.head.value("retry-after")),
                Err(_) => (0, None),
            };
            Sent {
                wave,
                id,
                sent,
                answered,
                status,
                retry_after: retry_after.and_then(|seconds| seconds.parse().ok()),
                retry_status: None,
            }
        });
    }
    let mut all = Vec::with_capacity(count);
    let mut retries = JoinSet::new();
    while let Some(done) = answers.join_next().await {
        let request = done.map_err(panicked)?;
        match request.retry_after {
            Some(seconds) if wave == LAST && request.status != 200 && retries.len() < RETRIES => {
                retries.spawn(retry(size, port, request, seconds));
            }
            _ => all.push(request),
        }
    }
    while let Some(done) = retries.join_next().await {
        all.push(done.map_err(panicked)?);
    }
    Ok(all)
}

/// Waits for the `Retry-After` of a refusal, and sends the request again.
async fn retry(size: &Size, port: u16, mut refused: Sent, seconds: usize) -> Sent {
    sleep(Duration::from_secs(number(seconds))).await;
    let request = get(&format!("/{}/", size.name), &[("x-id", "again")]);
    let retry = async {
        HttpConnection::open(port)
            .await?
            .exchange_within(&request, DEADLINE)
            .await
    };
    refused.retry_status = Some(retry.await.map_or(0, |answer| answer.status));
    refused
}

impl Responses {
    pub(super) fn passed(&self) -> usize {
        self.0
            .iter()
            .filter(|request| request.status == 200)
            .count()
    }

    fn refusals(&self) -> impl Iterator<Item = &Sent> {
        let is_refused = |request: &&Sent| matches!(request.status, 429 | 503);
        self.0.iter().filter(is_refused)
    }

    pub(super) fn refused(&self) -> usize {
        self.refusals().count()
    }

    pub(super) fn refused_before_the_last_wave(&self) -> usize {
        self.refusals()
            .filter(|request| request.wave < LAST)
            .count()
    }

    pub(super) fn retry_afters(&self) -> Vec<Option<usize>> {
        self.refusals().map(|request| request.retry_after).collect()
    }

    pub(super) fn retried(&self) -> Vec<u16> {
        self.0
            .iter()
            .filter_map(|request| request.retry_status)
            .collect()
    }

    /// Whether exactly the admitted requests were received, each once.
    pub(super) fn are_sent_once(&self, golden: &[ReceivedRequest]) -> bool {
        let seen: HashSet<&str> = golden.iter().map(|request| request.id.as_str()).collect();
        let passed = self.0.iter().filter(|request| request.status == 200);
        seen.len() == golden.len()
            && passed
                .into_iter()
                .all(|request| seen.contains(request.id.as_str()))
    }

    /// How late the latest wave was by the load's own fault.
    pub(super) fn lateness(&self, size: &Size) -> Duration {
        let late = |request: &Sent| request.sent.saturating_sub(size.moment(request.wave));
        self.0.iter().map(late).max().unwrap_or_default()
    }

    /// From when the last wave began to be sent to when the last of its refusals was there: as long as it can have
    /// taken to arrive.
    pub(super) fn arrival_of_the_last_wave(&self) -> Duration {
        let (begun, ended) = self.last_wave();
        ended.saturating_sub(begun)
    }

    /// How many refusals there can have been, by what had left the queue: at the most if all of the last wave came
    /// when its first request was sent, at the least if all of it came when its last refusal was there.
    pub(super) fn possible_refusals(
        &self,
        size: &Size,
        golden: &[ReceivedRequest],
    ) -> RangeInclusive<usize> {
        let (begun, ended) = self.last_wave();
        let left_by = |moment: Duration| golden.iter().filter(|s| s.at < moment).count();
        let refused_if = |drained: usize| size.offered().saturating_sub(size.waiting + drained);
        // What has left the queue is on its way for a while until the upstream writes it down.
        refused_if(left_by(ended + NOTED_WITHIN))..=refused_if(left_by(begun))
    }

    fn last_wave(&self) -> (Duration, Duration) {
        let last = self.0.iter().filter(|request| request.wave == LAST);
        let begun = last.map(|request| request.sent).min().unwrap_or_default();
        let refused = self.refusals().map(|request| request.answered);
        (begun, refused.max().unwrap_or(begun))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HUNDREDTH, TENTH};
    use super::*;

    #[test]
    fn the_golden_numbers_follow_from_the_timeline() {
        for size in [&TENTH, &HUNDREDTH] {
            let mut level = 0_usize;
            let mut refused = 0;
            for wave in size.waves {
                level += wave;
                refused += level.saturating_sub(size.waiting);
                level = level.min(size.waiting).saturating_sub(size.rate);
            }
            assert_eq!(refused, size.refused, "{}", size.name);
        }
        assert_eq!(TENTH.empty_after().as_millis(), 4666);
        assert_eq!(wave_of("tenth-3-17"), Some(3));
    }
}
