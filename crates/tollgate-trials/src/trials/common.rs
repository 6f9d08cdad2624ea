//! Clients and promises that several trials share.

use std::ops::Range;
use std::time::Duration;

use crate::load::{Allowance, Client, Load, Responses};
use crate::policy::{TAG, USUAL, is_tagged_for, plain, tagged};
use crate::verdicts::{SOON, Verdicts, time};
use tollgate_testkit::servers::Cluster;
use tollgate_testkit::{Error, Result};

/// Clients with the usual limit. At the usual rate each sends twice what it may.
pub(super) const CLIENTS: u64 = 200;
/// Of those, tagged: half.
pub(super) const TAGGED: u64 = 100;
/// The longest wait for what should take a second.
pub(super) const DEADLINE: Duration = Duration::from_secs(15);

/// Clients with the usual limit.
pub(super) fn usual_clients() -> Vec<Client> {
    plain(CLIENTS)
}

/// Tagged clients, then clients with the usual limit.
pub(super) fn mixed_clients() -> Vec<Client> {
    let mut clients = tagged(TAGGED);
    clients.extend(plain(CLIENTS - TAGGED));
    clients
}

/// The numbers of the clients with the usual limit.
fn usual_of(clients: &[Client]) -> Range<usize> {
    clients.iter().take_while(|c| c.cost == TAG).count()..clients.len()
}

/// The promises of a trial, beside those of every trial: each request is answered, with 200 or 429.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promises<'a> {
    in_time: bool,
    bursts: Option<u64>,
    has_tags: bool,
    with_store: bool,
    limits: Option<&'a [u64]>,
}

impl<'a> Promises<'a> {
    /// Answers in time, with the usual deadline.
    pub(super) fn in_time() -> Promises<'a> {
        Promises {
            in_time: true,
            ..Promises::default()
        }
    }

    /// No decision without the store.
    pub(super) fn with_store() -> Promises<'a> {
        Promises {
            with_store: true,
            ..Promises::default()
        }
    }

    /// No key with the usual limit has more than its allowance and this many bursts.
    pub(super) fn with_bursts(self, bursts: u64) -> Promises<'a> {
        Promises {
            bursts: Some(bursts),
            ..self
        }
    }

    /// Every answer belongs to its own request.
    pub(super) fn with_tags(self) -> Promises<'a> {
        Promises {
            has_tags: true,
            ..self
        }
    }

    /// Exactly the limit of each client passes, or all its requests if they are fewer.
    pub(super) fn with_limits(self, limits: &'a [u64]) -> Promises<'a> {
        Promises {
            limits: Some(limits),
            ..self
        }
    }

    /// Checks them, and adds the figures of the responses.
    pub(super) fn check(&self, verdicts: &mut Verdicts, responses: &Responses, clients: &[Client]) {
        verdicts.all_answered(responses);
        if self.in_time {
            verdicts.in_time(responses);
        }
        if self.with_store {
            let degraded = responses.degraded();
            verdicts.promise(
                "no request is decided without the store",
                degraded == 0,
                format!("{degraded} requests"),
            );
        }
        if self.has_tags {
            no_mixed_responses(verdicts, responses);
        }
        if let Some(bursts) = self.bursts {
            overshoot_within(verdicts, responses, clients, bursts);
        }
        if let Some(limits) = self.limits {
            exact(verdicts, responses, limits);
        }
        verdicts.figures_of(responses);
    }
}

fn overshoot_within(
    verdicts: &mut Verdicts,
    responses: &Responses,
    clients: &[Client],
    bursts: u64,
) {
    let usual = Allowance {
        per_second: 5,
        burst: USUAL.burst,
    };
    let excess = responses.excess(usual_of(clients), usual);
    let most = bursts * USUAL.burst;
    verdicts.promise(
        &format!("no key has more than its allowance and {most}"),
        excess <= most,
        format!("at most {excess} more"),
    );
}

fn no_mixed_responses(verdicts: &mut Verdicts, responses: &Responses) {
    let (mut tagged, mut mixed) = (0_u64, 0_u64);
    for record in responses.records() {
        let number = u64::try_from(record.client).unwrap_or(u64::MAX);
        if let Some(remaining) = record.remaining.filter(|_| number < TAGGED) {
            tagged += 1;
            mixed += u64::from(!is_tagged_for(number, remaining));
        }
    }
    verdicts.promise(
        "no answer belongs to another request",
        mixed == 0 && tagged > 0,
        format!("{mixed} of {tagged} tagged answers"),
    );
}

fn exact(verdicts: &mut Verdicts, responses: &Responses, limits: &[u64]) {
    let (mut wrong, mut limited, mut last) = (0, 0, String::new());
    for (client, &limit) in limits.iter().enumerate() {
        let (sent, passed) = responses.of_client(client);
        let expected = sent.min(limit);
        limited += u32::from(sent > limit);
        if passed != expected {
            wrong += 1;
            last = format!("; client {client}: {passed} of {sent} instead of {expected}");
        }
    }
    let of = limits.len();
    verdicts.promise(
        "exactly the limit passes, for every key",
        wrong == 0 && limited > 0,
        format!("{wrong} of {of} keys differ, {limited} reached their limit{last}"),
    );
}

/// Waits until the store is used again after `event`, and promises that it is.
pub(super) fn recovers(
    verdicts: &mut Verdicts,
    load: &Load,
    event: Duration,
    what: &str,
) -> Option<Duration> {
    let recovered = load.recovered_after(event, DEADLINE);
    verdicts.promise(
        &format!("the store is used again {what}"),
        recovered.is_some(),
        recovered.map_or("never".into(), time),
    );
    recovered
}

/// The same, and promises that it is soon.
pub(super) fn recovers_soon(verdicts: &mut Verdicts, load: &Load, event: Duration, what: &str) {
    let recovered = recovers(verdicts, load, event, what);
    let promised = format!("that is within {}", time(SOON));
    verdicts.promise_time(&promised, SOON, recovered);
}

/// The slots of the keys. The key of a limit is tagged with its first part.
pub(super) fn slots_of(cluster: &Cluster, clients: &[Client]) -> Result<Vec<u16>> {
    let node = cluster.node(0)?;
    let slot = |client: &Client| {
        let reply = node.ask(&["CLUSTER", "KEYSLOT", &client.key])?;
        redis::from_redis_value(reply).map_err(|error| Error::Unexpected {
            command: "the slot of a key".into(),
            answer: error.to_string(),
        })
    };
    clients.iter().map(slot).collect()
}
