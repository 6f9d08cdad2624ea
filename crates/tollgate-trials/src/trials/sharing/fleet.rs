//! Four services on one store, a load on each, and the calls to the store.

use std::time::Duration;

use tollgate_policy::Sharing;

use super::super::TrialOptions;
use super::audit::FleetResponses;
use super::{KEYS, NODES};
use crate::load::{Client, Load, Responses};
use crate::policy::{LONG_DEADLINE, TrialPolicy, TrialQuota, one_server};
use crate::service::Service;
use tollgate_testkit::servers::Server;
use tollgate_testkit::{Check, sleep, wait_for};
use tollgate_testkit::{Error, Result};

/// How long nodes may take to discover each other: each sends a heartbeat to the store every second or two.
const DISCOVERY_DEADLINE: Duration = Duration::from_secs(15);

/// The services.
pub(super) struct Fleet<'a> {
    store: &'a Server,
    pub(super) policy: TrialPolicy,
    pub(super) services: Vec<Service>,
}

impl<'a> Fleet<'a> {
    /// Starts all with an empty store, and waits until each has discovered all others.
    pub(super) fn start(
        store: &'a Server,
        sharing: Sharing,
        quota: TrialQuota,
    ) -> Result<Fleet<'a>> {
        // Also heartbeats of earlier nodes.
        store.ask(&["FLUSHALL"])?;
        let policy = TrialPolicy::on(one_server(store.port()))
            .deadline(LONG_DEADLINE)
            .quota(quota)
            .sharing(sharing);
        let mut services = Vec::new();
        for _ in 0..NODES {
            services.push(Service::start(&policy)?);
        }
        let fleet = Fleet {
            store,
            policy,
            services,
        };
        fleet.wait_for_discovery()?;
        Ok(fleet)
    }

    fn wait_for_discovery(&self) -> Result<()> {
        let log = || self.services.iter().map(Service::log).collect();
        let what = "every node has discovered all others";
        wait_for(what, DISCOVERY_DEADLINE, log, || {
            for service in &self.services {
                let known = service.metric("tollgate_store_nodes")?;
                if known != u64::from(NODES) {
                    return Ok(Check::Pending(format!("one has discovered {known}")));
                }
            }
            Ok(Check::Ready(()))
        })
    }

    /// Decisions of the store since its start.
    pub(super) fn store_calls(&self) -> Result<u64> {
        // Commands that a script calls are in this section, too; a decision is one script.
        let stats = self.store.ask_text(&["INFO", "commandstats"])?;
        let scripts = stats.lines().filter(|line| is_script(line));
        Ok(scripts.filter_map(calls).sum())
    }

    /// A load before each service.
    pub(super) fn loads(&self, options: &TrialOptions) -> Result<Vec<Load>> {
        let load = |service: &Service| options.load(service.port(), zipf());
        self.services.iter().map(load).collect()
    }

    /// The responses to loads of this duration, and the calls to the store.
    pub(super) fn run(&self, options: &TrialOptions, span: Duration) -> Result<FleetRun> {
        let before = self.store_calls()?;
        let loads = self.loads(options)?;
        sleep(span);
        let seen = end(loads)?;
        let store_calls = self.store_calls()?.saturating_sub(before);
        Ok(FleetRun { seen, store_calls })
    }
}

/// The result of a run.
pub(super) struct FleetRun {
    /// By node: how long after the first its load began, and what it saw.
    pub(super) seen: Vec<(Duration, Responses)>,
    pub(super) store_calls: u64,
}

/// Ends all loads.
pub(super) fn end(loads: Vec<Load>) -> Result<Vec<(Duration, Responses)>> {
    let first = loads
        .first()
        .ok_or_else(|| Error::Invalid("a fleet without nodes".into()))?;
    let began: Vec<Duration> = loads.iter().map(|c| c.started_after(first)).collect();
    // All are ended at once, or the last would run alone.
    let ended = std::thread::scope(|scope| {
        let ends: Vec<_> = loads.into_iter().map(|c| scope.spawn(|| c.end())).collect();
        let ended = ends.into_iter().map(|end| {
            let panicked = |_| Error::Invalid("the end of a load panicked".into());
            end.join().map_err(panicked)?
        });
        ended.collect::<Result<Vec<Responses>>>()
    })?;
    Ok(began.into_iter().zip(ended).collect())
}

/// All responses, by key.
pub(super) fn total(seen: &[(Duration, Responses)]) -> FleetResponses {
    let seen: Vec<(Duration, &Responses)> =
        seen.iter().map(|(began, seen)| (*began, seen)).collect();
    let keys = key_of_each_client();
    FleetResponses::new(&seen, KEYS, |client| {
        keys.get(client).copied().unwrap_or(usize::MAX)
    })
}

/// Clients whose keys follow Zipf's law: a load sends for all clients in turn, so a key with twice the requests
/// has twice as many clients.
fn zipf() -> Vec<Client> {
    let client = |key: usize| Client {
        key: format!("hot{key}"),
        cost: 1,
    };
    key_of_each_client().into_iter().map(client).collect()
}

fn key_of_each_client() -> Vec<usize> {
    // A number that all ranks divide.
    let all: usize = (1..=KEYS).product();
    let of_rank = |rank: usize| std::iter::repeat_n(rank - 1, all / rank);
    (1..=KEYS).flat_map(of_rank).collect()
}

fn is_script(line: &str) -> bool {
    let scripts = ["cmdstat_evalsha:", "cmdstat_eval:", "cmdstat_fcall:"];
    scripts.iter().any(|script| line.starts_with(script))
}

/// The number in `cmdstat_evalsha:calls=17,usec=...`.
fn calls(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(":calls=")?;
    rest.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_follow_zipfs_law() {
        let keys = key_of_each_client();
        let times = |key: usize| keys.iter().filter(|&&other| other == key).count();
        for key in 1..KEYS {
            assert_eq!(times(0), times(key) * (key + 1));
        }
    }

    #[test]
    fn calls_of_scripts_are_read_and_no_others() {
        let line = "cmdstat_evalsha:calls=17,usec=230,usec_per_call=13.5";
        assert!(is_script(line));
        assert_eq!(calls(line), Some(17));
        assert!(!is_script("cmdstat_get:calls=9,usec=1"));
    }
}
